"""The records of heads hold what lecture 07 says of them, and their measures read what they name."""

import random

import pytest
import torch

import benchmarks
from attncourse_lessons.results import measured


@pytest.fixture(scope="module")
def benchmark():
    return benchmarks.load("induction")


@pytest.fixture(scope="module")
def readers():
    return benchmarks.load("gossip_heads")


def test_the_record_has_the_same_seeds_for_one_block_and_for_two():
    record = measured("induction")
    seeds = {layers: [run["seed"] for run in record["runs"] if run["layers"] == layers] for layers in (1, 2)}
    assert seeds[1] == seeds[2] == record["seeds"] and len(set(record["seeds"])) >= 3


def test_a_text_repeats_after_its_period(benchmark):
    texts, period = benchmark.repeating(20, torch.Generator().manual_seed(0))
    for text, n in zip(texts, period[:, 0].tolist(), strict=True):
        assert benchmark.SHORTEST <= n <= benchmark.LONGEST
        assert torch.equal(text[n:], text[:-n])


def test_only_letters_that_can_be_known_count_as_repeated(benchmark):
    period = torch.tensor([[10]])
    losses = torch.zeros(1, benchmark.N - 1)
    losses[0, :10] = 1.0  # of letters 1 to 9, and of letter 10, the first of the repetition
    assert benchmark.on_repeated(losses, period) == 0
    losses[0, 10] = 1.0
    assert benchmark.on_repeated(losses, period) > 0


def test_a_head_that_attends_to_the_letter_that_followed_has_a_weight_of_one(benchmark):
    texts, period = benchmark.repeating(5, torch.Generator().manual_seed(0))

    def model(tokens, with_weights):
        n = tokens.shape[1]
        followed = (torch.arange(1, n + 1) - period).clamp(min=0)                # (batch, n)
        return None, torch.nn.functional.one_hot(followed, n).float()[:, None, None]

    assert benchmark.induction(model, texts, period) == 1


def test_silencing_a_block_leaves_the_other_as_it_was(benchmark):
    torch.manual_seed(0)
    config = benchmark.TransformerConfig(vocab_size=benchmark.LETTERS, d_model=8, n_layers=2, n_heads=1)
    model = benchmark.LanguageModel(config)
    changed = {
        name for name, tensor in benchmark.silenced(model, 0).state_dict().items()
        if not torch.equal(tensor, model.state_dict()[name])
    }  # fmt: skip
    assert changed == {"decoder.stack.blocks.0.attention.sublayer.output.weight"}


def test_in_thirty_seeds_a_head_attends_and_is_not_missed_and_pronouns_need_the_first_layer():
    runs = measured("gossip_heads")["runs"]
    assert len({run["seed"] for run in runs}) == 30
    assert all(run["unmissed"] and run["by_pronoun"] < 0.9 < 0.99 < run["by_name"] for run in runs)
    assert all(len(pair["control"]) == 6 for run in runs for pair in run["unmissed"])


def test_silencing_heads_zeroes_their_columns_alone(readers, monkeypatch):
    torch.manual_seed(0)
    model, seen = readers.Reader(8), []
    monkeypatch.setattr(readers, "right", lambda silenced, told: seen.append(silenced) or torch.ones(len(told.kind)))
    readers.without(model, [(0, 1), (1, 3)], readers.gossip(2, random.Random(0)))
    for layer, head in readers.HEADS:
        before, after = (m.encoder.stack.blocks[layer].attention.sublayer.output.weight for m in (model, seen[0]))
        block = slice(2 * head, 2 * head + 2)
        expected = torch.zeros(8, 2) if (layer, head) in ((0, 1), (1, 3)) else before[:, block]
        assert torch.equal(after[:, block], expected)


def test_a_partner_is_the_other_head_that_attends_to_the_name_most(readers, monkeypatch):
    weights = torch.zeros(8, 3)
    weights[2, 0], weights[5, 0] = 0.9, 0.3
    monkeypatch.setattr(readers, "weight_on_name", lambda model, told: weights)
    shares = {0: 1.0, 1: 0.99, 2: 0.6}
    monkeypatch.setattr(readers, "without", lambda model, heads, told: torch.full((3,), shares[len(heads)]))
    (found,) = readers.unmissed(None, None, None)
    assert found["heads"] == [(0, 2), (1, 1)] and found["question"] == readers.QUESTIONS[0]
    assert found["lost"] == pytest.approx([0.01, 0.01, 0.4]) and found["control"] == pytest.approx([0.38] * 6)
