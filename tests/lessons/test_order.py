"""Lecture 05's models are the ones that were measured, and the record is of all schemes and seeds."""

import math

import jupytext
import pytest
import torch
import torch.nn.functional as F

import benchmarks
from attncourse.positions import rope_angles, rotate, shift_matrix, sinusoidal
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
    assert max(by_seed("no positions", "inside")) < 0.2 and max(by_seed("no positions", "beyond")) < 0.15
    assert max(changed("binary longer") + changed("sinusoidal longer")) < 0.2


def test_rope_fails_where_many_keys_stand_at_new_angles_and_more_do_more_harm():
    far, as_trained = changed("RoPE far keys", "far"), by_seed("RoPE", "by_length")
    clipped, window = changed("RoPE clipped", "by_length"), by_seed("RoPE", "window")
    assert min(far["16"]) > 0.98 and min(clipped["1024"] + window["1024"]) > 0.97
    for shares in zip(far["16"], far["64"], far["256"], as_trained["1024"], strict=True):
        assert [*shares] == sorted(shares, reverse=True)
    assert [round(end(as_trained["1024"]), 2) for end in (min, max)] == [0.4, 0.69]
    assert min(as_trained["128"]) > 0.95 and max(changed("RoPE longer", "by_length")["1024"]) < 0.9


def mean_at_each_distance():
    alike = changed("RoPE one distance", "alike")
    return {int(far): sum(shares) / len(shares) for far, shares in alike.items() if far.isdigit()}


def test_a_new_distance_in_six_does_harm_near_or_far_and_no_trained_one(benchmark):
    mean = mean_at_each_distance()
    assert [*mean] == [*benchmark.ALIKE] == [*range(17, 1024)]
    assert min(mean[far] for far in range(17, 32)) > 0.98
    assert min(changed("RoPE one distance", "alike")["17 to 31"]) > 0.99
    new = range(32, 1024)
    assert 1 / 7 < sum(mean[far] < 0.9 for far in new) / len(new) < 1 / 5
    for some in (range(32, 280), range(280, 528), range(528, 776), range(776, 1024)):
        assert 0.12 < sum(mean[far] < 0.9 for far in some) / len(some) < 0.22, "near or far"


def test_where_far_keys_do_harm_the_two_fastest_pairs_match_the_right_key():
    mean, theta = mean_at_each_distance(), rope_angles(torch.tensor(1), 32)[:2]

    def match(*keys):
        return max(((key + 2) * theta).cos().mean().item() for key in keys)

    new = range(32, 1024)
    assert min(mean[far] for far in new if match(far, -far) < 0.5) > 0.9
    close = [mean[far] < 0.9 for far in new if match(far, -far) > 0.8]
    assert sum(close) / len(close) > 0.8 and match(-14) == pytest.approx(0.87, abs=0.005)


def test_the_fast_pairs_do_most_of_the_harm_and_the_slow_ones_some():
    part, plain = changed("RoPE mixed pairs", "in part")["5"], by_seed("RoPE", "by_length")["1024"]
    assert min(run["fast clipped"] for run in part) > 0.99
    slow = [run["slow clipped"] for run in part]
    assert [round(end(slow), 2) for end in (min, max)] == [0.7, 0.82]
    assert all(one > other for one, other in zip(slow, plain, strict=True))
    theta = rope_angles(torch.tensor(1), 32)
    assert 62 * theta[4] > 0.95 * 2 * math.pi > 62 * theta[5], "the five fastest meet nearly every angle"


@pytest.mark.parametrize("fast", ["3", "4", "5"])
def test_at_the_distances_that_harm_the_fast_pairs_decide(fast):
    for run in changed("RoPE mixed pairs", "mixed")[fast]:
        for turned in run.values():
            assert turned["fast as at 64"] > 0.99
            assert max(turned["as it is"], turned["slow as at 64"], turned["slow as at 31"]) < 0.7


def test_a_window_mends_schemes_without_angles():
    shaw, t5 = by_seed("relative (Shaw)", "window"), by_seed("relative (T5)", "window")
    assert min(shaw["1024"]) > 0.99 > max(by_seed("relative (Shaw)", "by_length")["1024"])
    assert max(by_seed("relative (T5)", "by_length")["1024"]) < 0.3 and min(t5["1024"]) > 0.8
    inside = by_seed("relative (T5)", "inside")
    assert all(one > other for one, other in zip(t5["1024"], inside, strict=True)), "fewer keys help inside as well"


def test_the_lead_of_a_bias_is_enough_for_a_short_text_and_not_for_a_long_one():
    leads, later = ([lead for heads in changed(name, "lead") for lead in heads] for name in ("T5 lead", "T5 longer"))
    assert all(1.35 <= lead < 1.55 for lead in leads) and max(later) < 3 < 6.9 < math.log(1000)


@pytest.mark.parametrize("name", ["T5 lead", "T5 own buckets"])
def test_the_largest_bias_of_each_head_is_that_of_two_places_back(name):
    heads = torch.tensor(changed(name, "bias")).flatten(0, 1)                 # (6, 63)  −31 to 31
    assert (heads.argmax(dim=-1) == 31 - 2).all()


def test_by_parts_helps_every_seed_and_interpolation_breaks_the_model():
    at_128, at_1024 = (changed("RoPE extended", "at")[n] for n in ("128", "1024"))
    plain = [run["no change"] for run in at_1024]
    assert all(run["by parts"] > none for run, none in zip(at_1024, plain, strict=True))
    assert min(run["by parts"] for run in at_128) > 0.99 and max(run["interpolation"] for run in at_128) < 0.1
    by_parts = [run["by parts"] for run in at_1024]
    assert [round(end(by_parts), 2) for end in (min, max)] == [0.69, 0.81]
    gains = [run["NTK-aware"] - run["no change"] for run in at_1024]
    assert min(gains) < 0 < max(gains), "no clear difference"


def test_the_scale_delays_short_positions_and_the_ratio_explains_most():
    for scheme in ("binary", "learned"):
        assert min(by_seed(scheme, "inside")) > max(by_seed(scheme, "inside", scaled=True)) + 0.1
    assert min(changed("learned scaled longer", "inside")) > 0.99 < min(by_seed("learned", "inside"))
    assert {round(share, 2) for share in by_seed("binary", "inside")} == {0.94}
    louder = changed("binary louder", "inside") + changed("learned louder", "inside")
    assert sum(share > 0.9 for share in louder) >= 5
    binary, learned = (by_seed(scheme, "inside", scaled=True) for scheme in ("binary", "learned"))
    assert [round(end(binary), 2) for end in (min, max)] == [0.62, 0.73]
    assert [round(end(learned), 2) for end in (min, max)] == [0.65, 0.74]
