"""What leaves a graded course: CSV for spreadsheets, Canvas and Moodle; feedback pages, and the formgrader's own."""

import csv
import errno
import io
import os
import re
import shutil
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbconvert.exporters import HTMLExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from nbgrader.api import Gradebook
from nbgrader.server_extensions.formgrader.formgrader import FormgradeExtension
from traitlets.config import Config

from commandkit.errors import CommandError
from lessonkit.exercises.verdict import AspectVerdict, Verdict
from lessonkit.grading.gradebook.nbgrader_app import Log, environment, nbgrader, own_settings
from lessonkit.grading.handback import export
from lessonkit.grading.handback.export import defused
from lessonkit.grading.handback.feedback import HideHiddenTests, HidePaths, SafePage, safe_html
from lessonkit.grading.settings import use_course
from lessonkit.mimetype import VERDICT

COURSE = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning")

# id: first name, last name, email, points (thing, more, essay), late penalty. None: not marked, or not handed in.
CLASS = {
    "ada": ("Ada", 'Lovelace, "Countess"', "ada@uni.example", (4, 1, 3), 0),
    "=bob": ("=HYPERLINK(1)", "@SUM(1)", "bob@uni.example", (2.5, 0, 0), 0),
    "cy": ("Cy\nnewline", "مريم 🦜", "cy@uni.example", (4, 0, 1), 2),
    "dee": ("Dee", "Waits", "dee@uni.example", (4, 0, None), 0),
    "eve": ("Eve", "Absent", "eve@uni.example", None, 0),
    "fay": ("+Fay|x", "=1+1", "fay@uni.example", (2, 0, 0), 0),
    "-5": (None, None, None, (1, 0, 0), 0),
}
TOTAL = {"ada": "8", "=bob": "2.5", "cy": "3", "dee": "", "eve": "", "fay": "2", "-5": "1"}


def add_assignment(gradebook, name="a01"):
    gradebook.add_assignment(name)
    gradebook.add_notebook("nb", name)
    for cell, worth in (("check-thing", 4), ("check-more", 0), ("own-test", 0), ("essay", 3)):
        kind = "markdown" if cell == "essay" else "code"
        gradebook.add_grade_cell(cell, "nb", name, max_score=worth, cell_type=kind)
        gradebook.add_source_cell(cell, "nb", name, cell_type=kind, source="")
    for cell in ("thing", "essay"):
        gradebook.add_solution_cell(cell, "nb", name)


def add_student(gradebook, who, first, last, email, points, penalty=0):
    gradebook.add_student(who, first_name=first, last_name=last, email=email)
    if points is None:
        return
    gradebook.add_submission("a01", who)
    notebook = gradebook.find_submission_notebook("nb", "a01", who)
    notebook.late_submission_penalty = penalty
    for grade in notebook.grades:
        score = dict(zip(("check-thing", "check-more", "essay"), points, strict=True)).get(grade.name, 0)
        grade.needs_manual_grade = score is None
        if grade.name == "essay":
            grade.manual_score = score
        else:
            grade.auto_score = 0 if grade.name == "check-more" else score
            grade.extra_credit = score if grade.name == "check-more" else None
    gradebook.db.commit()


@pytest.fixture(scope="module", autouse=True)
def _settings(tmp_path_factory):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # a new gradebook calls alembic
    with own_settings(tmp_path_factory.mktemp("settings")), environment(PATH=path):
        yield


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A course with marks, and nothing else."""
    root = tmp_path_factory.mktemp("export")
    shutil.copy(COURSE / "nbgrader_config.py", root)
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", "attncourse") as gradebook:
        add_assignment(gradebook)
        for who, about in CLASS.items():
            add_student(gradebook, who, *about)
    return root


def exported(root, exporter, *options):
    """(The file's text as it lies there, what nbgrader said) after an export."""
    log = Log(root / "log")
    log.path.write_text("")
    plugin = f"--exporter=lessonkit.grading.handback.export.{exporter}"
    nbgrader(root, "export", plugin, "--to=out.csv", *options, log=log)
    return (root / "out.csv").read_bytes().decode("utf-8"), log.path.read_text()


def lines(text):
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))


# --------------------------------------------------------------------------------------------------------- a safe cell


@pytest.mark.parametrize(
    "before", ["", " ", "\t", "\r", "\n", '"', "' ", "\u200f", "\ufeff ", "\u00a0", "a;", "a\n", 'a; "']
)
@pytest.mark.parametrize("sign", list("=+-@＝＋－＠"))
def test_what_would_start_a_formula_gets_an_apostrophe(before, sign):
    text = defused(f"{before}{sign}cmd|' /C calc'!A0")
    for part in re.split(r"(?<!^)[;\n](?!$)", text):  # what is a cell in some spreadsheet
        if sign in part:
            assert part.startswith("'"), part
    assert text.replace("'", "") == f"{before}{sign}cmd|' /C calc'!A0".replace("'", "")


