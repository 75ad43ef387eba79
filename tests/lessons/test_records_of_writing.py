"""The records of beams, exposure bias and splits: what is counted, and that what was kept belongs together."""

import random

import pytest
import torch

from attncourse.data import EncodedPair, Pair
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


def test_attention_is_the_large_step_on_the_test_set_and_the_transformer_the_small_one():
    names = ("_mean_pool", "_last_state", "_attention", "")
    beam = [measured(f"training_cpu_de_en{name}")["bleu"] for name in names]
    assert round(beam[2] - max(beam[:2])) == 11 and round(beam[3] - beam[2]) == 4


@pytest.fixture(scope="module")
def beam_widths():
    return load("beam_widths")


def test_only_sources_of_one_length_share_a_batch_so_that_all_have_their_own_cap(beam_widths):
    pairs = [EncodedPair([4] * n, []) for n in (3, 5, 3, 3)]
    assert beam_widths.by_source_length(pairs, 2) == [[0, 2], [3], [1]]


def test_a_way_to_write_is_summed_up_beside_another(beam_widths):
    right = beam_widths.Written(100.0, torch.tensor([[5, 4, 3, 2, 5]] * 16), torch.tensor([-1.0, -2, -3, -4] * 4))
    rows = torch.tensor([[4, 3, 2, 1, 4], [4, 3, 2, 1, 4], [4, 3, 2, 1, 4], [0, 0, 0, 0, 0]] * 4)
    short = beam_widths.Written(51.3, rows, torch.full((16,), -2.0))
    words, reference = torch.tensor([5] * 16 + [9]), torch.tensor([-3.0, -1, -3, -3] * 4)
    found = beam_widths.summary(short, right, words, reference)
    assert found["empty"] == 4 and found["words"] == 0.6 and found["log_p"] == -2 and found["likelier"] == 0.75
    assert found["gain"] == -48.7 and found["gain_interval"][1] < -20 < 0 < found["interval"][0]
    assert "likelier" not in beam_widths.summary(short, right, words)
    whole = beam_widths.kept(words, reference, {0.0: right}, {1: short, 5: right}, {4: short, 8: right})
    assert whole["refilled"] == {"8": 4} and whole["all"]["5"]["gain"] == 48.7


def test_wide_beams_find_likelier_texts_that_are_too_short_and_lose_bleu():
    runs = measured("beam_widths")["runs"]
    assert [run["seed"] for run in runs] == [0, 1, 2]
    for run in runs:
        widths = run["widths"]
        words, log_p = ([each[name] for each in widths.values()] for name in ("words", "log_p"))
        assert words == sorted(words, reverse=True) and words[-1] < 0.5 and log_p == sorted(log_p)
        bleu = [widths[n]["bleu"] for n in ("16", "32", "64", "128")]
        assert bleu == sorted(bleu, reverse=True) and widths["128"]["likelier"] >= 0.98
        assert bleu[-1] < 0.5 * max(each["bleu"] for each in widths.values())
        assert all(widths[n]["gain_interval"][1] < 0 for n in ("32", "64", "128"))
        assert all(low <= 0 <= high for low, high in (widths[n]["gain_interval"] for n in ("8", "16")))


def test_a_seed_moves_bleu_further_than_other_captions_do():
    whole = [run["all"] for run in measured("beam_widths")["runs"]]
    assert all(each["5"]["gain_interval"][0] > 3.5 and 4.5 < each["5"]["gain"] < 5.5 for each in whole)
    scores, intervals = ([each["5"][name] for each in whole] for name in ("bleu", "interval"))
    assert 4 < max(scores) - min(scores) < 4.5 and max(high - low for low, high in intervals) / 2 < 1.5


def test_the_signatures_move_bleu_by_more_than_a_point():
    ways = sorted(measured("translations_de_en")["rungs"]["Transformer"]["beam"]["other_measures"].values())
    assert ways[3] - ways[0] > 1  # the last is of characters


def test_short_lists_come_and_go_far_from_the_steps_that_met_some():
    runs = measured("splits")["suspects"]["as it was"]
    for run in runs:
        free = [n for step, n in run["watched_right"].items() if int(step) > 100
                and not any(0 <= int(step) - hit < 20 for hit in run["met"]["4"])]  # fmt: skip
        assert min(free) < 5 and max(free) > 0.7 * run["watched"]
    assert [runs[0]["watched_right"][step] for step in ("212", "218", "225")] == [9, 67, 0]


def test_both_suspects_are_guilty_and_mixing_costs_long_lists():
    suspects = measured("splits")["suspects"]
    wrong = {n: {name: [run["wrong"][n] for run in runs] for name, runs in suspects.items()} for n in ("2", "4")}
    before, mixed, restored, both = ("as it was", "mixed batches", "short lists given back", "both")
    assert min(wrong["2"][mixed] + wrong["2"][restored]) > 4 and max(wrong["2"][both]) < min(wrong["2"][mixed])
    assert all(2 * after <= old for old, after in zip(wrong["4"][before], wrong["4"][mixed], strict=True))
    assert max(wrong["4"][mixed]) < min(wrong["4"][before])
    long_ones = {name: [sum(count for n, count in run["wrong"].items() if int(n) > 8) for run in runs]
                 for name, runs in suspects.items()}  # fmt: skip
    assert all(old < new for name in (mixed, both) for old, new in zip(long_ones[before], long_ones[name], strict=True))
