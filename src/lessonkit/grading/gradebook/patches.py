"""What is replaced inside nbgrader, of which version, and why. Nothing else in the kit changes it from outside.

nbgrader is pinned to the version below: each replacement was read against its source. Before the pin is moved, look at
`nbgrader.converters.autograde.Autograde.init_notebooks`, `nbgrader.api.Gradebook.__init__` and
`nbgrader.nbgraderformat.common.ValidationError`'s module, and whether the reasons still stand.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jsonschema
from nbgrader import api, nbgraderformat
from nbgrader.converters import Autograde

from commandkit.errors import CommandError

VERSION = "0.9.6"


def check_version() -> None:
    """CommandError for another nbgrader than the one that the replacements were written for."""
    found = importlib.metadata.version("nbgrader")
    if found != VERSION:
        raise CommandError(
            f"nbgrader {found} is installed, and grading replaces parts of nbgrader {VERSION}: "
            f"python -m pip install nbgrader=={VERSION}"
        )


@contextlib.contextmanager
def speedups() -> Iterator[None]:
    """Let nbgrader do once what it does anew for every submission: half of its time.

    It opens some ten gradebooks a submission, each with an engine of its own, which compiles all queries again and
    looks whether all tables are there; and for every cell it checks that the schema of cells is a schema.
    """

    def validate(instance: Any, schema: dict[str, Any]) -> None:
        jsonschema.validators.validator_for(schema)(schema).validate(instance)

    check_version()
    tables = api.Base.metadata
    with (
        mock.patch.object(api, "create_engine", functools.cache(api.create_engine)),
        mock.patch.object(tables, "create_all", functools.cache(tables.create_all)),
        mock.patch.object(nbgraderformat.common, "jsonschema", SimpleNamespace(validate=validate)),
    ):
        yield


def before_notebooks_are_listed(exporter: type, prepare: Callable[[Any, str], Any]) -> None:
    """Have an Autograde that reads with `exporter` call `prepare(coursedir, assignment)` before it lists notebooks.

    nbgrader gives up where a submission's folder holds no notebook, before it calls anything that a config may name.
    But it imports what the config names when it makes its Autograde, for the command and for the formgrader's button.
    So the module of the exporter calls this.
    """
    check_version()
    list_notebooks = Autograde.init_notebooks

    @functools.wraps(list_notebooks)
    def init_notebooks(converter: Autograde) -> None:
        if issubclass(converter.exporter_class, exporter):
            prepare(converter.coursedir, converter.coursedir.assignment_id)
        list_notebooks(converter)

    Autograde.init_notebooks = init_notebooks
