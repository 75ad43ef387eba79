"""A notebook that was handed in inside a zip or tar archive: the one that is in it, read within limits.

Nothing is unpacked: of the archive's files the notebook alone is read, into memory. What is in an archive is the
learner's to say, and so are the sizes in it, so that what comes out is counted.
"""

from __future__ import annotations

import io
import re
import stat
import tarfile
import zipfile
from dataclasses import dataclass
from gzip import GzipFile
from itertools import islice
from pathlib import Path
from typing import IO

from lessonkit.grading.repair.reading import MAX_BYTES, Unreadable, read_bytes

OPENED = re.compile(r"\.(zip|tar|tar\.gz|tgz)$", re.IGNORECASE)
MAX_ARCHIVE = 20_000_000  # bytes of the archive itself
MAX_MEMBERS = 500
MAX_UNPACKED = 100_000_000  # bytes of all that is in it
MAX_RATIO = 100  # of what comes out to the archive; of small ones nobody asks
SMALL = 1_000_000
NOTEBOOK = re.compile(r"\.ipynb$", re.IGNORECASE)


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    link: bool
    folder: bool


def notebook_in(path: Path) -> tuple[str, bytes]:
    """The name and the bytes of the one notebook in an archive. Unreadable, with the reason, if that is not to be had.

    Hidden files and those of `__MACOSX` and its like are no notebooks, as in a folder.
    """
    try:
        data = read_bytes(path, MAX_ARCHIVE)
        return _in_zip(data) if data.startswith((b"PK\x03\x04", b"PK\x05\x06")) else _in_tar(data)
    except Unreadable as known:
        reason = str(known)
    except Exception:  # both modules raise whatever a damaged file makes them
        reason = "which is damaged"
    raise Unreadable(f"an archive was handed in ({path.name}), {reason}: hand in the notebook itself")


def _in_zip(data: bytes) -> tuple[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        found = {entry.filename: entry for entry in archive.infolist()}
        members = [
            _Member(entry.filename, entry.file_size, stat.S_ISLNK(entry.external_attr >> 16), entry.is_dir())
            for entry in archive.infolist()
        ]
        name = _the_notebook(members, len(data))
        if found[name].flag_bits & 1:
            raise Unreadable("which is locked by a password")
        if found[name].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise Unreadable("which is packed in an unusual way")
        with archive.open(name) as file:
            return name, file.read(MAX_BYTES)


def _in_tar(data: bytes) -> tuple[str, bytes]:
    file: IO[bytes] = io.BytesIO(data)
    if data.startswith(b"\x1f\x8b"):
        file = GzipFile(fileobj=file)
    limit = min(MAX_UNPACKED, max(SMALL, MAX_RATIO * len(data)))
    members: list[_Member] = []
    contents: dict[str, bytes] = {}
    with tarfile.open(fileobj=_Counted(file, limit), mode="r|") as archive:  # a stream: read once, from its start
        for entry in islice(archive, MAX_MEMBERS + 1):
            members.append(_Member(entry.name, max(0, entry.size), not entry.isreg(), entry.isdir()))
            if _is_notebook(members[-1]) and entry.size <= MAX_BYTES and not contents:
                content = archive.extractfile(entry)
                contents[entry.name] = content.read(MAX_BYTES) if content else b""
    name = _the_notebook(members, len(data))
    return name, contents[name]


def _the_notebook(members: list[_Member], size: int) -> str:
    """The name of the one notebook among an archive's files. Unreadable if the archive is not to be opened for it."""
    if len(members) > MAX_MEMBERS:
        raise Unreadable(f"which holds more than {MAX_MEMBERS} files and folders")
    for member in members:
        if _leads_out(member.name):
            raise Unreadable("which holds a path that leads out of it")
    unpacked = sum(member.size for member in members)
    if unpacked > MAX_UNPACKED or unpacked > max(SMALL, MAX_RATIO * size):
        raise Unreadable(f"which holds {unpacked / 1e6:,.0f} MB, more than is unpacked")
    notebooks = [member for member in members if _is_notebook(member)]
    if not notebooks:
        linked = any(member.link and not member.folder and NOTEBOOK.search(member.name) for member in members)
        raise Unreadable("in which the notebook is a link" if linked else "in which there is no notebook")
    if len(notebooks) > 1:
        raise Unreadable(f"in which there are {len(notebooks)} notebooks, and it is not clear which counts")
    if notebooks[0].size > MAX_BYTES:
        size_mb, most = f"{notebooks[0].size / 1e6:,.0f}", f"{MAX_BYTES / 1e6:g}"
        raise Unreadable(f"whose notebook has {size_mb} MB, and {most} MB are allowed")
    return notebooks[0].name


def _is_notebook(member: _Member) -> bool:
    hidden = any(part.startswith((".", "__")) for part in member.name.removeprefix("./").split("/"))
    return bool(NOTEBOOK.search(member.name)) and not member.link and not member.folder and not hidden


def _leads_out(name: str) -> bool:
    parts = name.replace("\\", "/").split("/")
    return name.startswith(("/", "\\")) or ".." in parts or re.match(r"[A-Za-z]:", name) is not None


class _Counted:
    """A stream that ends in Unreadable when more comes out of it than `limit` bytes."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self.file, self.left = file, limit

    def read(self, size: int) -> bytes:
        data = self.file.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise Unreadable("which holds more than is unpacked")
        return data
