"""Building notebooks: a tiny course in a temporary folder, with a package and exercises of its own."""

import ast
import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

import attncourse
from commandkit.errors import CommandError
from lessonkit.authoring.build import build, drifts, orphans
from lessonkit.authoring.checkout import Checkout, choose, open_course
from lessonkit.authoring.imports import files_imported
from lessonkit.authoring.source import SourceError, read
from lessonkit.course import Course, hidden_seeds
from lessonkit.grading.submission.answers import answer, solutions

LECTURE = '''\
# %% [markdown]
# # Doubling

# %%
from toy.times import double

double(21)

# %%
assert double(1) == 2

# %%
"the same"

# %%
"the same"
'''

SOLUTION = '''\
# %% [markdown]
# # Assignment 90

# %% locked
from toy import check

# %% exercise="double"
def double(x):
    """Twice x."""
    ...  # solution

# %% check="double"
check("double", double)

# %% exercise="triple"
def triple(x):
    ...  # solution

# %% check="triple"
check("triple", triple)

# %% [markdown] written="why" points=2 minutes=5 difficulty=1
# Why is 2 even?
# ### BEGIN SOLUTION
# Because it is twice 1.
# ### END SOLUTION
'''

# `check` as the real package shows it to the build: a verdict in the output, and loaded only when asked for.
PACKAGE = {
    "__init__.py": """
def __getattr__(name):
    if name not in ("check", "check_all"):
        raise AttributeError(name)
    import toy_lessons
    return getattr(toy_lessons, name)
""",
    "times.py": "from toy.deep import base\ndouble = lambda x: base.two * x\n",
    "deep/__init__.py": "",
    "deep/base.py": "two = 2\n",
    "deep/base.js": "// drawn by base.py",
    "unrelated.py": "",
}
LESSONS = {
    "__init__.py": """
class Verdict:
    def __init__(self, name, points):
        self.name, self.points = name, points
    def _repr_mimebundle_(self, include=None, exclude=None):
        verdict = {"exercise": self.name, "points": self.points, "out_of": 2}
        return {"text/plain": f"{self.points} of 2", "application/vnd.lessonkit.verdict+json": verdict}

def check(name, answer, seeds=(0,)):
    right = all(answer(seed) == {"double": 2, "triple": 3}[name] * seed for seed in seeds)
    return Verdict(name, 2 if right else 0.5)

def check_all():
    pass
""",
    "l90_doubling/__init__.py": "",
    "l90_doubling/exercises/__init__.py": "from toy import times\n",
    "l90_doubling/lecture.py": LECTURE,
    "l90_doubling/assignment.py": SOLUTION,
}
SOURCES = "src/toy_lessons/l90_doubling"


class ToyCourse(Course):
    """A course in a folder that Python does not know, with exercises that are no more than the build asks for."""

    def __init__(self, root):
        super().__init__("toy_lessons", library=("toy",))
        self.folder = root / "src/toy_lessons"

    def exercises_of(self, assignment):
        return [
            SimpleNamespace(name="double", out_of=2.0, extra=False, minutes=5, difficulty=1, solution_bodies=(DOUBLE,)),
            SimpleNamespace(name="triple", out_of=2.0, extra=True, minutes=5, difficulty=1, solution_bodies=(TRIPLE,)),
        ]


DOUBLE, TRIPLE = "return x + x  # secret", "return 3 * x"


def write(root, **files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_course(root):
    write(root / "src/toy", **PACKAGE)
    write(root / "src/toy_lessons", **LESSONS)
    return Checkout(root, ToyCourse(root))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    course = make_course(tmp_path_factory.mktemp("course"))
    build(course, course.targets())
    return course


@pytest.fixture
def built(pristine, tmp_path):
    """A course that is built: every test may spoil its own."""
    shutil.copytree(pristine.root, tmp_path / "course")
    return Checkout(tmp_path / "course", ToyCourse(tmp_path / "course"))


def drift_of(course):
    return {path.as_posix(): problem for path, problem, _ in [*drifts(course, course.targets()), *orphans(course)]}


def everything(course):
    notebooks = [*course.root.rglob("*.ipynb")]
    assert notebooks
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in notebooks}


def edit(course, name, old, new):
    path = course.root / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def source_of(tmp_path, text, assignment=True):
    checkout = make_course(tmp_path)
    path = tmp_path / "a90.py"
    path.write_text(text)
    return read(path, Path("a90.py"), checkout.course, checkout.course.lessons[0], assignment)


