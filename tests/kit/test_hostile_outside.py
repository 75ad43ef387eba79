"""Submissions against what is done with them outside the sandbox: reading, repairing, keeping them, making pages.

Whatever they are: a row, the right points, a page, and no more than seconds of the process that all others wait for.
"""

import itertools
import json
import math
import os
import time
import warnings

import nbformat
import pytest
from bs4 import BeautifulSoup
from hostile_class import ASSIGNMENT, FULL, HONEST, NOTEBOOK, SCORES, Class, Trouble
from nbgrader.api import Gradebook
from nbgrader.converters import GenerateFeedback

from attncourse_lessons.cli import main
from lessonkit.grading.gradebook.nbgrader_app import Log, nbgrader, own_settings
from lessonkit.grading.repair.reading import MAX_CELLS
from lessonkit.grading.sandbox import linux as walls

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(walls.why_not() is not None, reason=str(walls.why_not())),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),  # nbgrader's way with it
]

# Of the main process, for each submission: reading and saving it, or making its page. A page may take 5 by its budget;
# what grows without one takes minutes, so that this tells them apart on a slow and busy machine, too.
MOST_SECONDS = 20
SCRIPT = "<script>hostile()</script>"


def code(source, **more):
    return {"cell_type": "code", "id": "own", "source": source, "metadata": {}, "outputs": [], "execution_count": None,
            **more}  # fmt: skip


def text(source, kind="markdown", **more):
    return {"cell_type": kind, "id": "own", "source": source, "metadata": {}, **more}


