"""The record of exposure bias: which lists its benchmark splices, and that what it kept belongs together."""

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
        assert len(run["after_truth"]) == len(run["after_mistake"]) == len(run["as_many_tokens"]) > 30
        assert run["last_of_five"]["own_prefix_where_fewer"] <= run["last_of_five"]["texts_with_fewer"]
