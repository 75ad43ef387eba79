"""Lecture 08's models are the ones that were measured, and the record says what the lecture says."""

from itertools import pairwise
from statistics import mean, stdev

import jupytext
import pytest
import torch

import benchmarks
from attncourse_lessons import course
from attncourse_lessons.results import measured

PARTS = ("sweep", "branches", "initialisation", "partial", "mixing", "longer", "warm_up", "printed_normed",
         "norm_steps")  # fmt: skip
DEFINES = ("letters, spelled =", "class Speller(", "class CausalAttention", "def train(", "def he(model")


@pytest.fixture(scope="module")
def benchmark():
    return benchmarks.load("deep_stacks")


@pytest.fixture(scope="module")
def page():
    """What the lecture's cells define: its imports, its models, its training."""
    (lesson,) = [lesson for lesson in course.lessons if lesson.name == "deep_stacks"]
    package = f"{course.package}.{lesson.module}"
    names = {"__name__": f"{package}.lecture", "__package__": package}
    for cell in jupytext.read(lesson.folder / "lecture.py", fmt="py:percent").cells:
        if cell.cell_type == "code" and any(words in cell.source for words in ("import torch\n", *DEFINES)):
            exec(cell.source.split("\n\n\nfor ")[0], names)
    return names


def weights(model):
    return [value for key, value in model.state_dict().items() if key != "wiring"]


def test_the_page_shows_the_model_that_the_benchmark_trains(benchmark, page):
    shown = page["fresh"](benchmark.pre_norm, 2, seed=1, final_norm=True)
    kept = benchmark.fresh(1, benchmark.pre_norm, 2, final_norm=True)
    assert all(torch.equal(one, other) for one, other in zip(weights(shown), weights(kept), strict=True))
    tokens = benchmark.spelled[:3, :8].clamp(min=0)
    torch.testing.assert_close(shown(tokens), kept(tokens))


def test_the_page_trains_as_the_benchmark_does(benchmark, page):
    losses = page["train"](page["fresh"](benchmark.post_norm, 1), lr=1e-2, warm_up=2, steps=3, seed=4)
    kept = benchmark.train(benchmark.fresh(0, benchmark.post_norm, 1), 1e-2, warm_up=2, steps=3, seed=4)
    assert losses == pytest.approx(kept)


@pytest.mark.parametrize("start", ["he", "calibrated"])
def test_the_page_starts_as_the_benchmark_does(benchmark, page, start):
    models = [getattr(benchmark, start)(benchmark.fresh(0, benchmark.no_residual, 2)),
              page[start](page["fresh"](page["no_residual"], 2))]  # fmt: skip
    assert all(torch.allclose(one, other) for one, other in zip(*map(weights, models), strict=True))


def test_a_calibrated_sublayer_writes_as_large_as_it_reads(benchmark):
    model, stream = benchmark.calibrated(benchmark.fresh(0, benchmark.no_residual, 3)), []
    with torch.no_grad():
        model(benchmark.spelled[:, :-1].clamp(min=0), stream)
    sizes = [x.norm().item() for x in stream]
    assert sizes == pytest.approx([sizes[0]] * 7, rel=1e-4)


def test_models_of_a_seed_begin_alike_and_differ_in_their_branches_alone(benchmark):
    builders = benchmark.branch_builders(2)
    plain = weights(builders["post-norm"](0))
    for name in ("post-norm, branch × 0.2", "post-norm, branch × 2"):
        assert all(torch.equal(one, other) for one, other in zip(plain, weights(builders[name](0)), strict=True))


@pytest.mark.parametrize("around_attention", [True, False])
def test_x_is_led_around_one_kind_of_sublayer_alone(benchmark, around_attention):
    model, x = benchmark.fresh(0, benchmark.no_residual, 1), torch.randn(2, 5, 32)
    wiring = benchmark.residual_around(around_attention)
    for sublayer, is_attention in zip(model.sublayers, (True, False), strict=True):
        led_around = ((x + sublayer(x)) / 2**0.5, sublayer(x))
        torch.testing.assert_close(wiring(x, sublayer, None), led_around[is_attention != around_attention])


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_an_own_share_is_that_much_of_each_weight(benchmark, share):
    model, x = benchmark.fresh(0, benchmark.no_residual, 1), torch.randn(2, 5, 32)
    attention, feed_forward = model.sublayers
    wiring, alone = benchmark.attention_with_own_share(share), attention.output(attention.value(x))
    torch.testing.assert_close(wiring(x, attention, None), (1 - share) * attention(x) + share * alone)
    torch.testing.assert_close(wiring(x, feed_forward, None), feed_forward(x))
    changed = x.clone()
    changed[:, 0] += 1                                                    # does a later token see it?
    moved = (wiring(changed, attention, None) - wiring(x, attention, None))[:, 1:].abs().max().item()
    assert (moved < 1e-6) == (share == 1)


