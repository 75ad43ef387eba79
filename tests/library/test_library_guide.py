"""docs/library.md: its programs run as they stand, one after the other."""

import re
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from attncourse.pretrained import save
from attncourse.transformer import LanguageModel, TransformerConfig

GUIDE = (Path(__file__).parents[2] / "docs" / "library.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


@pytest.fixture
def gpt2(tmp_path, monkeypatch):
    """A folder models/gpt2 with small random weights and a tokenizer of bytes, and the guide's reader in it."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    config = TransformerConfig(
        vocab_size=len(letters), d_model=16, n_layers=1, n_heads=2, positions="learned", activation="gelu tanh"
    )
    save(LanguageModel(config), tmp_path / "models" / "gpt2", "gpt2", tokenizer)
    monkeypatch.chdir(tmp_path)


def test_the_programs_of_the_guide_run(gpt2, capsys):
    assert len(PROGRAMS) == len(re.findall("^## ", GUIDE, re.MULTILINE)) > 5
    known = {}
    for program in PROGRAMS:
        exec(compile(program, "docs/library.md", "exec"), known)
    said = capsys.readouterr().out
    assert "8,030,261,248 parameters" in said and "LanguageModel ['" in said
    before, after = (float(x) for x in re.search(r"([\d.]+) nats a token before, ([\d.]+) after", said).groups())
    assert after < before
