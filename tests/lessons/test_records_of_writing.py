"""The records of exposure bias and of the splits: what is counted, and that what was kept belongs together."""

import random

import pytest

from attncourse.data import Pair
from attncourse_lessons.results import measured
from benchmarks import load


@pytest.fixture(scope="module")
def exposure():
    return load("exposure")


@pytest.mark.parametrize(
    ("text", "spliced"),
    [
        ("one, two, three", None),  # nothing is wrong
        ("one, nine, three", "one, nine, three"),
        ("nine, nine, three", "nine, two, three"),  # the first wrong number alone
        ("one, three", None),  # the next of the list: one was skipped
        ("one, twotwo, three", None),  # no number: two were merged
        ("one, two, nine", None),  # nothing follows
    ],
)
def test_the_first_wrong_number_is_put_into_the_true_list(exposure, text, spliced):
    assert exposure.splice(Pair("", "one, two, three"), text) == spliced


def test_every_list_of_the_record_has_both_losses_and_a_count_of_tokens():
    for run in measured("exposure")["runs"]:
        kept = [run[f"after_{name}"] for name in ("truth", "mistake", "random")] + [run["as_many_tokens"]]
        assert len({len(each) for each in kept}) == 1 and len(kept[0]) > 30
        assert run["fourth_first_wrong"]["lists"] >= run["fourth_first_wrong"]["fifth"]
        assert run["last_of_five"]["own_prefix_where_fewer"] <= run["last_of_five"]["texts_with_fewer"]


class Letters:
    """A tokenizer that needs no training."""

    def encode(self, text):
        return list(text)


def test_random_numbers_have_as_many_tokens_as_the_wrong_one_and_stand_in_its_place(exposure):
    made = exposure.with_random_numbers("one, nine, three", "one, two, three", Letters(), random.Random(0))
    assert len(made) == exposure.DRAWN and len(set(made)) > 1
    for line in made:
        first, second, third = line.split(", ")
        assert (first, third) == ("one", "three") and len(second) == 4 and second in exposure.NUMBERS - {"nine"}


def test_a_wrong_fourth_number_is_searched_for_words_of_its_neighbours(exposure):
    truth = "one, two, six, twenty-nine, forty"
    texts = ["one, two, six, forty-nine, forty", "one, two, six, twenty-six, forty", "one, six, six, forty, forty"]
    assert exposure.words_of_fourth([*texts, truth], [truth] * 4) == {"lists": 2, "third": 1, "fifth": 1}


def test_the_steps_that_met_a_short_list_are_few_in_batches_of_like_length_and_many_in_mixed_ones():
    suspects = measured("splits")["suspects"]
    met = {name: [len(run["met"]["2"]) for run in runs] for name, runs in suspects.items()}
    assert max(met["as it was"] + met["mixed batches"] + met["short lists given back"]) == 1 < 50 < min(met["both"])
    for run in (run for runs in suspects.values() for run in runs):
        assert set(run["met"]["2"]) <= set(run["met"]["4"]) and len(run["met"]["4"]) <= run["short_seen"]["4"]
        assert run["short_seen"]["2"] <= run["short_seen"]["4"]


def test_what_is_right_on_the_way_ends_as_what_is_counted_at_the_end():
    for run in measured("splits")["suspects"]["as it was"]:
        wrong = sum(run["wrong"][n] for n in ("2", "3", "4"))
        assert abs(run["watched"] - wrong - run["watched_right"]["550"]) <= 1  # a tie may be broken otherwise
