"""Building notebooks: a tiny course in a temporary folder, with a package and exercises of its own."""

import ast
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

import attncourse
from attncourse._needs import CommandError
from attncourse.authoring.build import Course, build, choose, drifts, open_course, orphans
from attncourse.authoring.imports import files_imported
from attncourse.authoring.source import SourceError, read
from attncourse.exercises import hidden_seeds

LECTURE = '''\
# %% [markdown]
# # Doubling

# %%
from attncourse.toy import double

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
from attncourse import check

# %% exercise="double"
def double(x):
    """Twice x."""
    ### BEGIN SOLUTION
    return x + x  # secret
    ### END SOLUTION

# %% check="double"
check("double", double)

# %% exercise="triple"
def triple(x):
    ### BEGIN SOLUTION
    return 3 * x
    ### END SOLUTION

# %% check="triple"
check("triple", triple)

# %% [markdown] written="why" points=2
# Why is 2 even?
# ### BEGIN SOLUTION
# Because it is twice 1.
# ### END SOLUTION
'''

# `check` as the real package shows it to the build: a verdict in the output, and loaded only when asked for.
PACKAGE = {
    "__init__.py": """
def __getattr__(name):
    if name != "check":
        raise AttributeError(name)
    from attncourse import exercises
    return getattr(exercises, name)
""",
    "toy.py": "from attncourse.deep import base\ndouble = lambda x: base.two * x\n",
    "deep/__init__.py": "",
    "deep/base.py": "two = 2\n",
    "deep/base.js": "// drawn by base.py",
    "unrelated.py": "",
    "exercises/__init__.py": """
class Verdict:
    def __init__(self, name, points):
        self.name, self.points = name, points
    def _repr_mimebundle_(self, include=None, exclude=None):
        verdict = {"exercise": self.name, "points": self.points, "out_of": 2}
        return {"text/plain": f"{self.points} of 2", "application/vnd.attncourse.verdict+json": verdict}

def check(name, answer, seeds=(0,)):
    right = all(answer(seed) == {"double": 2, "triple": 3}[name] * seed for seed in seeds)
    return Verdict(name, 2 if right else 0.5)
""",
    "exercises/a90_doubling.py": "from attncourse import toy\n",
}


class FakeExercises:
    def __init__(self):
        self.known = {
            "double": SimpleNamespace(name="double", out_of=2.0, extra=False),
            "triple": SimpleNamespace(name="triple", out_of=2.0, extra=True),
        }

    def get(self, name):
        if name not in self.known:
            raise LookupError(f"there is no exercise {name!r}. The exercises are: double, triple.")
        return self.known[name]

    def of(self, assignment):
        return list(self.known.values()) if assignment == "a90" else []


def write(root, **files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_course(root):
    write(root / "src/attncourse", **PACKAGE)
    write(root / "src/notebooks", **{"lectures/90_doubling.py": LECTURE, "solutions/a90_doubling.py": SOLUTION})
    return Course(root, FakeExercises())


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    course = make_course(tmp_path_factory.mktemp("course"))
    build(course, course.targets())
    return course


@pytest.fixture
def built(pristine, tmp_path):
    """A course that is built: every test may spoil its own."""
    shutil.copytree(pristine.root, tmp_path / "course")
    return Course(tmp_path / "course", FakeExercises())


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


def source_of(tmp_path, text, exercises=None, assignment="a90"):
    path = tmp_path / "a90_doubling.py"
    path.write_text(text)
    return read(path, Path("a90.py"), exercises or FakeExercises(), assignment)


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
    assert "Why is 2 even?" in notebook.cells[-1].source
    assert not any(cell.get("outputs") for cell in notebook.cells)


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


@pytest.mark.parametrize("module", ["toy.py", "deep/base.py", "deep/base.js"])
def test_a_change_in_an_imported_module_makes_the_notebook_stale(built, module):
    with open(built.package / module, "a") as file:
        file.write("\n")
    assert drift_of(built)["lectures/90_doubling.ipynb"] == f"is stale: attncourse/{module} changed after it ran"


def test_a_change_elsewhere_in_the_package_makes_nothing_stale(built):
    edit(built, "src/attncourse/__init__.py", "return", "return (name) and")
    (built.root / "src/attncourse/unrelated.py").write_text("x = 1")
    assert drift_of(built) == {}


def test_a_change_in_an_exercise_makes_its_solution_stale_and_no_lecture(built):
    edit(built, "src/attncourse/exercises/a90_doubling.py", "toy", "toy  # for its reference")
    assert drift_of(built) == {
        "solutions/a90/a90_doubling.ipynb": "is stale: attncourse/exercises/a90_doubling.py changed after it ran"
    }


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
    files = files_imported(ast.parse("from attncourse.viz import show"), tmp_path / "attncourse")
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
    files = {file.relative_to(package).as_posix() for file in files_imported(ast.parse(code), package)}
    assert files == {"viz/__init__.py", *expected}


def test_a_lecture_depends_on_what_draws_its_pictures_and_on_no_other_picture():
    package = Path(attncourse.__file__).parent

    def files(name):
        return {file.name for file in files_imported(ast.parse(f"from attncourse import viz\nviz.{name}"), package)}

    assert {"viewer.py", "viewer.js", "viewer.css", "live_widget.py", "transformer.py"} <= files("look")
    assert files("curves") == {"__init__.py", "_needs.py", "_checks.py", "figures.py", "style.py"}


# --check finds what is not as its source says


def test_a_missing_notebook_is_found(built):
    os.unlink(built.root / "lectures/90_doubling.ipynb")
    os.unlink(built.root / "assignments/a90/a90_doubling.ipynb")
    assert drift_of(built) == {
        "lectures/90_doubling.ipynb": "is missing",
        "assignments/a90/a90_doubling.ipynb": "is missing",
    }


def test_an_edited_source_is_found_with_its_line(built):
    edit(built, "src/notebooks/lectures/90_doubling.py", "double(21)", "double(22)")
    assert drift_of(built) == {
        "lectures/90_doubling.ipynb": "differs at cell 2 (src/notebooks/lectures/90_doubling.py:4)"
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
    assert drift_of(built) == {"lectures/91_tripling.ipynb": "has no source in src/notebooks"}


def test_checking_writes_nothing(built):
    edit(built, "src/notebooks/lectures/90_doubling.py", "double(21)", "double(22)")
    before = everything(built)
    drift_of(built)
    assert everything(built) == before


# A build that fails leaves the old notebook and says which line


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("x = 1\nx / 0", r"90_doubling.py:6: ZeroDivisionError: division by zero\n(.|\n)*x / 0"),
        ("import warnings\nwarnings.warn('old')", r"90_doubling.py:4: the cell writes to stderr(.|\n)*old"),
        ("import os\nprint(os.getcwd())", "90_doubling.py:4: the output shows a path of this machine"),
        (
            "import os\nos.write(2, b'out of paper'), os._exit(1)",
            r"90_doubling.py:4: the kernel died in this cell(.|\n)*out of paper",
        ),
    ],
)
def test_a_lecture_that_must_not_be_read_is_not_built(built, cell, message):
    before = everything(built)
    edit(built, "src/notebooks/lectures/90_doubling.py", "# # Doubling\n", f"# # Doubling\n\n# %%\n{cell}\n")
    with pytest.raises(CommandError, match=message):
        build(built, built.targets())
    assert everything(built) == before


