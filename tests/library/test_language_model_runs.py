"""`attncourse train --text`, `generate`, `evaluate --text`: a language model on text of one's own."""

import gzip
import json
import math
from pathlib import Path

import pytest
import torch

from attncourse.data import BOS, EOS, BadData, Pair, Tokenizer, encode_pairs, encode_texts, read_texts, say
from attncourse.recurrent import Seq2Seq
from attncourse.training import command, profiles, runs
from attncourse.training.evaluation import mean_text_loss, text_metrics
from attncourse.training.own_text import TEXTS, load_own_text, own_text
from attncourse.training.recipe import Recipe
from attncourse.training.trainer import train
from attncourse.transformer import EncoderDecoder, LanguageModel, TransformerConfig
from attncourse_lessons.cli import main

MODEL = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 32, "max_length": 24, "positions": "rope"}
RECIPE = {"steps": 6, "batch_tokens": 256, "warmup": 2, "lr": 1e-2, "evaluate_every": 3, "label_smoothing": 0.0}
LINES = [say(number, "en") for number in range(60)]


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANK", raising=False)
    data = {"name": TEXTS, "joint": True, "vocab_size": 60}
    monkeypatch.setitem(profiles._SIZES, ("cpu", TEXTS), (data, MODEL, RECIPE))
    Path("a.txt").write_text("\n".join(LINES) + "\n", "utf-8")
    return tmp_path


@pytest.fixture
def run(tiny, capsys):
    assert main(["train", "--text", "a.txt", "--to", "runs/lm"]) == 0
    return Path("runs/lm")


def test_a_language_model_is_trained_and_known_by_its_perplexity(run, capsys):
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("language-model a.txt, 54 texts; ") and said[-1].startswith("perplexity ")
    assert {file.name for file in run.iterdir()} == {
        "config.json", "tokenizer.json", "environment.json", "metrics.json",
        "weights.safetensors", "checkpoint.safetensors", "losses.csv", "scores.csv",
    }  # fmt: skip
    loaded = runs.load_run(run)
    assert type(loaded.model) is LanguageModel and loaded.source is loaded.target
    measured = json.loads((run / "metrics.json").read_text())["test"]
    test = profiles.load_corpora(loaded.run_config.data).test
    assert measured["texts"] == len(test) == 3
    loss = mean_text_loss(loaded.model, encode_texts(test, loaded.source))
    assert measured["perplexity"] == pytest.approx(math.exp(loss))


def test_training_lowers_the_loss_on_texts_that_it_never_saw(run):
    scores = (run / "scores.csv").read_text().splitlines()
    losses = [float(row.split(",")[scores[0].split(",").index("loss")]) for row in scores[1:]]
    assert losses[-1] < losses[0]


def test_bits_a_byte_are_the_losses_of_all_tokens_over_the_bytes_of_utf_8():
    texts = ["fünf", "zwei"]
    tokenizer = Tokenizer.train(texts, 20)
    torch.manual_seed(0)
    model = LanguageModel(TransformerConfig(vocab_size=len(tokenizer), **MODEL)).eval()
    nats = 0.0
    for text in texts:
        tokens = [BOS, *tokenizer.encode(text), EOS]
        log_p = model(torch.tensor([tokens[:-1]])).log_softmax(-1)[0]
        nats -= sum(log_p[i, token].item() for i, token in enumerate(tokens[1:]))
    assert text_metrics(model, texts, tokenizer)["bits_per_byte"] == pytest.approx(nats / math.log(2) / 9, rel=1e-5)


def test_a_text_longer_than_the_positions_is_scored_in_pieces(run):
    loaded = runs.load_run(run)
    long = " ".join(LINES)
    assert len(loaded.source.encode(long)) > 24
    assert math.isfinite(mean_text_loss(loaded.model, encode_texts([long], loaded.source)))


def test_a_run_goes_on_where_it_was_stopped(run, tiny, capsys):
    assert main(["train", "--text", "a.txt", "--to", "half", "--steps", "3"]) == 0
    assert main(["train", "--resume", "--to", "half", "--steps", "6"]) == 0
    losses = [[line.split(",")[:2] for line in Path(at, "losses.csv").read_text().splitlines()] for at in (run, "half")]
    assert losses[0] == losses[1]