# What a build makes


def test_a_built_course_has_no_drift(built):
    assert drift_of(built) == {}


def test_building_again_writes_nothing(built):
    before = everything(built)
    assert build(built, built.targets()) == 0
    assert everything(built) == before


def test_executing_again_gives_the_same_bytes(built):
    before = {path: data for path, (data, _) in everything(built).items()}
    assert build(built, built.targets(), force=True) == 2
    assert {path: data for path, (data, _) in everything(built).items()} == before


def test_a_lecture_keeps_its_outputs_and_names_no_machine(built):
    text = (built.root / "lectures/90_doubling.ipynb").read_text()
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[1].outputs[0].data["text/plain"] == "42"
    assert notebook.metadata.language_info.get("version") is None
    assert str(built.root) not in text and "execution\":" not in text


def test_exercise_check_and_written_cells_become_nbgraders(built):
    notebook = nbformat.read(built.root / "solutions/a90/a90_doubling.ipynb", as_version=4)
    grader = {cell.id: cell.metadata.nbgrader for cell in notebook.cells if "nbgrader" in cell.metadata}
    given, *others = grader
    assert others == ["double", "check-double", "triple", "check-triple", "why"]
    told = {name: (g.grade, g.solution, g.locked, g.get("points")) for name, g in grader.items()}
    assert told["double"] == (False, True, False, None)
    assert told["check-double"] == (True, False, True, 2)
    assert told["check-triple"] == (True, False, True, 0)
    assert told["why"] == (True, True, False, 2)
    assert told[given] == (False, False, True, None)
    assert {g.schema_version for g in grader.values()} == {3}


def test_the_assignment_holds_no_answer_and_no_hidden_test(built):
    text = (built.root / "assignments/a90/a90_doubling.ipynb").read_text()
    notebook = nbformat.reads(text, as_version=4)
    assert "secret" not in text and "twice 1" not in text and "HIDDEN" not in text
    assert not any(str(seed) in text for seed in hidden_seeds("double"))
    assert "raise NotImplementedError" in notebook.cells[2].source
    assert notebook.cells[3].source == 'check("double", double)'
    assert "Why is 2 even?" in notebook.cells[-3].source
    assert not any(cell.get("outputs") for cell in notebook.cells)


def test_an_assignment_ends_with_the_check_of_the_whole_and_a_lecture_does_not(built):
    *_, told, call = nbformat.read(built.root / "assignments/a90/a90_doubling.ipynb", as_version=4).cells
    assert told.source.startswith("## Before you hand in: check all of it\n")
    assert call.source == "from toy import check_all\n\ncheck_all()"
    assert "nbgrader" not in call.metadata and "nbgrader" not in told.metadata
    assert "check_all" not in (built.root / "lectures/90_doubling.ipynb").read_text()


def test_no_gradebook_is_touched(built):
    build(built, built.targets(), force=True)
    assert not [*built.root.rglob("*.db")]


def test_the_hidden_check_is_the_visible_one_on_other_seeds(tmp_path):
    cell = source_of(tmp_path, SOLUTION).notebook.cells[3]
    assert cell.source.splitlines() == [
        'check("double", double)',
        "### BEGIN HIDDEN TESTS",
        f'check("double", double, seeds={hidden_seeds("double")})',
        "### END HIDDEN TESTS",
    ]
    assert hidden_seeds("double") != hidden_seeds("triple")


def test_an_edit_changes_no_other_cells_id(tmp_path):
    before = [cell.id for cell in source_of(tmp_path, LECTURE).notebook.cells]
    after = [cell.id for cell in source_of(tmp_path, LECTURE.replace("== 2", "< 3")).notebook.cells]
    assert len(set(before)) == 5
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, False, True, True]


# Only what changed is executed again


@pytest.mark.parametrize("module", ["times.py", "deep/base.py", "deep/base.js"])
def test_a_change_in_an_imported_module_makes_the_notebook_stale(built, module):
    with open(built.root / "src/toy" / module, "a") as file:
        file.write("\n")
    assert drift_of(built)["lectures/90_doubling.ipynb"] == f"is stale: toy/{module} changed after it ran"


def test_a_change_elsewhere_in_the_package_makes_nothing_stale(built):
    edit(built, "src/toy/__init__.py", "return", "return (name) and")
    (built.root / "src/toy/unrelated.py").write_text("x = 1")
    assert drift_of(built) == {}