@pytest.mark.parametrize(
    "value", [-3.5, -3, 0, "-3.5", "+49123", "-5", "1,5", "Ada", "O'Brien", "x = 1", "a-b", "é=ü", ""]
)
def test_a_number_and_harmless_text_stay_as_they_are(value):
    assert defused(value) == value


def test_a_cell_that_starts_with_a_tab_or_a_line_break_is_defused():
    assert [defused(f"{c}x") for c in "\t\r\n"] == ["'\tx", "'\rx", "'\nx"]


# --------------------------------------------------------------------------------------------------------------- files


def test_a_failed_export_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "grades.csv"
    path.write_text("old")

    def rows():
        yield ["new"]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CommandError, match="No space left"):
        export.write(path, rows(), "utf-8")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["grades.csv"]


def test_half_a_surrogate_pair_is_replaced(tmp_path):
    export.write(tmp_path / "x.csv", [["a\ud800b", "ok 🦜"]], "utf-8")
    assert list(csv.reader((tmp_path / "x.csv").open(encoding="utf-8"))) == [["a?b", "ok 🦜"]]


def test_a_place_that_cannot_be_written_is_named(graded):
    with pytest.raises(CommandError, match=r"cannot write nowhere.*No such file"):
        nbgrader(
            graded,
            "export",
            "--exporter=lessonkit.grading.handback.export.Canvas",
            "--to=nowhere/grades.csv",
            log=Log(graded / "log"),
        )


@pytest.mark.parametrize("option, says", [("--assignment=a99", "a99"), ("--student=zoe", "zoe")])
def test_what_the_gradebook_does_not_know_is_an_error(graded, option, says):
    with pytest.raises(CommandError, match=says):
        exported(graded, "Canvas", option)


def test_the_points_of_each_exercise_come_back_from_a_file_that_no_spreadsheet_runs(graded):
    text, _ = exported(graded, "ExercisePoints")
    assert text.startswith("\ufeff")
    got = {line["student_id"].removeprefix("'"): line for line in lines(text)}
    assert got.keys() == CLASS.keys()
    assert got["ada"]["last_name"] == 'Lovelace, "Countess"'
    assert got["cy"]["first_name"] == "Cy\nnewline" and got["cy"]["last_name"] == "مريم 🦜"
    assert got["=bob"]["first_name"] == "'=HYPERLINK(1)" and got["=bob"]["last_name"] == "'@SUM(1)"
    assert [got["ada"][f"a01 {name}"] for name in ("thing", "more", "essay")] == ["4.0", "1.0", "3.0"]
    assert got["dee"]["a01 essay"] == "" and got["-5"]["first_name"] == ""
    with (graded / "out.csv").open(newline="", encoding="utf-8-sig") as file:
        cells = [cell for line in csv.reader(file) for cell in line]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "@", "\t", "\r")]


# -------------------------------------------------------------------------------------------------------------- Canvas

OURS = "a01 (4711)"
HEADING = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", OURS, "a02 (4712)", "Final Score"]
CANVAS = [
    HEADING,
    ["", "", "", "", "", "Manual Posting", "", ""],
    ["    Points Possible", "", "", "", "", "7.00", "5.00", "(read only)"],
    ['Lovelace, "Countess", Ada', "9001", "S-77", "ADA", "One", "", "5.00", "90"],
    ['="=HYPERLINK(1)"', "9002", "", "bob@uni.example", "One", "1.00", "4.00", "10"],
    ["Cy", "9003", "cy", "", "Two", "EX", "", ""],
    ["Waits, Dee", "9004", "dee", "dee", "Two", "6.50", "", ""],
    ["Student, Test", "9999", "", "f00d", "Two", "", "", ""],
]


def canvas_file(root, table, delimiter=",", encoding="utf-8"):
    with (root / "canvas.csv").open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=delimiter).writerows(table)
    return "--Canvas.gradebook=canvas.csv"


def test_canvas_gets_its_own_file_back_with_the_scores(graded):
    text, _ = exported(graded, "Canvas", canvas_file(graded, CANVAS))
    table = list(csv.reader(io.StringIO(text, newline="")))
    assert table[0] == HEADING[:6]  # what else Canvas holds is not set back
    assert table[1] == ["", "", "", "", "", "Manual Posting"]
    assert table[2] == ["    Points Possible", "", "", "", "", "7.00"]
    ids = [line[1:4] for line in table[3:]]
    assert ids == [line[1:4] for line in CANVAS[3:]]
    assert [line[5] for line in table[3:]] == ["8", "2.5", "EX", "6.50", ""]


def test_names_in_canvas_file_are_defused_and_ids_are_not_touched(graded):
    text, _ = exported(graded, "Canvas", canvas_file(graded, CANVAS))
    got = {line["ID"]: line for line in lines(text)}
    assert got["9001"]["Student"] == 'Lovelace, "Countess", Ada'
    assert got["9002"]["Student"] == """'="=HYPERLINK(1)\""""


