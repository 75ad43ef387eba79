"""Text of one's own, read from files: sentences with their translations, line by line, or texts on their own."""

import gzip
import re
import zlib
from pathlib import Path
from typing import NamedTuple

from commandkit.errors import CommandError


class Pair(NamedTuple):
    source: str
    target: str


class BadData(CommandError, ValueError):
    """A file that is not what it should be; the message names it, the place in it, and what to do."""


def read_parallel(source_file: str | Path, target_file: str | Path) -> list[Pair]:
    """Line n of one file and line n of the other, for each n: UTF-8, plain or, if the name ends in .gz, compressed.

    White space around a line is not part of it. A line that is empty in both files parts two texts, and gives no pair.
    Raises BadData for files of unequal length, a line that is empty in one of them alone, or bytes that are no UTF-8,
    and FileNotFoundError.
    """
    sources, targets = _lines(Path(source_file)), _lines(Path(target_file))
    if len(sources) != len(targets):
        raise BadData(
            f"{source_file} has {len(sources)} lines and {target_file} has {len(targets)}: "
            "each line must have its translation in the same line of the other file"
        )
    for n, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
        if bool(source) != bool(target):
            empty, other = (target_file, source_file) if source else (source_file, target_file)
            raise BadData(f"{empty}, line {n}: empty, and {other} has text there; translate it or take it out of both")
    return [Pair(source, target) for source, target in zip(sources, targets, strict=True) if source]


def read_texts(file: str | Path) -> list[str]:
    """The texts of a file, which empty lines part; of one without empty lines, each line: UTF-8, or .gz of it.

    Lines of one text stay lines. White space around a line is not part of it.
    Raises BadData for a file without text or bytes that are no UTF-8, and FileNotFoundError.
    """
    lines = _lines(Path(file))
    if "" not in lines[1:-1]:
        texts = [line for line in lines if line]
    else:
        texts = [text.strip("\n") for text in re.split(r"\n{2,}", "\n".join(lines)) if text.strip("\n")]
    if not texts:
        raise BadData(f"{file}: holds no text")
    return texts


def _lines(file: Path) -> list[str]:
    raw = file.read_bytes()
    if file.suffix == ".gz":
        try:
            raw = gzip.decompress(raw)
        except (EOFError, OSError, zlib.error) as error:          # cut short, or not compressed at all
            raise BadData(f"{file}: not a whole gzip file ({error}); get it again, or drop .gz if it is text") from None
    # str.splitlines and text mode also part lines at \r, U+2028 and others: lines would no longer go with each other.
    lines = raw.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").split(b"\n") if raw else []
    texts = []
    for n, line in enumerate(lines, start=1):
        try:
            texts.append(line.decode("utf-8").strip())
        except UnicodeDecodeError as error:
            byte = f"byte 0x{line[error.start]:02x} at {error.start + 1}"
            raise BadData(f"{file}, line {n}: not UTF-8 ({byte}); save the file as UTF-8, then try again") from None
    return texts
