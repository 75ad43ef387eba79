"""Which files of some packages a notebook depends on: the import graph, read from the text and never executed."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

Packages = Mapping[str, Path]  # a package's name -> its folder


def files_imported(tree: ast.Module, packages: Packages, also: tuple[str, ...] = ()) -> list[Path]:
    """The files of `packages` that code with this syntax tree imports, transitively.

    `also` names modules ("shapes.polygons") that are needed besides. Sorted; the packages' own __init__.py are
    left out, because everything imports them and they hold nothing. A file beside a module, of the same stem, belongs
    to it: a widget's .js. A package with an __init__.pyi loads its names on first use: of it count the modules of those
    in use.
    """
    waiting = {*also, *_imported(tree, "", packages)}
    seen: set[str] = set()
    files: set[Path] = set()
    while waiting:
        module = waiting.pop()
        seen.add(module)
        path = _file(module, packages)
        if path is None:
            continue
        # Importing a.b.c executes a.b's __init__ first.
        waiting |= {".".join(module.split(".")[:i]) for i in range(2, module.count(".") + 1)} - seen
        beside = path.parent.glob(f"{path.stem}.*")
        files |= {path, *(other for other in beside if other.suffix not in (".py", ".pyc", ".pyi"))}
        home = module if path.name == "__init__.py" else module.rpartition(".")[0]
        waiting |= set(_imported(ast.parse(path.read_text(encoding="utf-8")), home, packages)) - seen
    return sorted(files)


def _imported(tree: ast.AST, home: str, packages: Packages) -> Iterator[str]:
    """Modules of the packages that a file imports, in functions too. `home`: the package that the file is in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for module in (alias.name for alias in node.names if alias.name.partition(".")[0] in packages):
                yield module
                yield from _defined_in(".".join(module.split(".")[:2]), None, packages)
        elif isinstance(node, ast.ImportFrom):
            parents = home.split(".")
            base = parents[: len(parents) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module.partition(".")[0] not in packages:
                continue
            yield module
            for alias in node.names:
                if _file(f"{module}.{alias.name}", packages):
                    yield f"{module}.{alias.name}"
                    uses = _attributes(tree, alias.asname or alias.name)
                    yield from _defined_in(f"{module}.{alias.name}", uses, packages)
                else:
                    yield from _defined_in(module, {alias.name}, packages)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parts":
            yield from _of_every_lesson(node, packages)


def _of_every_lesson(call: ast.Call, packages: Packages) -> Iterator[str]:
    """The modules that `course.parts("figures")` imports: one of each lesson that has it."""
    parts = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    for top, folder in packages.items():
        for path in sorted(path for part in parts for path in folder.glob(f"l[0-9][0-9]_*/{part!s}.py")):
            yield f"{top}.{path.parent.name}.{path.stem}"


def _defined_in(module: str, names: set[str] | None, packages: Packages) -> set[str]:
    """Where a package with an __init__.pyi has these names from; all that it has, for None and for an unknown name."""
    top, *inner = module.split(".")
    stub = packages[top].joinpath(*inner, "__init__.pyi")
    if not stub.is_file():
        return set()
    where = {
        alias.name: f"{module}.{node.module or alias.name}"
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


def _file(module: str, packages: Packages) -> Path | None:
    """The file of a module below one of the packages, or None (a name that is no module, or a package itself)."""
    top, *parts = module.split(".")
    if not parts or top not in packages:
        return None
    path = packages[top].joinpath(*parts)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
