"""Multi30k: 31,014 captions of photographs, in English and as people translated them into German and French.

Elliott et al. 2016 (German) and 2017 (French). The files are nobody's to pass on: whoever wants them downloads them.
"""

import hashlib
import http.client
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import platformdirs
from tqdm import tqdm

from attncourse._checks import check_one_of
from attncourse.data.parallel import BadData, Pair, read_parallel
from commandkit.errors import CommandError
from commandkit.files import replace

COMMIT = "a3d2e0d26b56f3846f66a952536ffed4e401d05a"
URL = f"https://raw.githubusercontent.com/multi30k/dataset/{COMMIT}/data/task1/raw"
LANGUAGES = ("de", "en", "fr")
SPLITS = ("train", "val", "test_2016_flickr")
SHA256 = {
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
}
TIMEOUT = 10.0  # seconds without a sign of the server
PAUSE = 1.0     # seconds before the second try

E = TypeVar("E")


class Split3(NamedTuple, Generic[E]):
    train: list[E]
    val: list[E]
    test: list[E]


class NoData(CommandError):
    """The data set is not here and could not be had; the message says why, and what to do."""


class _Failed(Exception):
    """A try to download that may go better the next time."""


class _Unreachable(_Failed):
    """There is no network, or no way to the server: to try again at once would only take time."""


def multi30k(source: str = "de", target: str = "en") -> Split3[Pair]:
    """29,000 pairs to train on, 1,014 to choose by, and the 1,000 of test2016; languages "de", "en", "fr".

    Looked for in $ATTNCOURSE_DATA, in its folder multi30k, then in the user's cache; what is in none of them is
    downloaded into the cache (about 1.3 MB for two languages), going on where an earlier try was cut off. Every file
    is checked against its SHA-256. When several processes start together, let one of them call this first.
    Raises ValueError for another language, BadData for a file that is not the data set's, NoData where a file is
    missing and cannot be downloaded.
    """
    check_one_of("source", source, LANGUAGES)
    check_one_of("target", target, LANGUAGES)
    names = [(f"{split}.{source}.gz", f"{split}.{target}.gz") for split in SPLITS]
    files = {name: _find(name) for pair in names for name in pair}
    missing = [name for name, file in files.items() if file is None]
    try:
        files |= {name: _download(name) for name in missing}
    except (_Failed, OSError) as error:
        raise NoData(
            f"Multi30k could not be downloaded ({error}): put {', '.join(missing)} from {URL} into {_cache()}, "
            "or set ATTNCOURSE_DATA to a folder that holds them; number words need no download"
        ) from error
    train, val, test = (read_parallel(files[a] or "", files[b] or "") for a, b in names)
    return Split3(train, val, test)


def _cache() -> Path:
    return platformdirs.user_cache_path("attncourse", appauthor=False) / "multi30k"


def _find(name: str) -> Path | None:
    folders = [_cache()]
    if named := os.environ.get("ATTNCOURSE_DATA"):
        folders = [Path(named).expanduser(), Path(named).expanduser() / "multi30k", *folders]
    for folder in folders:
        if (file := folder / name).is_file():
            # What we download is checked before it gets its name: this one is the user's, and not ours to delete.
            if _sha256(file) != SHA256[name]:
                raise BadData(f"{file}: not the file of that name in Multi30k (its SHA-256 differs); take it away")
            return file
    return None


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _download(name: str) -> Path:
    """Into the cache, with two tries. Raises _Failed for what is the network's fault, OSError for what is the disk's.

    The file has its name only when it is whole and right; until then it is NAME.part, which stays when the line is cut.
    """
    file = _cache() / name
    part = file.with_name(f"{name}.part")
    file.parent.mkdir(parents=True, exist_ok=True)
    for tries_left in (1, 0):
        try:
            _receive(name, part)
            if _sha256(part) != SHA256[name]:
                part.unlink()
                raise _Failed(f"what came for {name} has another SHA-256 and was thrown away")
            replace(part, file)
            break
        except _Failed as error:
            if not tries_left or isinstance(error, _Unreachable):
                raise
            print(f"Multi30k: {error}; trying once more", file=sys.stderr)
            time.sleep(PAUSE)
    return file


def _receive(name: str, part: Path) -> None:
    """Add to `part` what it lacks; a server that cannot go on in the middle sends all, which takes its place."""
    here = part.stat().st_size if part.exists() else 0
    try:
        with _network(name):
            request = Request(f"{URL}/{name}", headers={"Range": f"bytes={here}-"} if here else {})
            response = urlopen(request, timeout=TIMEOUT)
    except _Failed as error:
        if isinstance(error.__cause__, HTTPError) and error.__cause__.code == 416:
            return                                                # nothing is lacking: is it right? the checksum tells
        raise
    resumed = response.status == 206
    here = here if resumed else 0
    whole = here + int(response.headers["Content-Length"]) if "Content-Length" in response.headers else None
    bar = tqdm(total=whole, initial=here, desc=name, unit="B", unit_scale=True, leave=False, disable=None)
    with response, bar, part.open("ab" if resumed else "wb") as file:
        while chunk := _read(response, name):
            here += file.write(chunk)
            bar.update(len(chunk))
    if whole is not None and here < whole:
        raise _Failed(f"{name}: cut off after {here:,} of {whole:,} bytes, which are kept")


def _read(response: http.client.HTTPResponse, name: str) -> bytes:
    with _network(name):
        return response.read(1 << 16)


@contextmanager
def _network(name: str) -> Iterator[None]:
    """An OSError in here is the network's."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()                                         # it holds the connection
        elif isinstance(error, URLError):
            raise _Unreachable(f"{name}: {error.reason}") from error
        raise _Failed(f"{name}: {error}") from error
