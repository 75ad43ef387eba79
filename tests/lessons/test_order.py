"""Lecture 05's models are the ones that were measured, and the record is of all schemes and seeds."""

import math

import jupytext
import pytest
import torch
import torch.nn.functional as F

import benchmarks
from attncourse.positions import relative_index, rope_angles, rotate, shift_matrix, sinusoidal
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


# What the page says without a guard of its own


def test_whole_numbers_drown_the_word_and_layer_norm_removes_them():
    word, other = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))
    assert F.cosine_similarity(word + 100, other + 100, dim=0) > 0.99
    assert torch.allclose(F.layer_norm(word + 100, (64,)), F.layer_norm(word, (64,)), atol=1e-4)


def test_a_head_of_sinusoids_looks_two_places_back_at_every_position():
    vectors = sinusoidal(torch.arange(1000), 64)
    found = (vectors @ shift_matrix(-2, 64) @ vectors.mT).argmax(dim=-1)
    assert found[2:].tolist() == [*range(998)]


def test_the_half_layout_is_the_interleaved_one_with_other_columns_and_is_written_with_rotate_half():
    torch.manual_seed(0)
    angles, q, k = rope_angles(torch.arange(10), 64), torch.randn(10, 64), torch.randn(10, 64)

    def scores(q, k, style):
        return rotate(q, angles, style) @ rotate(k, angles, style).mT

    evens_first = [*range(0, 64, 2), *range(1, 64, 2)]
    paper = scores(q, k, "interleaved")
    assert torch.allclose(scores(q[:, evens_first], k[:, evens_first], "half"), paper, atol=1e-3)
    assert not torch.allclose(scores(q, k, "half"), paper, atol=1)
    a, b = q.chunk(2, dim=-1)
    both, quarter = torch.cat([angles, angles], dim=-1).float(), torch.cat([-b, a], dim=-1)
    assert torch.allclose(q * both.cos() + quarter * both.sin(), rotate(q, angles, "half"), atol=1e-5)


def test_each_formula_has_the_properties_that_the_table_shows(page):
    """Learned vectors stand in for the trained ones: drawn, so all different, and with a shared one far away."""
    (lesson,) = [lesson for lesson in course.lessons if lesson.name == "order"]
    cells = jupytext.read(lesson.folder / "lecture.py", fmt="py:percent").cells
    (tests,) = [cell.source for cell in cells if "def distance_alone(" in cell.source]
    learned, table = torch.randn(2, 33, 64, generator=torch.Generator().manual_seed(0))
    by_distance = table[:, :32]                                               # (33, 32)  distances −16 to 16
    shaw = by_distance[relative_index(1, 32, 16)[0]]
    names = page | {"p32": torch.arange(32), "by_distance": by_distance}
    names["turn"] = lambda x, m: rotate(x[None], rope_angles(torch.tensor([m]), len(x)), "interleaved")[0]
    names["trained"] = {"learned": learned[:32], "relative (Shaw)": shaw}
    exec(tests[tests.index("def told(") :], names)
    schemes = ("integer", "binary", "sinusoidal", "learned", "relative (Shaw)", "RoPE")
    assert [scheme for scheme in schemes if names["unique"](scheme)] == [
        scheme for scheme in schemes if scheme != "relative (Shaw)"
    ]  # fmt: skip
    off = {scheme: names["linear"](scheme) for scheme in schemes}
    assert [scheme for scheme in schemes if off[scheme] is not None and off[scheme] < 0.01] == [
        "integer", "sinusoidal", "RoPE"
    ]  # fmt: skip
    assert [scheme for scheme in schemes if names["distance_alone"](scheme) < 0.01] == ["relative (Shaw)", "RoPE"]


def test_between_rows_fewer_than_the_columns_there_is_a_matrix_though_they_are_random():
    few = torch.randn(32, 64, generator=torch.Generator().manual_seed(0)).double()
    matrix = torch.linalg.lstsq(few[:-3], few[3:], driver="gelsd").solution
    assert torch.allclose(few[:-3] @ matrix, few[3:])


def test_only_schemes_of_the_distance_go_on_at_four_times_the_length_and_none_at_thirty_two():
    schemes = ("integer", "binary", "sinusoidal", "relative (Shaw)", "RoPE")
    assert [scheme for scheme in schemes if min(by_seed(scheme, "beyond")) > 0.95] == ["relative (Shaw)", "RoPE"]
    for scheme in ("sinusoidal", "relative (Shaw)", "RoPE"):
        assert min(by_seed(scheme, "by_length")["1024"]) <= 0.95


# What the page says of the record