def test_canvas_file_has_no_byte_order_mark(graded):
    assert exported(graded, "Canvas")[0].startswith("Student,")
    given = canvas_file(graded, CANVAS, encoding="utf-8-sig")
    assert exported(graded, "Canvas", given)[0].startswith("Student,")


def test_a_file_with_semicolons_stays_one(graded):
    text, _ = exported(graded, "Canvas", canvas_file(graded, CANVAS, delimiter=";"))
    assert text.splitlines()[0] == ";".join(HEADING[:6]) and ";8\r\n" in text


def test_who_is_in_one_system_only_is_told_by_name(graded):
    _, said = exported(graded, "Canvas", canvas_file(graded, CANVAS))
    only_there = re.search(r"In Canvas's file, but not in nbgrader's gradebook: (.*)", said)[1]
    only_here = re.search(r"In nbgrader's gradebook, but not in Canvas's file.*?: (.*)", said)[1]
    assert only_there == "Student, Test"
    assert set(only_here.split("; ")) == {"Eve Absent (eve)", "+Fay|x =1+1 (fay)", "-5"}
    assert "Excused, or not assigned, in Canvas, and left so: Cy, a01" in said
    assert "No score yet: " in said and "Dee Waits (dee)" in said and "Eve Absent (eve)" in said


def test_a_fresh_file_for_canvas_has_everybody_and_empty_cells_where_there_is_no_score(graded):
    text, said = exported(graded, "Canvas")
    assert text.splitlines()[0] == "Student,ID,SIS User ID,SIS Login ID,Section,a01"
    points, *got = lines(text)
    assert points["Student"] == "    Points Possible" and points["a01"] == "7"
    assert {line["SIS Login ID"]: line["a01"] for line in got} == {w: t for w, t in TOTAL.items() if w != "=bob"}
    names = {'Lovelace, "Countess", Ada', "مريم 🦜, Cy\nnewline", "'=1+1, +Fay|x", "-5"}
    assert {line["Student"] for line in got} >= names
    assert "Left out" in said and "=HYPERLINK(1) @SUM(1) (=bob)" in said  # its id would be a formula


def test_an_id_that_starts_with_a_sign_but_can_call_nothing_is_kept():
    plugin = export.Canvas()
    assert all(plugin.usable("x", [who]) for who in ("-5", "@ada", "+49123", "-ada.b", "ada"))
    assert not any(plugin.usable("x", [who]) for who in ("=1", "@SUM(1)", "-cmd|'x'!A0", "+a b", "\tada"))


def test_a_column_by_another_name_can_be_named(graded):
    table = [[cell.replace(OURS, "Homework 1: =sum (4711)") for cell in line] for line in CANVAS]
    given = canvas_file(graded, table)
    with pytest.raises(CommandError, match=r"no assignment is a column.*c.Canvas.columns"):
        exported(graded, "Canvas", given)
    with pytest.raises(CommandError, match=r"0 columns 'a01'.*Homework 1: =sum \(4711\), a02"):
        exported(graded, "Canvas", given, "--assignment=a01")
    for name in ("Homework 1: =sum (4711)", "homework 1: =sum"):
        text, _ = exported(graded, "Canvas", given, f"--Canvas.columns=a01={name}")
        assert lines(text)[2]["Homework 1: =sum (4711)"] == "8"


def test_two_columns_of_the_same_name_are_an_error(graded):
    table = [[cell.replace("a02", "A01") for cell in line] for line in CANVAS]
    with pytest.raises(CommandError, match="2 columns 'a01'"):
        exported(graded, "Canvas", canvas_file(graded, table))


@pytest.mark.parametrize(
    "line",
    [["Two in one", "1", "eve", "fay", "", "", "", ""], ["Ada again", "1", "", "ada@uni.example", "", "", "", ""]],
)
def test_a_line_that_is_not_one_students_alone_is_an_error(graded, line):
    with pytest.raises(CommandError, match=rf"whose line '{line[0]}' is \("):
        exported(graded, "Canvas", canvas_file(graded, [*CANVAS, line]))


def test_other_points_in_canvas_are_told(graded):
    table = [[cell.replace("7.00", "10,00") for cell in line] for line in CANVAS]
    assert "a01: 10.00 points in Canvas, 7 in nbgrader" in exported(graded, "Canvas", canvas_file(graded, table))[1]


