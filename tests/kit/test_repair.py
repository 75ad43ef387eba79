"""Damaged submissions become gradable notebooks; what cannot be repaired becomes a row with a reason."""

import contextlib
import copy
import io
import json
import os
import random
import re
import shutil
import stat
import zipfile
from pathlib import Path

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nbformat import validator
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde

from commandkit.files import write_whole
from lessonkit.grading.demo.command import prepare
from lessonkit.grading.gradebook.nbgrader_app import Log, application, nbgrader, own_settings
from lessonkit.grading.repair import cells as repair
from lessonkit.grading.repair import folder as intake
from lessonkit.grading.repair import reading
from lessonkit.grading.repair.exporter import unreadable
from lessonkit.grading.repair.released import Released
from lessonkit.grading.submission.answers import answer, solutions
from lessonkit.mimetype import VERDICT

COURSE = Path(__file__).parents[2]
ASSIGNMENT, NOTEBOOK = "a03", "a03_cross_attention"
WRITTEN = "why-mask-first"
SETUP = "given-"

# nbgrader's way with SQLAlchemy, which warns about it.
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")


class Class:
    """A course with a released assignment, its solved notebook, and a place for submissions."""

    def __init__(self, root):
        self.root, self.log = root, Log(root.parent / "log")
        prepare(root, COURSE, ASSIGNMENT)
        nbgrader(root, "generate_assignment", ASSIGNMENT, log=self.log)
        source = nbformat.read(root / "solutions" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
        self.release = nbformat.read(root / "assignments" / ASSIGNMENT / f"{NOTEBOOK}.ipynb", as_version=4)
        self.model = solutions(source)
        self.solved = answer(source, self.release, self.model)
        self.names = [name for name in map(label, self.release.cells) if name]
        self.answers = [name for name in self.names if f"check-{name}" in self.names]
        self.app = application(root, "autograde", f"--assignment={ASSIGNMENT}", log=self.log)
        self.released = Released.load(
            self.app.coursedir.db_url, NOTEBOOK, ASSIGNMENT, root / "assignments" / ASSIGNMENT / f"{NOTEBOOK}.ipynb"
        )

    def folder(self, student):
        return self.root / "submitted" / student / ASSIGNMENT

    def hand_in(self, student, files):
        """Files by name; a function is called with the path, to make something else there."""
        shutil.rmtree(self.folder(student), ignore_errors=True)
        self.folder(student).mkdir(parents=True)
        for name, content in files.items():
            path = self.folder(student) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            content(path) if callable(content) else path.write_bytes(content)

    def prepare(self):
        return intake.prepare(self.app.coursedir, ASSIGNMENT)

    def sanitised(self, student):
        """The submission as autograde hands it to execution."""
        with contextlib.chdir(self.root):
            converter = Autograde(coursedir=self.app.coursedir, parent=self.app)
            converter.exporter = converter.exporter_class(config=converter.config)
            converter._init_preprocessors()
            path = str(self.folder(student) / f"{NOTEBOOK}.ipynb")
            resources = converter.init_single_notebook_resources(path)
            text, _ = converter.exporter.from_filename(path, resources=resources)
        return nbformat.reads(text, as_version=4)

    def through(self, content, student="somebody"):
        self.hand_in(student, {f"{NOTEBOOK}.ipynb": content if isinstance(content, bytes) else written(content)})
        return self.sanitised(student)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    root = tmp_path_factory.mktemp("repair")
    with own_settings(root / "settings"):
        yield Class(root / "course")


def written(notebook):
    return json.dumps(notebook).encode()


def label(cell):
    meta = cell.metadata.get("nbgrader")
    name = meta.get("grade_id") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else None


def find(notebook, name):
    return next(cell for cell in notebook.cells if (label(cell) or "").startswith(name))


def index(notebook, name):
    return notebook.cells.index(find(notebook, name))


def standing(notebook, names):
    """For each exercise the source of the cell that defines it last before its check runs."""
    found = {}
    for name in names:
        above = notebook.cells[: index(notebook, f"check-{name}")]
        pattern = re.compile(rf"^(def|class) {name}\b", re.MULTILINE)
        found[name] = [c.source for c in above if c.cell_type == "code" and pattern.search(c.source)][-1:]
    return found


def assert_gradable(course, notebook, unanswered=()):
    """It has the released cells once each, graded ones in order, for their points, with the solution's answers."""
    nbformat.validate(notebook)
    assert unreadable(notebook) is None
    assert sorted(filter(None, map(label, notebook.cells))) == sorted(course.names)
    graded = {label(cell): cell for cell in course.release.cells if (cell.metadata.get("nbgrader") or {}).get("grade")}
    there = [cell for cell in notebook.cells if (cell.metadata.get("nbgrader") or {}).get("grade")]
    assert [label(cell) for cell in there] == list(graded)
    for cell in there:
        right = graded[label(cell)]
        assert float(cell.metadata.nbgrader.points) == right.metadata.nbgrader.points
        assert cell.cell_type == right.cell_type
    assert index(notebook, SETUP) < min(index(notebook, name) for name in course.answers)
    for name, sources in standing(notebook, course.answers).items():
        if name in unanswered:
            assert "NotImplementedError" in sources[0]
        else:
            assert flat(course.model[name]) in flat(sources[0]), name
    if WRITTEN not in unanswered:
        assert course.model[WRITTEN].strip() in find(notebook, WRITTEN).source


def repairs(notebook):
    return notebook.metadata.get("lessonkit", {}).get("repairs", [])


def flags(notebook):
    return notebook.metadata.get("lessonkit", {}).get("flags", [])


def flat(source):
    return "\n".join(line.strip() for line in source.strip().split("\n"))


# ------------------------------------------------------------------------------------------------ damage to the cells

DAMAGES = {}


def damage(function):
    """`function(notebook, draw)` damages a notebook; `draw` is a random.Random."""
    DAMAGES[function.__name__] = function
    return function


def some(notebook, draw, kind=lambda name: True):
    return draw.choice([cell for cell in notebook.cells if label(cell) and kind(label(cell))])


def is_check(name):
    return name.startswith("check-")


def is_answer(name):
    return not is_check(name) and not name.startswith(SETUP) and name != WRITTEN


def again(cell, **values):
    twin = copy.deepcopy(cell)
    twin.update(id=f"twin-{abs(hash(cell.source)) % 10**6}", **values)
    return twin


@damage
def a_copied_check(notebook, draw):
    notebook.cells.append(again(some(notebook, draw, is_check)))


@damage
def a_copied_answer(notebook, draw):
    cell = some(notebook, draw, is_answer)
    notebook.cells.insert(notebook.cells.index(cell), again(cell))


@damage
def a_copied_setup(notebook, draw):
    notebook.cells.append(again(find(notebook, SETUP)))


@damage
def a_copy_of_the_untouched_stub_below_the_answer(notebook, draw):
    cell = some(notebook, draw, lambda name: is_answer(name) and "SOLVED" not in name)
    name = re.search(r"^(?:def|class) (\w+)", cell.source, re.MULTILINE)[1]
    stub = find(STUBS, name)
    notebook.cells.insert(notebook.cells.index(cell) + 1, again(stub))


@damage
def a_deleted_check(notebook, draw):
    notebook.cells.remove(some(notebook, draw, is_check))


@damage
def all_checks_and_given_cells_deleted(notebook, draw):
    notebook.cells = [cell for cell in notebook.cells if not (label(cell) or "").startswith(("check-", SETUP))]


@damage
def a_renamed_cell(notebook, draw):
    some(notebook, draw).metadata["nbgrader"]["grade_id"] = "renamed"


@damage
def two_names_swapped(notebook, draw):
    names = [cell.metadata["nbgrader"] for cell in notebook.cells if label(cell) and is_answer(label(cell))]
    one, other = draw.sample(names, 2)
    one["grade_id"], other["grade_id"] = other["grade_id"], one["grade_id"]


@damage
def names_removed(notebook, draw):
    for cell in notebook.cells:
        if label(cell):
            del cell.metadata["nbgrader"]["grade_id"]


@damage
def metadata_stripped(notebook, draw):
    for cell in notebook.cells:
        cell.metadata = {}


@damage
def metadata_and_ids_stripped(notebook, draw):
    for number, cell in enumerate(notebook.cells):
        cell.metadata, cell.id = {}, f"n{number}"


@damage
def metadata_that_is_nonsense(notebook, draw):
    some(notebook, draw).metadata["nbgrader"] = draw.choice(["nonsense", None, 3, [], {"grade": True}])


@damage
def values_of_the_wrong_type(notebook, draw):
    keys = ["grade", "solution", "locked", "schema_version", "checksum", "points", "grade_id", "cell_type"]
    some(notebook, draw).metadata["nbgrader"][draw.choice(keys)] = draw.choice(["4", None, [], {}, -1, 0.5, 99])


@damage
def an_old_schema(notebook, draw):
    for cell in notebook.cells:
        if label(cell):
            cell.metadata["nbgrader"]["schema_version"] = 1


@damage
def a_check_worth_more(notebook, draw):
    some(notebook, draw, is_check).metadata["nbgrader"]["points"] = 999


@damage
def an_unlocked_check(notebook, draw):
    some(notebook, draw, is_check).metadata["nbgrader"].update(grade=False, locked=False, solution=True)


@damage
def an_own_cell_marked_as_graded(notebook, draw):
    meta = {"schema_version": 3, "grade": True, "solution": False, "locked": False, "points": 50, "grade_id": "bonus"}
    notebook.cells.append(new_code_cell("50", metadata={"nbgrader": meta}, id="bonus"))


@damage
def an_answer_as_text(notebook, draw):
    retype(some(notebook, draw, is_answer), "markdown")


@damage
def a_check_as_raw_text(notebook, draw):
    retype(some(notebook, draw, is_check), "raw")


@damage
def the_written_answer_as_code(notebook, draw):
    retype(find(notebook, WRITTEN), "code")


def retype(cell, cell_type):
    cell.cell_type = cell_type
    if cell_type == "code":
        cell.outputs, cell.execution_count = [], None
    else:
        cell.pop("outputs", None), cell.pop("execution_count", None)


@damage
def a_check_above_its_answer(notebook, draw):
    cell = some(notebook, draw, is_check)
    notebook.cells.remove(cell)
    notebook.cells.insert(0, cell)


@damage
def an_answer_at_the_end(notebook, draw):
    cell = some(notebook, draw, is_answer)
    notebook.cells.remove(cell)
    notebook.cells.append(cell)


@damage
def the_given_cell_at_the_end(notebook, draw):
    cell = find(notebook, SETUP)
    notebook.cells.remove(cell)
    notebook.cells.append(cell)


@damage
def everything_shuffled(notebook, draw):
    draw.shuffle(notebook.cells)


@damage
def an_edited_check(notebook, draw):
    cell = some(notebook, draw, is_check)
    cell.source = cell.source.replace("check(", "print(") + "  # looks right"


@damage
def an_edited_given_cell(notebook, draw):
    find(notebook, SETUP).source += "\nimport itertools"


@damage
def tags_against_execution(notebook, draw):
    some(notebook, draw, is_check).metadata["tags"] = ["mine", "skip-execution", "raises-exception"]


@damage
def ids_missing(notebook, draw):
    for cell in notebook.cells:
        cell.pop("id", None)


@damage
def ids_twice(notebook, draw):
    for cell in notebook.cells:
        cell.id = "same"


@damage
def windows_lines(notebook, draw):
    for cell in notebook.cells:
        cell.source = cell.source.replace("\n", "\r\n")


@damage
def outputs_of_the_wrong_shape(notebook, draw):
    cell = draw.choice([cell for cell in notebook.cells if cell.cell_type == "code"])
    cell.outputs = draw.choice(["text", None, [3], [{"output_type": "thing"}], [{"output_type": "stream", "text": 3}]])


@damage
def a_count_that_is_no_number(notebook, draw):
    draw.choice([cell for cell in notebook.cells if cell.cell_type == "code"]).execution_count = "three"


@damage
def cells_that_are_none(notebook, draw):
    notebook.cells.insert(draw.randrange(len(notebook.cells)), None)


@damage
def cell_metadata_that_is_none(notebook, draw):
    some(notebook, draw)["metadata"] = None


@damage
def another_kernel(notebook, draw):
    notebook.metadata["kernelspec"] = draw.choice(
        [{"name": "ir", "display_name": "R", "language": "R"}, "python", None, {"name": 3}]
    )


@damage
def another_language(notebook, draw):
    notebook.metadata["language_info"] = draw.choice([{"name": "julia"}, "python", {"name": 3}])


@damage
def an_absurd_minor_version(notebook, draw):
    notebook["nbformat_minor"] = draw.choice([99, -1, "5", None, True, 4.5])


@damage
def no_metadata(notebook, draw):
    notebook["metadata"] = draw.choice([None, [], "x"])


@damage
def a_language_that_is_no_word(notebook, draw):
    notebook.metadata["language"] = 3


@damage
def lone_surrogates(notebook, draw):
    notebook.cells.append(new_markdown_cell("half of an emoji: \ud83d", id="half"))


STUBS = new_notebook()  # the release, for the damages that need it


def damaged(course, names, seed):
    STUBS.cells = course.release.cells
    notebook, draw = copy.deepcopy(course.solved), random.Random(seed)
    for name in names:
        DAMAGES[name](notebook, draw)
    return notebook


def test_an_undamaged_notebook_comes_through_unchanged(course):
    for notebook in (course.solved, course.release):
        after = course.through(notebook)
        assert repairs(after) == flags(after) == []
        assert after.metadata == notebook.metadata
        for before, cell in zip(notebook.cells, after.cells, strict=True):
            meta = cell.metadata.get("nbgrader", {})
            if not meta.get("locked"):  # nbgrader puts the hidden tests back
                assert cell == before
            assert {**meta, "checksum": 0} == {**before.metadata.get("nbgrader", {}), "checksum": 0} or not meta


def test_the_learners_own_cells_stay_where_they_are(course):
    notebook = copy.deepcopy(course.solved)
    for number in range(len(notebook.cells), -1, -1):
        notebook.cells.insert(number, new_code_cell(f"x = {number}", id=f"own-{number}"))
    after = course.through(notebook)
    assert [cell.id for cell in after.cells] == [cell.id for cell in notebook.cells]
    assert repairs(after) == flags(after) == []


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_repaired_and_noted(course, name):
    after = course.through(damaged(course, [name], seed=3))
    assert_gradable(course, after)
    assert repairs(after) + flags(after)
    assert all(isinstance(line, str) and line for line in repairs(after) + flags(after))


# These leave what is no cell to the next one. Words in a code cell without a name could be anybody's scratch.
TOGETHER = sorted(
    set(DAMAGES) - {"cells_that_are_none", "cell_metadata_that_is_none", "no_metadata", "the_written_answer_as_code"}
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(st.lists(st.sampled_from(TOGETHER), min_size=2, max_size=3, unique=True), st.integers(0, 99))
def test_damages_that_come_together_leave_the_released_cells_once_each(course, names, seed):
    try:
        notebook = damaged(course, names, seed)
    except (StopIteration, IndexError, TypeError):
        return  # the first damage left nothing for the second
    notebook, _ = reading.read(written(notebook))
    repair.repair(notebook, course.released)
    assert_gradable(course, notebook)
    again = copy.deepcopy(notebook)
    assert repair.repair(again, course.released) == [] and again == notebook


def test_what_was_released_is_looked_up_again_once_it_is_released_anew(course):
    release = course.root / "assignments" / ASSIGNMENT / f"{NOTEBOOK}.ipynb"
    key = (course.app.coursedir.db_url, NOTEBOOK, ASSIGNMENT, release)
    before = Released.load(*key)
    assert Released.load(*key) is before
    release.write_bytes(release.read_bytes())
    assert Released.load(*key) is not before


# ------------------------------------------------------------------------------------------------- answers that moved


def test_an_answer_in_a_cell_of_ones_own_is_graded(course):
    for position in ("above the stub", "below the check", "at the end", "in place of the stub"):
        notebook = copy.deepcopy(course.solved)
        own = new_code_cell(find(notebook, "attention_output").source, id="own")
        find(notebook, "attention_output").source = find(course.release, "attention_output").source
        at = index(notebook, "attention_output")
        notebook.cells.insert({"above the stub": at, "below the check": at + 2}.get(position, len(notebook.cells)), own)
        if position == "in place of the stub":
            notebook.cells.remove(find(notebook, "attention_output"))
        after = course.through(notebook)
        assert_gradable(course, after)
        assert repairs(after) and not flags(after)


def test_answers_that_stand_in_another_answers_cell_are_graded(course):
    for leave_the_stub in (True, False):
        notebook = copy.deepcopy(course.solved)
        first, second = find(notebook, "attention_scores"), find(notebook, "attention_output")
        first.source += "\n\n\n" + second.source
        second.source = find(course.release, "attention_output").source
        if not leave_the_stub:
            notebook.cells.remove(second)
        after = course.through(notebook)
        assert_gradable(course, after)
        assert "the answer to `attention_output` stood in the cell `attention_scores`" in repairs(after)


def test_an_answer_in_a_copy_of_another_answers_cell_is_graded(course):
    notebook = copy.deepcopy(course.solved)
    answered = find(notebook, "attention_output")
    copied = again(find(notebook, "attention_scores"))  # a copy has its name, too
    copied.source, answered.source = answered.source, find(course.release, "attention_output").source
    notebook.cells.insert(notebook.cells.index(answered), copied)
    assert_gradable(course, course.through(notebook))


def test_an_answer_in_a_check_cell_is_graded(course):
    notebook = copy.deepcopy(course.solved)
    answered = find(notebook, "attention_scores")
    find(notebook, "check-attention_scores").source = answered.source
    answered.source = find(course.release, "attention_scores").source
    after = course.through(notebook)
    assert_gradable(course, after)
    assert "the check cell `check-attention_scores` was edited" in flags(after)


def test_of_several_answers_the_last_wins_and_all_are_kept(course):
    notebook = copy.deepcopy(course.solved)
    draft = again(find(notebook, "attention_output"))
    draft.source = "def attention_output(weights, encoder_states):\n    return 0"
    notebook.cells.insert(index(notebook, "attention_output"), draft)
    after = course.through(notebook)
    assert_gradable(course, after)
    assert draft.source in [cell.source for cell in after.cells if label(cell) is None]
    assert repairs(after) == [
        "the cell `attention_output` was there twice: the last one that defines attention_output was kept as the answer"
    ]


def test_a_deleted_answer_comes_back_as_the_stub(course):
    notebook = copy.deepcopy(course.solved)
    for name in ("attention_output", WRITTEN):
        notebook.cells.remove(find(notebook, name))
    after = course.through(notebook)
    assert_gradable(course, after, unanswered=("attention_output", WRITTEN))
    assert [cell.id for cell in after.cells] == [cell.id for cell in course.release.cells]
    assert find(after, WRITTEN).source == find(course.release, WRITTEN).source


def test_deleted_given_cells_come_back_where_the_release_has_them(course):
    for gone in ([SETUP], ["check-attention_scores", "check-attention_output"], [SETUP, "check-AttentionDecoderStep"]):
        notebook = copy.deepcopy(course.solved)
        for name in gone:
            notebook.cells.remove(find(notebook, name))
        assert [cell.id for cell in course.through(notebook).cells] == [cell.id for cell in course.release.cells]


def test_a_helper_between_an_answer_and_its_check_stays_between_them(course):
    notebook = copy.deepcopy(course.solved)
    at = index(notebook, "check-attention_output")
    notebook.cells[at] = new_code_cell("helper = 1", id="helper")  # and the check is gone
    after = course.through(notebook)
    assert index(after, "check-attention_output") == [cell.id for cell in after.cells].index("helper") + 1


def test_an_answer_that_uses_a_helper_further_down_is_checked_behind_it(course):
    notebook = copy.deepcopy(course.solved)
    cell = find(notebook, "attention_scores")
    notebook.cells.remove(cell)
    notebook.cells += [new_code_cell("def helper(): ...", id="helper"), cell]
    after = course.through(notebook)
    assert_gradable(course, after)
    ids = [cell.id for cell in after.cells]
    assert ids.index("helper") < ids.index("attention_scores") < ids.index("check-attention_scores")


def test_imports_added_to_the_given_cell_are_kept_beside_it(course):
    notebook = copy.deepcopy(course.solved)
    find(notebook, SETUP).source += "\nimport numpy as np"
    after = course.through(notebook)
    at = index(after, SETUP)
    assert "numpy" not in after.cells[at].source and "import numpy as np" in after.cells[at + 1].source


def test_a_written_answer_in_the_next_cell_waits_for_a_person(course):
    notebook = copy.deepcopy(course.solved)
    cell = find(notebook, WRITTEN)
    notebook.cells.insert(index(notebook, WRITTEN) + 1, new_markdown_cell(cell.source, id="mine"))
    cell.source = find(course.release, WRITTEN).source
    after = course.through(notebook)
    assert_gradable(course, after)
    assert find(after, WRITTEN).id == "mine"


# ---------------------------------------------------------------------------------------------------------- tampering


def test_innocent_damage_is_no_sign_of_tampering(course):
    innocent = ("metadata_stripped", "a_deleted_check", "windows_lines", "a_copied_check", "ids_twice")
    for name in innocent:
        assert flags(course.through(damaged(course, [name], seed=1))) == [], name


@pytest.mark.parametrize(
    ("name", "words"),
    {
        "a_check_worth_more": "said that it is worth 999 points",
        "an_unlocked_check": "said grade=False",
        "an_edited_check": "was edited",
        "an_edited_given_cell": "the given cell",
    }.items(),
)
def test_tampering_is_told(course, name, words):
    assert any(words in line for line in flags(course.through(damaged(course, [name], seed=1))))


def test_a_stored_verdict_that_no_check_can_have_given_is_told(course):
    for verdict, words in (
        ({"exercise": "attention_scores", "points": 999}, "999 of 4 points"),
        ({"exercise": "local_attention", "points": 1}, "another exercise"),
    ):
        notebook = copy.deepcopy(course.solved)
        shown = new_output("execute_result", {"text/plain": "4", VERDICT: verdict}, execution_count=1)
        find(notebook, "check-attention_scores").outputs = [shown]
        assert any(words in line for line in flags(course.through(notebook)))
        shown.data[VERDICT] = {"exercise": "attention_scores", "points": 4}
        assert flags(course.through(notebook)) == []


def test_what_a_learner_writes_in_the_place_of_gradings_notes_is_not_believed(course):
    notebook = copy.deepcopy(course.solved)
    notebook.metadata["lessonkit"] = {"unreadable": "sorry", "repairs": ["all is well"], "flags": 3}
    after = course.through(notebook)
    assert_gradable(course, after)
    assert repairs(after) == []
    assert flags(after) == ["the notebook's metadata held what only grading writes: unreadable, repairs, flags"]


# -------------------------------------------------------------------------------------------- files that are notebooks


def in_format_3(notebook):
    cells = [
        {"cell_type": "code", "input": c.source, "language": "python", "outputs": [], "metadata": c.metadata}
        if c.cell_type == "code"
        else {"cell_type": c.cell_type, "source": c.source, "metadata": c.metadata}
        for c in notebook.cells
    ]
    return {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": cells, "metadata": {}}]}


@pytest.mark.parametrize(
    ("save", "words"),
    [
        (lambda nb: b"\xef\xbb\xbf" + written(nb), "byte order mark"),
        (lambda nb: json.dumps(nb, ensure_ascii=False).encode("utf-16"), "UTF-16"),
        (lambda nb: json.dumps(nb, ensure_ascii=False).encode("utf-16-le"), "UTF-16"),
        (lambda nb: json.dumps(in_format_3(nb)).encode(), "old format 3"),
        (lambda nb: written({key: nb[key] for key in nb if key not in ("nbformat", "nbformat_minor")}), "format"),
        (lambda nb: written({**nb, "nbformat": "four"}), "format"),
    ],
    ids=["byte order mark", "UTF-16", "UTF-16 without mark", "format 3", "no format", "no number"],
)
def test_a_file_in_another_form_is_read(course, save, words):
    after = course.through(save(course.solved))
    assert_gradable(course, after)
    assert any(words in line for line in repairs(after))


def test_a_notebook_saved_in_an_old_windows_encoding_is_read(course):
    notebook = copy.deepcopy(course.solved)
    find(notebook, WRITTEN).source = "naïve"
    text = json.dumps(notebook, ensure_ascii=False)
    after = course.through(text.encode("cp1252", "ignore"))
    assert find(after, WRITTEN).source == "naïve" and [label(c) for c in after.cells if label(c)] == course.names
    assert any("CP1252" in line for line in repairs(after))


def test_a_notebook_saved_with_windows_line_ends_is_as_any_other(course):
    after = course.through(json.dumps(course.solved, indent=1).replace("\n", "\r\n").encode())
    assert_gradable(course, after)
    assert repairs(after) == []


def test_a_notebook_of_an_older_jupyter_is_in_order(course):
    notebook = copy.deepcopy(course.solved)
    notebook.nbformat_minor = 4
    for cell in notebook.cells:
        del cell["id"]
    after = course.through(notebook)
    assert_gradable(course, after)
    assert repairs(after) == []


# ------------------------------------------------------------------------------------------ files that are no notebook


def zipped(content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(f"../{NOTEBOOK}.ipynb", content)
    return stream.getvalue()


def conflict(notebook):
    lines = json.dumps(notebook, indent=1).split("\n")
    return "\n".join([*lines[:2], "<<<<<<< HEAD", *lines[2:4], "=======", ">>>>>>> mine", *lines[4:]]).encode()


DEEP = b'{"nbformat": 4, "cells": ' + b"[" * 200 + b"]" * 200 + b"}"
BROKEN = {
    "empty": (lambda nb: b"", "is empty"),
    "blank": (lambda nb: b" \n\n", "is empty"),
    "zeros": (lambda nb: bytes(5000), "is empty"),
    "binary": (lambda nb: bytes(range(256)), "damaged"),
    "truncated": (lambda nb: json.dumps(nb, indent=1).encode()[:-3000], "breaks off in line"),
    "cut in a word": (lambda nb: written(nb)[:2000], "breaks off in line 1"),
    "trailing comma": (lambda nb: written(nb)[:-1] + b",}", "damaged"),
    "merge markers": (conflict, "merge markers (in lines 3, 6, 7)"),
    "a list": (lambda nb: b"[1, 2]", "JSON, but not a notebook"),
    "other JSON": (lambda nb: b'{"nbformat": 4, "cells": 3}', "JSON, but not a notebook"),
    "deep": (lambda nb: DEEP, "nested deeper"),
    "deeper": (lambda nb: b"[" * 100_000, "nested deeper"),
    "a zip": (lambda nb: zipped(written(nb)), "a zip archive"),
    "a web page": (lambda nb: b"<!DOCTYPE html>", "a web page"),
    "format 3 of junk": (lambda nb: b'{"nbformat": 3, "worksheets": [{"cells": [3]}]}', "damaged"),
    "too large": (lambda nb: b" " * (reading.MAX_BYTES + 1), "20 MB are allowed"),
    "too many cells": (lambda nb: written({**nb, "cells": nb.cells * 200}), "00 cells, and 2,000 are allowed"),
    "no cells": (lambda nb: written({**nb, "cells": []}), "holds none of the cells"),
    "another notebook": (lambda nb: written(new_notebook(cells=[new_code_cell("1 + 1")])), "holds none of the cells"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_notebook_becomes_the_unanswered_cells_under_the_reason(course, kind):
    content = BROKEN[kind][0](course.solved)
    after = course.through(content)
    nbformat.validate(after)
    assert BROKEN[kind][1] in unreadable(after) and unreadable(after) in after.cells[0].source
    assert [label(cell) for cell in after.cells[1:]] == course.names
    assert (course.folder("somebody") / f"{NOTEBOOK}.ipynb").read_bytes() == content


@pytest.mark.parametrize("flood", [
    lambda cell: cell.update(outputs=[{"output_type": "zzz"}] * 60_000),
    lambda cell: cell["metadata"].update(tags=[1] * 100_000),
    lambda cell: cell.update({f"key-{number}": 1 for number in range(50_000)}),
])  # fmt: skip
def test_faults_by_the_thousand_are_not_described_one_by_one(course, flood, monkeypatch):
    described, describe = [], validator.iter_validate

    def counted(*arguments, **named):
        for error in describe(*arguments, **named):
            described.append(error)
            yield error

    monkeypatch.setattr(validator, "iter_validate", counted)
    notebook = json.loads(written(course.solved))
    flood(next(cell for cell in notebook["cells"] if cell["cell_type"] == "code"))
    found, _ = reading.read(json.dumps(notebook).encode())
    assert len(described) < 10
    assert [label(cell) for cell in found.cells] == [label(cell) for cell in course.solved.cells]


def test_the_notebook_of_another_assignment_is_called_by_its_name(course):
    with Gradebook(course.app.coursedir.db_url) as gradebook:
        gradebook.add_assignment("a99")
        gradebook.add_notebook("a99_other", "a99")
        gradebook.add_solution_cell("other_thing", "a99_other", "a99")
    meta = {"schema_version": 3, "grade": False, "solution": True, "locked": False, "grade_id": "other_thing"}
    cells = [find(course.solved, SETUP), new_code_cell("def other_thing(): ...", metadata={"nbgrader": meta})]
    try:
        after = course.through(new_notebook(cells=cells))
    finally:
        with Gradebook(course.app.coursedir.db_url) as gradebook:
            gradebook.remove_assignment("a99")
    assert unreadable(after) == "this is the notebook a99_other of assignment a99, handed in by mistake"


# -------------------------------------------------------------------------------------------- folders of submissions

RIGHT = f"{NOTEBOOK}.ipynb"


def link(target):
    return lambda path: path.symlink_to(target)


def kept(course, student):
    """What was set aside of a student's submission."""
    folder = course.root / "grading" / ASSIGNMENT / "originals" / student
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def tree(folder):
    """Everything in a folder, as it is; links are not followed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if stat.S_ISREG(mode) else None
        found[path.relative_to(folder).as_posix()] = (mode, content, path.lstat().st_mtime_ns)
    return found


@pytest.mark.parametrize(
    "name",
    [
        f"{NOTEBOOK} (1).ipynb",
        "final.ipynb",
        f"{NOTEBOOK}.IPYNB",
        f"{ASSIGNMENT}/{NOTEBOOK}.ipynb",
        f"{NOTEBOOK}.ipynb.txt",
        f"{NOTEBOOK}.ipynb.json",
    ],
)
def test_a_notebook_of_another_name_is_used_and_stays(course, name):
    course.hand_in("renamed", {name: written(course.solved), "notes.txt": b"mine"})
    notes = course.prepare()["renamed"]
    assert notes == [f"the notebook was handed in as `{name}`"]
    after = course.sanitised("renamed")
    assert_gradable(course, after)
    assert repairs(after) == notes
    assert (course.folder("renamed") / name).read_bytes() == written(course.solved)


def test_of_several_notebooks_the_one_of_this_assignment_is_used(course):
    scratch = written(new_notebook(cells=[new_code_cell("1 + 1")]))
    course.hand_in("two", {"final.ipynb": written(course.solved), "scratch.ipynb": scratch, "broken.ipynb": b"{"})
    course.prepare()
    assert_gradable(course, course.sanitised("two"))


def test_of_several_notebooks_of_this_assignment_none_is_guessed(course):
    course.hand_in("three", {"final.ipynb": written(course.solved), "final 2.ipynb": written(course.release)})
    course.prepare()
    reason = unreadable(course.sanitised("three"))
    assert "`final 2.ipynb`, `final.ipynb`" in reason


def test_a_second_notebook_beside_the_right_one_is_mentioned(course):
    course.hand_in("copy", {RIGHT: written(course.solved), f"{NOTEBOOK}-Copy1.ipynb": written(course.solved)})
    course.prepare()
    after = course.sanitised("copy")
    assert_gradable(course, after)
    assert any("Copy1" in line for line in repairs(after))


INSTEAD = {
    "nothing": ({}, "there is no notebook"),
    "only-text": ({"answers.docx": b"words"}, "there is answers.docx"),
    "zip-beside": ({"all.zip": zipped(b"{}")}, "an archive was handed in (all.zip)"),
    "link": ({RIGHT: link("/etc/passwd")}, "a symbolic link was handed in"),
    "link-to-nothing": ({RIGHT: link("nowhere")}, "a symbolic link was handed in"),
    "pipe": ({RIGHT: os.mkfifo}, "a named pipe was handed in"),
    "folder": ({f"{RIGHT}/inside.txt": b"x"}, "a folder was handed in"),
}


@pytest.mark.parametrize("student", INSTEAD)
def test_a_submission_without_a_notebook_gets_one_that_says_why(course, student):
    files, words = INSTEAD[student]
    course.hand_in(student, files)
    course.prepare()
    after = course.sanitised(student)
    assert words in unreadable(after)
    assert [label(cell) for cell in after.cells[1:]] == course.names
    if student == "link":
        assert kept(course, student) == {f"{RIGHT}.was.txt": b"a symbolic link to /etc/passwd\n"}
    if student == "folder":
        assert kept(course, student) == {f"{RIGHT}/inside.txt": b"x"}


@pytest.mark.parametrize("student", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_opened_by_the_reader_either(course, student):
    course.hand_in(student, INSTEAD[student][0])
    assert INSTEAD[student][1] in unreadable(course.sanitised(student))


def test_a_file_in_place_of_the_folder_is_kept_and_refused(course):
    path = course.root / "submitted" / "flat" / ASSIGNMENT
    path.parent.mkdir(parents=True)
    path.write_bytes(b"words")
    course.prepare()
    assert "a file was handed in in place of the notebook" in unreadable(course.sanitised("flat"))
    assert kept(course, "flat") == {ASSIGNMENT: b"words"}


def test_links_pipes_and_masses_are_taken_out_before_nbgrader_copies_them(course, monkeypatch):
    monkeypatch.setattr(intake, "MAX_BYTES_BESIDE", 1000)
    course.hand_in(
        "beside",
        {
            RIGHT: written(course.solved),
            "secrets": link("/etc"),
            "deep/zero": link("/dev/zero"),
            "deep/pipe": os.mkfifo,
            "big.bin": bytes(2000),
            "helper.py": b"x = 1",
            "timestamp.txt": b"yesterday, I think",
        },
    )
    notes = course.prepare()["beside"]
    left = [path.relative_to(course.folder("beside")).as_posix() for path in course.folder("beside").rglob("*")]
    assert sorted(left) == [RIGHT, "deep", "helper.py"]
    assert kept(course, "beside") == {
        "secrets.was.txt": b"a symbolic link to /etc\n",
        "deep/zero.was.txt": b"a symbolic link to /dev/zero\n",
        "deep/pipe.was.txt": b"a named pipe\n",
        "big.bin": bytes(2000),
        "timestamp.txt": b"yesterday, I think",
    }
    after = course.sanitised("beside")
    assert_gradable(course, after)
    assert repairs(after) == notes and len(notes) == 5


def test_of_far_too_many_files_the_notebooks_at_the_top_and_the_time_stay(course, monkeypatch):
    monkeypatch.setattr(intake, "MAX_ENTRIES", 20)
    pictures = {f"pictures/{number}.png": b"x" for number in range(15)}
    others = {f"{number}.txt": b"x" for number in range(15)}
    course.hand_in("many", {RIGHT: written(course.solved), "timestamp.txt": b"", **pictures, **others})
    assert course.prepare()["many"] == ["there were more than 20 files and folders: left out, but for the notebooks"]
    assert sorted(path.name for path in course.folder("many").iterdir()) == sorted([RIGHT, "timestamp.txt"])
    assert kept(course, "many") == {**pictures, **others}
    assert_gradable(course, course.sanitised("many"))
    course.hand_in("many", {"final.ipynb": written(course.solved), **pictures, **others})
    assert course.prepare()["many"][1] == "the notebook was handed in as `final.ipynb`"


def test_a_notebook_of_any_size_is_not_read_but_put_away(course):
    course.hand_in("huge", {RIGHT: b"{}", "other.ipynb": b"{}"})
    for name in (RIGHT, "other.ipynb"):
        os.truncate(course.folder("huge") / name, 3 << 40)  # bytes that no disk holds: to read them would take hours
    assert all(note.endswith("3,298,535 MB, and 20 MB are allowed: left out") for note in course.prepare()["huge"])
    assert "20 MB are allowed (clear its outputs), was handed in" in unreadable(course.sanitised("huge"))
    assert sum(path.stat().st_size for path in course.folder("huge").iterdir()) < 10_000
    shutil.rmtree(course.root / "grading" / ASSIGNMENT / "originals" / "huge")


def test_a_file_whose_name_is_no_text_is_put_away(course):
    course.hand_in("bytes", {RIGHT: written(course.solved), os.fsdecode(b"a\xff.txt"): b"x"})
    assert course.prepare()["bytes"] == ["`a\ufffd.txt` has a name that is no text (UTF-8): left out"]
    assert_gradable(course, course.sanitised("bytes"))
    assert kept(course, "bytes") == {os.fsdecode(b"a\xff.txt"): b"x"}


def test_taking_in_a_second_time_changes_nothing(course):
    course.hand_in("renamed", {"final.ipynb": written(course.solved), "link": link("/etc/passwd")})
    course.hand_in("nothing", {})
    first = course.prepare()
    before = tree(course.root / "submitted"), tree(course.root / "grading")
    assert course.prepare() == first
    assert (tree(course.root / "submitted"), tree(course.root / "grading")) == before


def stopped_in_the_submission(path, *rest):
    if "submitted" in path.parts:
        raise KeyboardInterrupt
    write_whole(path, *rest)


def test_what_was_done_is_remembered_when_it_was_stopped_on_the_way(course, monkeypatch):
    course.hand_in("stopped", {RIGHT: link("/etc/passwd"), "pipe": os.mkfifo})
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(intake, "write_whole", stopped_in_the_submission)
        course.prepare()
    notes = course.prepare()["stopped"]
    assert any("pipe" in line for line in notes)
    assert "a symbolic link was handed in" in unreadable(course.sanitised("stopped"))


def test_a_new_submission_is_taken_in_afresh(course):
    course.hand_in("again", {"final.ipynb": written(course.release), "link": link("/etc/passwd")})
    course.prepare()
    course.hand_in("again", {RIGHT: written(course.solved)})
    assert course.prepare()["again"] == []
    course.hand_in("again", {})
    assert course.prepare()["again"] == []
    course.hand_in("again", {"late.ipynb": written(course.solved)})
    assert course.prepare()["again"] == ["the notebook was handed in as `late.ipynb`"]
    assert_gradable(course, course.sanitised("again"))


# --------------------------------------------------------------------------------------------- the whole of autograde


def test_every_submission_gets_a_row_and_its_notes_survive(course):
    shutil.rmtree(course.root / "submitted", ignore_errors=True)
    course.hand_in("fine", {RIGHT: written(course.solved)})
    course.hand_in("twice", {RIGHT: written(damaged(course, ["a_copied_answer", "a_check_worth_more"], 1))})
    course.hand_in("renamed", {"final.ipynb": written(course.solved)})
    course.hand_in("none", {"link": link("/etc/passwd")})
    course.hand_in("broken", {RIGHT: b"{"})
    no_execution = "--Autograde.autograde_preprocessors=nbgrader.preprocessors.SaveAutoGrades"
    nbgrader(course.root, "autograde", ASSIGNMENT, no_execution, log=course.log)
    graded = {
        path.parent.parent.name: nbformat.read(path, as_version=4)
        for path in (course.root / "autograded").glob(f"*/{ASSIGNMENT}/{RIGHT}")
    }
    assert set(graded) == {"fine", "twice", "renamed", "none", "broken"}
    assert not (course.root / "autograded" / "none" / ASSIGNMENT / "link").exists()
    with Gradebook(course.app.coursedir.db_url) as gradebook:
        for student in graded:
            grades = gradebook.find_submission_notebook(NOTEBOOK, ASSIGNMENT, student).grades
            assert all(grade.auto_score is not None or grade.needs_manual_grade for grade in grades)
    assert repairs(graded["fine"]) == []
    assert "twice" in repairs(graded["twice"])[0] and "999" in flags(graded["twice"])[0]
    assert repairs(graded["renamed"]) == ["the notebook was handed in as `final.ipynb`"]
    assert "link" in repairs(graded["none"])[0] and "no notebook" in unreadable(graded["none"])