def test_a_change_in_an_exercise_makes_its_solution_stale_and_no_lecture(built):
    edit(built, f"{SOURCES}/exercises/__init__.py", "times", "times  # for its reference")
    stale = "is stale: toy_lessons/l90_doubling/exercises/__init__.py changed after it ran"
    assert drift_of(built) == {"solutions/a90/a90_doubling.ipynb": stale}


def test_imports_are_followed_through_packages_relative_names_and_functions(tmp_path):
    write(
        tmp_path / "attncourse",
        **{
            "__init__.py": "",
            "viz/__init__.py": "from .figures import show",
            "viz/figures.py": "def show():\n    from ..attention import attend",
            "attention.py": "import attncourse.layers",
            "layers.py": "",
            "cli.py": "",
        },
    )
    files = files_imported(ast.parse("from attncourse.viz import show"), {"attncourse": tmp_path / "attncourse"})
    assert [file.name for file in files] == ["attention.py", "layers.py", "__init__.py", "figures.py"]


LAZY = {
    "__init__.py": "",
    "viz/__init__.py": "import lazy_loader",
    "viz/__init__.pyi": "from .figures import curves, show\nfrom .pad import pad",
    "viz/figures.py": "",
    "viz/pad.py": "from attncourse.attention import attend",
    "viz/pad.js": "",
    "attention.py": "",
}
FIGURES, PAD = ["viz/figures.py"], ["attention.py", "viz/pad.js", "viz/pad.py"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from attncourse import viz\nviz.show(viz.curves())", FIGURES),
        ("from attncourse import viz as pictures\npictures.pad()", PAD),
        ("from attncourse import viz\nprint(f'{viz.pad().x}')", PAD),
        ("from attncourse.viz import show", FIGURES),
        ("from attncourse.viz import pad", PAD),
        ("from attncourse.viz.pad import pad", PAD),
        ("from attncourse import viz", []),
        ("from attncourse import viz\nviz.show, getattr(viz, 'pad')", FIGURES + PAD),
        ("from attncourse import viz\nviz.other", FIGURES + PAD),
        ("from attncourse.viz import *", FIGURES + PAD),
        ("import attncourse.viz\nattncourse.viz.show", FIGURES + PAD),
        ("import attncourse.viz.figures as f\nf.show", FIGURES + PAD),
    ],
)
def test_of_a_package_that_loads_its_names_when_used_only_their_modules_count(tmp_path, code, expected):
    package = tmp_path / "attncourse"
    write(package, **LAZY)
    files = {file.relative_to(package).as_posix() for file in files_imported(ast.parse(code), {"attncourse": package})}
    assert files == {"viz/__init__.py", *expected}


def test_a_lecture_depends_on_what_draws_its_pictures_and_on_no_other_picture():
    packages = {"attncourse": Path(attncourse.__file__).parent}

    def files(name):
        return {file.name for file in files_imported(ast.parse(f"from attncourse import viz\nviz.{name}"), packages)}

    assert {"viewer.py", "viewer.js", "viewer.css", "live_widget.py", "transformer.py"} <= files("look")
    assert files("curves") == {"__init__.py", "_checks.py", "figures.py", "style.py"}


# --check finds what is not as its source says


def test_a_missing_notebook_is_found(built):
    os.unlink(built.root / "lectures/90_doubling.ipynb")
    os.unlink(built.root / "assignments/a90/a90_doubling.ipynb")
    assert drift_of(built) == {
        "lectures/90_doubling.ipynb": "is missing",
        "assignments/a90/a90_doubling.ipynb": "is missing",
    }


def test_an_edited_source_is_found_with_its_line(built):
    edit(built, f"{SOURCES}/lecture.py", "double(21)", "double(22)")
    assert drift_of(built) == {
        "lectures/90_doubling.ipynb": f"differs at cell 2 ({SOURCES}/lecture.py:4)"
    }


def test_an_edited_notebook_is_found(built):
    edit(built, "lectures/90_doubling.ipynb", '"42"', '"43"')
    edit(built, "assignments/a90/a90_doubling.ipynb", "Twice x", "Thrice x")
    assert drift_of(built) == {
        "lectures/90_doubling.ipynb": "has outputs that the build did not make",
        "assignments/a90/a90_doubling.ipynb": "differs from its generation",
    }


def test_a_notebook_without_outputs_is_found(built):
    path = built.root / "lectures/90_doubling.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells[1:]:
        cell.update(outputs=[], execution_count=None)
    nbformat.write(notebook, path)
    assert drift_of(built) == {"lectures/90_doubling.ipynb": "was not executed in order (cell 2)"}


