"""What is replaced inside nbgrader is put back, does what nbgrader does, and is for one version only."""

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest
from jsonschema import ValidationError
from nbgrader import api, nbgraderformat
from nbgrader.api import Gradebook

from commandkit.errors import CommandError
from lessonkit.grading.gradebook import patches as nbgrader_patches
from lessonkit.grading.gradebook.patches import VERSION, before_notebooks_are_listed, speedups

SCHEMA = {"type": "object", "required": ["name"]}


def test_the_pin_is_the_version_that_the_patches_were_written_for():
    (pin,) = [
        need for need in importlib.metadata.requires("attncourse") if need.startswith("nbgrader=") and "grading" in need
    ]
    assert pin.startswith(f"nbgrader=={VERSION};") and importlib.metadata.version("nbgrader") == VERSION


def test_another_version_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.10.0")
    with pytest.raises(CommandError, match=rf"nbgrader 0\.10\.0 is installed.*pip install nbgrader=={VERSION}"):
        before_notebooks_are_listed(object, lambda coursedir, assignment: None)
    with pytest.raises(CommandError, match=r"0\.10\.0"), speedups():
        pass


def test_gradebooks_share_an_engine_while_it_is_quick_and_not_after(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # for alembic
    url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    create_engine, jsonschema = api.create_engine, nbgraderformat.common.jsonschema
    with speedups(), Gradebook(url) as one, Gradebook(url) as two:
        assert one.engine is two.engine
    assert api.create_engine is create_engine and nbgraderformat.common.jsonschema is jsonschema
    with Gradebook(url) as one, Gradebook(url) as two:
        assert one.engine is not two.engine


def test_a_cell_that_does_not_fit_the_schema_is_refused_while_it_is_quick(monkeypatch):
    with speedups():
        validate = nbgraderformat.common.jsonschema.validate
        validate({"name": "thing"}, SCHEMA)
        with pytest.raises(ValidationError):
            validate({}, SCHEMA)


def test_folders_are_prepared_before_notebooks_are_listed_for_this_exporter_only(monkeypatch):
    class Ours: ...

    class Converter:
        coursedir = type("CourseDirectory", (), {"assignment_id": "a00"})()
        exporter_class = Ours

        def init_notebooks(self):
            calls.append("listed")

    calls = []
    monkeypatch.setattr(nbgrader_patches, "Autograde", Converter)
    before_notebooks_are_listed(Ours, lambda coursedir, assignment: calls.append(assignment))
    Converter().init_notebooks()
    assert calls == ["a00", "listed"]
    Converter.exporter_class = object
    Converter().init_notebooks()
    assert calls == ["a00", "listed", "listed"]