def cell_of(notebook, grade_id):
    return next(c for c in notebook["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == grade_id)


def adds(*cells):
    """A change of a notebook as it was handed in: cells at its end."""
    return lambda notebook: notebook["cells"].extend(cells)


def sets(**metadata):
    return lambda notebook: notebook["metadata"].update(metadata)


def numbers_that_json_does_not_have(notebook):
    notebook["metadata"]["mine"] = [math.nan, math.inf, -math.inf]
    cell_of(notebook, SCORES)["metadata"]["mine"] = math.nan
    notebook["cells"].append(text("x", attachments={"a.json": {"application/json": math.nan}}))
    cell_of(notebook, SCORES)["outputs"] = [
        {"output_type": "display_data", "data": {"application/json": math.nan}, "metadata": {}}
    ]


def as_many_cells_as_are_allowed(notebook):
    left = MAX_CELLS - len(notebook["cells"])
    notebook["cells"] += [code(f"x = {i}") if i % 2 else text(f"text {i}") for i in range(left)]


def ids(notebook):
    notebook["cells"] += [text("x") for _ in range(1500)]
    for cell in notebook["cells"]:
        cell["id"] = "a"


def copies(notebook):
    answer = cell_of(notebook, SCORES)
    place = notebook["cells"].index(answer)
    notebook["cells"][place:place] = [json.loads(json.dumps(answer)) for _ in range(500)]


def odd_grading(notebook):
    for odd in (5, "text", [], {"grade_id": [], "grade": "yes"}, {"grade_id": "x" * 1_000_000, "points": 10**300}):
        notebook["cells"].append(code("1", metadata={"nbgrader": odd}))


def points_of_ones_own(notebook):
    meta = dict(cell_of(notebook, f"check-{SCORES}")["metadata"]["nbgrader"], grade_id="bonus", points=1000)
    notebook["cells"].append(code("1000", metadata={"nbgrader": meta}))


def lines_by_the_million(notebook):
    notebook["cells"].append(code(["\n"] * 1_000_000))


# What is handed in, as a change of the notebook with the model answers: it costs no point.
HANDED_IN = {
    "numbers that JSON does not have": numbers_that_json_does_not_have,
    "as many cells as are allowed": as_many_cells_as_are_allowed,
    "one id for every cell": ids,
    "five hundred copies of an answer": copies,
    "grading metadata that is none": odd_grading,
    "points of one's own": points_of_ones_own,
    "a million lines in a cell": lines_by_the_million,
    "a picture of three megabytes, shown a thousand times": adds(
        text("![](attachment:a.png)\n" * 1000, attachments={"a.png": {"image/png": "iVBORw0K" * 400_000}})
    ),
    "attachments that are none": adds(text("![](attachment:a)", attachments={"a": 5}), text("b", attachments=5)),
    "tags in tags, in a raw cell": adds(
        text("<b>" * 100_000, "raw", metadata={"raw_mimetype": "text/html"}), text(SCRIPT, "raw")
    ),
    "tags by the thousand, in forty texts": adds(*(text("<b>" * 5_000) for _ in range(40))),
    "quotes in quotes, lists in lists": adds(
        text("> " * 5_000 + "x"), text("- " * 5_000 + "x"), text("[![" * 5_000), text("*a **b " * 5_000),
        text("`" * 20_000), text("|a" * 10_000 + "|\n" + "|-" * 10_000 + "|\n"), text("&" * 30_000),
    ),
    "mathematics without an end": adds(
        text(r"\begin{a}" * 5_000), text("$" * 20_000 + "x"), text("$$x " * 9_999), text("\\\\[" * 9_000)
    ),
    "widgets and titles with scripts": sets(
        widgets={"application/vnd.jupyter.widget-state+json": {"version_major": 2, "version_minor": 0,
                 "state": {"a": {"model_name": f"</script>{SCRIPT}", "state": {}}}}},
        title=f"</title>{SCRIPT}", authors=[{"name": SCRIPT}],
    ),
    "a language and a kernel of one's own": sets(
        language_info={"name": SCRIPT, "pygments_lexer": "html+php", "version": [[]], "file_extension": "/../../x"},
        kernelspec={"name": "../../../etc", "display_name": SCRIPT, "language": "julia"},
    ),
    "code as deep as code can be": adds(
        code("x = " + "(" * 5_000 + ")" * 5_000), code("-" * 40_000 + "1"), code("x" + ".a" * 20_000),
        code("if 0: getattr(x" + ".a" * 600 + ", 'softmax')"), code("+".join("1" * 9_000)), code("[" * 300),
        code("lambda: " * 150 + "0"), code("f'" + "{x}" * 10_000 + "'"),
    ),
}  # fmt: skip

# What comes out of the sandbox: it costs no point, and much of it is left out.
SHOWN = {
    "colours without end": Trouble(
        first=tuple(f"print('\\x1b[3{i % 8}mx' * 30_000)" for i in range(60)), flag="printed more than"
    ),
    "errors without end": Trouble(
        first=("class Long(Exception): pass\nget_ipython().set_custom_exc((Long,), lambda *a: None)",)
        + ("raise ValueError('x\\n' * 9_000)",) * 40
    ),
    "a hundred thousand kinds of picture": Trouble(
        first=("display({f'image/x{i}': '' for i in range(100_000)}, raw=True)",) * 3
    ),
    "a kind with a name of five megabytes": Trouble(first=("display({'x/' + 'y' * 5_000_000: ''}, raw=True)",) * 2),
    "the same display, changed ten thousand times": Trouble(
        first=("shown = display(display_id=True)\nfor i in range(10_000): shown.update(i)",)
    ),
    "text that goes back and forth": Trouble(first=("print('x\\r' * 50_000, 'x\\b' * 50_000, '\\x00' * 9_000)",)),
}

# Files beside the right notebook, and names of students.
def deep(folder):
    """Folders whose path is longer than the system takes."""
    here = os.getcwd()
    os.chdir(folder)
    for _ in range(60):
        os.mkdir("n" * 200)
        os.chdir("n" * 200)
    os.close(os.open("x", os.O_CREAT))
    os.chdir(here)


def odd_names(folder):
    for name in ("a\nb\r\x1b[31m.txt", "x" * 255, "-rf", "=cmd|' -C calc'!A0", "<script>.txt", "..."):
        (folder / name).write_text("x")


BESIDE = {
    "folders deeper than a path can say": deep,
    "files of any name": odd_names,
    "handed in before there was time": lambda folder: (folder / "timestamp.txt").write_text("0001-01-01 00:00:00 UTC"),
    "handed in at the end of time": lambda folder: (folder / "timestamp.txt").write_text("9999-12-31 23:59:59 -1400"),
    "secrets and times that are none": lambda folder: [
        (folder / name).mkdir() for name in ("timestamp.txt", "submission_secret.txt")
    ],
}
STUDENTS = ("s" * 200, "\x1b]0;title\x07", "%(name)s {student} $1", "nul\u202e.ipynb")


@pytest.fixture(scope="module")
def everybody(tmp_path_factory):
    """The class, graded, and with its pages made; seconds of the main process by student."""
    room = Class(tmp_path_factory.mktemp("outside") / "course", "\nc.ExecuteOrReplay.timeout = 20\n")
    room.grade_honest_alone()
    for student, change in HANDED_IN.items():
        notebook = json.loads(room.written(Trouble()))
        change(notebook)
        room.hand_in(student, content=json.dumps(notebook).encode())
    for student, trouble in SHOWN.items():
        room.hand_in(student, trouble)
    for student, add in BESIDE.items():
        room.hand_in(student)
        add(room.root / "submitted" / student / ASSIGNMENT)
    for student in (*STUDENTS, "two\nlines"):
        room.hand_in(student)
    ticks = [time.process_time()]
    room.outcome = room.grade(force=True, stage=lambda what, of: lambda: ticks.append(time.process_time()))
    room.seconds = [after - before for before, after in itertools.pairwise(ticks)]
    room.page_seconds, make = {}, GenerateFeedback.convert_single_notebook

    def timed(self, path):
        began = time.process_time()
        try:
            make(self, path)
        finally:
            room.page_seconds[path] = time.process_time() - began

    with pytest.MonkeyPatch.context() as patch, own_settings(room.settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(GenerateFeedback, "convert_single_notebook", timed)
        nbgrader(room.root, "generate_feedback", ASSIGNMENT, log=Log(room.root / "log"))
    return room


CHANGED = [*HANDED_IN, *SHOWN, *BESIDE, *STUDENTS]


def test_every_submission_has_a_row_and_none_failed(everybody):
    two_lines = "the folder's name has two lines, which nbgrader does not find: rename it"
    assert everybody.outcome.failed == {"two\ufffdlines": two_lines}
    assert {*everybody.handed_in} - {"two\nlines"} == {row.student for row in everybody.rows.values() if row.submitted}


@pytest.mark.parametrize("student", CHANGED)
def test_it_costs_no_point(everybody, student):
    assert everybody.points(student) == FULL


@pytest.mark.parametrize("student", HONEST)
def test_an_honest_students_grade_is_what_it_is_without_the_others(everybody, student):
    assert (everybody.points(student), everybody.rows[student].verdicts) == everybody.alone[student]


def test_none_takes_the_main_process_more_than_seconds(everybody):
    assert max(everybody.seconds) < MOST_SECONDS, everybody.seconds


@pytest.mark.parametrize("student", CHANGED)
def test_its_notebook_can_be_opened(everybody, student):
    """A browser's JSON knows no NaN."""
    def refused(word):
        raise AssertionError(word)

    nbformat.validate(nbformat.from_dict(json.loads(everybody.shown(student), parse_constant=refused)))


@pytest.mark.parametrize("student", CHANGED)
def test_its_page_runs_nothing_is_not_huge_and_made_in_seconds(everybody, student):
    page = everybody.root / "feedback" / student / ASSIGNMENT / f"{NOTEBOOK}.html"
    (seconds,) = [s for path, s in everybody.page_seconds.items() if f"/{student}/" in path]
    assert seconds < MOST_SECONDS and page.stat().st_size < 60e6
    if page.stat().st_size < 2e6:
        found = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
        assert not [script for script in found.find_all("script") if "hostile" in script.text]


def test_no_more_points_can_be_had(everybody):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Gradebook(f"sqlite:///{everybody.root / 'gradebook.db'}") as gradebook:
            found = {gradebook.find_submission(ASSIGNMENT, student).score for student in CHANGED}
            assert found == {sum(FULL.values())}
            assert gradebook.find_submission(ASSIGNMENT, HONEST[0]).max_score == gradebook.find_assignment(
                ASSIGNMENT
            ).max_score


def test_the_report_and_the_exports_are_made_in_seconds(everybody, capsys):
    began = time.process_time()
    assert main(["report", ASSIGNMENT, f"--course={everybody.root}"]) == 0
    said = capsys.readouterr().out
    assert time.process_time() - began < 2 * MOST_SECONDS
    assert "\x1b]0;" not in said and "two\nlines" not in said  # a terminal would do what it says
    page = (everybody.root / "grading" / ASSIGNMENT / "report.html").read_text(encoding="utf-8")
    assert "hostile()" not in "".join(s.text for s in BeautifulSoup(page, "html.parser").find_all("script"))
    with own_settings(everybody.settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exporter = "--exporter=lessonkit.grading.handback.export.ExercisePoints"
        nbgrader(everybody.root, "export", exporter, log=Log(everybody.root / "log"))