def test_a_notebook_that_is_no_json_is_found_and_mended(built):
    for name in ("lectures/90_doubling.ipynb", "solutions/a90/a90_doubling.ipynb"):
        (built.root / name).write_text("<<<<<<< HEAD")
        assert "cannot be read" in drift_of(built)[name]
    build(built, built.targets())
    assert drift_of(built) == {}


def test_a_notebook_without_source_is_found(built):
    shutil.copy(built.root / "lectures/90_doubling.ipynb", built.root / "lectures/91_tripling.ipynb")
    assert drift_of(built) == {"lectures/91_tripling.ipynb": "has no source among the lessons"}


def test_checking_writes_nothing(built):
    edit(built, f"{SOURCES}/lecture.py", "double(21)", "double(22)")
    before = everything(built)
    drift_of(built)
    assert everything(built) == before


# A build that fails leaves the old notebook and says which line


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("x = 1\nx / 0", r"lecture.py:6: ZeroDivisionError: division by zero\n(.|\n)*x / 0"),
        ("import warnings\nwarnings.warn('old')", r"lecture.py:4: the cell writes to stderr(.|\n)*old"),
        ("import os\nprint(os.getcwd())", "lecture.py:4: the output shows a path of this machine"),
        (
            "import os\nos.write(2, b'out of paper'), os._exit(1)",
            r"lecture.py:4: the kernel died in this cell(.|\n)*out of paper",
        ),
    ],
)
def test_a_lecture_that_must_not_be_read_is_not_built(built, cell, message):
    before = everything(built)
    edit(built, f"{SOURCES}/lecture.py", "# # Doubling\n", f"# # Doubling\n\n# %%\n{cell}\n")
    with pytest.raises(CommandError, match=message):
        build(built, built.targets())
    assert everything(built) == before


def test_a_solution_that_loses_points_is_not_built(built, monkeypatch):
    before = everything(built)
    monkeypatch.setattr(sys.modules[__name__], "DOUBLE", "return x * x")
    with pytest.raises(CommandError, match=r"assignment.py:12: the solution gets 0.5 of 2 points for double"):
        build(built, built.targets())
    assert everything(built) == before


def test_what_is_stopped_half_way_leaves_no_half_file(built, monkeypatch):
    edit(built, f"{SOURCES}/lecture.py", "double(21)", "double(22)")
    before = everything(built)

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        build(built, built.targets())
    monkeypatch.undo()
    assert everything(built) == before
    assert not [*(built.root / "lectures").glob(".90*")]


def test_ctrl_c_stops_the_kernel_and_keeps_the_old_notebook(built):
    before = everything(built)
    cell = "import os, signal, time\nos.kill(os.getppid(), signal.SIGINT)\ntime.sleep(60)"
    edit(built, f"{SOURCES}/lecture.py", "# # Doubling\n", f"# # Doubling\n\n# %%\n{cell}\n")
    with pytest.raises(KeyboardInterrupt):
        build(built, built.targets())
    assert everything(built) == before