def test_weights_on_itself_are_those_that_attention_has_with_the_share(benchmark):
    model = benchmark.fresh(0, benchmark.attention_with_own_share(0.5), 2)
    plain, half, whole = (benchmark.own_weights(model, share) for share in (0.0, 0.5, 1.0))
    assert len(plain) == 2 and all(0 < weight < 0.5 for weight in plain) and whole == [1, 1]
    assert half == pytest.approx([0.5 + weight / 2 for weight in plain], abs=1e-4)
    benchmark.keys_as_queries(model)
    assert torch.equal(model.sublayers[0].query.weight, 4 * model.sublayers[0].key.weight)
    assert benchmark.own_weights(model)[0] > 2 * plain[0]


@pytest.mark.parametrize("name", ["ReZero", "no norm, 0 at the start"])
def test_a_branch_of_zero_leaves_x_as_it_is(benchmark, name):
    model, stream = benchmark.branch_builders(3)[name](0), []
    model(benchmark.spelled[:4, :9].clamp(min=0), stream)
    assert all(torch.equal(x, stream[0]) for x in stream)


def test_every_comparison_of_the_record_has_its_seeds():
    record = measured("deep_stacks")
    runs = [row["losses"] for part in PARTS for row in record[part]]
    assert all(len(losses) == len(record["seeds"]) >= 3 for losses in runs)
    assert {len(losses) for losses in record["printed"].values()} == {8}
    assert all(len(row["norms"]) == 6 for row in record["last_gradient"])


def test_a_way_around_attention_helps_and_one_around_the_feed_forward_network_does_not():
    lowest = {}
    for row in measured("deep_stacks")["partial"]:
        lowest.setdefault(row["residual"], []).extend(row["losses"])
    assert sorted(lowest["attention"])[1] < 1 < 2 < min(lowest["feed-forward"] + lowest["neither"])


def test_the_loss_falls_as_a_token_keeps_more_of_its_own_vector():
    best = {}
    for row in measured("deep_stacks")["mixing"]:
        key = row["start"], row["share"]
        best[key] = min(best.get(key, row), row, key=lambda each: sorted(each["losses"])[1])
    shares = [best["own share", share] for share in (0.0, 0.5, 0.7, 0.8, 0.9)]
    assert max(best["own share", 0.9]["losses"]) < 0.85
    assert max(best["own share", 1.0]["losses"]) < 0.9                    # no token sees another
    assert all(max(more["losses"]) < min(less["losses"]) for less, more in zip(shares, shares[2:], strict=False))
    assert {len(weights) for row in best.values() for weights in row["own"]} == {6}


def test_after_five_hundred_steps_six_blocks_are_still_behind_one():
    losses = {1: [], 6: []}
    for row in measured("deep_stacks")["longer"]:
        losses[row["depth"]] += row["losses"]
    assert max(losses[1]) < min(losses[6])


def test_the_sweep_has_the_edges_that_the_text_names():
    ends = {(row["wiring"], row["warm_up"], row["lr"]): sorted(row["losses"])
            for row in measured("deep_stacks")["sweep"]}  # fmt: skip
    assert ends["post-norm", 0, 3e-3][2] < 2 < ends["post-norm", 0, 1e-2][0]
    assert ends["post-norm", 30, 1e-2][2] < 1 < 2 < ends["post-norm", 30, 3e-2][0]
    assert max(ends["pre-norm", 0, lr][2] for lr in (1e-3, 3e-3, 1e-2, 3e-2)) < 1


