"""Lecture 13's models are the ones that were measured, and the records say what the lecture says."""

import json
import math
from statistics import mean, stdev

import jupytext
import pytest
import torch

import benchmarks
from attncourse_lessons import course
from attncourse_lessons.results import measured

DEFINES = ("import torch\n", "pixels, labels =", "order = torch.randperm", "def train(", "def small_cnn", "def play(",
           "def listener(", "def spectra(", "def probe(")  # fmt: skip
RUNS = ("torch.manual_seed(0)\nvit", "torch.manual_seed(0)\nprint", "with torch.no_grad():\n    for", "formants =",
        "known =", "figures.")  # fmt: skip
READOUTS = (650, 10890, 68544)  # the ViT's head, one that reads all rows, the rest of the ViT


@pytest.fixture(scope="module")
def vision():
    return benchmarks.load("vision")


@pytest.fixture(scope="module")
def sound():
    return benchmarks.load("sound")


@pytest.fixture(scope="module")
def page():
    """What the lecture's cells define: data, models, training, the game; what they train or draw is left out."""
    (lesson,) = [lesson for lesson in course.lessons if lesson.name == "beyond_text"]
    package = f"{course.package}.{lesson.module}"
    names = {"__name__": f"{package}.lecture", "__package__": package}
    for cell in jupytext.read(lesson.folder / "lecture.py", fmt="py:percent").cells:
        if cell.cell_type == "code" and any(words in cell.source for words in DEFINES):
            source = cell.source
            for words in RUNS:
                source = source.split(f"\n{words}")[0]
            exec(source, names)
    return names


