"""English that every reader has: the docstrings of the standard library of the Python that is running."""

import ast
import hashlib
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from attncourse._checks import check_at_least

# The library's own tests come with some installations and not with others.
LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages"})
# Shorter texts ("See above.") are hardly sentences.
SHORTEST = 20


class Corpus(NamedTuple):
    train: list[str]
    test: list[str]


def docstrings(limit: int | None = None, test_share: float = 0.1, packages: Sequence[str] = ()) -> Corpus:
    """The prose of the docstrings, a line of text each, no text twice, in an order that is the same at every call.

    Whole modules go to one side or the other (`email` and all that is in it to one), so that no text of the test set,
    and hardly a turn of phrase of its author's, is in the training set. `test_share` is how many of the texts are for
    testing, at least. `limit` ends the reading after so many texts, which is how to have a few quickly. Another Python
    has another library: texts and sizes differ a little from version to version.

    The sources are read, never imported. Examples, tables, and other indented paragraphs are left out.
    Raises ValueError for a limit below 2 or a share that is not between 0 and 1, FileNotFoundError where this Python
    came without the sources of its library.
    """
    if limit is not None:
        check_at_least(2, limit=limit)
    if not 0 < test_share < 1:
        raise ValueError(f"test_share: got {test_share}, expected more than 0 and less than 1")
    folder = Path(sysconfig.get_path("stdlib"))
    seen: set[str] = set()
    modules: list[list[str]] = []                                 # the texts of each module that are not in one before
    for name in sorted(sys.stdlib_module_names, key=_hash):       # no author and no letter of the alphabet comes first
        texts = [text for text in dict.fromkeys(_texts(folder, name)) if text not in seen]
        seen.update(texts)
        modules.append(texts)
        if limit is not None and len(seen) >= limit:
            texts[len(texts) - (len(seen) - limit) :] = []
            break
    if not seen:
        raise FileNotFoundError(f"no sources of the standard library in {folder}: docstrings are read from them")
    total, test = sum(map(len, modules)), list[str]()
    while len(test) < test_share * total and len(modules) > 1:
        test += modules.pop(0)
    more = [text for package in packages for text in _texts(_place(package), package)]
    others = [text for text in dict.fromkeys(more) if text not in seen]
    return Corpus(train=others + [text for texts in modules for text in texts], test=test)


def prose(docstring: str) -> str:
    """The paragraphs of a docstring that are running text, as one line.

    >>> prose("Fold a line.\\n\\n    not this\\n\\n>>> nor(this)\\n\\nIt may\\nbe long.")
    'Fold a line. It may be long.'
    """
    paragraphs = re.split(r"\n\s*\n", docstring)
    no_prose = re.compile(r"\A\s|^\s*(>>>|\.\.\. |[-=]{4})", re.MULTILINE)
    return " ".join(" ".join(paragraph.split()) for paragraph in paragraphs if not no_prose.search(paragraph))


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _place(package: str) -> Path:
    """The folder in which a package's folder lies."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"packages: got {package!r}, which is not installed", name=package)
    return Path(spec.origin).parents[1]


def _texts(folder: Path, module: str) -> Iterator[str]:
    for file in _files(folder, module):
        try:
            tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):                         # a file for another Python, or a broken one
            continue
        for node in _documented(tree):
            text = prose(ast.get_docstring(node) or "")
            if len(text) >= SHORTEST:
                yield text


def _documented(node: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """The module, its classes and functions. Expressions are not entered: they are most of a tree, and have none."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _documented(child)


def _files(folder: Path, module: str) -> list[Path]:
    if module in LEFT_OUT:
        return []
    if (folder / module / "__init__.py").is_file():
        found = sorted((folder / module).rglob("*.py"), key=lambda file: file.relative_to(folder).as_posix())
        return [file for file in found if not LEFT_OUT & set(file.relative_to(folder).parts)]
    return [file for file in [folder / f"{module}.py"] if file.is_file()]
