"""Hiding source positions from a decoder: what is hidden has no say, and nothing else changes."""

import json
from importlib.resources import files

import pytest
import torch

from attncourse.data import Pair, Tokenizer, collate, encode_pairs
from attncourse.recurrent import Seq2Seq
from attncourse_lessons import course

hiding = course.part("cross_attention", "hiding")
WORDS = ["one two three", "two three one", "three one two"]


@pytest.fixture(scope="module")
def made():
    tokens = Tokenizer.train(WORDS, size=60)
    batch = collate(encode_pairs([Pair(words, words) for words in WORDS], tokens, tokens))
    torch.manual_seed(0)
    return Seq2Seq(len(tokens), len(tokens), d_embedding=8, d_hidden=16), batch


def test_with_nothing_hidden_it_is_what_the_model_predicts(made):
    model, batch = made
    found = hiding.predicted(model, batch)
    assert torch.equal(found, model(batch.source, batch.lengths, batch.target_in).argmax(dim=-1))


def test_a_hidden_position_gets_no_weight_and_the_state_that_was_given_keeps_its_mask(made):
    model, batch = made
    state = model.start(batch.source, batch.lengths)
    _, _, weights = model.step(batch.target_in[:, 0], hiding.hide(state, [1]), with_weights=True)
    assert (weights[:, 1] == 0).all() and torch.allclose(weights.sum(dim=1), torch.ones(len(WORDS)))
    assert state.memory.mask[:, 1].all()


def read(name: str) -> dict:
    return json.loads((files("attncourse_lessons") / "measured" / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("record", "model", "few", "many", "means"),
    [
        ("eight_averages", "attention, eight averages", (0.38, 0.5), (0.88, 0.93), ("42%", "91%")),
        ("eight_one_choice", "eight averages, one choice", (0, 0.05), (0.38, 0.5), ("1%", "44%")),
    ],
)
def test_of_the_variants_lists_of_five_are_right_as_the_page_says(record, model, few, many, means):
    kept = read(f"ladder_{record}")
    assert kept["seeds"] == [0, 1, 2] and kept["lists"] == read("ladder")["lists"]
    for steps, (low, high), mean in zip(("450", "1800"), (few, many), means, strict=True):
        shares = [run["right"]["5"] for run in kept["steps"][steps][model]]
        assert len(shares) == 3 and all(low <= share <= high for share in shares)
        assert f"{sum(shares) / 3:.0%}" == mean


def test_the_record_of_ten_seeds_adds_up():
    record = read("ladder_seeds")
    runs = record["steps"]["450"]["attention"]
    assert [run["seed"] for run in runs] == list(range(10))
    for run in runs:
        units, aligned = run["units"], run["aligned"]["121 to 999"]
        assert sum(units["largest"]) == 648 == units["right"] and units["largest"][4] == aligned["units"][0]
        assert all(0 <= count <= 648 for name in ("right_without", "right_with_alone") for count in units[name])
    elsewhere = [run["seed"] for run in runs if run["units"]["largest"][4] < 324]
    assert len(elsewhere) == 4, "as the page says"
    assert sum(run["units"]["largest"][4] == 0 for run in runs) == 3