def weights(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def mistakes():
    """{model: mistakes of 397, one number a seed}."""
    return {name: [round(397 * (1 - run["report"])) for run in runs]
            for name, runs in measured("vision")["models"].items()}  # fmt: skip


def test_the_page_splits_as_the_benchmark_does(vision, page):
    for shown, kept in (("training", "learn"), ("validation", "choose"), ("test", "report")):
        assert torch.equal(page[shown], getattr(vision, kept))
    assert torch.equal(page["normed"], vision.normed)
    assert len({*page["order"].tolist()}) == 1797 == sum(map(len, (vision.learn, vision.choose, vision.report)))


def test_the_page_trains_as_the_benchmark_does(vision, page):
    kept = vision.train(vision.fresh(vision.small_cnn, 3), steps=3, seed=3)
    torch.manual_seed(3)
    shown = page["train"](page["small_cnn"](), steps=3, seed=3)
    assert all(torch.equal(shown.state_dict()[name], value) for name, value in weights(kept).items())


def test_all_rows_are_read_and_nothing_else_is_changed(vision):
    model, images = vision.AllRowsRead().eval(), vision.normed[:3]
    with torch.no_grad():
        model.head.weight[:, 64:] = 0                                            # all rows but the class token's
        model.head.weight[:, :64] = model.vit.head.weight
        model.head.bias.copy_(model.vit.head.bias)
        torch.testing.assert_close(model(images), model.vit.eval()(images))


def test_shifts_move_a_picture_and_bring_in_paper(vision):
    image = torch.arange(1.0, 17).view(1, 1, 4, 4)
    draws = [torch.Generator().manual_seed(seed) for seed in range(60)]
    seen = {tuple(vision.shifted(image, 1, each).flatten().tolist()) for each in draws}
    assert tuple(image.flatten().tolist()) in seen and len(seen) == 9
    left = [[2, 3, 4, vision.PAPER], [6, 7, 8, vision.PAPER], [10, 11, 12, vision.PAPER], [14, 15, 16, vision.PAPER]]
    assert tuple(torch.tensor(left).flatten().tolist()) in seen


@pytest.mark.parametrize("how", [{"pools": False}, {"pools": True}, {"pools": False, "averages": False}], ids=str)
def test_in_a_wide_frame_a_mean_over_all_places_is_invariant_and_pooling_or_a_weight_for_each_place_is_not(vision, how):
    torch.manual_seed(0)
    x = torch.nn.functional.pad(vision.normed[:9], 4 * (vision.FRAME,), value=vision.PAPER)
    model = vision.moving_cnn(pads=False, **how).eval()
    with torch.no_grad():
        off = [(model(x.roll((down, 1), (2, 3))) - model(x)).abs().max() for down in (-1, 0, 1)]
    assert (max(off) < 1e-5) == (how == {"pools": False})


@pytest.mark.parametrize("of", ["patches", "pixels"])
def test_pictures_are_shuffled_alike(vision, of):
    x = vision.shuffled(of, 0)
    assert torch.equal(x.flatten(1).sort(dim=1).values, vision.normed.flatten(1).sort(dim=1).values)
    places = [(vision.normed.flatten(1) == x.flatten(1)[:, [i]]).all(dim=0) for i in range(64)]
    assert all(place.any() for place in places) and not torch.equal(x, vision.normed)


@pytest.mark.parametrize("draw", ["one_sound", "any_sound"])
def test_the_page_plays_the_game_that_was_measured(sound, page, draw):
    waveform = sound.heard.waveform[:4]
    losses = [names["play"](names["listener"](1), waveform, names[draw], torch.Generator().manual_seed(2))
              for names in (page, vars(sound))]  # fmt: skip
    torch.testing.assert_close(*losses)


def test_negatives_of_one_sound_stay_in_it_and_those_of_any_do_not(sound):
    mask, generator = torch.ones(3, 5).bool(), torch.Generator().manual_seed(0)
    of = torch.arange(15) // 5
    assert (of[sound.one_sound(mask, generator)] == of[:, None]).all()
    assert (of[sound.any_sound(mask, generator)] != of[:, None]).any()


def test_the_page_probes_as_the_benchmark_does(sound, page):
    inputs, outputs = (sound.spectra(sounds.waveform) for sounds in (sound.heard, sound.unheard))
    known = torch.nn.functional.one_hot(sound.heard.vowel[:, sound.CENTRES])
    read = page["probe"](inputs, outputs, known).argmax(dim=-1)
    right = (read == sound.unheard.vowel[:, sound.CENTRES]).double().mean().item()
    assert right == pytest.approx(measured("sound")["probes"]["log spectra"][0]["vowel"], abs=2e-3)


def test_every_comparison_has_its_seeds():
    record, listened = measured("vision"), measured("sound")
    assert len(record["seeds"]) == 6 and len(record["dear"]) == 3 == len(listened["seeds"])
    assert {len(runs) for runs in record["models"].values()} == {3, 6}
    assert {len(runs) for part in ("few", "places") for runs in record[part].values()} == {3}
    assert len(record["removed"]) == 6 and {len(curves) for curves in listened["losses"].values()} == {3}


def test_both_listeners_had_the_same_budget(sound):
    losses = measured("sound")["losses"]
    assert {*losses} == {name for name, (*_, stop) in sound.LISTENERS.items() if stop}
    for name, curves in losses.items():
        assert {len(curve) for curve in curves} == {sound.LISTENERS[name][-1] // 10}


def test_a_shuffled_cnn_beats_the_vit_and_a_vit_that_reads_all_rows_does_not_lag():
    shares = {name: mean(run["report"] for run in runs) for name, runs in measured("vision")["models"].items()}
    assert shares["CNN"] > shares["CNN, pixels shuffled"] > shares["ViT"]
    assert shares["ViT, all rows read"] > shares["ViT"] and shares["CNN, mean over places"] < shares["ViT"]


def test_with_one_readout_shuffling_costs_both_models_about_the_same():
    wrongs = mistakes()
    cnn, vit = (mean(wrongs[f"{name}, pixels shuffled"]) - mean(wrongs[name]) for name in ("CNN", "ViT, all rows read"))
    assert cnn == pytest.approx(31 / 6, abs=0.1) and vit == pytest.approx(25 / 6, abs=0.1)
    intact, shuffled = (mean(wrongs["ViT, all rows read" + end]) / mean(wrongs["CNN" + end])
                        for end in ("", ", pixels shuffled"))  # fmt: skip
    assert (intact, shuffled) == pytest.approx((2.2, 1.4), abs=0.05)
    assert mean(wrongs["CNN"]) / mean(wrongs["ViT"]) == pytest.approx(1 / 4, abs=0.01)
    assert min(wrongs["CNN, mean over places"]) > max(wrongs["ViT, all rows read"])
    assert all(a < b for a, b in zip(wrongs["CNN"], wrongs["CNN, pixels shuffled"], strict=True))
    assert mean(wrongs["MLP"]) < mean(wrongs["ViT"]) - 2


@pytest.mark.parametrize(("count", "intact", "shuffled", "gone", "half"), [
    (float, 4.2, 3.2, 1.0, 2.7), (math.log, 0.76, 0.31, 0.45, 0.37)], ids=["mistakes", "ratios"])  # fmt: skip
def test_how_much_of_the_lead_is_gone_with_the_geometry_depends_on_the_scale(count, intact, shuffled, gone, half):
    wrongs = mistakes()
    leads = []
    for end in ("", ", pixels shuffled"):
        pairs = zip(wrongs["CNN" + end], wrongs["ViT, all rows read" + end], strict=True)
        leads.append([count(vit) - count(cnn) for cnn, vit in pairs])
    lost = [before - after for before, after in zip(*leads, strict=True)]
    assert [mean(lead) for lead in leads] == pytest.approx([intact, shuffled], abs=0.06 * intact)
    assert mean(lost) == pytest.approx(gone, abs=0.01)
    assert 2.57 * stdev(lost) / math.sqrt(6) == pytest.approx(half, abs=0.05)
    assert mean(leads[1]) > 2.57 * stdev(leads[1]) / math.sqrt(6), "a part remains"


def test_over_a_model_without_assumptions_the_lead_of_the_cnn_goes_with_the_geometry():
    wrongs = mistakes()
    leads = [[mlp - cnn for mlp, cnn in zip(wrongs["MLP" + end], wrongs["CNN" + end], strict=True)]
             for end in ("", ", pixels shuffled")]  # fmt: skip
    lost = [before - after for before, after in zip(*leads, strict=True)]
    assert [mean(lead) for lead in leads] == pytest.approx([6.7, 1.2], abs=0.05)
    assert min(lost) > 0 and mean(lost) == pytest.approx(5.5, abs=0.05)
    assert 2.57 * stdev(lost) / math.sqrt(6) == pytest.approx(2.0, abs=0.05)
    assert abs(mean(wrongs["MLP, pixels shuffled"]) - mean(wrongs["MLP"])) < 0.5, "shuffling costs it none"


def test_three_times_the_steps_help_the_vit():
    wrongs = mistakes()
    assert mean(wrongs["ViT, three times the steps"]) == pytest.approx(11.0, abs=0.05)
    assert mean(wrongs["ViT"][:3]) == pytest.approx(15.0, abs=0.05)


def test_dropout_alone_removes_no_mistakes_and_the_dense_layer_alone_about_half_of_the_lead():
    wrongs = mistakes()
    three = {name: mean(runs[:3]) for name, runs in wrongs.items()}
    plain, dropped = three["ViT"], three["ViT, dropout before the head"]
    dense, both = three["ViT, all rows read, no dropout"], three["ViT, all rows read"]
    assert (plain, dropped, dense, both) == pytest.approx((15.0, 15.3, 9.7, 8.3), abs=0.05)
    assert dropped >= plain and both < dense
    assert (plain - dense) / (plain - three["CNN"]) == pytest.approx(0.5, abs=0.05)
    assert three["CNN, no dropout"] < three["CNN, mean over places"] / 2
    assert mean(wrongs["ViT"]) - mean(wrongs["ViT, all rows read"]) == pytest.approx(6.5, abs=0.1)
    assert mean(wrongs["ViT"]) - mean(wrongs["CNN"]) == pytest.approx(10.7, abs=0.1)
    assert mean(wrongs["ViT, no positions"]) == pytest.approx(397 / 4, rel=0.05)
    longer = zip(wrongs["ViT, three times the steps"], wrongs["ViT"], strict=False)
    assert sum(long < short for long, short in longer) == 2


def test_another_four_change_a_picture_as_much_as_those_that_were_chosen_and_are_not_these(vision):
    change, chosen = torch.rand(20, 16, generator=torch.Generator().manual_seed(0)), torch.arange(16.0).expand(20, -1)
    other = vision.as_changed(change, chosen, torch.Generator().manual_seed(0))
    assert (other.sum(dim=1) == 4).all() and {*other.flatten().tolist()} == {0.0, 1.0}
    apart = ((other - (chosen > 11).float()) * change).sum(dim=1).abs()
    assert (other[:, 12:].sum(dim=1) < 4).all() and apart.max() < 0.05


def test_with_three_times_the_steps_the_vit_learns_what_shifts_show_and_the_cnn_needed_none_of_them():
    models = measured("vision")["models"]
    short, long, cnn = (models[f"{name}, shifts{more}"] for name, more in (
        ("ViT", ""), ("ViT", ", three times the steps"), ("CNN", "")))  # fmt: skip
    for key in ("report", "moved"):
        for few, many, ahead in zip(short, long, cnn, strict=True):
            assert few[key] + 0.07 < many[key] < ahead[key]
        assert 1 - mean(run[key] for run in short) == pytest.approx(1 / 7, abs=0.015)
        assert 1 - mean(run[key] for run in long) == pytest.approx(1 / 20, abs=0.005)


def test_the_page_tells_the_parameters_of_the_readouts(vision):
    def parameters(model):
        return sum(parameter.numel() for parameter in model.parameters())

    cnn, averaging, vit, all_rows = (build() for build in (
        vision.small_cnn, vision.averaging_cnn, vision.vit, vision.AllRowsRead))  # fmt: skip
    assert (parameters(cnn[-1]), parameters(cnn), parameters(averaging[-1])) == (5130, 9930, 330)
    assert parameters(vision.mlp()) == 9610
    assert (parameters(vit.head), parameters(all_rows.head), parameters(vit) - parameters(vit.head)) == READOUTS
    text = next(lesson.folder for lesson in course.lessons if lesson.name == "beyond_text") / "lecture.py"
    said = text.read_text(encoding="utf-8").replace("{,}", ",")
    assert all(f"{number:,}" in said for number in (5130, 9930, 330, 9610, *READOUTS))


def test_a_part_is_put_into_the_record_that_stands_and_only_into_one_of_the_same_seeds(vision, tmp_path, monkeypatch):
    file = tmp_path / "vision.json"
    kept = {"seeds": [0, 1], "dear": [0], "processor_seconds": 5, "models": {"CNN": [{"seed": 0}], "MLP": []}}
    file.write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(vision, "measure", lambda name, seed: (None, {"seed": seed, "report": 0.5}))
    again = ["vision", "--only", "MLP", "--seeds", "0", "1", "--save", str(file), "--dear"]
    monkeypatch.setattr("sys.argv", [*again, "0"])
    vision.main()
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["models"]["CNN"] == [{"seed": 0}] and [run["seed"] for run in record["models"]["MLP"]] == [0, 1]
    assert record["processor_seconds"] >= 5
    monkeypatch.setattr("sys.argv", [*again, "1"])
    with pytest.raises(ValueError, match="its dear are"):
        vision.main()


def test_an_averaging_cnn_reads_moved_digits_as_well_as_others_where_nothing_meets_a_border_or_is_pooled():
    models, averaging = measured("vision")["models"], "CNN, mean over places"
    lost = {name: [run["report"] - run["moved"] for run in models[name]] for name in (
        f"{averaging}, no pooling", f"{averaging}, wide frame", f"{averaging}, wide frame, no pooling",
        "CNN, wide frame, no pooling")}  # fmt: skip
    border, pooling, neither, places = lost.values()
    assert neither == [0, 0, 0] and min(pooling) > 0.1 and min(border) > 0.3 and min(places) > 0.5
    read = [mean(run["report"] for run in models[name]) for name in (averaging, *lost)]
    assert read == pytest.approx([0.952, 0.878, 0.915, 0.734, 0.983], abs=0.001), "each change alone costs accuracy"


def test_what_differs_most_from_the_usual_costs_more_than_rollouts_patches_and_ink_costs_no_more_than_any():
    removed = measured("vision")["removed"]
    for run in removed:
        assert run["the most unusual"] < run["rollout's most"] < run["last layer's most"] < run["rollout's least"]
        assert run["rollout's most"] < min(run["first layer's most"], run["both layers, added"])
        assert run["rollout's most"] < run["changed as much"] < run["any four"] < run["rollout's least"]
        assert 0.05 < run["correlation with ink"] < 0.5
    assert mean(run["most ink"] - run["any four"] for run in removed) == pytest.approx(0, abs=0.01)
    left = {name: mean(run[name] for run in removed) for name in removed[0]}
    for start, half, end in (("last layer's most", "both layers, added", "rollout's most"),
                             ("any four", "changed as much", "rollout's most")):  # fmt: skip
        assert 0.5 < (left[start] - left[half]) / (left[start] - left[end]) < 0.6, "a little more than half"


def test_positions_are_a_map_where_digits_stand_everywhere_and_only_there():
    for how, runs in measured("vision")["places"].items():
        near, far = (mean(run["cosine_by_distance"][i] for run in runs) for i in (0, 3))
        assert (near - far > 0.3) == (how != "in the middle")
    once, anew = (mean(run["cosine_by_distance"][0] for run in measured("vision")["places"][how])
                  for how in ("moved once", "moved anew"))  # fmt: skip
    assert (once, anew) == pytest.approx((0.29, 0.44), abs=0.005)


def test_without_a_map_inner_neighbours_are_not_alike_either_and_each_model_reads_best_what_it_saw():
    record, inner = measured("vision"), [6 * row + column for row in range(1, 5) for column in range(1, 5)]
    for how, table in record["maps"].items():
        beside = [table[i][j] / 100 for i in inner for j in inner if abs(i // 6 - j // 6) + abs(i % 6 - j % 6) == 1]
        assert (mean(beside) > 0.3) if how != "in the middle" else (mean(beside) < 0)
    middle, *moved = record["places"].values()
    for run, *others in zip(middle, *moved, strict=True):
        assert all(run["report"] > other["report"] + 0.2 for other in others)
        assert all(run["report_moved"] < other["report_moved"] - 0.3 for other in others)
    ranges = [[100 * end(run[key] for run in runs) for end in (min, max)]
              for runs in (middle, [*moved[0], *moved[1]]) for key in ("report", "report_moved")]  # fmt: skip
    assert [[round(end) for end in pair] for pair in ranges] == [[95, 97], [20, 22], [59, 72], [54, 64]]
    table, rim = record["maps"]["in the middle"], {*range(36)} - {*inner}
    beside = [table[i][j] / 100 for i in rim for j in rim if abs(i // 6 - j // 6) + abs(i % 6 - j % 6) == 1]
    assert mean(beside) == pytest.approx(0.37, abs=0.005)


def test_no_other_learning_rate_did_better_on_the_validation_set():
    models = measured("vision")["models"]
    for name in ("ViT", "CNN"):
        ours = sum(run["choose"] for run in models[name][:3])
        assert all(sum(run["choose"] for run in models[f"{name}, learning rate {rate}"][:3]) <= ours + 1e-9
                   for rate in (0.001, 0.002, 0.008))  # fmt: skip


def test_the_lead_falls_in_every_seed_as_a_ratio_and_not_as_a_difference():
    cnn, cnn_after, vit, vit_after = (mistakes()[name + end] for name in ("CNN", "ViT, all rows read")
                                      for end in ("", ", pixels shuffled"))  # fmt: skip
    seeds = [*zip(cnn, cnn_after, vit, vit_after, strict=True)]
    assert all(b / a > d / c for a, c, b, d in seeds)
    assert 0 < sum(b - a > d - c for a, c, b, d in seeds) < 6


def test_with_a_tenth_of_the_images_the_vit_loses_most():
    few = measured("vision")["few"]
    assert all(vit["report"] < cnn["report"] - 0.05 for vit, cnn in zip(few["ViT"], few["CNN"], strict=True))


def test_a_listener_learns_what_its_negatives_do_not_share():
    probes = measured("sound")["probes"]
    for any_sound, one_sound, untrained in zip(*(probes[name] for name in ("any sound", "one sound", "untrained")),
                                               strict=True):  # fmt: skip
        assert any_sound["pitch"] > 0.85 and one_sound["pitch"] < 0.6
        assert any_sound["vowel"] < untrained["vowel"] < one_sound["vowel"] - 0.2
        assert probes["log spectra"][0]["vowel"] > one_sound["vowel"], "an engineer still does better"
    for early, untrained in zip(probes["any sound, 30 steps"], probes["untrained"], strict=True):
        assert early["pitch"] > untrained["pitch"] + 0.2
        assert early["vowel"] == pytest.approx(untrained["vowel"], abs=0.02)


def test_without_a_head_start_one_listener_keeps_guessing_and_the_others_learn_the_vowels_all_the_same():
    record, name = measured("sound"), "one sound, from the start"
    ends = [curve[-1] for curve in record["losses"][name]]
    stuck = [end > math.log(11) - 0.05 for end in ends]
    assert sum(stuck) == 1
    learned = [run for run, still in zip(record["probes"][name], stuck, strict=True) if not still]
    assert all(0.67 < run["vowel"] < 0.69 and run["pitch"] < 0.13 for run in learned)
    assert all(0.65 < run["vowel"] < 0.69 for run in record["probes"]["one sound"])


def test_a_favourite_keeps_entries_of_a_codebook_from_being_used():
    codes = {}
    for run in measured("sound")["codes"]:
        codes.setdefault(run["name"], []).append(run["entries"])
    fair, favoured, weak, cured = codes.values()
    assert max(favoured) < min(fair) and all(a < b for a, b in zip(favoured, cured, strict=True))
    assert sum(entries > 7.9 for entries in weak) == 2 and min(cured) > 7.9


def test_where_all_sing_alike_negatives_from_any_sound_teach_vowels(sound):
    learn, ask = sound.one_singer()
    for sounds in (learn, ask):
        assert {*sounds.pitch.tolist()} == {150.0} and {*sounds.size.tolist()} == {1.0}
    assert len({*sound.vowels(9).pitch.tolist()}) == 9, "only there"
    probes = measured("sound")["probes"]
    for before, after in zip(probes["one singer, untrained"], probes["one singer, any sound"], strict=True):
        assert after["vowel of frames"] > before["vowel of frames"] + 0.1
        assert before["vowel"] < after["vowel"] < after["vowel of frames"], "less at the top than in the frames"


def test_the_first_formant_predicts_which_vowels_are_confused():
    for name in ("first formant", "log spectra", "one sound"):
        table = torch.tensor(measured("sound")["confusions"][name])
        wrong = table - table.diag().diag()
        predicted = wrong[0, 3] + wrong[3, 0] + wrong[1, 4] + wrong[4, 1]
        assert predicted > 0.5 * wrong.sum()
