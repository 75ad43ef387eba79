"""Attention and the Transformer, to read and to use. The course on them is `attncourse_lessons`.

The names that a program may rely on are in __init__.pyi: what they are called and what they mean stays from version to
version. Each is loaded on first use, because `import attncourse` alone must not pay for torch.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  (pip refuses too, but not when the folder is only on the path)
    raise ImportError(
        f"attncourse needs Python 3.11 or newer and this is {sys.version.split()[0]}: install a newer Python, "
        "then run `make setup PYTHON=python3.11` in the course's folder."
    )

__version__ = "0.1.0"


_loader = None  # made on first use, by lazy_loader: (__getattr__, __dir__, __all__)


def __getattr__(name: str) -> object:
    try:
        get, _, names = _lazy()
        return names if name == "__all__" else get(name)
    except ModuleNotFoundError as error:
        from commandkit.errors import OURS, how_to_install

        if error.name is None or error.name.partition(".")[0] in OURS:
            raise
        raise ImportError(
            f"attncourse needs {'PyTorch' if error.name == 'torch' else error.name}, which is not installed here: "
            f"{how_to_install()}"
        ) from None


def __dir__() -> list[str]:
    return _lazy()[1]()


def _lazy():
    global _loader
    if _loader is None:
        import lazy_loader

        _loader = lazy_loader.attach_stub(__name__, __file__)
    return _loader