def test_memory_addresses_and_widget_ids_do_not_vary(tmp_path):
    course = make_course(tmp_path)
    text = "# %%\nprint(object())\n\n# %%\nimport ipywidgets\nipywidgets.IntSlider()\n"
    write(tmp_path / SOURCES, **{"lecture.py": text})
    lecture = [target for target in course.targets() if not target.assignment]
    made = []
    for _ in range(2):
        build(course, lecture, force=True)
        made.append((tmp_path / "lectures/90_doubling.ipynb").read_text())
    assert made[0] == made[1]
    notebook = nbformat.reads(made[0], as_version=4)
    assert "<object object at 0x…>" in notebook.cells[0].outputs[0].text
    shown = notebook.cells[1].outputs[0].data["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert shown in notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]


# Nobody's work is lost


@pytest.mark.parametrize("how", ["answered", "run"])
def test_an_assignment_that_somebody_worked_in_is_kept(built, how):
    path = built.root / "assignments/a90/a90_doubling.ipynb"
    notebook = nbformat.read(path, as_version=4)
    if how == "answered":
        notebook.cells[2].source = "def double(x):\n    return 2 * x"
    else:
        notebook.cells[1].execution_count = 1
    nbformat.write(notebook, path)
    before = path.read_bytes()
    with pytest.raises(CommandError, match="holds somebody's work"):
        build(built, built.targets())
    assert path.read_bytes() == before
    build(built, built.targets(), force=True)
    assert drift_of(built) == {}


def test_a_learners_other_files_stay(built):
    notes = built.root / "assignments/a90/notes.txt"
    notes.write_text("mine")
    edit(built, f"{SOURCES}/assignment.py", "Twice x", "Two x")
    build(built, built.targets())
    assert notes.read_text() == "mine" and drift_of(built) == {}


# A slip in a source is one line with file and line


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('exercise="double"', 'exercise="dubble"', 'a90.py:7: exercise "dubble" is not one of doubling: double'),
        ('exercise="double"', 'excercise="double"', "a90.py:7: not understood after # %%: excercise"),
        ('    ...  # solution\n\n# %% check="d', '    ...\n\n# %% check="d', 'a90.py:7: exercise "double" needs one'),
        ("# # Assignment 90", "# ### BEGIN SOLUTION", "a90.py:1: a solution or hidden test outside"),
        ("# # Assignment 90", "# as in lecture @halving", "a90.py:1: @halving is no lesson; the lessons are:"),
        ("# # Assignment 90", "# [halves](@halving)", "a90.py:1: a link to @halving, which is no lesson"),
        ('check="triple"', 'check="double"', 'a90.py:19: a second check of "double" (the first: line 12)'),
        ('exercise="triple"', 'exercise="double"', 'a90.py:15: a second cell "double" (the first: line 7)'),
        ('# %% check="triple"', "# %%", 'a90.py:15: exercise "triple" has no check'),
        (" points=2", "", 'a90.py:22: written cell "why" needs its points'),
        (" points=2", ' points="2"', 'a90.py:22: written cell "why" needs its points'),
        (" minutes=5", "", 'a90.py:22: written cell "why" needs its minutes'),
        ('check("triple", triple)', "triple(1)", 'a90.py:19: a check cell ends with check("triple", triple)'),
        ('check("triple", triple)', 'check("double", triple)', 'a90.py:19: a check cell ends with check("triple"'),
        ('written="why"', 'written="why not"', "a90.py:22: 'why not' is no name for a cell"),
        ("# %% [markdown]\n# # A", "text\n# %% [markdown]\n# # A", "a90.py:1: the first line must start a cell"),
        ("def triple(x):", "def triple(x:", "a90.py:16: '(' was never closed"),
    ],
)
def test_a_slip_is_told_with_its_line(tmp_path, old, new, message):
    assert old in SOLUTION
    with pytest.raises(SourceError) as error:
        source_of(tmp_path, SOLUTION.replace(old, new, 1))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_check_before_its_exercise_is_told(tmp_path):
    with pytest.raises(SourceError, match=r'a90.py:1: check="double" without # %% exercise="double" before it'):
        source_of(tmp_path, '# %% check="double"\ncheck("double", double)\n')


def test_an_exercise_in_a_lecture_is_told(tmp_path):
    with pytest.raises(SourceError, match=r'a90.py:7: exercise "double" in a lecture: exercises belong in'):
        source_of(tmp_path, SOLUTION, assignment=False)


def test_the_build_puts_in_the_solution_the_table_and_the_numbers_of_lessons(tmp_path):
    title = "# # Assignment @doubling\n#\n# After lecture @doubling, `@doubling`.\n#\n# {exercises}"
    text = SOLUTION.replace("# # Assignment 90", title)
    first, _, exercise, *_ = source_of(tmp_path, text).notebook.cells
    assert first.source.splitlines() == [
        "<!-- Built from a90.py: edit that file, not this one. -->",
        "# Assignment 90",
        "",
        "After lecture 90, `@doubling`.",
        "",
        "| | exercise | difficulty | minutes | points |",
        "|---|---|---|---|---|",
        "| 1 | `double` | ●○○ | 5 | 2 |",
        "| | a question to answer in words | ●○○ | 5 | 2 |",
        "| + | `triple`, an extension | ●○○ | 5 | 2 extra |",
    ]
    answer = ["    ### BEGIN SOLUTION", f"    {DOUBLE}", "    ### END SOLUTION"]
    assert exercise.source.splitlines() == ["def double(x):", '    """Twice x."""', *answer]


