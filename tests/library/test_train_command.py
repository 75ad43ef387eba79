"""`attncourse train` and `attncourse translate`, as one types them."""

import argparse
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tqdm import tqdm

from attncourse.counting import saved_activation_bytes
from attncourse.data import BadData, Pair, Tokenizer, encode_pairs
from attncourse.data import number_words as number_words_of_own
from attncourse.training import command, hardware, own_text, profiles, runs
from attncourse.training.distributed import DistributedContext
from attncourse.training.examples import Pairs
from attncourse.training.hardware import CHIPS
from attncourse.training.prediction import predict
from attncourse.training.progress import Progress, Step
from attncourse.training.tasks import TASKS
from attncourse_lessons.cli import main

TINY_MODEL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
TINY_RECIPE = {"steps": 6, "batch_tokens": 128, "warmup": 2, "lr": 1e-2, "evaluate_every": 3}
NUMBERS = {"name": "number-words", "train": 200, "test": 20, "vocab_size": 60, "joint": False, "dates": 0.1}
CAPTIONS = {"name": "multi30k", "vocab_size": 60, "joint": True}


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr("attncourse.training.distributed.best_device", lambda: torch.device("cpu"))
    monkeypatch.setitem(profiles._SIZES, ("cpu", "number-words"), (NUMBERS, TINY_MODEL, TINY_RECIPE))
    monkeypatch.setitem(profiles._SIZES, ("cpu", "multi30k"), (CAPTIONS, TINY_MODEL, TINY_RECIPE))
    number_words = profiles.number_words

    def few(source, target, train, test, dates, seed):
        return number_words(source, target, train=train, test=test, dates=dates, max_items=1, seed=seed)

    def captions(source, target):
        pairs = [Pair("ein Hund rennt .", "a dog runs ."), Pair("eine Katze schläft .", "a cat sleeps .")]
        return profiles.Split3(20 * pairs, pairs, pairs)

    monkeypatch.setattr(profiles, "number_words", few)
    monkeypatch.setattr(profiles, "multi30k", captions)
    return tmp_path


def what_a_run_is(folder):
    """Of losses.csv, the columns that do not depend on how fast the machine was."""
    return [line.split(",")[:4] for line in Path(folder, "losses.csv").read_text().splitlines()]


def last_line(capsys):
    return capsys.readouterr().out.strip().splitlines()[-1]


def test_a_run_prints_what_it_got_right_last_and_is_one_folder(tiny, capsys):
    assert main(["train"]) == 0
    assert last_line(capsys).startswith("exactly right ")
    folder = tiny / "runs" / "cpu-number-words-de-en"
    assert {file.name for file in folder.iterdir()} == {
        "config.json", "tokenizer_source.json", "tokenizer_target.json", "environment.json", "metrics.json",
        "weights.safetensors", "checkpoint.safetensors", "losses.csv", "scores.csv",
    }  # fmt: skip
    measured = json.loads((folder / "metrics.json").read_text())
    assert measured["ended"] == "steps" and measured["test"]["pairs"] == 20
    written = json.loads((folder / "environment.json").read_text())["versions"]["torch"]
    assert torch.__version__.startswith(written)  # which may go on with the build, +cu130


def test_of_captions_the_last_line_is_bleu_with_its_signature_and_one_vocabulary_serves_both_sides(capsys):
    assert main(["train", "--data", "multi30k", "--to", "captions"]) == 0
    assert "tok:13a" in (line := last_line(capsys)) and line.startswith("BLEU ") and "case:mixed" in line
    run = runs.load_run("captions")
    assert run.model.config.shares_embedding
    assert run.source.encode("Hund dog") == run.target.encode("Hund dog")


