"""`attncourse train` and `attncourse translate`, as one types them."""

import argparse
import io
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tqdm import tqdm

from attncourse.data import BadData, Pair, Tokenizer
from attncourse.training import command, profiles, runs
from attncourse.training.distributed import DistributedContext
from attncourse.training.trainer import Progress, Step
from attncourse_lessons.cli import main

TINY_MODEL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
TINY_RECIPE = {"steps": 6, "batch_tokens": 128, "warmup": 2, "lr": 1e-2, "evaluate_every": 3}
NUMBERS = {"name": "number-words", "train": 200, "test": 20, "vocab_size": 60, "joint": False, "dates": 0.1}
CAPTIONS = {"name": "multi30k", "vocab_size": 60, "joint": True}


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)
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
    assert json.loads((folder / "environment.json").read_text())["versions"]["torch"] == torch.__version__


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


def test_a_loaded_run_is_the_model_that_was_kept(capsys):
    main(["train", "--to", "one"])
    run = runs.load_run("one")
    saved = json.loads(Path("one/metrics.json").read_text())["best_validation"]
    validation = profiles.load_corpora(run.run_config.data).val
    evaluate = command.make_evaluate("number-words", validation, run.source, run.target)
    assert evaluate(run.model)["loss"] == pytest.approx(saved["loss"], abs=1e-6)


def test_a_folder_that_holds_a_run_is_not_overwritten_unless_told_to(capsys):
    main(["train", "--to", "one"])
    before = Path("one/losses.csv").read_text()
    assert main(["train", "--to", "one", "--seed", "1"]) == 1
    assert "--resume goes on with it, --overwrite begins anew" in capsys.readouterr().err
    assert Path("one/losses.csv").read_text() == before
    assert main(["train", "--to", "one", "--seed", "1", "--overwrite"]) == 0
    assert Path("one/losses.csv").read_text() != before


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
    monkeypatch.setattr(command, "encode_pairs", lambda pairs, *tokenizers: seen.append(tokenizers))
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
    assert Path("cut/losses.csv").read_text() == Path("whole/losses.csv").read_text()


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


def test_an_unknown_language_is_refused_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--source", "es"])
    assert re.search(r"invalid choice: '?es'? \(choose from '?de'?, '?en'?, '?fr'?\)", capsys.readouterr().err)


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
