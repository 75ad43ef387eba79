"""Lecture 05's models are the ones that were measured, and the record is of all schemes and seeds."""

import jupytext
import pytest
import torch

import benchmarks
from attncourse_lessons import course
from attncourse_lessons.results import measured

SCHEMES = ("none", "sinusoidal", "learned", "shaw", "bucketed", "rope")


@pytest.fixture(scope="module")
def benchmark():
    return benchmarks.load("positions")


@pytest.fixture(scope="module")
def page():
    """What the lecture's cells define: its imports, its model, its training."""
    (lesson,) = [lesson for lesson in course.lessons if lesson.name == "order"]
    package = f"{course.package}.{lesson.module}"
    names = {"__name__": f"{package}.lecture", "__package__": package}
    for cell in jupytext.read(lesson.folder / "lecture.py", fmt="py:percent").cells:
        if cell.cell_type == "code" and any(words in cell.source for words in ("import torch\n", "class Echo(")):
            exec(cell.source.split("\n\n\nmodels = ")[0], names)
    return names


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def test_the_page_asks_what_the_benchmark_asks(benchmark, page):
    for name in ("LETTERS", "BACK", "TRAINED"):
        assert page[name] == getattr(benchmark, name)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_trains_the_model_that_the_benchmark_trains(benchmark, page, scheme):
    shown, kept = page["train"](scheme, steps=3, seed=1), benchmark.train(scheme, 3, 1)
    assert shown.encoder.config == kept.encoder.config and same(shown, kept)
    tokens = benchmark.letters(20, 2)
    torch.testing.assert_close(shown(tokens), kept(tokens))


def test_a_scaled_run_is_another_model(benchmark, page):
    assert not same(page["train"]("sinusoidal", steps=2, seed=1), benchmark.train("sinusoidal", 2, 1, scaled=True))


def test_the_record_has_every_scheme_with_and_without_the_scale_for_each_seed(benchmark):
    record = measured("positions")
    runs = [(run["scheme"], run["scaled"], run["seed"]) for run in record["runs"]]
    assert sorted(runs) == sorted((scheme, scaled, seed) for scheme in benchmark.SCHEMES.values()
                                  for scaled in (False, True) for seed in record["seeds"])  # fmt: skip
    assert len(record["seeds"]) >= 3 and record["trained"] == benchmark.TRAINED
    changed = [(run["name"], run["seed"]) for run in record["changed"]]
    assert sorted(changed) == sorted((name, seed) for name in benchmark.CHANGES for seed in record["seeds"])