def test_the_model_writes_after_a_prompt_the_same_for_the_same_seed(run, capsys):
    def written(*words):
        capsys.readouterr()
        assert main(["generate", *words]) == 0
        return capsys.readouterr().out

    drawn = written("twenty", "--count", "3", "--seed", "0", "--max-length", "8")
    texts = drawn.rstrip("\n").split("\n\n")
    assert len(texts) == 3 and all(text.startswith("twenty") for text in texts)
    assert written("twenty", "--count", "3", "--seed", "0", "--max-length", "8") == drawn
    assert written("twenty", "--count", "3", "--seed", "1", "--max-length", "8") != drawn
    assert written("twenty", "--temperature", "0") == written("twenty", "--temperature", "1", "--top-k", "1")


def test_a_run_is_scored_on_another_text(run, capsys):
    Path("b.txt").write_text("ten\neleven\n")
    capsys.readouterr()
    assert main(["evaluate", "--text", "b.txt"]) == 0
    assert "over 2 texts" in (said := capsys.readouterr().out) and said.splitlines()[-1].startswith("perplexity ")
    assert main(["evaluate", "runs/lm", "--text", "b.txt", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["texts"] == 2


def test_a_prediction_counts_a_language_models_run_and_does_nothing(tiny, capsys):
    assert main(["train", "--text", "a.txt", "--to", "lm", "--predict"]) == 0
    assert "6 steps at most" in capsys.readouterr().out and not Path("lm").exists()


def test_every_profile_trains_a_language_model(tiny, capsys):
    for profile in profiles.PROFILES:
        assert main(["train", "--text", "a.txt", "--profile", profile, "--vocab-size", "60", "--predict"]) == 0
        assert "parameters" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "--text", "none.txt"], "none.txt: cannot be read (No such file or directory)"),
        (["train", "--text", "few.txt"], "few.txt: has 2 different texts, expected at least 10"),
        (["train", "--text", "empty.txt"], "empty.txt: holds no text"),
        (["train", "--text", "latin.txt"], "latin.txt, line 1: not UTF-8"),
        (["train", "--text", "a.txt", "--data", "multi30k"], "--text: got a.txt beside --data multi30k"),
        (["train", "--text", "a.txt", "--source", "a.txt"], "--text: got a.txt beside files to translate (a.txt)"),
        (["train", "--text", "a.txt", "--valid-source", "a.txt"], "for a language model, --valid-text"),
        (["train", "--valid-text", "a.txt"], "--valid-text: belongs to a language model"),
        (["generate"], "there is no run under runs/: `attncourse train --text FILE` makes one"),
        (["evaluate", "--text", "a.txt"], "`attncourse train --text FILE` makes one"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words, said, tiny, capsys):
    Path("few.txt").write_text("one\ntwo\none\n")
    Path("empty.txt").write_text("\n \n")
    Path("latin.txt").write_bytes("fünf\n".encode("latin-1") * 20)
    assert main(words) == 1
    error = capsys.readouterr().err
    assert said in error.replace(f"{tiny}/", "") and error.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--count", "0"], "--count: got 0, expected 1 or more"),
        (["--max-length", "0"], "--max-length: got 0"),
        (["--temperature", "-1"], "temperature: got -1.0"),
        (["--top-p", "2"], "top_p: got 2.0"),
        (["--temperature", "0", "--top-k", "3"], "--temperature: got 0, which draws nothing"),
        ([" ".join(LINES)], "expected"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_line(words, said, run, capsys):
    capsys.readouterr()
    assert main(["generate", *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and said in error and error.count("\n") == 1


def test_each_command_refuses_a_run_of_the_other_task(run, tiny, capsys):
    capsys.readouterr()
    assert main(["translate", "zwei", "--run", "runs/lm"]) == 1
    assert "is a run of the task 'language model', expected 'translation'" in capsys.readouterr().err
    assert main(["evaluate", "runs/lm", "--source", "a.txt", "--target", "a.txt"]) == 1
    assert "is a language model; expected --text FILE" in capsys.readouterr().err
    assert main(["translate", "zwei"]) == 1                        # the newest run that translates: none
    assert "there is no run under runs/" in capsys.readouterr().err


# Files of texts


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("one\ntwo\n", ["one", "two"]),
        ("one\ntwo\n\nthree\n", ["one\ntwo", "three"]),
        ("\n\none\n \n\ntwo\n\n", ["one", "two"]),
        ("\ufeffone\n", ["one"]),
        ("one  \n  two", ["one", "two"]),
    ],
)
def test_texts_are_parted_by_empty_lines_or_else_by_lines(content, texts, tiny):
    Path("t.txt").write_text(content, "utf-8")
    Path("t.gz").write_bytes(gzip.compress(content.encode()))
    assert read_texts("t.txt") == texts == read_texts("t.gz")


def test_lines_of_a_text_come_back_as_lines():
    texts = ["to be or not\nto be"] * 2
    (tokenizer,) = profiles.train_tokenizers({"name": TEXTS, "vocab_size": 40}, texts)
    assert tokenizer.decode(tokenizer.encode(texts[0])) == texts[0]
    assert [piece for piece in tokenizer.pieces(texts[0]) if "\n" in piece] == ["\n"]


def test_no_text_is_in_two_parts_and_none_is_lost(tiny):
    Path("a.txt").write_text("\n".join(LINES + LINES[:20]))
    parts = load_own_text(own_text((Path("a.txt"),), None, None, seed=0))
    assert sorted(text for part in parts for text in part) == sorted(LINES + LINES[:20])
    assert sum(len(set(part)) for part in parts) == 60


# Runs that are made in Python


def two_texts():
    tokenizer = Tokenizer.train(LINES, 60)
    return tokenizer, LanguageModel(TransformerConfig(vocab_size=len(tokenizer), **MODEL))


def test_a_language_model_trained_from_python_is_a_run(tiny, capsys):
    tokenizer, model = two_texts()
    train(model, encode_texts(LINES, tokenizer), Recipe(steps=3), "runs/mine", tokenizers=tokenizer)
    loaded = runs.load_run("runs/mine")
    tokens = torch.tensor([encode_texts(LINES[:1], tokenizer)[0]])
    assert torch.equal(loaded.model(tokens), model(tokens))
    assert main(["generate", "ten", "--seed", "0"]) == 0 and capsys.readouterr().out.startswith("ten")
    assert main(["train", "--resume", "--to", "runs/mine"]) == 1
    assert "runs/mine: was trained from Python; there, train(..., resume=True)" in capsys.readouterr().err


@pytest.mark.parametrize("both", [True, False], ids=["a vocabulary for each", "one for both"])
def test_a_translator_trained_from_python_translates(both, tiny, capsys):
    pairs = [Pair(say(n, "de"), say(n, "en")) for n in range(40)]
    one = Tokenizer.train([text for pair in pairs for text in pair], 60)
    tokenizers = (Tokenizer.train([p.source for p in pairs], 50), Tokenizer.train([p.target for p in pairs], 40))
    source, target = tokenizers if both else (one, one)
    config = TransformerConfig(vocab_size=len(source), target_vocab_size=len(target), **MODEL)
    encoded = encode_pairs(pairs, source, target)
    train(EncoderDecoder(config), encoded, Recipe(steps=3), "runs/mine", tokenizers=(source, target) if both else one)
    assert main(["translate", "zwei"]) == 0 and len(capsys.readouterr().out.splitlines()) == 1


def test_tokenizers_that_do_not_fit_are_refused_before_anything_is_written(tiny):
    tokenizer, model = two_texts()
    texts = encode_texts(LINES, tokenizer)
    with pytest.raises(ValueError, match=r"tokenizers: got one of \d+ tokens, expected \d+, as the model has"):
        train(model, texts, Recipe(steps=3), "mine", tokenizers=Tokenizer.train(LINES, 30))
    with pytest.raises(ValueError, match="tokenizers: got 2, expected 1 for a LanguageModel"):
        train(model, texts, Recipe(steps=3), "mine", tokenizers=(tokenizer, tokenizer))
    other = Seq2Seq(60, 60, 8, 8, "attention")
    pairs = encode_pairs([Pair("a", "b")], tokenizer, tokenizer)
    with pytest.raises(ValueError, match="got some for a Seq2Seq, expected a model that is an EncoderDecoder or"):
        train(other, pairs, Recipe(steps=3), "mine", tokenizers=tokenizer)
    assert not Path("mine").exists()


def test_a_plan_of_before_there_were_language_models_is_a_translation(tiny):
    config = runs.RunConfig(TransformerConfig(vocab_size=8, **MODEL), Recipe(steps=1), {"name": "number-words"})
    runs.save_config(tiny, config)
    plain = json.loads((tiny / "config.json").read_text())
    del plain["task"]
    (tiny / "config.json").write_text(json.dumps(plain))
    assert runs.load_run_config(tiny) == config
    (tiny / "config.json").write_text(json.dumps(plain | {"task": "poetry"}))
    with pytest.raises(runs.CommandError, match="task: got 'poetry'"):
        runs.load_run_config(tiny)
    with pytest.raises(BadData):
        (tiny / "none.txt").write_text("")
        read_texts(tiny / "none.txt")
    assert command.BEST_BY[TEXTS] == "loss"
