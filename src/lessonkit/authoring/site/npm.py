"""What pages need for math: taken from npm by exact version, checked, and kept."""

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import platformdirs

from commandkit.errors import CommandError
from commandkit.files import replace

REGISTRY = "https://registry.npmjs.org"
TIMEOUT = 30  # seconds without a sign of the registry


@dataclass(frozen=True)
class Package:
    """One file of an npm package. `sha512` is the integrity that npm publishes for the package's archive."""

    name: str
    version: str
    sha512: str
    file: str

    @property
    def archive(self) -> str:
        """What `npm pack` calls it."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"

    @property
    def address(self) -> str:
        return f"{REGISTRY}/{self.name}/-/{self.name.rpartition('/')[2]}-{self.version}.tgz"

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


# No wheel of ours carries it: JupyterLab has the same code, but inside bundles that only JupyterLab can load.
MATHJAX = Package(
    name="mathjax",
    version="3.2.2",
    sha512="Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw==",
    file="es5/tex-svg.js",
)


class NoPackage(CommandError):
    """A package that the pages need is not here and could not be had; the message says why, and what to do."""


def cache() -> Path:
    return platformdirs.user_cache_path("lessonkit", appauthor=False) / "npm"


def put(package: Package, folder: Path) -> None:
    """Put the package's file into `folder`; what is not in the user's cache yet is fetched (MathJax: 6 MB).

    Raises NoPackage where it cannot be fetched, or what came is not what was pinned; then it is not kept.
    """
    keep(package)
    with tarfile.open(cache() / package.archive) as archive:
        held = archive.extractfile(f"package/{package.file}")
        assert held is not None, f"{package} has no file {package.file}"
        (folder / Path(package.file).name).write_bytes(held.read())


def keep(package: Package) -> None:
    """Fetch the package into the user's cache where it is not there yet. Raises NoPackage."""
    if not is_kept(package):
        _fetch(package, cache() / package.archive)


def is_kept(package: Package) -> bool:
    """Whether the package is in the user's cache, as it was pinned."""
    kept = cache() / package.archive
    return kept.is_file() and _sha512(kept) == package.sha512


def _fetch(package: Package, kept: Path) -> None:
    print(f"fetching {package} from the npm registry", flush=True)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
            came = Path(scratch, package.archive)
            if npm := shutil.which("npm"):  # it knows of proxies, mirrors and passwords
                _pack(npm, package, Path(scratch))
            else:
                with urlopen(package.address, timeout=TIMEOUT) as response, came.open("wb") as file:
                    shutil.copyfileobj(response, file)
            if _sha512(came) != package.sha512:
                raise NoPackage(f"what came for {package} is not what was pinned (its SHA-512 differs): thrown away")
            replace(came, kept)
    except OSError as error:
        raise NoPackage(
            f"{package} could not be fetched from the npm registry ({error}): "
            f"the site's build needs a network once, what it fetches is kept in {cache()}"
        ) from error


def _pack(npm: str, package: Package, folder: Path) -> None:
    """Raises OSError with npm's own words, the first of many."""
    limits = ["--loglevel=error", "--fetch-retries=1", f"--fetch-timeout={TIMEOUT * 1000}"]
    command = [npm, "pack", str(package), *limits, f"--pack-destination={folder}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not (folder / package.archive).is_file():
        said = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
        raise OSError(said[0] if said else f"npm pack ended with status {done.returncode}")


def _sha512(file: Path) -> str:
    return base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()
