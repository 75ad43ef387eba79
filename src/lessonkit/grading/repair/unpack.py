"""Finds the one notebook in an archive, and reads it within limits: a program of its own, without other packages.

`archive.py` runs it in a process that may be ended: Python's modules for archives take minutes for some files that were
made for that. The archive comes in on stdin. What goes out is a line of JSON, and then the notebook. Nothing is
unpacked: of the archive's files the notebook alone is read, into memory, and what comes out is counted, as the sizes
that an archive tells are its maker's to say.
"""

from __future__ import annotations

import io
import json
import re
import stat
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from gzip import GzipFile
from itertools import islice
from typing import IO, Any

MAX_MEMBERS = 500
MAX_UNPACKED = 100_000_000  # bytes of all that is in it
MAX_RATIO = 100  # of what comes out to the archive; of small ones nobody asks
SMALL = 1_000_000
CPU_SECONDS, MEMORY = 5, 1_000_000_000
NOTEBOOK = re.compile(r"\.ipynb$", re.IGNORECASE)


class Refused(Exception):
    """The archive is not opened; the message says why, after "an archive, "."""


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    link: bool
    folder: bool


def notebook_in(data: bytes, most: int) -> tuple[str, bytes]:
    """The name and the bytes of the one notebook in an archive, which may have `most` bytes. Refused if there is none.

    Hidden files and those of `__MACOSX` and its like are no notebooks, as in a folder.
    """
    try:
        return _in_zip(data, most) if data.startswith((b"PK\x03\x04", b"PK\x05\x06")) else _in_tar(data, most)
    except Refused:
        raise
    except Exception:  # both modules raise whatever a damaged file makes them
        raise Refused("which is damaged") from None


def _in_zip(data: bytes, most: int) -> tuple[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = {entry.filename: entry for entry in archive.infolist()}
        members = [
            _Member(entry.filename, entry.file_size, stat.S_ISLNK(entry.external_attr >> 16), entry.is_dir())
            for entry in archive.infolist()
        ]
        name = _the_notebook(members, len(data), most)
        if found[name].flag_bits & 1:
            raise Refused("which is locked by a password")
        if found[name].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Refused("which is packed in an unusual way")
        with archive.open(name) as file:
            return name, file.read(most)


def _in_tar(data: bytes, most: int) -> tuple[str, bytes]:
    file: Any = io.BytesIO(data)
    if data.startswith(b"\x1f\x8b"):
        file = GzipFile(fileobj=file)
    counted: Any = _Counted(file, min(MAX_UNPACKED, max(SMALL, MAX_RATIO * len(data))))
    members: list[_Member] = []
    contents: dict[str, bytes] = {}
    with tarfile.open(fileobj=counted, mode="r|") as archive:  # a stream: read once, from its start
        for entry in islice(archive, MAX_MEMBERS + 1):
            members.append(_Member(entry.name, max(0, entry.size), not entry.isreg(), entry.isdir()))
            if _is_notebook(members[-1]) and entry.size <= most and not contents:
                content = archive.extractfile(entry)
                contents[entry.name] = content.read(most) if content else b""
    name = _the_notebook(members, len(data), most)
    return name, contents[name]


def _the_notebook(members: list[_Member], size: int, most: int) -> str:
    """The name of the one notebook among an archive's files. Refused if the archive is not to be opened for it."""
    if len(members) > MAX_MEMBERS:
        raise Refused(f"which holds more than {MAX_MEMBERS} files and folders")
    for member in members:
        if _leads_out(member.name):
            raise Refused("which holds a path that leads out of it")
    unpacked = sum(member.size for member in members)
    if unpacked > MAX_UNPACKED or unpacked > max(SMALL, MAX_RATIO * size):
        raise Refused(f"which holds {unpacked / 1e6:,.0f} MB, more than is unpacked")
    notebooks = [member for member in members if _is_notebook(member)]
    if not notebooks:
        linked = any(member.link and not member.folder and NOTEBOOK.search(member.name) for member in members)
        raise Refused("in which the notebook is a link" if linked else "in which there is no notebook")
    if len(notebooks) > 1:
        raise Refused(f"in which there are {len(notebooks)} notebooks, and it is not clear which counts")
    if notebooks[0].size > most:
        raise Refused(f"whose notebook has {notebooks[0].size / 1e6:,.0f} MB, and {most / 1e6:g} MB are allowed")
    return notebooks[0].name


def _is_notebook(member: _Member) -> bool:
    hidden = any(part.startswith((".", "__")) for part in member.name.removeprefix("./").split("/"))
    return bool(NOTEBOOK.search(member.name)) and not member.link and not member.folder and not hidden


def _leads_out(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return name.startswith(("/", "\\")) or ".." in parts or re.match(r"[A-Za-z]:", name) is not None


class _Counted:
    """A stream that ends in Refused when more comes out of it than `limit` bytes."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self.file, self.left = file, limit

    def read(self, size: int) -> bytes:
        data = self.file.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise Refused("which holds more than is unpacked")
        return data


def main() -> None:
    try:
        import resource
    except ImportError:  # Windows
        pass
    else:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        name, content = notebook_in(sys.stdin.buffer.read(), int(sys.argv[1]))
        said = {"name": name}
    except Refused as reason:
        said, content = {"refused": str(reason)}, b""
    sys.stdout.buffer.write(json.dumps(said).encode() + b"\n" + content)


if __name__ == "__main__":
    main()
