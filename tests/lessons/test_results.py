"""What was measured is read as it was written, and nothing is made up where nothing was."""

import pytest

from attncourse import pretrained
from attncourse.data import Tokenizer
from attncourse_lessons import results


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
