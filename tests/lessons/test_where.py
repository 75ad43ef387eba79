"""In real exercises, too, the search for the line at fault finds it, and says no line rather than another."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from attncourse_lessons import course
from lessonkit.exercises.judge import judge, judge_on_seeds
from lessonkit.exercises.observe import observe
from lessonkit.exercises.repair import where

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "repair.py"


def softmax(scores):
    top = scores.max(dim=-1, keepdim=True).values
    exponentials = torch.exp(scores - top)
    return exponentials / exponentials.sum(dim=0, keepdim=True)  # here


def masked_mean(values, mask):
    real = mask.float()[..., None]
    total = values.sum(dim=1)  # here
    return total / real.sum(dim=1).clamp(min=1)


def self_attention(x, W_Q, W_K, W_V):
    queries = torch.matmul(x, W_Q)
    keys = torch.matmul(x, W_K)
    match = queries @ keys.transpose(-2, -1)  # here
    weights = match.softmax(-1)
    return weights @ (x @ W_V), weights


def causal_mask(n_query, n_key):
    columns = torch.arange(n_key)
    rows = columns[n_key - n_query :]
    return rows[:, None] > columns[None, :]  # here


def restricted_self_attention(x, W_Q, W_K, W_V, width):
    position = torch.arange(x.shape[1])
    near = (position[:, None] - position).abs() <= width
    scores = (x @ W_Q) @ (x @ W_K).mT / math.sqrt(W_K.shape[1])
    weights = scores.masked_fill(near, -torch.inf).softmax(-1)  # here
    return weights @ (x @ W_V), weights


@pytest.mark.parametrize("answer", [softmax, masked_mean, self_attention, causal_mask, restricted_self_attention])
def test_the_line_at_fault_is_found(answer):
    exercise = course.exercise(answer.__name__)
    found = where(exercise, answer, (0, 1, 2), seconds=60)
    lines = Path(__file__).read_text("utf-8").splitlines()
    assert found.place and lines[found.place.line - 1].endswith("# here"), found
    assert found.place.line in found.lines and found.place.text == lines[found.place.line - 1].strip()


class AttentionDecoderStep(nn.Module):
    def __init__(self, vocab_size, d_embedding, d_hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.cell = nn.GRUCell(d_embedding + d_hidden, d_hidden)
        self.combine = nn.Linear(2 * d_hidden, d_hidden)
        self.output = nn.Linear(d_hidden, vocab_size)

    def forward(self, token, state, attentional, encoder_states, mask):
        state = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)
        scores = (encoder_states @ state[..., None])[..., 0]
        weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        attended = (weights[:, None] @ encoder_states)[:, 0]
        attentional = self.combine(torch.cat([attended, state], dim=-1))  # here
        return self.output(attentional), state, attentional, weights


def test_the_line_of_a_module_is_found():
    exercise = course.exercise("AttentionDecoderStep")
    verdict = judge_on_seeds(exercise, [observe(exercise, AttentionDecoderStep, seed) for seed in (0, 1)], (0, 1))
    assert 0 < verdict.points < verdict.out_of, str(verdict)
    found = where(exercise, AttentionDecoderStep, (0, 1), seconds=60)
    lines = Path(__file__).read_text("utf-8").splitlines()
    assert found.place and lines[found.place.line - 1].endswith("# here"), found


def test_what_earned_all_earns_all_on_other_seeds():
    exercise = course.exercise("softmax")
    found = where(exercise, softmax, (0, 1, 2), seconds=60)
    scope = {"torch": torch}
    exec(found.made, scope)
    verdict = judge(exercise, observe(exercise, scope["softmax"], 77), 77)
    assert verdict.points == verdict.out_of


@pytest.mark.slow
def test_most_unseen_mistakes_get_their_line():
    some = ["--draw", "0", "--exercise", "hard_lookup", "layer_norm", "told_apart"]
    command = [sys.executable, str(BENCHMARK), *some, "--json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [row for own in json.loads(printed.splitlines()[-1])["exercises"].values() for row in own if row["wrong"]]
    lines = [row for row in rows if row["line"] is not None]
    assert len(lines) >= 0.6 * len(rows) and sum(row["right"] for row in lines) >= 0.9 * len(lines)
