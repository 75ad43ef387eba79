"""Which room may know which: lessons use the library and the kit, which do not know each other; nothing runs up."""

import ast
from pathlib import Path

import pytest

import benchmarks

SRC = Path(__file__).parents[1] / "src"
MAY_KNOW = {
    "commandkit": set(),
    "lessonkit": {"commandkit"},
    "attncourse": {"commandkit"},
    "attncourse_lessons": {"commandkit", "lessonkit", "attncourse"},
}
# Learners write `from attncourse import check`.
EXCEPTION = ("attncourse/_course.py", "attncourse_lessons")


def packages_imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize("package", MAY_KNOW)
def test_a_package_imports_no_other_of_ours_than_it_may(package):
    files = sorted((SRC / package).rglob("*.py"))
    known = {
        (path.relative_to(SRC).as_posix(), other)
        for path in files
        for other in packages_imported(path)
        if other in MAY_KNOW and other != package
    }
    assert files and {(file, other) for file, other in known if other not in MAY_KNOW[package]} <= {EXCEPTION}


def test_no_lesson_imports_another_and_no_number_of_a_lesson_stands_in_code():
    lessons = [path for path in (SRC / "attncourse_lessons").rglob("*.py") if path.parents[1] != SRC]
    assert len(lessons) > 100
    for path in lessons:
        text = path.read_text(encoding="utf-8")
        assert "attncourse_lessons.l" not in text, f"{path}: import the lesson's own modules by `from . import …`"


def test_no_two_rooms_import_each_other():
    house = benchmarks.load("house")
    rooms, arrows = house.house(SRC)
    in_a_circle = sorted(set(rooms) - set(house.floors(rooms, arrows)))
    assert len(rooms) > 30 and not in_a_circle


def test_every_package_is_named_here():
    assert {path.name for path in SRC.iterdir() if (path / "__init__.py").is_file()} == set(MAY_KNOW)
