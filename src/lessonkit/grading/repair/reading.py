"""Reading what was handed in: from a file's bytes to a valid notebook, or to the reason why there is none."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.validator import get_validator

DAMAGED = "the submitted file is damaged or not a notebook"
MAX_BYTES = 20_000_000
MAX_CELLS = 2_000
MAX_OUTPUTS = 5_000  # of all cells; what further ones show is not looked at, and nothing of it counts
MAX_DEPTH = 100  # of lists in dictionaries in lists; a notebook has about ten
OURS = "lessonkit"  # the key of a notebook's metadata

MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"PK\x05\x06": "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"%PDF": "a PDF file",
    b"<!": "a web page",
    b"<html": "a web page",
}


class Unreadable(Exception):
    """A submission cannot be graded; the message says why, to the learner."""


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """A submitted file's bytes. Unreadable, and not opened, if it is no ordinary file or larger than `limit` bytes."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable(f"{kind_of(found.st_mode)} was handed in in place of the notebook")
        if found.st_size > limit:
            size, most = f"{found.st_size / 1e6:,.0f}", f"{limit / 1e6:g}"
            raise Unreadable(f"the submitted file has {size} MB, and {most} MB are allowed: clear its outputs")
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"the submitted file cannot be opened: {error.strerror}") from None


def kind_of(mode: int) -> str:
    """What a file is, with an article."""
    kinds: dict[Callable[[int], bool], str] = {
        stat.S_ISREG: "a file",
        stat.S_ISLNK: "a symbolic link",
        stat.S_ISDIR: "a folder",
        stat.S_ISFIFO: "a named pipe",
        stat.S_ISSOCK: "a socket",
    }
    return next((name for test, name in kinds.items() if test(mode)), "a device")


def read(data: bytes) -> tuple[NotebookNode, list[str]]:
    """A submitted file as a valid notebook of format 4.5, and what was repaired for that. Unreadable if it is none."""
    if not data.strip(b"\0 \t\r\n"):
        raise Unreadable("the submitted file is empty")
    for start, kind in MAGIC.items():
        if data.lstrip().startswith(start):
            raise Unreadable(f"the submitted file is {kind}, not a notebook: hand in the notebook itself")
    notes: list[str] = []
    content = _parse(_decode(data, notes), notes)
    if not (isinstance(content, dict) and isinstance(content.get("cells", content.get("worksheets")), list)):
        raise Unreadable("the submitted file is JSON, but not a notebook")
    try:
        notebook = _notebook(content, notes)
    except Exception as error:
        raise Unreadable(f"{DAMAGED}: {_first_line(error)}") from None
    ours = notebook.metadata.get(OURS)
    if isinstance(ours, dict) and isinstance(ours.get("placeholder"), str):  # written by `folder.prepare`
        raise Unreadable(ours["placeholder"])
    return notebook, notes


def give_ids(cells: Iterable[NotebookNode]) -> bool:
    """Give each cell a valid id of its own, in place; the first of several keeps it. Returns whether one had none.

    nbformat would draw them at random, and what was executed before would not be found in the cache again.
    """
    taken: set[str] = set()
    changed = False
    for number, cell in enumerate(cells):
        name = cell.get("id")
        if not isinstance(name, str) or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) or name in taken:
            name, changed = f"cell-{number}", True
            while name in taken:
                name += "_"
            cell.id = name
        taken.add(name)
    return changed


def _decode(data: bytes, notes: list[str]) -> str:
    encoding: str = json.detect_encoding(data)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        encoding, text = "cp1252", data.decode("cp1252", "replace")  # an old Windows editor, or not a text at all
    if encoding == "utf-8-sig":
        notes.append("the file began with a byte order mark")
    elif encoding != "utf-8":
        notes.append(f"the file was saved as {encoding.upper()}, and notebooks are UTF-8")
    return text