def by_seed(scheme, what, scaled=False):
    """A value for each seed; of a dictionary by length, {length: a value a seed}."""
    found = [run[what] for run in measured("positions")["runs"] if run["scheme"] == scheme and run["scaled"] == scaled]
    return turned_round(found)


def changed(name, what="beyond"):
    return turned_round([run[what] for run in measured("positions")["changed"] if run["name"] == name])


def turned_round(found):
    assert len(found) >= 3
    return {key: [each[key] for each in found] for key in found[0]} if isinstance(found[0], dict) else found


def test_each_family_fails_or_not_in_its_own_way():
    able = ("sinusoidal", "learned", "relative (Shaw)", "RoPE")
    assert min(min(by_seed(scheme, "inside")) for scheme in able) > 0.97
    assert min(min(by_seed(scheme, "beyond")) for scheme in able[2:]) > 0.95
    assert max(by_seed("relative (T5)", "beyond")) < 0.5
    assert [round(end(changed("T5 longer")), 2) for end in (min, max)] == [0.95, 0.97]
    assert max(by_seed("sinusoidal", "beyond") + by_seed("binary", "beyond")) < 0.5
    assert max(by_seed("no positions", "inside") + by_seed("integer", "inside")) < 0.4
    assert max(changed("binary longer") + changed("sinusoidal longer")) < 0.2
    later = torch.tensor(changed("binary longer", "at")["32"])                # (3, 30)
    assert later[:, 14:16].max() < 0.2


def test_unseen_vectors_and_not_their_number_spoil_trained_positions():
    assert min(changed("crowd at trained positions", "at trained positions")) > 0.97
    assert max(changed("crowd at trained positions", "as they stand")) < 0.9


def test_rope_fails_where_many_keys_stand_at_new_angles_and_more_do_more_harm():
    far, as_trained = changed("RoPE far keys", "far"), by_seed("RoPE", "by_length")
    clipped, window = changed("RoPE clipped", "by_length"), by_seed("RoPE", "window")
    assert min(far["16"]) > 0.98 and min(clipped["1024"] + window["1024"]) > 0.97
    for shares in zip(far["16"], far["64"], far["256"], as_trained["1024"], strict=True):
        assert [*shares] == sorted(shares, reverse=True)
    assert [round(end(as_trained["1024"]), 2) for end in (min, max)] == [0.4, 0.69]
    assert min(as_trained["128"]) > 0.95 and max(changed("RoPE longer", "by_length")["1024"]) < 0.9


def test_a_few_distances_do_harm_and_88_does_none():
    alike = changed("RoPE one distance", "alike")
    assert min(min(alike[str(distance)]) for distance in range(17, 32)) > 0.98
    assert min(alike["17 to 31"] + alike["64"]) > 0.99 and min(alike["86"] + alike["90"]) > 0.97
    assert max(max(alike[far]) for far in ("42", "98", "102")) < 0.5 and max(alike["46"]) < 0.7
    for middle in (44, 57, 100, 113):
        assert min(alike[str(middle)]) > 0.99, "a dip on either side"
        for side in ([middle - 3, middle - 2], [middle + 2, middle + 3]):
            assert min(sum(alike[str(far)]) / 3 for far in side) < 0.8


def test_where_far_keys_do_harm_the_first_three_pairs_are_closer_than_at_any_trained_distance_but_at_113():
    alike, theta = changed("RoPE one distance", "alike"), rope_angles(torch.tensor(1), 32)[:3]
    alike_by_three = {places: (places * theta).cos().mean().item() for places in range(125)}
    trained = max(alike_by_three[places] for places in range(3, 34))          # −29 to 33 places from −2
    assert 0.55 < trained < 0.56 and alike_by_three[113] < trained
    for places, harm in ((44, True), (57, True), (69, False), (88, False), (100, True)):
        right = [sum(alike[str(far)]) / 3 for far in (places - 2, places + 2)]
        assert (alike_by_three[places] > trained) == harm == (max(right) < 0.8) == (min(right) < 0.9)
    first_two = (12 * theta[:2] / (2 * math.pi)) % 1                          # +10 and −14, both trained
    assert ((first_two < 0.1) | (first_two > 0.9)).all()


@pytest.mark.parametrize("fast", ["3", "4", "5"])
def test_at_the_distances_that_harm_the_fast_pairs_decide(fast):
    for run in changed("RoPE mixed pairs", "mixed")[fast]:
        for turned in run.values():
            assert turned["fast as at 64"] > 0.99
            assert max(turned["as it is"], turned["slow as at 64"], turned["slow as at 31"]) < 0.7