def test_a_trained_run_translates_lines_and_draws_where_it_looked(tiny, capsys, monkeypatch):
    main(["train", "--to", "runs/here"])
    capsys.readouterr()
    assert main(["translate", "einundzwanzig", "zwei"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["translate", "einundzwanzig", "--run", "runs/here", "--alignment", "looked.png"]) == 0
    assert (tiny / "looked.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def captions_of_2017(tiny):
    Path("test.de").write_text("ein Hund rennt .\neine Katze schläft .\n", "utf-8")
    Path("test.en").write_text("a dog runs .\na cat sleeps .\n", "utf-8")
    return ["--source", "test.de", "--target", "test.en"]


def test_a_run_is_scored_on_two_files_and_what_it_wrote_is_kept(captions_of_2017, capsys):
    main(["train", "--data", "multi30k", "--to", "runs/captions"])
    reported = capsys.readouterr().out.splitlines()[-4:]
    assert main(["evaluate", *captions_of_2017, "--translations", "written.en"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == reported[-1] and said[0] == reported[0] and "tok:13a" in said[-1]      # the same two sentences
    written = Path("written.en").read_text("utf-8").splitlines()
    assert main(["translate", "ein Hund rennt .", "eine Katze schläft .", "--beams", "5"]) == 0
    assert capsys.readouterr().out.splitlines() == written
    assert main(["evaluate", "runs/captions", *captions_of_2017, "--json", "--beams", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 2


@pytest.mark.parametrize(
    ("target", "more", "message"),
    [
        ("a dog\n", [], "test.de has 2 lines and test.en has 1"),
        (None, [], "test.en: there is no such file"),
        ("a dog\n" + 600 * "dog " + "\n", [], "sentence 2: got "),
        ("a dog\na cat\n", ["--beams", "0"], "--beams: got 0, expected 1 or more"),
        ("a dog\na cat\n", ["nowhere"], "nowhere: holds no run"),
    ],
)
def test_files_that_cannot_be_scored_are_refused_in_one_line(captions_of_2017, target, more, message, capsys):
    main(["train", "--data", "multi30k", "--to", "runs/captions"])
    if target is None:
        Path("test.en").unlink()
    else:
        Path("test.en").write_text(target, "utf-8")
    capsys.readouterr()
    assert main(["evaluate", *more, *captions_of_2017]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_a_loaded_run_is_the_model_that_was_kept(capsys):
    main(["train", "--to", "one"])
    run = runs.load_run("one")
    saved = json.loads(Path("one/metrics.json").read_text())["best_validation"]
    validation = profiles.load_corpora(run.run_config.data).val
    evaluate = command.make_evaluate("number-words", validation, run.source, run.target)
    assert evaluate(run.model)["loss"] == pytest.approx(saved["loss"], abs=1e-6)


def test_a_folder_that_holds_a_run_is_not_overwritten_unless_told_to(capsys):
    main(["train", "--to", "one"])
    before = what_a_run_is("one")
    assert main(["train", "--to", "one", "--seed", "1"]) == 1
    assert "--resume goes on with it, --overwrite begins anew" in capsys.readouterr().err
    assert what_a_run_is("one") == before
    assert main(["train", "--to", "one", "--seed", "1", "--overwrite"]) == 0
    assert what_a_run_is("one") != before


def test_a_run_begun_anew_shows_no_scores_of_the_old_one_while_it_trains(capsys, monkeypatch):
    main(["train", "--to", "one"])
    seen = []

    def stopped(*args, **rest):
        seen.append(Path("one/metrics.json").exists())
        raise ValueError("stopped here")

    monkeypatch.setattr(command, "train", stopped)
    assert main(["train", "--to", "one", "--overwrite"]) == 1
    assert seen == [False]


def test_all_processes_of_a_run_have_the_first_ones_tokenizers(monkeypatch):
    """Training one is repeatable today; a run must not depend on it."""
    own = (Tokenizer.train(["b b"], 12), Tokenizer.train(["b b"], 12))
    firsts = (Tokenizer.train(["a a"], 12), Tokenizer.train(["a a"], 12))

    class Second(DistributedContext):
        def broadcast_from_main(self, make):
            return firsts if make() is own else make()

    seen = []
    monkeypatch.setattr(command, "train_tokenizers", lambda data, pairs: own)
    watched = TASKS["translation"]._replace(encode=lambda pairs, *tokenizers: seen.append(tokenizers))
    monkeypatch.setitem(TASKS, "translation", watched)
    monkeypatch.setattr(command, "train", lambda *args, **rest: Progress(args[2], ended="interrupted"))
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    assert command._run(parser.parse_args([]), Second(1, 2, torch.device("cpu"))) == 130
    assert seen == [firsts]


def test_ctrl_c_says_how_to_go_on_and_going_on_ends_where_the_whole_run_does(tiny, capsys, monkeypatch):
    shown = command._Bar.show

    def interrupt(self, progress):
        shown(self, progress)
        if progress.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(command._Bar, "show", interrupt)
        assert main(["train", "--to", "cut"]) == 130
    assert "go on with: attncourse train --resume --to cut" in capsys.readouterr().err
    assert main(["train", "--resume", "--to", "cut"]) == 0
    main(["train", "--to", "whole"])
    assert what_a_run_is("cut") == what_a_run_is("whole")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["train", "--source", "de", "--target", "de"], "--source and --target: got de for both"),
        (["train", "--steps", "0"], "steps: got 0"),
        (["train", "--profile", "base", "--data", "number-words"], "expected multi30k with the profile 'base'"),
        (["train", "--resume", "--to", "nowhere"], "nowhere: holds no run"),
        (["translate", "zwei"], "there is no run under runs/"),
        (["translate", "zwei", ""], "text 2: got an empty line"),
        (["translate", "zwei", "--beams", "0"], "--beams: got 0"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(arguments, said, capsys):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert said in error and len(error.strip().splitlines()) == 1


def test_a_text_that_the_model_cannot_take_is_said_in_one_line(tiny, capsys, monkeypatch):
    main(["train", "--to", "runs/one"])
    for text, said in (("zwei, " * 900, "expected at most 512"), ("zwei\udcff", "text 1: not UTF-8")):
        capsys.readouterr()
        assert main(["translate", text]) == 1
        error = capsys.readouterr().err
        assert said in error and len(error.strip().splitlines()) == 1
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"zwei\n\xe4\n"), "utf-8"))
    assert main(["translate"]) == 1
    assert "standard input: not UTF-8" in capsys.readouterr().err


def test_the_newest_run_is_the_one_with_the_newest_weights(tiny, capsys):
    main(["train", "--to", "runs/one"])
    main(["train", "--to", "runs/two"])
    (tiny / "runs" / "two" / "weights.safetensors").unlink()
    capsys.readouterr()
    assert main(["translate", "zwei"]) == 0


def test_resume_and_overwrite_are_not_meant_together(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--resume", "--overwrite"])
    assert "--overwrite: not allowed with argument --resume" in capsys.readouterr().err


def test_a_run_that_goes_on_for_longer_is_planned_for_it_from_then_on(tiny, capsys, monkeypatch):
    main(["train", "--to", "one", "--steps", "3"])
    assert main(["train", "--to", "one", "--resume", "--steps", "6"]) == 0
    assert runs.load_run_config(Path("one")).recipe.steps == 6
    monkeypatch.setitem(TINY_RECIPE, "schedule", "cosine")
    main(["train", "--to", "two"])
    capsys.readouterr()
    assert main(["train", "--to", "two", "--resume", "--steps", "9"]) == 1
    assert "--steps: got 9 for a run planned for 6 steps" in capsys.readouterr().err
    assert runs.load_run_config(Path("two")).recipe.steps == 6


def test_the_bar_of_a_resumed_run_begins_where_the_run_does():
    progress = Progress(runs.Recipe(steps=100), [Step(step, 1.0, 1e-3, 1.0) for step in range(1, 61)])
    with command._Bar(100, "bleu", wanted=False) as bar:
        bar.bar = tqdm(total=100, file=io.StringIO())
        bar.show(progress)
        assert (bar.bar.initial, bar.bar.n) == (59, 60)


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99"])
def test_a_device_that_is_not_there_is_said_in_one_line_before_anything_is_written(device, tiny, capsys):
    assert main(["train", "--device", device]) == 1
    error = capsys.readouterr().err
    assert f"device: got '{device}'" in error and len(error.strip().splitlines()) == 1
    assert not (tiny / "runs").exists()


def test_a_tokenizer_of_another_run_is_refused(tiny, capsys):
    main(["train", "--to", "one"])
    Tokenizer.train(["a b c"], 12).save(tiny / "one" / "tokenizer_target.json")
    for arguments in (["translate", "zwei", "--run", "one"], ["train", "--resume", "--to", "one"]):
        assert main(arguments) == 1
        assert "tokenizer_target.json: of another run: has" in capsys.readouterr().err


def test_the_module_is_the_command():
    words = [sys.executable, "-m", "attncourse.training", "translate", "zwei"]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 1 and ran.stderr.startswith("error: there is no run under runs/")


# Text of one's own


def write_texts(folder, pairs, source="a.de", target="a.en"):
    """Two files that go line by line."""
    for name, side in ((source, 0), (target, 1)):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")


def sentences(n=60):
    return number_words_of_own("de", "en", train=n, test=0, max_items=1, dates=0, seed=3).train


OWN = ["train", "--source", "a.de", "--target", "a.en", "--to", "own", "--vocab-size", "60"]


def test_a_run_on_text_of_ones_own_translates(tiny, capsys):
    write_texts(tiny, sentences())
    assert main(OWN) == 0
    assert "tok:13a" in (line := last_line(capsys)) and line.startswith("BLEU ")
    assert main(["translate", "zwei", "--run", "own"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    saved = runs.load_run_config(Path("own"))
    assert saved.data["name"] == "text" and saved.data["source"] == "a.de"


def test_own_text_is_split_so_that_no_source_sentence_is_in_two_parts_and_none_is_lost(tiny):
    pairs = sentences(200)
    pairs += [pair._replace(target=f"{pair.target} again") for pair in pairs[:50]]
    write_texts(tiny, pairs)
    files = Path("a.de"), Path("a.en")
    parts = profiles.load_corpora(own_text.own_text(files, None, None, seed=0))
    assert sorted(pair for part in parts for pair in part) == sorted(pairs)
    sources = [{pair.source for pair in part} for part in parts]
    assert sum(map(len, sources)) == 200 == len(set.union(*sources))
    assert [len(each) for each in sources] == [180, 10, 10]
    again, other = (profiles.load_corpora(own_text.own_text(files, None, None, seed)) for seed in (0, 1))
    assert again == parts and other.val != parts.val


def test_files_for_validation_and_test_are_used_as_they_are(tiny, capsys):
    pairs = sentences()
    write_texts(tiny, pairs[:40])
    write_texts(tiny, pairs[40:50], "v.de", "v.en")
    write_texts(tiny, pairs[50:], "t.de", "t.en")
    named = ["--valid-source", "v.de", "--valid-target", "v.en", "--test-source", "t.de", "--test-target", "t.en"]
    assert main([*OWN, *named]) == 0
    parts = profiles.load_corpora(runs.load_run_config(Path("own")).data)
    assert parts == (pairs[:40], pairs[40:50], pairs[50:])


def test_text_that_was_changed_since_is_not_trained_on_any_further(tiny, capsys):
    write_texts(tiny, sentences())
    assert main(OWN) == 0
    write_texts(tiny, sentences(61))
    capsys.readouterr()
    assert main(["train", "--resume", "--to", "own", "--steps", "9"]) == 1
    assert "a.de: is not what it was when the run was planned" in capsys.readouterr().err


def test_pairs_that_are_longer_than_the_positions_are_left_out_and_counted(tiny, capsys):
    pairs = sentences()
    pairs[7] = pairs[7]._replace(source="zwei " * 600)
    write_texts(tiny, pairs)
    assert main(OWN) == 0
    assert "left out: 1 pairs of more than 512 tokens" in capsys.readouterr().out


def spoil(folder, kind):
    write_texts(folder, sentences())
    if kind == "a line short":
        (folder / "a.en").write_text("\n".join(["one"] * 59) + "\n")
    elif kind == "empty":
        for name in ("a.de", "a.en"):
            (folder / name).write_text("")
    elif kind == "latin-1":
        (folder / "a.de").write_bytes("fünf\n".encode("latin-1") * 60)
    elif kind == "a gap":
        (folder / "a.en").write_text("\n".join(["one"] * 29 + [""] + ["one"] * 30) + "\n")
    elif kind == "few":
        write_texts(folder, sentences(5))
    elif kind == "empty validation":
        write_texts(folder, [], "v.de", "v.en")


VALID = ["--valid-source", "v.de", "--valid-target", "v.en"]


@pytest.mark.parametrize(
    "kind, more, said",
    [
        ("a line short", [], "a.de has 60 lines and a.en has 59"),
        ("empty", [], "a.en: hold no sentence, expected one a line"),
        ("latin-1", [], "a.de, line 1: not UTF-8 (byte 0xfc at 2); save the file as UTF-8"),
        ("a gap", [], "a.en, line 30: empty, and a.de has text there"),
        ("few", [], "a.de: has 5 different sentences, expected at least 10"),
        ("", ["--source", "b.de"], "--source: got 'b.de', expected a language (de, en, fr) or a file"),
        ("", ["--source", "es"], "--source: got 'es', expected a language (de, en, fr) or a file"),
        ("", ["--target", "en"], "got a.de and en, expected two languages or two files"),
        ("", ["--target", "a.de"], "got a.de for both"),
        ("", ["--data", "multi30k"], "--data: got multi30k beside files of your own"),
        ("", VALID[:2], "--valid-source and --valid-target: got one of them, expected both"),
        ("", VALID, "v.de: cannot be read (No such file or directory)"),
        ("empty validation", VALID, "v.en: hold no sentence, expected one a line"),
        ("", ["--d-model", "30", "--n-heads", "4"], "n_heads: got 4, expected a divisor of d_model = 30"),
        ("", ["--dropout", "1.5"], "dropout: got 1.5"),
        ("", ["--lr", "0"], "lr: got 0.0, expected more than 0"),
        ("", ["--batch-tokens", "0"], "batch_tokens: got 0, expected at least 1"),
        ("", ["--profile", "base", "--device", "gpu"], "device: got 'gpu', expected cpu, or cuda"),
    ],
)
def test_text_that_cannot_be_trained_on_is_refused_in_one_line_before_anything_is_written(
    kind, more, said, tiny, capsys
):
    spoil(tiny, kind)
    assert main([*OWN, *more]) == 1
    error = capsys.readouterr().err
    assert said in error.replace(f"{tiny}/", "") and len(error.strip().splitlines()) == 1
    assert not (tiny / "own").exists()


def test_a_format_that_the_device_lacks_is_refused_in_one_line_before_anything_is_written(tiny, capsys, monkeypatch):
    def emulated(wanted, device):
        return hardware.settle_precision(wanted, torch.device("cuda"))

    monkeypatch.setattr(command, "settle_precision", emulated)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    assert main(["train", "--precision", "bf16"]) == 1
    error = capsys.readouterr().err
    assert "got 'bf16' on Tesla T4, which would emulate it, slowly; expected 'fp16' or 'auto'" in error
    assert len(error.strip().splitlines()) == 1 and not (tiny / "runs").exists()


def test_validation_files_without_text_of_ones_own_are_refused(tiny, capsys):
    assert main(["train", *VALID]) == 1
    assert "--valid-source: belongs to text of your own" in capsys.readouterr().err


# What is said in place of the profile


def test_flags_stand_in_place_of_the_profile_and_the_rest_stays(tiny, capsys):
    words = "--lr 0.003 --batch-tokens 64 --accumulate 2 --d-model 8 --n-layers 2 --d-ff 12 --dropout 0.1 --ema 0.9 "
    words += "--precision bf16 --compile --activation-checkpointing --evaluate-every 2 --weight-decay 0.1 --patience 3"
    args = argparse.ArgumentParser()
    command.add_arguments(args)
    _, planned, _, _ = command._begin(args.parse_args(words.split()), DistributedContext(0, 1, torch.device("cpu")))
    recipe, model = planned.recipe, planned.model
    assert (recipe.lr, recipe.batch_tokens, recipe.accumulate, recipe.ema) == (0.003, 64, 2, 0.9)
    assert (recipe.precision, recipe.compile, recipe.activation_checkpointing) == ("bf16", True, True)
    assert (recipe.evaluate_every, recipe.save_every, recipe.weight_decay, recipe.patience) == (2, 2, 0.1, 3)
    assert (model.d_model, model.n_layers, model.d_ff, model.dropout) == (8, 2, 12, 0.1)
    assert (recipe.steps, recipe.warmup, model.n_heads) == (6, 2, 2)


def test_a_resumed_run_takes_what_changes_nothing_and_refuses_the_rest(tiny, capsys):
    assert main(["train", "--to", "one", "--steps", "3"]) == 0
    more = ["--steps", "4", "--activation-checkpointing", "--patience", "5"]
    assert main(["train", "--to", "one", "--resume", *more]) == 0
    recipe = runs.load_run_config(Path("one")).recipe
    assert recipe.activation_checkpointing and (recipe.steps, recipe.patience) == (4, 5)
    capsys.readouterr()
    for flag, value in (("--lr", "0.1"), ("--d-model", "32"), ("--vocab-size", "9")):
        assert main(["train", "--to", "one", "--resume", flag, value]) == 1
        assert f"{flag}: is settled in a run that is resumed" in capsys.readouterr().err


def test_every_profile_can_be_planned_and_only_the_t4s_is_bound_to_a_format(monkeypatch):
    monkeypatch.undo()                                            # the sizes as they are
    for profile in profiles.PROFILES:
        for name in ("multi30k", "text", *(["number-words"] if profile != "base" else [])):
            *_, recipe = profiles.settings(profile, name)
            wanted = runs.Recipe(**recipe).precision
            assert wanted == {"cpu": "float32", "t4": "fp16"}.get(profile, "auto")
            assert runs.Recipe(**recipe).compile == (profile == "base")


def test_a_prediction_counts_what_the_run_would_do_and_does_nothing(tiny, capsys):
    assert main(["train", "--predict", "--accumulate", "2", "--ema", "0.9"]) == 0
    said = capsys.readouterr().out
    assert "predicted from data sheets, not measured" in said and "T4    fp16" in said and not (tiny / "runs").exists()
    assert main(["train", "--to", "one", "--accumulate", "2", "--ema", "0.9"]) == 0
    run = runs.load_run("one")
    pairs = encode_pairs(profiles.load_corpora(run.run_config.data).train, run.source, run.target)
    made = predict(run.run_config, pairs)
    n = sum(p.numel() for p in run.model.parameters())
    assert made.parameters == n and f"{n:,} parameters" in said and made.state == 24 * n
    done = json.loads(Path("one/metrics.json").read_text())["test"]["target_tokens"]
    assert made.tokens == pytest.approx(done / 6, rel=0.1) and made.steps == 6
    assert made.seconds(CHIPS["T4"], "fp16", 0.5) == pytest.approx(6 * made.flops / 65e12 / 0.5)
    recomputed = run.run_config._replace(recipe=replace(run.run_config.recipe, activation_checkpointing=True))
    again = predict(recomputed, pairs)
    assert again.activations < made.activations and again.flops == pytest.approx(4 / 3 * made.flops)


def test_predicted_activations_are_what_a_micro_batch_takes(tiny):
    data = {"source": "de", "target": "en", **profiles.settings("cpu", "number-words")[0]}
    corpora = profiles.load_corpora(data)
    tokenizers = profiles.train_tokenizers(data, corpora.train)
    planned = profiles.make_run_config("cpu", "number-words", tokenizers)
    examples = Pairs(encode_pairs(corpora.train, *tokenizers))
    batches = examples.epoch_batches(planned.recipe.batch_tokens, 0, 0)
    model = planned.task.model(planned.model)
    loss = examples.loss(model, compiled=False)
    taken = []
    for batch in batches:
        made = examples.collate([examples[i] for i in batch])
        taken.append(saved_activation_bytes(lambda made=made: loss(*made, label_smoothing=0.0)))
    predicted = predict(planned, examples.examples).activations
    # On the meta device the attention weights are kept, which the CPU's kernel computes again.
    assert 0.9 * max(taken) < predicted < 1.6 * max(taken)


def test_out_of_memory_is_one_line_that_says_which_knob_to_turn(tiny, capsys, monkeypatch):
    def too_much(*args, **rest):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    with monkeypatch.context() as patch:
        patch.setattr(command, "train", too_much)
        assert main(["train", "--to", "one"]) == 1
    error = capsys.readouterr().err
    assert "cpu: out of memory with micro-batches of 128 tokens: begin anew with --batch-tokens 64" in error
    assert "--accumulate 2" in error and "add --activation-checkpointing" in error and len(error.splitlines()) == 1
    assert main(["train", "--to", "one", "--steps", "3"]) == 0
    monkeypatch.setattr(command, "train", too_much)
    capsys.readouterr()
    assert main(["train", "--to", "one", "--resume"]) == 1
    assert "go on with --resume --activation-checkpointing --to one" in capsys.readouterr().err


def test_another_error_is_not_taken_for_a_want_of_memory(monkeypatch):
    def broken(*args, **rest):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(command, "train", broken)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        main(["train"])


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("weights.safetensors", b"\x10\x00", "weights.safetensors: cut short"),
        ("tokenizer_source.json", b"{", "tokenizer_source.json: cannot be used"),
        ("config.json", b'{"model": {"colour": 1}, "recipe": {"betas": []}, "data": {}}', "config.json: cannot"),
    ],
)
def test_a_broken_run_says_which_file_is_broken(name, content, said, tiny, capsys):
    main(["train", "--to", "one"])
    (tiny / "one" / name).write_bytes(content)
    assert main(["translate", "zwei", "--run", "one"]) == 1
    assert said in capsys.readouterr().err


def test_weights_of_another_config_are_refused(tiny, capsys):
    main(["train", "--to", "one"])
    run_config = runs.load_run_config(tiny / "one")
    plain = json.loads((tiny / "one" / "config.json").read_text())
    plain["model"]["d_model"] = 32
    (tiny / "one" / "config.json").write_text(json.dumps(plain))
    assert replace(run_config.model, d_model=32) == runs.load_run_config(tiny / "one").model
    assert main(["translate", "zwei", "--run", "one"]) == 1
    assert "from a model of another config" in capsys.readouterr().err


def test_data_that_is_not_there_is_one_line(monkeypatch, capsys):
    def missing(source, target):
        raise BadData("train.de.gz: not the file of that name in Multi30k")

    monkeypatch.setattr(profiles, "multi30k", missing)
    assert main(["train", "--data", "multi30k"]) == 1
    assert "error: train.de.gz: not the file of that name" in capsys.readouterr().err
    assert not os.path.exists("runs")
