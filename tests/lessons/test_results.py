"""What was measured is read as it was written, and nothing is made up where nothing was."""

import json

import pytest

from attncourse import pretrained
from attncourse.data import Tokenizer
from attncourse_lessons import results

KEPT = {
    "benchmark": "training", "profile": "gpu", "data": {"name": "multi30k", "source": "de", "target": "en"},
    "parameters": 10, "device_name": "a GPU", "training_seconds": 60.5, "bleu": 40.0, "date": "2026-01-01",
    "command": "python benchmarks/training.py --profile gpu",
    "measured": {"bleu": 40.0, "bleu_signature": "a", "bleu_lowercase": 41.0, "bleu_lowercase_signature": "b"},
}  # fmt: skip


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """The folder of what was measured, empty."""
    (tmp_path / "measured").mkdir()
    monkeypatch.setattr(results, "files", lambda package: tmp_path)
    return tmp_path / "measured"


def test_where_no_run_was_kept_there_is_none(measured):
    (measured / "modifications.json").write_text("{}")
    assert results.training_runs() == []


def test_the_kept_runs_come_the_best_first(measured):
    better = KEPT | {"measured": KEPT["measured"] | {"bleu": 42.0}, "model": "RNN + attention"}
    for name, kept in (("training_a", KEPT), ("training_b", better)):
        (measured / f"{name}.json").write_text(json.dumps(kept))
    runs = results.training_runs()
    assert [(run.model, run.bleu) for run in runs] == [("RNN + attention", 42.0), ("Transformer", 40.0)]
    assert runs[1].signature_lowercase == "b" and runs[1].seconds == 60.5 and runs[1].source == "de"


def test_a_measurement_of_speed_alone_is_no_run(measured):
    (measured / "training_speed.json").write_text(json.dumps({"profile": "gpu", "tokens_per_second_ratio": 2.0}))
    assert results.training_runs() == []


def test_a_kept_checkpoint_is_the_model_that_its_record_measured():
    record, folder = results.measured("writer"), results.kept_checkpoint("writer")
    kept = pretrained.load(folder)
    assert sum(p.numel() for p in kept.model.parameters()) == record["parameters"]
    assert len(Tokenizer.load(folder / "tokenizer.json")) == record["vocab_size"] == kept.model.config.vocab_size
    nats = record["nats_per_token"]
    assert nats["5-gram and kept"] < min(nats["kept"], nats["5-gram"]) - 0.2
    assert record["gain"]["low"] <= record["gain"]["mean"] <= record["gain"]["high"]
    assert record["gain"]["mean"] == pytest.approx(nats["5-gram"] - nats["kept"], abs=0.01)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 5e6


def test_a_checkpoint_that_is_not_kept_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match="name: got 'reader', expected one of writer"):
        results.kept_checkpoint("reader")