@pytest.mark.parametrize(
    "content, says",
    [
        (b"", "is empty"),
        (b"Student,ID\nM\xfcller,1\n", "UTF-8"),
        (b"First name,Email address\nAda,ada@uni.example\n", "no columns ID and Section"),
        (b"Student,ID,Section,a01 (1)\nAda,1,One,,5,6\n", "more cells"),
    ],
)
def test_a_file_that_is_not_canvas_is_refused_and_nothing_is_written(graded, content, says):
    (graded / "out.csv").write_text("old")
    (graded / "canvas.csv").write_bytes(content)
    with pytest.raises(CommandError, match=says):
        exported(graded, "Canvas", "--Canvas.gradebook=canvas.csv")
    assert (graded / "out.csv").read_text() == "old"


# -------------------------------------------------------------------------------------------------------------- Moodle


def moodle_file(root, *table):
    with (root / "moodle.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["First name", "Last name", "ID number", "Email address", "a01 (Real)"], *table])
    return "--Moodle.gradebook=moodle.csv"


def php_csv(text):
    """The cells of a CSV text as PHP's fgetcsv reads them: a backslash keeps a quotation mark from ending a cell."""
    table, line, cell, quoted, i = [], [], "", False, 0
    while i < len(text):
        char = text[i]
        if quoted and char == "\\" and i + 1 < len(text):
            cell, i = cell + text[i : i + 2], i + 1
        elif char == '"' and quoted and text[i + 1 : i + 2] == '"':
            cell, i = cell + '"', i + 1
        elif char == '"':
            quoted = not quoted
        elif char in ",\n" and not quoted:
            line, cell = [*line, cell], ""
            if char == "\n":
                table, line = [*table, line], []
        else:
            cell += char
        i += 1
    return table


def test_moodle_gets_a_line_for_each_student_with_a_score(graded):
    text, said = exported(graded, "Moodle")
    assert text.startswith("\ufeffFirst name,Last name,ID number,Email address,a01,a01 feedback\r\n")
    got = {line["ID number"]: line for line in lines(text)}
    assert {who: line["a01"] for who, line in got.items()} == {"ada": "8", "cy": "3", "fay": "2", "-5": "1"}
    assert (got["fay"]["First name"], got["fay"]["Last name"]) == ("'+Fay|x", "'=1+1")
    assert got["ada"]["Last name"] == 'Lovelace, "Countess"' and got["ada"]["Email address"] == "ada@uni.example"
    assert "Dee Waits (dee)" in said and "Eve Absent (eve)" in said and "(=bob)" in said


def test_moodle_gets_only_whom_it_knows_with_its_own_ids(graded):
    given = moodle_file(graded, ["A", "L", "1815", "ADA@uni.example", "3"], ["Zo", "E", "1816", "zoe@uni.example", ""])
    text, said = exported(graded, "Moodle", given)
    assert [list(line.values())[2:5] for line in lines(text)] == [["1815", "ADA@uni.example", "8"]]
    assert "In Moodle's file, but not in nbgrader's gradebook: Zo E" in said
    assert "In nbgrader's gradebook, but not in Moodle's file" in said and "(cy)" in said


def test_a_student_without_what_moodle_matches_by_has_no_line_and_is_told(graded):
    text, said = exported(graded, "Moodle", "--Moodle.match=Email address")
    assert "-5" not in [line["ID number"] for line in lines(text)]
    assert "Left out, without Email address: -5" in said


def test_two_students_whom_moodle_could_not_tell_apart_are_an_error(graded):
    same = moodle_file(graded, ["", "", "7", "ada@uni.example", ""], ["", "", "7", "cy@uni.example", ""])
    with pytest.raises(CommandError, match=r"Ada .*Cy.* apart"):
        exported(graded, "Moodle", same)


def test_a_moodle_file_without_the_column_to_match_by_is_refused(graded):
    (graded / "moodle.csv").write_text("Vorname,E-Mail-Adresse\nAda,ada@uni.example\n")
    with pytest.raises(CommandError, match=r"no column 'ID number'.*E-Mail-Adresse"):
        exported(graded, "Moodle", "--Moodle.gradebook=moodle.csv")


def test_feedback_for_moodle_is_text_and_not_html_or_a_formula(graded, monkeypatch):
    monkeypatch.setattr(export, "why", lambda row, result: "=1: got <class 'list'> \\")
    text, _ = exported(graded, "Moodle")
    assert {line["a01 feedback"] for line in lines(text)} == {"'=1: got &lt;class 'list'&gt; \\ "}


@pytest.mark.parametrize("name", ['back\\"slash', "ends, in \\", 'a\\\\", b', "two\nlines", 'quo"te, "x"'])
def test_php_reads_the_lines_that_were_written_for_moodle(tmp_path, name):
    export.write(tmp_path / "x.csv", [[export._for_php(name), "1"], ["next", "2"]], "utf-8")
    table = php_csv((tmp_path / "x.csv").read_bytes().decode().replace("\r\n", "\n"))
    assert [len(line) for line in table] == [2, 2] and table[1] == ["next", "2"]


# ------------------------------------------------------------------------------------------------------------ feedback

HIDDEN = "check('thing', thing, seeds=(20251, 777))"
CHECK = f"check('thing', thing)\n### BEGIN HIDDEN TESTS\n{HIDDEN}\n### END HIDDEN TESTS"
OWN_TEST = "assert thing(1) == 1\n### BEGIN HIDDEN TESTS\nassert thing(123456) == 654321\n### END HIDDEN TESTS"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CARD = Verdict("thing", (AspectVerdict("shape", True, 4, "right"),))
EVIL = "PWNED"
SCRIPT = f"<script>{EVIL}()</script>"


def shown(data, **metadata):
    return new_output("display_data", data, metadata=metadata)


def html(text):
    return [shown({"text/html": text})]


# What a student hands in to have it run in somebody's browser: outputs, and Markdown.
ATTACKS = {
    "script": html(f"<b>fine</b>{SCRIPT}"),
    "event": html(f'<img src=x onerror={EVIL}()><div onmouseover="{EVIL}()" style="color:red">over</div>'),
    "svg-tag": html(f"<svg onload={EVIL}()><animate onbegin={EVIL}() attributeName=x></svg>"),
    "math-tag": html(f"<math><mtext></form><form><mglyph><style></math><img src onerror={EVIL}()>"),
    "comment": html(f"<!--><img src=x onerror={EVIL}()>--><noscript><p title='</noscript>{SCRIPT}'>"),
    "unclosed": html(f"</div></div></div><script {EVIL}()//"),
    "url": html(f"<a href='java\tscript:{EVIL}()'>x</a><a href='&#106;avascript:{EVIL}()'>y</a>"),
    "frame": html(f"<iframe srcdoc='{SCRIPT}'></iframe><object data='data:text/html,{EVIL}'></object><embed src=x>"),
    "form": html(
        f"<form action=/{EVIL}><input name=score id=check-thing><button class='btn mark-graded'>x</button></form>"
    ),
    "head": html(
        f"<base href=//{EVIL}><meta http-equiv=refresh content='0;//{EVIL}'><link rel=stylesheet href=//{EVIL}>"
    ),
    "style": html(f"<style>@import '//{EVIL}'</style><p style='background:url(//{EVIL}); position:fixed'>x</p>"),
    "beacon": html(f"<img src='https://{EVIL}/see.png'><img src='/api/{EVIL}'>"),
    "cover": html(f"<p class='{EVIL} panel-heading' id='{EVIL}' style='margin-top:-90em; z-index:9'>x</p>"),
    "isolated": [shown({"text/html": SCRIPT}, **{"text/html": {"isolated": True}})],
    "javascript": [shown({"application/javascript": f"{EVIL}()", "text/plain": "plain"})],
    "widget": [
        shown({"application/vnd.jupyter.widget-view+json": {"model_id": f"</script>{SCRIPT}"}, "text/plain": "p"})
    ],
    "svg": [shown({"image/svg+xml": f"<svg xmlns='http://www.w3.org/2000/svg'>{SCRIPT}</svg>"})],
    "width": [shown({"image/png": PNG}, **{"image/png": {"width": f"1 onload={EVIL}()", "height": 5}})],
    "alt": [shown({"image/png": PNG}, **{"image/png": {"alt": f'"><script>{EVIL}()</script>'}})],
    "markdown-output": [shown({"text/markdown": f"**x** [y](javascript:{EVIL}()) {SCRIPT}"})],
    "latex": [shown({"text/latex": f"$x${SCRIPT}"})],
    "stream": [new_output("stream", name=f"stdout {SCRIPT}", text=SCRIPT.replace(EVIL, "shown"))],
    "error": [new_output("error", ename="E", evalue=SCRIPT, traceback=[SCRIPT.replace(EVIL, "shown")])],
    "markdown": f"[x](javascript:{EVIL}()) ![x](javascript:{EVIL}()) <img src=x onerror={EVIL}()>\n\n{SCRIPT}\n\n- a",
    "markdown-math": f"$x<y$ $$ </script>{SCRIPT} $$ `{SCRIPT.replace(EVIL, 'shown')}`",
    "attachment": "![x](attachment:x.png) ![gone](attachment:gone.png)",
    "count": [],
    "comments": [],
}


def cell(grade_id, source="", kind="code", outputs=(), **meta):
    about = {"grade_id": grade_id, "schema_version": 3, "grade": True, "solution": False, "locked": True, "task": False}
    about |= {"points": 4} | meta
    if kind == "markdown":
        return new_markdown_cell(source, metadata={"nbgrader": about})
    return new_code_cell(source, metadata={"nbgrader": about}, outputs=list(outputs), execution_count=3)


def verdict_output(score="4"):
    data = {"text/html": CARD._html(), "text/plain": score, VERDICT: {**CARD.as_dict(), "seeds": [20251]}}
    return new_output("execute_result", data, execution_count=3)


def autograded(outputs=(), essay="It depends.", code="def thing(x): return x", check=(), own=()):
    """An autograded notebook as the engine leaves it, with what only instructors are to see in its metadata."""
    answer = cell("thing", code, grade=False, solution=True, locked=False, outputs=outputs)
    written = cell("essay", essay, "markdown", solution=True, locked=False)
    checks = [cell("check-thing", CHECK, outputs=[*check, verdict_output()]), cell("own-test", OWN_TEST, outputs=own)]
    engine = {
        "repairs": ["cell check-thing put back"],
        "seeds": [20251],
        "cache": "c0ffee",
        "observations": {"weights": 1},
    }
    return new_notebook(cells=[answer, *checks, written], metadata={"lessonkit": engine})


def traceback_through(*places):
    lines = [f"\x1b[36mFile \x1b[39m\x1b[32m{place}:12\x1b[39m, in f(x)\n     11 y\n---> 12 z" for place in places]
    return new_output("error", ename="ValueError", evalue=f"bad file {places[0]}", traceback=lines)


PLACES = [
    str(Path(os.__file__)),
    str(Path(export.__file__)),
    str(Path.home() / "courses" / "x.py"),
    str(Path(tempfile.gettempdir()) / "ipykernel_1" / "2.py"),
    "/srv/grading/worker-7/lib/python3.11/site-packages/torch/nn/functional.py",
    "~/secret/env/lib/m.py",
]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course whose submissions were graded, with the feedback of each of its students."""
    root = tmp_path_factory.mktemp("feedback") / "course"
    root.mkdir()
    shutil.copy(COURSE / "nbgrader_config.py", root)
    quoting = [
        new_output("stream", name="stdout", text=f"mine\n{HIDDEN}\n"),
        new_output("display_data", {"text/plain": repr(f"x\n{CHECK}")}),
        *html(f"<pre>{HIDDEN}</pre>"),
    ]
    hidden = new_output(
        "error", ename="AssertionError", evalue="wrong", traceback=["---> assert thing(123456) == 654321"]
    )
    paths = [
        traceback_through(*PLACES),
        new_output("stream", name="stderr", text=f"{root}/x/data.txt: 1/2 of a/b"),
        *html(f"<p>{PLACES[4]}</p>"),
    ]
    work = {
        "ada": autograded(
            check=[new_output("stream", name="stdout", text="printed")], outputs=[shown({"image/png": PNG})]
        ),
        "zoe": autograded(code="zoe_was_here = 1", essay="Zoe's own words."),
        "quotes": autograded(outputs=quoting, own=[hidden]),
        "paths": autograded(outputs=paths),
        "mentions": autograded(
            code="# ### BEGIN HIDDEN TESTS\nx = 1", essay="> quoted\n\n`a < b` and $a < b$\n\n## Title"
        ),
        "deep": autograded(outputs=html("<div>" * 3000 + "deep")),
    }
    for name, attack in ATTACKS.items():
        work[f"attack-{name}"] = autograded(**{"essay" if isinstance(attack, str) else "outputs": attack})
    work["attack-count"].cells[0].execution_count = SCRIPT
    work["attack-attachment"].cells[3].attachments = {"x.png": {"text/html": SCRIPT}}
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", "attncourse") as gradebook:
        add_assignment(gradebook)
        for who, notebook in work.items():
            add_student(gradebook, who, f"{who.title()}-first", f"{who.title()}-last", f"{who}@uni.example", (4, 0, 1))
            path = root / "autograded" / who / "a01" / "nb.ipynb"
            path.parent.mkdir(parents=True)
            path.write_text(nbformat.v4.writes(notebook))
        for who, words in (("attack-comments", f"well {SCRIPT}"), ("ada", "**Nice** work")):
            gradebook.find_comment("thing", "nb", "a01", who).manual_comment = words
        gradebook.db.commit()
    nbgrader(root, "generate_feedback", "a01", log=Log(root / "log"))
    return root


def page(course, who):
    return (course / "feedback" / who / "a01" / "nb.html").read_text(encoding="utf-8")


def body(course, who):
    return BeautifulSoup(page(course, who), "html.parser").body


def test_a_feedback_page_keeps_the_card_the_pictures_and_the_comment(course):
    shown = body(course, "ada")
    card = shown.find("div", style=re.compile("border-left"))
    assert "4px solid #009E73" in card["style"] and card.strong.code.text == "thing" and card.find("table")
    assert "color:" in card.find("td", title="right")["style"] and "✓" in card.text
    assert shown.find("img", src=f"data:image/png;base64,{PNG}")
    assert shown.find("strong", string="Nice") and "printed" in shown.text and "It depends." in shown.text


def test_the_card_is_not_changed_but_for_its_notation():
    def parts(text):
        soup = BeautifulSoup(text, "html.parser")
        return [
            (t.name, {k: re.sub(r"[\s;]", "", str(v)) for k, v in t.attrs.items()}) for t in soup.find_all()
        ], soup.text

    full = Verdict("thing", (AspectVerdict("a & b", False, 4, "`x` < 3"), CARD.aspects[0]), hints=2)
    assert parts(safe_html(full._html())) == parts(full._html())


def test_a_page_shows_nothing_of_a_hidden_check(course):
    for who in ("ada", "quotes"):
        text = BeautifulSoup(page(course, who), "html.parser").text
        assert "check('thing', thing)" in text and "assert thing(1) == 1" in text
        assert not re.search("20251|777|seeds|654321|HIDDEN TESTS", text)
    assert "AssertionError: wrong" in body(course, "quotes").text and "mine" in body(course, "quotes").text


@pytest.mark.parametrize(
    "form", [str, repr, lambda line: f"<p>{line.replace('<', '&lt;')}</p>"], ids=["text", "repr", "html"]
)
def test_a_hidden_line_is_hidden_in_every_form_that_an_output_has(form):
    line = """assert thing("it's") < 987654"""
    checked = cell("own-test", f"### BEGIN HIDDEN TESTS\n{line}\n### END HIDDEN TESTS")
    checked.outputs = [shown({"text/html": form(line), "text/plain": form(line)})]
    HideHiddenTests().preprocess(new_notebook(cells=[checked]), {})
    assert "…" in checked.outputs[0].data["text/html"] and "987654" not in str(checked)


def test_a_students_own_text_that_looks_like_a_hidden_check_costs_nothing(course):
    assert "x = 1" in body(course, "mentions").text


def test_a_line_that_is_shown_anyway_is_not_taken_for_a_secret():
    checked = cell("check-thing", "shared_name = 1\n### BEGIN HIDDEN TESTS\nshared_name = 1\n)\n### END HIDDEN TESTS")
    checked.outputs = [new_output("stream", name="stdout", text="shared_name = 1 (ok)")]
    notebook, _ = HideHiddenTests().preprocess(new_notebook(cells=[checked]), {})
    assert notebook.cells[0].outputs[0].text == "shared_name = 1 (ok)"


def test_a_page_names_no_folder_of_the_machine(course):
    text = page(course, "paths")
    for folder in (str(course), str(Path.home()), str(Path(os.__file__).parent), str(Path(export.__file__).parent)):
        assert folder not in text
    assert not re.search("/srv/grading|~/secret|/tmp/", text)
    assert {file for file in ("os.py", "export.py", "functional.py", "2.py", "m.py") if f"/{file}" not in text} == set()
    assert "1/2 of a/b" in text


def test_text_that_is_no_path_is_left_alone():
    words = "1/2, a/b/c.py, https://x.example/a/b.py, d_k/2 and/or, ~5, /"
    output = new_output("stream", name="stdout", text=words)
    HidePaths().preprocess(new_notebook(cells=[new_code_cell(outputs=[output])]), {})
    assert output.text == words


@pytest.mark.parametrize("text", ["-/a" * 100_000, "/" * 100_000, "a" * 300_000, "/a.py" * 60_000, "m/-" * 100_000])
def test_paths_are_looked_for_in_time_that_grows_with_the_text(text):
    output = new_output("stream", name="stdout", text=text)
    began = time.process_time()
    HidePaths().preprocess(new_notebook(cells=[new_code_cell(outputs=[output])]), {})
    assert time.process_time() - began < 2  # a second look at each character would take minutes


LONG = {
    "brackets": new_markdown_cell("[" * 60_000),
    "quotes": new_markdown_cell(">" * 200_000),
    "a dotted name": new_code_cell("a." * 200_000),
    "shown Markdown": new_code_cell(outputs=[new_output("display_data", {"text/markdown": ">" * 200_000})]),
    "nested tags": new_code_cell(outputs=[new_output("display_data", {"text/html": "<div>" * 4_900})] * 100),
}


def settings():
    config = Config()
    use_course(config, "attncourse_lessons")
    return config


@pytest.mark.parametrize("kind", LONG)
def test_what_is_made_to_be_slow_does_not_hold_up_the_pages_of_a_class(kind):
    exporter = HTMLExporter(config=settings())
    began = time.process_time()
    html, _ = exporter.from_notebook_node(new_notebook(cells=[LONG[kind], new_markdown_cell("**after it**")]))
    assert time.process_time() - began < 40  # some 7, most of it for what still fits in; 100 without a budget
    assert "<strong>after it</strong>" in html


def test_what_is_too_long_for_a_page_is_shown_in_part_and_the_rest_of_the_page_is_whole():
    cells = [new_code_cell("a." * 40_000 + "b"), new_markdown_cell("> a\n" * 30_000), new_code_cell("x = 1")]
    notebook, _ = SafePage().preprocess(new_notebook(cells=cells), {})
    first, second, third = notebook.cells
    assert first.source.startswith("# Too long for this page. It begins so:\n# a.a.") and len(first.source) < 3000
    assert second.source.startswith("*Too long for this page. It begins so:*\n\n    > a") and len(second.source) < 5000
    assert third.source == "x = 1"


def test_a_page_tells_nothing_of_another_student(course):
    for who in ("ada", "attack-script"):
        assert not re.search("zoe|Zoe", page(course, who))
    assert "zoe_was_here" in body(course, "zoe").text
    assert sorted(path.name for path in (course / "feedback" / "ada" / "a01").iterdir()) == ["nb.html"]
    assert not {a["href"] for a in body(course, "ada").find_all("a", href=True) if not a["href"].startswith("#")}


def test_a_page_holds_nothing_that_the_engine_noted(course):
    for secret in ("repairs", "put back", "c0ffee", "observations", "lessonkit.verdict", "seeds", VERDICT):
        assert secret not in page(course, "ada")


def test_markdown_still_reads_as_markdown(course):
    shown = body(course, "mentions")
    assert shown.find("blockquote").text.strip() == "quoted" and shown.find("code", string="a < b")
    assert "$a < b$" in shown.text and shown.find("h2", string="Title")


def test_nesting_does_not_cost_the_page(course):
    assert "deep" in body(course, "deep").text


def test_the_text_of_a_script_or_a_style_sheet_is_not_shown():
    assert safe_html("<style scoped>p {}</style><b>a</b><script>b()</script >c<script>d()") == "<b>a</b>c"


@pytest.mark.parametrize("much", ["<div>" * 6_000, f"<p {'a ' * 60_000}>"])
def test_what_is_too_much_to_be_made_safe_is_shown_as_text(much):
    shown = BeautifulSoup(safe_html(f"{much}{SCRIPT}"), "html.parser")
    assert [tag.name for tag in shown.find_all()] == ["pre"] and shown.text == much


def test_a_large_picture_is_not_too_much():
    picture = f'<img src="data:image/png;base64,{"A" * 400_000}">'
    assert safe_html(picture) == picture


DANGEROUS = "script iframe frame object embed form input button textarea base meta link style svg math animate"


def live(soup):
    """What of a page could run, load or pretend."""
    found = [tag.name for tag in soup.find_all(DANGEROUS.split())]
    for tag in soup.find_all():
        for name, value in tag.attrs.items():
            text = " ".join(value) if isinstance(value, list) else str(value)
            here = not re.search(r"javascript:|url\(|-90em|position|//" + EVIL, text, re.IGNORECASE)
            local = name != "src" or text.startswith("data:image/")
            if (
                name.startswith("on")
                or name == "srcdoc"
                or not here
                or not local
                or (name in ("id", "class") and EVIL in text)
            ):
                found.append((tag.name, name, text))
    return found


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_that_a_student_hands_in_runs_in_a_feedback_page(course, attack):
    shown = body(course, f"attack-{attack}")
    assert live(shown) == live(body(course, "ada"))
    assert shown.find("td", title="right")  # the rest of the page is there
    plain = BeautifulSoup(page(course, f"attack-{attack}"), "html.parser")
    assert len(plain.head.find_all()) == len(BeautifulSoup(page(course, "ada"), "html.parser").head.find_all())


@pytest.fixture(scope="module")
def formgrader(course):
    """The formgrader's way to a submission's page."""
    with chdir(course):
        extension = FormgradeExtension()
        extension.root_dir = str(course)
        extension.initialize([])
        exporter = HTMLExporter(config=extension.config)

    def view(who, **names):
        about = {
            "assignment_id": "a01",
            "notebook_id": "nb",
            "submission_id": "0",
            "index": 0,
            "total": 2,
            "base_url": "",
        }
        about |= {"student": who, "first_name": "", "last_name": "", "notebook_path": "nb.ipynb"} | names
        html, _ = exporter.from_filename(str(course / "autograded" / who / "a01" / "nb.ipynb"), resources=about)
        return BeautifulSoup(html, "html.parser")

    return view


# nbconvert refuses "count" there, as no notebook.
@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack != "count"])
def test_nothing_that_a_student_hands_in_runs_in_the_formgrader(formgrader, attack):
    shown = formgrader(f"attack-{attack}")
    assert sorted(map(str, live(shown))) == sorted(map(str, live(formgrader("ada"))))
    assert EVIL not in str(shown.find("script"))


def test_the_formgrader_shows_the_card_its_own_fields_and_a_name_as_text(formgrader):
    shown = formgrader("ada", first_name=f"Ada {SCRIPT}", last_name="<b>L</b>")
    assert (
        shown.find("input", id="check-thing")
        and "border-left" in shown.find("td", title="right").parent.parent.parent.parent["style"]
    )
    assert live(shown) == live(formgrader("ada")) and "<b>L</b>, Ada <script>" in shown.text
