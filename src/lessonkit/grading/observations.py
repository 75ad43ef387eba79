"""What a worker observed, as JSON data, and the verdict on it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import judge
from lessonkit.exercises.local_runner import Problem
from lessonkit.exercises.observe import Observation
from lessonkit.exercises.verdict import Verdict

DTYPES = {"float64": np.float64, "float32": np.float32, "int64": np.int64, "bool": np.bool_}
MAX_BYTES = 1 << 20  # of an observation: inputs are tiny, and so is all that is right


def as_data(observations: Mapping[str, Observation]) -> dict[str, Any]:
    """What one seed showed, as JSON data."""
    return {name: _pack(observation) for name, observation in observations.items()}


def verdict(exercise: Exercise, observed: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> Verdict:
    """The verdict on what `as_data` gave, one for each seed. ValueError if that is not what such data looks like."""
    if len(observed) != len(seeds):
        raise ValueError(f"{exercise.name}: observed on {len(observed)} seeds, expected {len(seeds)}")
    verdicts: list[Verdict] = []
    for data, seed in zip(observed, seeds, strict=True):
        observations = {aspect.name: _unpack(data[aspect.name]) for aspect in exercise.aspects}
        right_so_far = all(one.points == one.out_of for one in verdicts)
        verdicts.append(judge(exercise, observations, seed, name=right_so_far))
    return Verdict.over(verdicts)


def _pack(observation: Observation) -> dict[str, Any]:
    value, problem = observation.value, observation.problem
    if value is not None and value.nbytes > MAX_BYTES:
        problem = Problem("unusable", f"{value.size} numbers, which is too many")
        value = None
    if value is not None and value.dtype == np.float64:
        narrow = value.astype(np.float32)
        value = narrow if np.array_equal(narrow, value, equal_nan=True) else value  # half as long, and the same
    return {
        "value": value
        if value is None
        else [value.dtype.name, list(value.shape), base64.b64encode(value.tobytes()).decode()],
        "problem": problem and [problem.kind, problem.detail, problem.where],
        "shapes": [[name, list(shape), dtype] for name, shape, dtype in observation.shapes],
    }


def _unpack(data: Mapping[str, Any]) -> Observation:
    value = None
    if data["value"] is not None:
        name, shape, text = data["value"]
        raw = base64.b64decode(text, validate=True)
        if len(raw) > MAX_BYTES:
            raise ValueError(f"an observation of {len(raw)} bytes")
        value = np.frombuffer(raw, DTYPES[name]).reshape(shape)
        value = value.astype(np.float64) if value.dtype == np.float32 else value
    return Observation(
        value,
        Problem(*map(str, data["problem"])) if data["problem"] else None,
        tuple((str(name), tuple(map(int, shape)), str(dtype)) for name, shape, dtype in data["shapes"]),
    )