def test_new_angles_of_the_slow_pairs_make_the_harm_worse_and_alone_do_none():
    part = changed("RoPE mixed pairs", "in part")["5"]
    four, three = ([run["slow clipped"] for run in changed("RoPE mixed pairs", "in part")[n]] for n in ("4", "3"))
    assert [round(min(four), 2), round(max(four), 2)] == [0.7, 0.8] and round(min(three), 2) == 0.99
    slow, plain = [run["slow clipped"] for run in part], by_seed("RoPE", "by_length")["1024"]
    assert min(run["fast clipped"] for run in part) > 0.99
    assert all(seed > none for seed, none in zip(slow, plain, strict=True))
    assert [round(min(slow), 2), round(max(slow), 2)] == [0.7, 0.82]
    by_parts = [run["by parts"] for run in changed("RoPE extended", "at")["1024"]]
    assert slow == pytest.approx(by_parts, abs=0.02)


def test_a_window_mends_schemes_without_angles():
    shaw, t5 = by_seed("relative (Shaw)", "window"), by_seed("relative (T5)", "window")
    assert min(shaw["1024"]) > 0.99 > max(by_seed("relative (Shaw)", "by_length")["1024"])
    assert max(by_seed("relative (T5)", "by_length")["1024"]) < 0.3 and min(t5["1024"]) > 0.8
    inside = by_seed("relative (T5)", "inside")
    assert all(one > other for one, other in zip(t5["1024"], inside, strict=True)), "fewer keys help inside as well"
    assert min(by_seed("relative (Shaw)", "by_length", scaled=True)["1024"]) >= 0.975
    for n in ("128", "1024"):
        seen, window = by_seed("sinusoidal", "by_length")[n], by_seed("sinusoidal", "window")[n]
        assert max(seen) < min(window) and max(window) < 0.5


def leads(name):
    return [lead for heads in changed(name, "lead") for lead in heads]


def test_the_lead_of_a_bias_is_what_adam_can_make_of_its_rate():
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=500, pct_start=0.2)
    moved = 0.0
    for _ in range(500):
        moved += schedule.get_last_lr()[0]
        optimizer.step()
        schedule.step()
    assert moved == pytest.approx(0.75, abs=0.02)
    assert all(1.35 <= lead < 1.55 for lead in leads("T5 lead")) and min(leads("T5 quick")) > 2.4
    assert max(leads("T5 longer")) < 3 and max(leads("T5 quick")) < 2.85
    quick = changed("T5 quick", "by_length")
    assert min(quick["32"] + quick["128"]) > 0.98 and max(quick["1024"]) < 0.3


@pytest.mark.parametrize("name", ["T5 lead", "T5 own buckets"])
def test_the_largest_bias_of_each_head_is_that_of_two_places_back(name):
    heads = torch.tensor(changed(name, "bias")).flatten(0, 1)                 # (6, 63)  −31 to 31
    assert (heads.argmax(dim=-1) == 31 - 2).all()


def test_by_parts_helps_every_seed_and_five_or_six_pairs_are_best():
    at_128, at_1024 = (changed("RoPE extended", "at")[n] for n in ("128", "1024"))
    plain = [run["no change"] for run in at_1024]
    assert all(run["by parts"] > none for run, none in zip(at_1024, plain, strict=True))
    assert min(run["by parts"] for run in at_128) > 0.99 and max(run["interpolation"] for run in at_128) < 0.1
    for run in at_1024:
        kept = {pairs: run[f"keep {pairs}"] for pairs in range(2, 9)}
        assert min(kept[pairs] for pairs in range(4, 9)) > run["no change"]
        assert max(kept, key=kept.get) in (5, 6) and kept[5] == run["by parts"]
        assert run["YaRN's limits"] < 0.1
    assert at_1024[1]["keep 3"] < plain[1]


def test_the_scale_delays_short_positions_and_the_ratio_explains_most():
    for scheme in ("binary", "learned"):
        assert min(by_seed(scheme, "inside")) > max(by_seed(scheme, "inside", scaled=True)) + 0.1
    assert min(changed("learned scaled longer", "inside")) > 0.99
    louder = changed("binary louder", "inside") + changed("learned louder", "inside")
    assert sum(share > 0.9 for share in louder) >= 5


def test_sinusoids_reach_further_with_a_head_of_ours_or_texts_that_begin_anywhere():
    assert min(changed("own head scaled")) > 0.9 > 0.3 > max(by_seed("sinusoidal", "beyond", scaled=True))
    assert max(changed("base 4")) < 0.1
    assert max(changed("anywhere", "beyond 128")) < 0.4 < 0.9 < min(changed("anywhere"))
