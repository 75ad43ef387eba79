"""Attention and the Transformer, to read and to use. The course on them is `attncourse_lessons`."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  (pip refuses too, but not when the folder is only on the path)
    raise ImportError(
        f"attncourse needs Python 3.11 or newer and this is {sys.version.split()[0]}: install a newer Python, "
        "then run `make setup PYTHON=python3.11` in the course's folder."
    )

__version__ = "0.1.0"
__all__ = ["check", "hint", "progress", "solved"]


def __getattr__(name: str):
    """Load the course's calls on first use: `import attncourse` alone must not pay for torch.

    Learners write `from attncourse import check`. This is the one place where the library looks up to the course.
    """
    if name not in __all__:
        raise AttributeError(f"module 'attncourse' has no attribute {name!r}")
    try:
        import numpy  # noqa: F401
        import torch  # noqa: F401

        import attncourse_lessons
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("attncourse", "attncourse_lessons", "lessonkit"):
            raise
        raise ImportError(
            f"attncourse needs {'PyTorch' if error.name == 'torch' else error.name}, which is not installed here: "
            "run `pip install -c constraints.txt -e .` in the course's folder."
        ) from None
    return getattr(attncourse_lessons, name)
