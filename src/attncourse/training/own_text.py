"""Text of one's own as training data, and what is held out of it: two files that go line by line, or one of texts."""

import hashlib
import random
from pathlib import Path
from typing import Any

from attncourse.data import BadData, Pair, read_parallel, read_texts
from attncourse.data.multi30k import Split3
from commandkit.errors import CommandError

# How a plan calls them: pairs from two files, texts from one.
PAIRS, TEXTS = "text", "language-model"
# What is split off for validation, and as much for the test: this share of the sentences, this many at most.
HELD_OUT, AT_MOST = 0.05, 1_000
LEAST = 10

Files = tuple[Path, ...]


def own_text(train: Files, valid: Files | None, test: Files | None, seed: int) -> dict[str, Any]:
    """What a plan's `data` says of these files: where they are, and what is in them, so that a change is noticed.

    Each is a file of sentences and one of their translations, or one file of texts alone.
    Raises CommandError for a file that cannot be read.
    """
    files = {"train": train, "valid": valid, "test": test}
    names = dict(zip(("source", "target"), (path.name for path in train), strict=False))
    return {
        "name": PAIRS if len(train) == 2 else TEXTS, **names, "split_seed": seed,
        "files": {part: [str(path.resolve()) for path in those] for part, those in files.items() if those},
        "sha256": {str(path.resolve()): _sha256(path) for those in files.values() if those for path in those},
    }  # fmt: skip


def load_own_text(data: dict[str, Any]) -> Split3[Any]:
    """The pairs, or the texts, of the files that `own_text` was told of.

    Without files for it, a part is split off for validation, and one for the test: sentences that are drawn by the
    seed, with all their pairs, so that no source sentence, and no text, is in two parts. Raises CommandError for files
    that cannot be read, are not what they were when the run was planned, do not go line by line, or hold too little.
    """
    for path, digest in data["sha256"].items():
        if _sha256(Path(path)) != digest:
            raise CommandError(f"{path}: is not what it was when the run was planned; restore it, or begin anew")
    read: Any = _read_pairs if data["name"] == PAIRS else read_texts
    parts: dict[str, list[Any]] = {part: read(*map(Path, files)) for part, files in data["files"].items()}
    rest = parts["train"]
    different = sorted({_source(example) for example in rest})
    if len(different) < LEAST:
        name, what = data["files"]["train"][0], "sentences" if data["name"] == PAIRS else "texts"
        raise CommandError(f"{name}: has {len(different)} different {what}, expected at least {LEAST} to train on")
    random.Random(data["split_seed"]).shuffle(different)
    many = max(1, min(AT_MOST, int(HELD_OUT * len(different))))
    for part in ("valid", "test"):
        if part not in parts:
            held_out, different = set(different[:many]), different[many:]
            parts[part] = [example for example in rest if _source(example) in held_out]
            rest = [example for example in rest if _source(example) not in held_out]
    return Split3(rest, parts["valid"], parts["test"])


def _source(example: Pair | str) -> str:
    return example if isinstance(example, str) else example.source


def _read_pairs(source: Path, target: Path) -> list[Pair]:
    pairs = read_parallel(source, target)
    if not pairs:
        raise BadData(f"{source} and {target}: hold no sentence, expected one a line")
    return pairs


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        expected = "expected a text file, a sentence a line"
        raise CommandError(f"{path}: cannot be read ({error.strerror}); {expected}") from error
