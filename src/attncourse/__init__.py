"""A course on attention and the Transformer: what its notebooks call, and the models beneath them."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  (pip refuses too, but not when the folder is only on the path)
    raise ImportError(
        f"attncourse needs Python 3.11 or newer and this is {sys.version.split()[0]}: install a newer Python, "
        "then run `make setup PYTHON=python3.11` in the course's folder."
    )

__version__ = "0.1.0"
__all__ = ["check", "hint", "progress"]


def __getattr__(name: str):
    """Load them on first use: `import attncourse` alone must not pay for torch."""
    if name not in __all__:
        raise AttributeError(f"module 'attncourse' has no attribute {name!r}")
    try:
        from attncourse import exercises
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "attncourse":
            raise
        raise ImportError(
            f"attncourse needs {'PyTorch' if error.name == 'torch' else error.name}, which is not installed here: "
            "run `pip install -c constraints.txt -e .` in the course's folder."
        ) from None
    return getattr(exercises, name)