def test_small_branches_learn_and_doubled_ones_do_not():
    runs = {(row["name"], row["warm_up"], row["lr"]): row["losses"] for row in measured("deep_stacks")["branches"]}
    small = runs["post-norm, branch × 0.2", 0, 1e-2]
    assert max(small) < min(runs["pre-norm", 0, 1e-2])
    assert max(runs["post-norm, × 0.2 at the start only", 0, 1e-2]) < 0.6
    assert min(runs["post-norm", 0, 1e-2] + runs["post-norm, branch × 2", 30, 1e-2]) > 2
    learned = {name for (name, warm_up, lr), losses in runs.items()
               if not warm_up and lr == 3e-2 and max(losses) < 1 and name.startswith(("post", "Deep"))}  # fmt: skip
    assert learned == {"post-norm, branch × 0.2", "DeepNorm"}
    lasting = [loss for name in ("LayerScale", "ReZero") for loss in runs[name, 0, 3e-2]]
    assert max(lasting) < 0.6 and max(runs["no norm, 0 at the start", 0, 1e-2]) < 0.6
    assert all(loss is None or loss > 4 for loss in runs["no norm, 0 at the start", 0, 3e-2])


def test_the_division_does_the_work_of_a_norm():
    record = measured("deep_stacks")
    rows = {(row["name"], row["lr"]): row["losses"] for row in record["norm_steps"]}
    pre = {row["lr"]: row["losses"] for row in record["branches"] if row["name"] == "pre-norm" and not row["warm_up"]}
    for lr in (1e-2, 3e-2):
        assert abs(mean(rows["RMSNorm", lr]) - mean(pre[lr])) < 0.06
        assert all(loss is None or loss > 20 for loss in rows["subtract the mean only", lr])


def test_other_norms_are_the_only_change(benchmark):
    layer, mean_only = (benchmark.fresh(0, benchmark.pre_norm, 1, final_norm=True) for _ in range(2))
    benchmark.with_norms(mean_only, benchmark.MeanOnly)
    assert len(mean_only.norms) == 2 and isinstance(mean_only.final_norm, benchmark.MeanOnly)
    assert all(torch.equal(one, other) for one, other in zip(weights(layer), weights(mean_only), strict=True))
    x = torch.randn(3, 32)
    torch.testing.assert_close(mean_only.norms[0](x), x - x.mean(dim=-1, keepdim=True))


def test_adam_collects_its_averages_before_any_parameter_moves(benchmark):
    model, untouched = benchmark.fresh(0, benchmark.post_norm, 1), benchmark.fresh(0, benchmark.post_norm, 1)
    optimizer = benchmark.informed_adam(model, seed=0, batches=3)
    assert all(torch.equal(one, other) for one, other in zip(weights(model), weights(untouched), strict=True))
    states = list(optimizer.state.values())
    assert {state["step"].item() for state in states} == {3} and all(state["exp_avg_sq"].any() for state in states[:1])
    benchmark.train(model, 1e-2, steps=1, optimizer=optimizer)
    assert states[0]["step"] == 4 and not torch.equal(weights(model)[0], weights(untouched)[0])


def test_a_branch_ratio_is_what_a_sublayer_writes_over_the_x_to_which_it_is_added(benchmark):
    model, stream = benchmark.fresh(0, lambda x, sublayer, norm: x + sublayer(x), 1), []
    model(benchmark.spelled[:4, :9].clamp(min=0), stream)
    expected = [((after - x).norm() / x.norm()).item() for x, after in pairwise(stream)]
    assert benchmark.branch_ratios(model, stream) == pytest.approx(expected, rel=1e-4) and len(expected) == 2


def test_training_can_be_watched_step_by_step(benchmark):
    seen = []
    benchmark.train(benchmark.fresh(0, benchmark.post_norm, 1), 1e-2, steps=2, watch=lambda _, step: seen.append(step))
    assert seen == [0, 1, 2]


def test_a_warm_up_keeps_branches_smaller_than_x_and_good_averages_do_not():
    rows = {row["name"]: row for row in measured("deep_stacks")["warm_up"]}
    largest = {name: [max(ratios) for ratios in row["ratios"]] for name, row in rows.items()}
    assert max(largest["warm-up"] + largest["× 0.2 at the start"]) < 1
    assert min(largest["no warm-up"] + largest["Adam's averages first"]) > 2
    learned = {name for name, row in rows.items() if max(row["losses"]) < 1}
    assert learned == {"warm-up", "× 0.2 at the start"}
    failed = rows["no warm-up"]["losses"] + rows["Adam's averages first"]["losses"]
    assert min(failed) > 2.7


def test_the_text_on_the_warm_up_says_what_the_record_has():
    rows = {row["name"]: row for row in measured("deep_stacks")["warm_up"]}
    warmed, informed = rows["warm-up"], rows["Adam's averages first"]
    assert max(warmed["losses"]) < 0.8 and min(ratios[-1] for ratios in informed["ratios"]) > 2.5
    for good, poor in zip(informed["ratios"], rows["no warm-up"]["ratios"], strict=True):
        assert good[-1] > poor[-1] + 0.3


