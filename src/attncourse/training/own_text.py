"""Text of one's own as training data: two files that go line by line, and what is held out of them."""

import hashlib
import random
from pathlib import Path
from typing import Any

from attncourse.data import BadData, Pair, read_parallel
from attncourse.data.multi30k import Split3
from commandkit.errors import CommandError

NAME = "text"
# What is split off for validation, and as much for the test: this share of the sentences, this many at most.
HELD_OUT, AT_MOST = 0.05, 1_000
LEAST = 10

Files = tuple[Path, Path]


def own_text(train: Files, valid: Files | None, test: Files | None, seed: int) -> dict[str, Any]:
    """What a plan's `data` says of these files: where they are, and what is in them, so that a change is noticed.

    Raises CommandError for a file that cannot be read.
    """
    files = {"train": train, "valid": valid, "test": test}
    return {
        "name": NAME, "source": train[0].name, "target": train[1].name, "split_seed": seed,
        "files": {part: [str(path.resolve()) for path in pair] for part, pair in files.items() if pair},
        "sha256": {str(path.resolve()): _sha256(path) for pair in files.values() if pair for path in pair},
    }  # fmt: skip


def load_own_text(data: dict[str, Any]) -> Split3:
    """The pairs of the files that `own_text` was told of.

    Without files for it, validation pairs are split off, and test pairs too: sentences that are drawn by the seed, with
    all their pairs, so that no source sentence is in two parts. Raises CommandError for files that cannot be read, are
    not what they were when the run was planned, do not go line by line, or hold too little.
    """
    for path, digest in data["sha256"].items():
        if _sha256(Path(path)) != digest:
            raise CommandError(f"{path}: is not what it was when the run was planned; restore it, or begin anew")
    parts = {part: _read(*map(Path, files)) for part, files in data["files"].items()}
    rest = parts["train"]
    sources = sorted({pair.source for pair in rest})
    if len(sources) < LEAST:
        name = data["files"]["train"][0]
        raise CommandError(f"{name}: has {len(sources)} different sentences, expected at least {LEAST} to train on")
    random.Random(data["split_seed"]).shuffle(sources)
    many = max(1, min(AT_MOST, int(HELD_OUT * len(sources))))
    for part in ("valid", "test"):
        if part not in parts:
            held_out, sources = set(sources[:many]), sources[many:]
            parts[part] = [pair for pair in rest if pair.source in held_out]
            rest = [pair for pair in rest if pair.source not in held_out]
    return Split3(rest, parts["valid"], parts["test"])


def _read(source: Path, target: Path) -> list[Pair]:
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