def _parse(text: str, notes: list[str]) -> Any:
    try:
        # NaN and Infinity are no JSON: Python reads and writes them, and a browser then cannot open the notebook.
        content = json.loads(text, parse_constant=lambda word: None)
        if _depth(content) > MAX_DEPTH:  # nbconvert copies notebooks, and Python's stack ends
            raise RecursionError
    except RecursionError:
        raise Unreadable(f"{DAMAGED}: it is nested deeper than any notebook") from None
    except ValueError as error:
        if re.search("^<{7} ", text, re.MULTILINE):
            marked = [str(n) for n, line in enumerate(text.split("\n"), 1) if re.match(r"<{7} |={7}\s*$|>{7} ", line)]
            where = ", ".join(marked[:9]) + (" and more" if len(marked) > 9 else "")
            raise Unreadable(
                f"the submitted file holds git's merge markers (in lines {where}), so it is no notebook any more"
            ) from None
        why = _first_line(error)
        if isinstance(error, json.JSONDecodeError) and (error.pos >= len(text.rstrip()) or "Unterminated" in error.msg):
            why = f"it breaks off in line {error.lineno}"
        raise Unreadable(f"{DAMAGED}: {why}") from None
    if re.search(r"\\u[dD][89a-fA-F]", text):
        written = json.dumps(content, ensure_ascii=False)
        whole = written.encode(errors="replace").decode()
        if whole != written:
            notes.append("halves of characters (lone surrogates) were replaced")
            content = json.loads(whole)
    return content


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def _notebook(content: dict[str, Any], notes: list[str]) -> NotebookNode:
    version, minor = content.get("nbformat"), content.get("nbformat_minor")
    if "cells" not in content:
        version, minor = version if version in (1, 2, 3) else 3, 4
        notes.append(f"the notebook was in the old format {version}: converted")
        content = nbformat.reads(json.dumps({"metadata": {}, **content, "nbformat": version}), as_version=4)
        for cell in content["cells"]:
            del cell["id"]
    elif version != 4 or minor not in range(6):
        notes.append(f"the notebook said that its format is {str(version)[:20]}.{str(minor)[:20]}: read as 4.5")
    if len(content["cells"]) > MAX_CELLS:  # validating and matching them would take minutes
        raise ValueError(f"it has {len(content['cells']):,} cells, and {MAX_CELLS:,} are allowed")
    room = MAX_OUTPUTS
    for cell in content["cells"]:
        if isinstance(cell, dict) and isinstance(cell.get("outputs"), list):
            cell["outputs"] = cell["outputs"][:room]
            room -= len(cell["outputs"])
    notebook = nbformat.from_dict({**content, "nbformat": 4, "nbformat_minor": 5})
    try:
        notebook.metadata.get("language", "").lower()  # as nbconvert does
        notebook = nbformat.v4.to_notebook(notebook)
        if give_ids(notebook.cells) and minor == 5:
            notes.append("ids of cells were missing, or there twice")
        # Not nbformat.validate: it describes each fault at length, which takes minutes for a file that is full of them.
        get_validator(4, 5).validate(notebook)
    except Exception:
        notes.append("parts of the file had not the form of a notebook's: metadata and outputs were left out")
        notebook = _rebuilt(notebook)
        get_validator(4, 5).validate(notebook)
    if any("\r\n" in cell.source for cell in notebook.cells):
        notes.append("lines ended as on Windows")
    for cell in notebook.cells:
        cell.source = cell.source.replace("\r\n", "\n")
    return notebook


def _rebuilt(notebook: NotebookNode) -> NotebookNode:
    """A notebook of what grading needs of this one: the cells' types, sources, ids and nbgrader's metadata."""
    cells = []
    for cell in notebook.cells:
        if not isinstance(cell, dict):
            continue
        kind, source = cell.get("cell_type"), cell.get("source")
        if kind not in ("code", "markdown", "raw"):
            kind = "code" if "outputs" in cell else "markdown"
        lines = source if isinstance(source, list) else [source or ""]
        make = getattr(nbformat.v4, f"new_{kind}_cell")
        cells.append(make("".join(map(str, lines)), metadata=_only("nbgrader", cell.get("metadata"))))
        cells[-1].id = cell.get("id")
    give_ids(cells)
    return nbformat.v4.new_notebook(cells=cells, metadata=_only(OURS, notebook.get("metadata")))


def _only(key: str, metadata: Any) -> NotebookNode:
    return NotebookNode({key: metadata[key]} if isinstance(metadata, dict) and key in metadata else {})


def _first_line(error: Exception) -> str:
    return (str(error) or repr(error)).splitlines()[0][:200]
