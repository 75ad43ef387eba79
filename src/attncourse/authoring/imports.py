"""Which files of the package a notebook depends on: the import graph, read from the text and never executed."""

import ast
from collections.abc import Iterator
from pathlib import Path


def files_imported(tree: ast.Module, package: Path, also: tuple[str, ...] = ()) -> list[Path]:
    """The files of `package` (a folder, named as the package is) that code with this syntax tree imports, transitively.

    `also` names modules ("attncourse.exercises") that are needed besides. Sorted; the package's own __init__.py is left
    out, because everything imports it and it holds nothing. A file beside a module, of the same stem, belongs to it: a
    widget's .js. A package with an __init__.pyi loads its names on first use: of it count the modules of those in use.
    """
    waiting = {*also, *_imported(tree, package.name, "", package)}
    seen: set[str] = set()
    files: set[Path] = set()
    while waiting:
        module = waiting.pop()
        seen.add(module)
        path = _file(module, package)
        if path is None:
            continue
        # Importing a.b.c executes a.b's __init__ first.
        waiting |= {".".join(module.split(".")[:i]) for i in range(2, module.count(".") + 1)} - seen
        beside = path.parent.glob(f"{path.stem}.*")
        files |= {path, *(other for other in beside if other.suffix not in (".py", ".pyc", ".pyi"))}
        home = module if path.name == "__init__.py" else module.rpartition(".")[0]
        waiting |= set(_imported(ast.parse(path.read_text(encoding="utf-8")), package.name, home, package)) - seen
    return sorted(files)


def _imported(tree: ast.AST, name: str, home: str, package: Path) -> Iterator[str]:
    """Modules of the package `name` that a file imports, in functions too. `home`: the package that the file is in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for module in (alias.name for alias in node.names if alias.name.startswith(f"{name}.")):
                yield module
                yield from _behind(".".join(module.split(".")[:2]), None, package)
        elif isinstance(node, ast.ImportFrom):
            parents = home.split(".")
            base = parents[: len(parents) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module.partition(".")[0] != name:
                continue
            yield module
            for alias in node.names:
                if _file(f"{module}.{alias.name}", package):
                    yield f"{module}.{alias.name}"
                    yield from _behind(f"{module}.{alias.name}", _attributes(tree, alias.asname or alias.name), package)
                elif module == name:
                    # A name that the package's __init__ gives lazily, as it does `check`.
                    yield from _lazily(package)
                else:
                    yield from _behind(module, {alias.name}, package)


def _behind(module: str, names: set[str] | None, package: Path) -> set[str]:
    """Where a package with an __init__.pyi has these names from; all that it has, for None and for an unknown name."""
    stub = package.joinpath(*module.split(".")[1:], "__init__.pyi")
    if not stub.is_file():
        return set()
    where = {
        alias.name: f"{module}.{node.module}"
        for node in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return {where[name] for name in names} if names is not None and names <= where.keys() else {*where.values()}


def _attributes(tree: ast.AST, name: str) -> set[str] | None:
    """The attributes of a name that code asks for; None if it does anything else with the name."""
    uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.value in uses]
    return {node.attr for node in attributes} if len(attributes) == len(uses) else None


def _lazily(package: Path) -> Iterator[str]:
    """Modules that the package's __init__.py names or imports."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(f"{package.name}."):
            yield node.value
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == package.name:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield node.module


def _file(module: str, package: Path) -> Path | None:
    """The file of a module below the package, or None (a name that is no module, or the package itself)."""
    parts = module.split(".")[1:]
    if not parts:
        return None
    path = package.joinpath(*parts)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