def test_of_a_whole_module_each_method_has_its_place_and_all_are_one_answer(tmp_path, monkeypatch):
    text = SOLUTION.replace('def double(x):\n    """Twice x."""\n    ...  # solution', WHOLE)
    exercises = [SimpleNamespace(**vars(each)) for each in ToyCourse(tmp_path).exercises_of("a90")]
    exercises[0].solution_bodies = ("self.two = 2", "return self.two * x")
    monkeypatch.setattr(ToyCourse, "exercises_of", lambda course, assignment: exercises)
    source = source_of(tmp_path / "right", text).notebook
    for body in exercises[0].solution_bodies:
        assert f"        ### BEGIN SOLUTION\n        {body}\n        ### END SOLUTION" in source.cells[2].source
    methods = "def __init__(self):\n    self.two = 2\n\ndef forward(self, x):\n    return self.two * x"
    assert solutions(source)["double"] == methods
    answered = answer(source, source, {"double": "def forward(self, x):\n    return x"}).cells[2].source
    assert answered == 'class double:\n    """Twice x."""\n    def forward(self, x):\n        return x'
    with pytest.raises(SourceError, match="needs 2 lines"):
        source_of(tmp_path / "wrong", text.replace("    def forward(self, x):\n        ...  # solution", ""))


WHOLE = '''class double:
    """Twice x."""
    def __init__(self):
        ...  # solution

    def forward(self, x):
        ...  # solution'''


def test_a_link_to_a_lesson_leads_from_where_the_notebook_is(tmp_path):
    text = "# %% [markdown]\n# [read](@doubling) [do](@doubling/assignment)\n"
    lecture, assignment = (source_of(tmp_path, text, which).notebook.cells[0].source for which in (False, True))
    assert lecture.endswith("[read](90_doubling.ipynb) [do](../assignments/a90/a90_doubling.ipynb)")
    assert assignment.endswith("[read](../../lectures/90_doubling.ipynb) [do](a90_doubling.ipynb)")


def test_a_lessons_own_modules_are_imported_by_their_whole_names(tmp_path):
    text = "# %%\nfrom . import figures\nfrom .figures import triangle\n"
    package = "from toy_lessons.l90_doubling"
    expected = f"{package} import figures\n{package}.figures import triangle"
    assert source_of(tmp_path, text, assignment=False).notebook.cells[0].source == expected


def test_a_cell_tagged_hide_input_is_folded_in_jupyterlab_too(tmp_path):
    text = '# %% tags=["hide-input"]\nassert True\n\n# %%\n1\n'
    folded, open_ = source_of(tmp_path, text, assignment=False).notebook.cells
    assert folded.metadata == {"tags": ["hide-input"], "jupyter": {"source_hidden": True}}
    assert "jupyter" not in open_.metadata


def test_a_lecture_begins_with_its_imports_folded_and_an_assignment_says_what_there_is(tmp_path):
    text = "# %% [markdown]\n# # A\n\n# %%\nimport torch\n\n# %%\nimport math\n"
    _, first, second = source_of(tmp_path, text, assignment=False).notebook.cells
    assert first.metadata == {"tags": ["hide-input"], "jupyter": {"source_hidden": True}} and second.metadata == {}
    assert source_of(tmp_path, text, assignment=True).notebook.cells[1].metadata == {}


def test_a_marker_inside_a_string_starts_no_cell(tmp_path):
    text = '# %%\ntext = """\n# %%\n"""\n\n# %%\n1\n'
    source = source_of(tmp_path, text)
    assert source.lines == (1, 6) and len(source.notebook.cells) == 2


def test_an_unknown_notebook_is_told_with_the_known_ones(pristine):
    with pytest.raises(CommandError, match="no notebook '04'; the notebooks are: a90_doubling, 90_doubling"):
        choose(pristine, ["04"])


@pytest.mark.parametrize("name", ["90", "90_doubling", "lectures/90_doubling.ipynb"])
def test_a_notebook_is_chosen_by_number_name_or_path(pristine, name):
    assert [target.name for target in choose(pristine, [name])] == ["90_doubling"]


# The course itself


def test_every_notebook_of_the_course_is_what_its_source_builds_to():
    course = open_course(Path(__file__).resolve().parents[2])
    found = [*drifts(course, course.targets()), *orphans(course)]
    assert not found, "\n".join(f"{path} {problem}; mend: {mend}" for path, problem, mend in found)


def test_a_notebooks_record_is_json_that_names_files_below_src(pristine):
    record = json.loads((pristine.root / "lectures/90_doubling.ipynb").read_text())["metadata"]["lessonkit"]
    names = ["deep/__init__.py", "deep/base.js", "deep/base.py", "times.py"]
    assert [*record["built_from"]] == [f"toy/{name}" for name in names]
