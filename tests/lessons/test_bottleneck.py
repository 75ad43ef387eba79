"""Lecture 01's reader is the one that was measured, and the records are of what the lecture says."""

import functools

import jupytext
import pytest
import torch

import benchmarks
from attncourse.data.recall import letters_with_digits
from attncourse_lessons import course
from attncourse_lessons.results import measured


@pytest.fixture(scope="module")
def benchmark():
    return benchmarks.load("recall")


@pytest.fixture(scope="module")
def page():
    """The lecture's cell that defines the reader, executed."""
    (lesson,) = [lesson for lesson in course.lessons if lesson.name == "bottleneck"]
    cells = jupytext.read(lesson.folder / "lecture.py", fmt="py:percent").cells
    (source,) = [cell.source for cell in cells if "class Reader(" in cell.source]
    names = {"torch": torch, "nn": torch.nn}
    exec("from attncourse.attention import attend\n" + source.split("\n\n\ndef losses_of")[0], names)
    return names


@pytest.mark.parametrize("memory", ["last state", "attention"])
def test_the_page_shows_the_reader_that_the_benchmark_measures(benchmark, page, memory):
    torch.manual_seed(0)
    shown, kept = page["Reader"](memory, 16), benchmark.Reader(memory, 16)
    assert {name: p.shape for name, p in shown.state_dict().items()} == {
        name: p.shape for name, p in kept.state_dict().items()
    }
    kept.load_state_dict(shown.state_dict())
    letters, digits, asked, _ = letters_with_digits(5, 7, torch.Generator().manual_seed(0))
    torch.testing.assert_close(kept(letters, digits, asked), shown(letters, digits, asked))


def test_readers_differ_in_their_memory_alone(benchmark):
    sizes = {memory: [p.shape for p in benchmark.Reader(memory, 8).parameters()]
             for memory in ("last state", "mean pool", "attention")}  # fmt: skip
    assert sizes["last state"] == sizes["mean pool"] == sizes["attention"]


@pytest.mark.parametrize("readout", ["product", "concatenation", "decoder"])
def test_one_vector_is_all_that_a_reader_of_the_last_state_knows(benchmark, readout):
    """Two rows that end in one state get one answer; with attention they do not."""
    torch.manual_seed(0)
    reader = benchmark.Reader("last state", 8, readout)
    letters, digits, asked, _ = letters_with_digits(4, 3, torch.Generator().manual_seed(0))
    reader.network.register_forward_hook(lambda module, given, out: (out[0][:, -1:].expand_as(out[0]), out[1]))
    only_last = reader(letters, digits, asked)
    reader.memory = "attention"
    torch.testing.assert_close(reader(letters, digits, asked), only_last)


def test_the_record_of_recall_has_three_seeds_and_every_width_with_one_vector_and_with_attention():
    recall = measured("recall")
    assert len(set(recall["seeds"])) >= 3
    pairs = {(reader["memory"], reader["d"]) for reader in recall["readers"] if reader["readout"] == "product"}
    assert {(memory, d) for memory in ("last state", "attention") for d in (16, 32, 64, 128)} <= pairs
    assert all(len(reader["runs"]) == len(recall["seeds"]) for reader in recall["readers"])
    longer = {reader["readout"]: reader for reader in recall["longer"]}
    assert {*longer} == {"product", "concatenation"} and len(longer) == len(recall["longer"])
    for readout, reader in longer.items():
        (short,) = [each for each in recall["readers"] if (each["memory"], each["d"], each["readout"])
                    == ("last state", 64, readout)]  # fmt: skip
        assert (reader["memory"], reader["d"], reader["steps"]) == ("last state", 64, 6 * short["steps"])
        assert [run["seed"] for run in reader["runs"]] == recall["seeds"]


def test_the_record_by_quarter_is_of_the_reader_of_64_numbers_with_its_rate_and_seeds():
    recall = measured("recall")
    asked = recall["by_quarter"]
    (short,) = [each for each in recall["readers"] if (each["memory"], each["d"], each["readout"])
                == ("last state", 64, "product")]  # fmt: skip
    assert all(asked[name] == short[name] for name in ("memory", "d", "readout", "steps", "lr"))
    assert [run["seed"] for run in asked["runs"]] == recall["seeds"]
    for run, whole in zip(asked["runs"], short["runs"], strict=True):
        for n, shares in run["right"].items():
            assert len(shares) == 4 and sum(shares) / 4 == pytest.approx(whole["right"][n], abs=0.03)


def test_a_reader_that_keeps_a_part_of_its_vector_knows_nothing_else_of_it(benchmark):
    torch.manual_seed(0)
    reader = benchmark.Reader("last state", 8, "product", 3)
    letters, digits, asked, _ = letters_with_digits(4, 3, torch.Generator().manual_seed(0))
    before = reader(letters, digits, asked)

    def spoil(module, given, out, first):
        return torch.cat([out[0][..., :first], torch.randn_like(out[0][..., first:])], dim=-1), out[1]

    for first, same in ((3, True), (2, False)):
        handle = reader.network.register_forward_hook(functools.partial(spoil, first=first))
        assert torch.allclose(reader(letters, digits, asked), before) == same
        handle.remove()
    with pytest.raises(ValueError, match="of the last state alone"):
        benchmark.Reader("attention", 8, "product", 3)