def test_the_printed_block_with_the_last_norm_is_close_to_post_norm_again():
    record = measured("deep_stacks")
    means = {(row["wiring"], row["lr"]): mean(row["losses"]) for row in record["sweep"] if row["warm_up"]}
    for row in record["printed_normed"]:
        if row["warm_up"] and row["lr"] <= 3e-3:
            post, pre = means["post-norm", row["lr"]], means["pre-norm", row["lr"]]
            assert abs(means["as printed", row["lr"]] - pre) < 0.5 * abs(means["as printed", row["lr"]] - post)
            assert abs(mean(row["losses"]) - post) < abs(mean(row["losses"]) - pre)


def paired(first, second):
    """The mean difference of runs of the same eight seeds, and half of its 95 % interval."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    assert len(differences) == 8
    return mean(differences), 2.365 * stdev(differences) / 8**0.5


def test_the_loss_prefers_the_printed_block_where_neither_has_a_final_norm():
    record, ahead = measured("deep_stacks"), {}
    for key in ("printed", "printed_twice"):
        printed, repaired, normed = record[key].values()
        for name, pair in {"neither": (printed, repaired), "both": (record["printed_final"][key], normed),
                           "only the repaired": (printed, normed)}.items():  # fmt: skip
            middle, half = paired(*pair)
            assert middle - half <= 0                                     # never clearly worse
            ahead[name, key] = middle + half < 0
    assert {pair for pair, clear in ahead.items() if clear} == {
        ("neither", "printed"), ("neither", "printed_twice"), ("only the repaired", "printed")
    }  # fmt: skip


@pytest.fixture(scope="module")
def landscape():
    return benchmarks.load("loss_landscape")


def test_a_step_of_the_landscape_is_as_long_as_the_weights_of_each_neuron(landscape):
    matrices = [torch.randn(3, 5), 10 * torch.randn(5, 2)]
    for step, weights in zip(landscape.direction(matrices, torch.Generator().manual_seed(0)), matrices, strict=True):
        torch.testing.assert_close(step.norm(dim=0), weights.norm(dim=0))


@pytest.mark.parametrize("with_residual", [False, True])
def test_many_places_of_the_landscape_at_once_give_what_each_gives_alone(landscape, with_residual):
    matrices = landscape.learn_spirals(with_residual, seed=0, depth=2, steps=2)
    places = torch.tensor([[0.0, 0.0], [0.25, -0.5], [-0.5, 0.25]])
    together = landscape.losses_around(matrices, with_residual, places)
    alone = torch.cat([landscape.losses_around(matrices, with_residual, place[None]) for place in places])
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(together[0], landscape.spiral_loss(matrices, with_residual))
    assert len(set(together.tolist())) == 3


def test_with_residual_connections_every_seeds_valley_is_wider():
    record = measured("loss_landscape")
    without, with_residual = record["bowls"]["no residual"], record["bowls"]["residual"]
    assert [bowl["seed"] for bowl in without] == [bowl["seed"] for bowl in with_residual] == record["seeds"]
    assert all(b["low"] > 1.2 * a["low"] for a, b in zip(without, with_residual, strict=True))
    for losses in record["slices"].values():
        assert len(losses) == len(record["ticks"]) and {len(row) for row in losses} == {len(record["ticks"])}


def test_the_three_wrong_blocks_have_one_fault_each():
    right = course.exercise("repair_the_block").reference
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    other = torch.cat([x[:, :-1], -x[:, -1:]], dim=1)
    found = []
    for kind in (right, *course.part("deep_stacks", "faults").one_fault_each(right)):
        torch.manual_seed(0)
        block = kind(8, 2, 16)
        output = block(x, mask)
        output.square().sum().backward()
        leaks = (block(other, mask) - output)[:, :-1].abs().max().item() > 1e-4
        unused = [name for name, parameter in block.named_parameters() if parameter.grad is None]
        for layer in (block.attention.out_proj, block.down):
            torch.nn.init.zeros_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
        found.append(((block(x, mask) - x).abs().max().item() > 1e-4, leaks, unused))
    unused = ["norm_2.weight", "norm_2.bias"]
    assert found == [(False, False, []), (True, False, []), (False, True, []), (False, False, unused)]
