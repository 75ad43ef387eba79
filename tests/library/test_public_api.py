"""What `attncourse` itself offers."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import attncourse
from commandkit import errors


def test_every_public_name_is_there_and_none_twice():
    assert len(attncourse.__all__) > 50 and sorted({*attncourse.__all__}) == attncourse.__all__
    assert [name for name in attncourse.__all__ if not hasattr(attncourse, name)] == []
    assert {*attncourse.__all__} == {*dir(attncourse)}


def test_every_public_name_but_a_module_says_what_it_is_in_its_docstring():
    named = [getattr(attncourse, name) for name in attncourse.__all__]
    assert [thing for thing in named if callable(thing) and not (thing.__doc__ or "").strip()] == []


def test_the_library_alone_loads_neither_torch_nor_the_course():
    code = "import sys, attncourse; print({'torch', 'numpy', 'attncourse_lessons'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_a_name_that_there_is_not_is_an_attribute_error():
    with pytest.raises(AttributeError, match="attncourse"):
        attncourse.attent  # noqa: B018


@pytest.mark.parametrize(
    ("checkout", "said"),
    [(True, "pip install -c constraints.txt -e '.[train]'"), (False, "pip install 'attncourse[train]'")],
)
def test_a_wheels_messages_do_not_speak_of_a_checkout(checkout, said, tmp_path):
    file = tmp_path / "src" / "commandkit" / "errors.py"
    file.parent.mkdir(parents=True)
    shutil.copy(Path(errors.__file__), file)
    if checkout:
        (tmp_path / "constraints.txt").touch()
    spec = importlib.util.spec_from_file_location("errors_of_elsewhere", file)
    elsewhere = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(elsewhere)
    assert elsewhere.how_to_install("train") == said