def test_the_record_of_parts_of_a_vector_is_of_one_network_and_its_whole_is_the_reader_of_128_numbers():
    recall = measured("recall")
    parts = {reader["kept"]: reader for reader in recall["kept"]}
    assert [*parts] == [16, 32, 64, 128]
    for reader in parts.values():
        assert (reader["memory"], reader["d"], reader["readout"]) == ("last state", 128, "product")
        assert [run["seed"] for run in reader["runs"]] == recall["seeds"]
    assert parts[16]["parameters"] > 0.75 * parts[128]["parameters"]
    assert len({(reader["steps"], reader["lr"]) for reader in parts.values()}) == 1, "they differ in the part alone"
    (whole,) = [each for each in recall["readers"] if (each["memory"], each["d"], each["readout"])
                == ("last state", 128, "product")]  # fmt: skip
    for run, same in zip(parts[128]["runs"], whole["runs"], strict=True):
        assert run["right"] == pytest.approx(same["right"], abs=0.03)


def test_the_widest_vector_was_trained_six_times_as_long_from_each_seed():
    recall = measured("recall")
    (short,) = [each for each in recall["readers"] if each["d"] == 256]
    longer = recall["widest"]
    assert longer["steps"] == 6 * short["steps"]
    assert all(longer[name] == short[name] for name in ("memory", "d", "readout"))
    assert [run["seed"] for run in longer["runs"]] == recall["seeds"]


@pytest.mark.parametrize(
    "model", ["2-gram", "3-gram", "4-gram", "5-gram", "window", "RNN", "RNN, d = 168", "LSTM", "GRU", "5-gram and GRU"]
)
def test_the_record_of_language_models_has_each_model_once_a_seed_after_three_epochs(model):
    record = measured("language_models")
    seeds = [run["seed"] for run in record["runs"] if (run["model"], run["share"]) == (model, "all")]
    assert record["epochs"] == 3 and sorted(seeds) == sorted(record["seeds"]) and len(set(seeds)) >= 3


def test_the_record_of_the_fit_is_of_the_runs_on_a_quarter_of_the_texts_and_more_epochs_overfit():
    record = measured("language_models")
    runs = {(run["model"], run["seed"]): run for run in record["runs"] if run["share"] == "a quarter"}
    fit = {(run["model"], run["seed"]): run for run in record["fit"]}
    assert {*fit} == {(model, seed) for model in ("GRU", "GRU, steps as on all") for seed in record["seeds"]}
    for which, run in fit.items():
        assert run["steps"] == runs[which]["steps"]
        assert run["test"] == pytest.approx(runs[which]["perplexity"], rel=0.01), "the same network, trained once more"
    for seed in record["seeds"]:
        few, many = fit["GRU", seed], fit["GRU, steps as on all", seed]
        assert many["training"] < 0.6 * few["training"] < few["test"] < many["test"]


@pytest.fixture(scope="module")
def long_paths():
    return benchmarks.load("long_paths")


def test_the_record_of_long_paths_has_each_network_and_distance_with_three_seeds_and_its_best_rate(long_paths):
    record = measured("long_paths")
    assert len(set(record["seeds"])) >= 3 and record["steps"] == 300 and record["d"] == long_paths.D
    assert [(row["network"], row["k"]) for row in record["found"]] == [
        (name, k) for name in long_paths.NETWORKS for k in long_paths.DISTANCES
    ]
    for row in record["found"]:
        assert len(row["right"]) == len(record["seeds"])
        assert row["pilots"][str(row["lr"])] == max(row["pilots"].values())


def test_a_text_to_name_begins_with_the_answer_and_goes_on_with_noise_that_is_no_name(long_paths):
    tokens, first = long_paths.first_and_noise(64, 7, torch.Generator().manual_seed(0))
    assert tokens.shape == (64, 8) and torch.equal(tokens[:, 0], first)
    assert first.max() < long_paths.NAMES <= tokens[:, 1:].min() and tokens.max() < 2 * long_paths.NAMES


@pytest.mark.parametrize("name", ["RNN, W_h × 2.8", "LSTM, bias of f + 3", "GRU, bias of z + 3"])
def test_one_thing_alone_is_changed_in_a_network_before_it_learns(long_paths, name):
    namers = []
    for which in (name.split(",")[0], name):
        torch.manual_seed(0)
        namers.append(dict(long_paths.Namer(long_paths.NETWORKS[which]).named_parameters()))
    fresh, changed = namers
    differ = [key for key in fresh if not torch.equal(fresh[key], changed[key])]
    if name.startswith("RNN"):
        assert differ == ["network.weight_hh_l0"]
        torch.testing.assert_close(changed[differ[0]], 2.8 * fresh[differ[0]])
    else:
        assert differ == ["network.bias_ih_l0"]
        added = (changed[differ[0]] - fresh[differ[0]]).unflatten(0, (-1, long_paths.D))     # (gates, d)
        torch.testing.assert_close(added, 3.0 * (torch.arange(len(added)) == 1)[:, None].expand_as(added).float())
