"""The record of lecture 12's trained models says what the page says of it."""

import statistics

import torch

from attncourse.data.lookups import LETTERS, NAMES
from attncourse_lessons.results import measured
from benchmarks import load

BENCHMARK = load("cheap_attention")
RECORD = measured("cheap_attention")
LEARNED = ("delta rule, one β learned", "delta rule, a β for each key")
PATTERN = {row["name"]: row for row in RECORD["patterns"]}


def steps(name):
    """After which step each seed's loss was first below 0.5; 999 for never."""
    return [BENCHMARK.first_below(run["losses"]) or 999 for run in PATTERN[name]["runs"]]


def rates():
    return {row["lr"]: row["runs"] for row in RECORD["rates"]}


def shares(name, d, pairs=64, part="recall"):
    """What each seed recalls of so many pairs."""
    (row,) = [row for row in RECORD[part] if (row["name"], row["d"]) == (name, d)]
    return [run["right"][str(pairs)] for run in row["runs"]]


def middle(*which, **more):
    return statistics.median(shares(*which, **more))


def at_letters(part, mask="window"):
    return [row["loss"][mask]["letter"] for row in RECORD[part]]


def test_sparse_patterns_are_learned_later_and_a_window_alone_is_not():
    sparse = steps("window + global") + steps("BigBird")
    assert (min(steps("full")), max(steps("full"))) == (40, 45) and (min(sparse), max(sparse)) == (125, 205)
    assert max(run["right"] for run in PATTERN["window"]["runs"]) < 0.2
    assert min(run["right"] for run in PATTERN["minGRU"]["runs"]) > 0.95 and set(steps("minGRU")) == {35, 40}


def test_the_second_hop_costs_steps_and_the_missing_pairs_do_not():
    assert set(steps("few pairs, one hop")) == {40, 45}
    two = steps("most pairs, two hops")
    assert (min(two), max(two)) == (125, 230) and PATTERN["most pairs, two hops"]["lr"] == 0.02
    at_one_rate = [run["below"] for run in rates()[0.02]]
    assert (min(at_one_rate), max(at_one_rate)) == (50, 55)


def test_full_attention_is_learned_soon_at_the_rates_of_the_sparse_patterns_and_at_its_own_as_before():
    assert {PATTERN[name]["lr"] for name in ("window + global", "BigBird")} == {0.005, 0.01}
    slow = [run["below"] for lr in (0.005, 0.01) for run in rates()[lr]]
    assert (min(slow), max(slow)) == (60, 80)
    assert PATTERN["full"]["lr"] == 0.04 and [run["below"] for run in rates()[0.04]] == steps("full")


def test_a_window_does_damage_at_letters_and_the_first_token_repairs_it():
    for row in RECORD["sinks"]:
        assert row["weight_on_first"]["letter"] > 10 * row["weight_on_first"]["trigger"]
        assert row["loss"]["window + first token"]["letter"] < 0.1 < row["loss"]["window"]["letter"]
        assert row["loss"]["window + second token"]["letter"] > 0.5 * row["loss"]["window"]["letter"]
        assert row["loss"]["window"]["trigger"] < 0.05


def test_a_place_for_the_weight_does_not_help_and_any_letter_in_the_first_place_does_no_harm():
    assert min(at_letters("way_out")) > 0.1 > 0.01 > max(at_letters("way_out", "window + first token"))
    assert max(at_letters("any_first")) < 0.01 and min(at_letters("sinks")) > 0.1


def test_the_width_the_feature_map_and_the_division_count_in_this_order():
    linear = ("elu + 1, divided", "elu + 1", "identity")
    assert middle("softmax", 16) > 0.95 and min(middle(name, 16, 2) for name in ("softmax", *linear)) > 0.94
    assert min(middle(name, 64) - middle(name, 16) for name in linear) > 0.35
    assert middle("identity", 16) - middle("elu + 1", 16) > 0.12
    assert max(shares("elu + 1", 64)) < min(shares("identity", 64))
    assert middle("elu + 1", 64) - middle("elu + 1, divided", 64) > 0.02
    assert min(shares("elu + 1, divided", 64, 32)) > max(shares("elu + 1", 64, 32))
    assert middle("elu + 1, divided", 16, 8) - middle("elu + 1", 16, 8) > 0.1


def test_wide_keys_recall_as_much_as_with_a_state_four_times_larger():
    wide, narrow = ([run["right"]["64"] for run in row["runs"]] for row in RECORD["shapes"])
    assert all(row["lr"] == 0.05 for row in RECORD["recall"] if row["name"] == "identity")
    assert min(wide) > middle("identity", 64) - 0.05 and max(narrow) < middle("identity", 16) + 0.1


def test_linformer_finds_the_mark_and_a_window_what_is_near():
    runs = {row["name"]: row["runs"] for row in RECORD["partners"]}
    few, near = runs["Linformer, k = 4"], runs["window 2"]
    assert min(run["mark"] for run in few) > 0.999
    assert max(run[job] for run in few for job in ("before", "mirror")) < 0.6
    assert min(run["before"] for run in near) > 0.9
    assert max(run[job] for run in near for job in ("mark", "mirror")) < 0.5


def test_the_delta_rule_gains_nothing_where_each_name_comes_once():
    for d in (16, 64):
        assert middle("unit keys, delta rule", d) < middle("unit keys", d) - 0.05
    for name in LEARNED:
        assert abs(middle(name, 16, part="strength") - middle("unit keys", 16)) < 0.05
    betas = [run["beta"] for row in RECORD["strength"] for run in row["runs"]]
    assert round(min(betas), 2) == 0.08 and round(max(betas), 2) == 0.14


def test_the_delta_rule_wins_where_a_name_comes_again():
    def twice(name, pairs):
        return shares(name, 16, pairs, "overwritten")

    names = [row["name"] for row in RECORD["overwritten"]]
    assert names == ["unit keys", "unit keys, delta rule", *LEARNED]
    for pairs in (2, 4, 8, 16, 32, 64):
        assert max(twice("unit keys", pairs)) < min(min(twice(name, pairs)) for name in names[1:])
        assert statistics.median(twice("unit keys", pairs)) < 9 / 16 + 0.03, "at most 9 / 16, but for the sample"
    assert min(min(twice(name, pairs)) for name in names[1:] for pairs in (2, 4, 8)) > 0.97
    assert max(twice("unit keys, delta rule", 64)) < min(min(twice(name, 64)) for name in LEARNED)
    betas = [run["beta"] for row in RECORD["overwritten"][2:] for run in row["runs"]]
    assert min(betas) > 0.45 and max(betas) < 0.55


def test_the_later_number_of_a_name_that_comes_twice_is_asked_for():
    names, numbers, asked, answers = BENCHMARK.names_twice(40, torch.Generator().manual_seed(0), 10)
    assert names.shape == numbers.shape == (40, 10) and asked.shape == answers.shape == (40, 1)
    assert names.min() >= 0 and names.max() < NAMES and numbers.min() >= 0 and numbers.max() < LETTERS
    for line, values, name, answer in zip(names.tolist(), numbers.tolist(), asked, answers, strict=True):
        assert sorted(line.count(each) for each in line) == [2] * 10
        assert values[9 - line[::-1].index(int(name))] == int(answer)
    assert {BENCHMARK.names_twice(1, torch.Generator().manual_seed(seed))[0].shape[1] % 2
            for seed in range(9)} == {0}  # fmt: skip
