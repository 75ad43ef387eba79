"""What the course's first page shows at once: a trained translator's attention, and a verdict on a wrong answer."""

import torch
from torch import Tensor

from attncourse.transformer import AttentionWeights
from attncourse.viz import attention_viewer
from attncourse_lessons import course
from attncourse_lessons.results import measured
from lessonkit.course import VISIBLE_SEEDS
from lessonkit.exercises.judge import judge_on_seeds
from lessonkit.exercises.observe import observe
from lessonkit.exercises.verdict import Verdict


def translator() -> list[attention_viewer]:
    """A viewer for each sentence that `benchmarks/landing.py` has kept: German, and what the Transformer wrote."""
    return [
        attention_viewer(
            AttentionWeights(**{kind: shares(thousandths) for kind, thousandths in one["weights"].items()}),
            one["source"],
            one["target"],
            written=one["written"],
            title=one["sentence"],
            layer=1,
            head=2,  # of all eight heads the one that follows the words most closely
        )
        for one in measured("landing")["sentences"]
    ]


def shares(thousandths: list) -> Tensor:
    """Weights whose rows sum to one again, which rounding took from them."""
    weights = torch.tensor(thousandths, dtype=torch.float64)
    return weights / weights.sum(dim=-1, keepdim=True)


def masked_too_late(scores, mask):
    return scores.softmax(dim=-1) * mask


def verdict() -> Verdict:
    """What the check of `attention_distribution` says of the answer above."""
    exercise = course.exercise("attention_distribution")
    seen = (observe(exercise, masked_too_late, seed, trusted=True) for seed in VISIBLE_SEEDS)
    return judge_on_seeds(exercise, seen, VISIBLE_SEEDS)