def test_a_solution_that_loses_points_is_not_built(built):
    before = everything(built)
    edit(built, "src/notebooks/solutions/a90_doubling.py", "x + x", "x * x")
    with pytest.raises(CommandError, match=r"a90_doubling.py:14: the solution gets 0.5 of 2 points for double"):
        build(built, built.targets())
    assert everything(built) == before


def test_what_is_stopped_half_way_leaves_no_half_file(built, monkeypatch):
    edit(built, "src/notebooks/lectures/90_doubling.py", "double(21)", "double(22)")
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
    edit(built, "src/notebooks/lectures/90_doubling.py", "# # Doubling\n", f"# # Doubling\n\n# %%\n{cell}\n")
    with pytest.raises(KeyboardInterrupt):
        build(built, built.targets())
    assert everything(built) == before


def test_memory_addresses_and_widget_ids_do_not_vary(tmp_path):
    course = make_course(tmp_path)
    text = "# %%\nprint(object())\n\n# %%\nimport ipywidgets\nipywidgets.IntSlider()\n"
    write(tmp_path / "src/notebooks/lectures", **{"90_doubling.py": text})
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
    edit(built, "src/notebooks/solutions/a90_doubling.py", "Twice x", "Two x")
    build(built, built.targets())
    assert notes.read_text() == "mine" and drift_of(built) == {}


# A slip in a source is one line with file and line


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('exercise="double"', 'exercise="dubble"', "a90.py:7: there is no exercise 'dubble'. The exercises are:"),
        ('exercise="double"', 'excercise="double"', "a90.py:7: not understood after # %%: excercise"),
        ("    ### END SOLUTION\n\n# %% check", "\n# %% check", 'a90.py:7: exercise "double" needs its answer between'),
        ('# %% exercise="double"', "# %%", "a90.py:7: a solution or hidden test outside"),
        ('check="triple"', 'check="double"', 'a90.py:23: a second check of "double" (the first: line 14)'),
        ('exercise="triple"', 'exercise="double"', 'a90.py:17: a second cell "double" (the first: line 7)'),
        ('# %% check="triple"', "# %%", 'a90.py:17: exercise "triple" has no check'),
        (' points=2', "", 'a90.py:26: written cell "why" needs its points'),
        (' points=2', ' points="2"', 'a90.py:26: written cell "why" needs its points'),
        ('check("triple", triple)', "triple(1)", 'a90.py:23: a check cell ends with check("triple", triple)'),
        ('check("triple", triple)', 'check("double", triple)', 'a90.py:23: a check cell ends with check("triple"'),
        ('written="why"', 'written="why not"', "a90.py:26: 'why not' is no name for a cell"),
        ("# %% [markdown]\n# # A", "text\n# %% [markdown]\n# # A", "a90.py:1: the first line must start a cell"),
        ("return 3 * x", "return 3 *", "a90.py:20: invalid syntax"),
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


def test_an_exercise_of_another_assignment_is_told(tmp_path):
    with pytest.raises(SourceError, match=r'a90.py:7: exercise "double" is not one of a91'):
        source_of(tmp_path, SOLUTION, assignment="a91")


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
    course = open_course(Path(__file__).resolve().parent.parent)
    found = [*drifts(course, course.targets()), *orphans(course)]
    assert not found, "\n".join(f"{path} {problem}; mend: {mend}" for path, problem, mend in found)


def test_a_notebooks_record_is_json_that_names_files_below_src(pristine):
    record = json.loads((pristine.root / "lectures/90_doubling.ipynb").read_text())["metadata"]["attncourse"]
    names = ["deep/__init__.py", "deep/base.js", "deep/base.py", "toy.py"]
    assert [*record["built_from"]] == [f"attncourse/{name}" for name in names]
