"""The ordinary day with a mixed class: grade, feedback, report, export; late work, unmarked work, archives."""

import csv
import io
import re
import shutil
import stat
import tarfile
import warnings
import zipfile
from datetime import datetime, timedelta

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbgrader.api import Gradebook
from nbgrader.utils import notebook_hash
from small_class import ASSIGNMENT, NOTEBOOK, make_course

from attncourse_lessons import course as lessons
from attncourse_lessons.cli import main
from commandkit.errors import CommandError
from lessonkit.grading.gradebook.nbgrader_app import Log, application, nbgrader, own_settings
from lessonkit.grading.repair import archive
from lessonkit.grading.repair.archive import notebook_in
from lessonkit.grading.repair.reading import Unreadable
from lessonkit.grading.report.results import distribution, flags, mistakes, read_results, why
from lessonkit.grading.submission.answers import answer, solutions
from lessonkit.grading.submission.lateness import Extensions, Times, duration, read_extensions
from lessonkit.grading.submission.records import Records, records_of

DUE = datetime(2026, 11, 20, 18)
EXTRA = next(exercise for exercise in lessons.exercises_of(ASSIGNMENT) if exercise.extra)
FULL = sum(e.out_of for e in lessons.exercises_of(ASSIGNMENT))
CHECKED = sum(e.out_of for e in lessons.exercises_of(ASSIGNMENT) if not e.extra)
ESSAY, WORTH = "why-mask-first", 3.0
FILE = f"{NOTEBOOK}.ipynb"

# Who came by the exchange, and how many hours after the due date.
FETCHED = {"in-time": -2, "late": 41, "extended": 41, "extended-and-late": 41, "odd[1]": 0.5}
EXTENSIONS = """\
student;assignment;until;hours
extended;a03;2026-11-22 18:00 UTC;
extended-and-late;a03;;24
nobody;a03;;24
"""


def zipped(files):
    """A zip archive of these files, as bytes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            made.writestr(name, content)
    return data.getvalue()


def tarred(files, mode="w:gz", **kinds):
    """A tar archive of these files; `kinds` are links, by name, with where they lead."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))
        for name, target in kinds.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            made.addfile(entry)
    return data.getvalue()


def hand_in(root, student, files):
    folder = root / "submitted" / student / ASSIGNMENT
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A course after an ordinary day: (its folder, what each command said)."""
    top = tmp_path_factory.mktemp("day")
    root = make_course(top / "course")
    (root / "exchange").mkdir()
    (root / "extensions.csv").write_text(EXTENSIONS, encoding="utf-8")
    folder = root / "solutions" / ASSIGNMENT / FILE
    source, released = (nbformat.read(p, as_version=4) for p in (folder, root / "assignments" / ASSIGNMENT / FILE))
    model = solutions(source)
    right = nbformat.writes(answer(source, released, model)).encode()
    without = {name: text for name, text in model.items() if name != EXTRA.name}
    for student, hours in FETCHED.items():
        hand_in(root, student, {
            FILE: nbformat.writes(answer(source, released, without)).encode() if student == "in-time" else right,
            "timestamp.txt": f"{DUE + timedelta(hours=hours)} UTC".encode(),
            "submission_secret.txt": f"secret of {student}".encode(),
        })  # fmt: skip
    hand_in(root, "zipped", {"my work.zip": zipped({"a03/final.ipynb": right, "__MACOSX/a03/._final.ipynb": b"x"})})
    hand_in(root, "tarred", {"work.tar.gz": tarred({"./a03/final.ipynb": right, "notes.txt": b"mine"})})
    hand_in(root, "two-in-one", {"all.zip": zipped({"a.ipynb": right, "b.ipynb": right})})
    hand_in(root, "none-in-it", {"all.zip": zipped({"words.docx": b"words"})})
    with own_settings(top / "settings"), warnings.catch_warnings(), pytest.MonkeyPatch.context() as patched:
        warnings.simplefilter("ignore")
        patched.chdir(root)
        nbgrader(root, "db", "assignment", "add", ASSIGNMENT, f"--duedate={DUE} UTC", log=Log(root / "log"))
        with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
            for number, student in enumerate(["tarred", "in-time", "zipped"]):
                gradebook.update_or_create_student(
                    student, first_name="Zoë", last_name=["Álvarez", "Baker", "Zhou"][number], email="z@uni.example"
                )
        said = {}
        for command in ("grade", "feedback", "report"):
            out = io.StringIO()
            patched.setattr("sys.stdout", out)
            assert main([command, ASSIGNMENT]) == 0, out.getvalue()
            said[command] = " ".join(out.getvalue().split())
        export = "--exporter=lessonkit.grading.handback.export.ExercisePoints"
        nbgrader(root, "export", export, "--to=grades.csv", log=Log(root / "log"))
    return root, said


@pytest.fixture(scope="module")
def results(course):
    return read_results(application(course[0], "autograde").coursedir, ASSIGNMENT)


@pytest.fixture(scope="module")
def rows(results):
    return {row.student: row for row in results.rows}


def lines(root):
    with (root / "grades.csv").open(newline="", encoding="utf-8-sig") as file:
        return {line["student_id"]: line for line in csv.DictReader(file)}


def page(root, student):
    text = (root / "feedback" / student / ASSIGNMENT / f"{NOTEBOOK}.html").read_text(encoding="utf-8")
    return " ".join(BeautifulSoup(text, "html.parser").body.text.split())


# ----------------------------------------------------------------------------------------------------------- feedback


def test_everybody_gets_a_page_and_only_whom_the_exchange_reaches_is_released(course, rows):
    root, said = course
    assert all((root / "feedback" / who / ASSIGNMENT / f"{NOTEBOOK}.html").is_file() for who in rows)
    released = {path.stem for path in (root / "exchange" / "attncourse" / "feedback").iterdir()}
    assert released == {notebook_hash(secret=f"secret of {who}", notebook_id=NOTEBOOK) for who in FETCHED}
    assert f"released through the exchange: {len(FETCHED)}" in said["feedback"]


def test_whom_the_exchange_does_not_reach_is_listed_with_what_to_send(course, rows):
    root, said = course
    left = set(rows) - set(FETCHED)
    assert f"for you to send: {len(left)}, as their submission has no secret" in said["feedback"]
    with (root / "grading" / ASSIGNMENT / "to_send.csv").open(newline="", encoding="utf-8-sig") as file:
        table = list(csv.DictReader(file))
    assert {line["student_id"] for line in table} == left
    assert all((root / line["page"]).is_file() for line in table)
    assert next(line for line in table if line["student_id"] == "zipped")["email"] == "z@uni.example"


def test_a_page_says_not_marked_yet_and_a_total_so_far(course):
    text = page(course[0], "in-time")
    assert f"{NOTEBOOK}: {CHECKED:g} of {CHECKED:g} points so far" in text
    assert f"Not marked yet, and not in this total: {ESSAY} (3 points)" in text
    assert f"{ESSAY}: not marked yet (3 points)" in text and f"{EXTRA.name}: no extra points" in text
    assert f"{ESSAY} (" in course[1]["feedback"]


def test_a_page_says_how_late_it_was_and_an_extension(course):
    late, extended, both, unknown = (page(course[0], s) for s in ("late", "extended", "extended-and-late", "zipped"))
    assert "Handed in 2026-11-22 11:00 UTC, 1 d 17 h late: it was due 2026-11-20 18:00 UTC." in late
    assert "in time: it was due 2026-11-22 18:00 UTC, with 2 d of extension." in extended
    assert "17 h late: it was due 2026-11-21 18:00 UTC, with 1 d of extension." in both
    assert "When it was handed in is not known." in unknown


def test_a_mark_that_is_given_is_in_the_total_of_the_next_page(course, tmp_path, monkeypatch):
    root = shutil.copytree(course[0], tmp_path / "course")
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as gradebook:
        gradebook.find_grade(ESSAY, NOTEBOOK, ASSIGNMENT, "in-time").manual_score = 0
        gradebook.db.commit()
    monkeypatch.chdir(root)
    with own_settings(tmp_path / "settings"):
        assert main(["feedback", ASSIGNMENT, "--student=in-time"]) == 0
    text = page(root, "in-time")
    assert f"{NOTEBOOK}: {CHECKED:g} of {CHECKED + WORTH:g} points" in text and "so far" not in text
    assert f"{ESSAY}: 0 of 3 points" in text


@pytest.fixture
def copied(course, tmp_path, monkeypatch):
    root = shutil.copytree(course[0], tmp_path / "course")
    monkeypatch.chdir(root)
    with own_settings(tmp_path / "settings"):
        yield root


def test_without_an_exchange_all_pages_are_for_the_instructor_to_send(copied, capsys):
    shutil.rmtree(copied / "exchange")
    assert main(["feedback", ASSIGNMENT, "--student=late", "--student=zipped"]) == 0
    assert f"for you to send: 2, as there is no exchange at {copied / 'exchange'}" in capsys.readouterr().out


def test_a_page_that_cannot_be_made_stops_nobody_elses(copied, capsys):
    (copied / "autograded" / "late" / ASSIGNMENT / FILE).chmod(0o644)
    (copied / "autograded" / "late" / ASSIGNMENT / FILE).write_text("{")
    words = ["feedback", ASSIGNMENT, "--student=in-time", "--student=late"]
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "of 0 students" in said and "1 unchanged" in said
    assert "no page: late: " in said and "released through the exchange: 1" in said


def test_only_pages_that_would_come_out_otherwise_are_made_again(copied, capsys):
    def made_again(*words):
        assert main(["feedback", ASSIGNMENT, "--no-release", *words]) == 0
        return int(re.search(r"pages made of (\d+) student", capsys.readouterr().out)[1])

    assert made_again() == 0
    with Gradebook(f"sqlite:///{copied / 'gradebook.db'}") as gradebook:
        gradebook.find_comment(ESSAY, NOTEBOOK, ASSIGNMENT, "late").manual_comment = "Well said."
        gradebook.db.commit()
    (copied / "autograded" / "extended" / ASSIGNMENT / "submission_secret.txt").write_text("another")  # handed in again
    (copied / "feedback" / "zipped" / ASSIGNMENT / f"{NOTEBOOK}.html").unlink()
    (copied / "extensions.csv").write_text("student,assignment,hours\nextended,a03,48\nodd[1],a03,2\n")
    assert made_again() == 5  # these three, "odd[1]" and who has no extension any more
    assert "Well said." in page(copied, "late") and "in time" in page(copied, "odd[1]") and made_again() == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([ASSIGNMENT, "--student=who"], "not graded: who"),
        (["a99"], "there is no assignment 'a99'"),
    ],
)
def test_feedback_says_what_it_cannot_do(course, monkeypatch, capsys, words, told):
    monkeypatch.chdir(course[0])
    assert main(["feedback", *words]) == 1
    assert told in capsys.readouterr().err


def test_who_has_handed_in_and_is_not_graded_is_named(copied, capsys):
    hand_in(copied, "newcomer", {FILE: b"{}"})
    assert main(["feedback", ASSIGNMENT, "--no-release"]) == 0
    said = capsys.readouterr().out
    assert "handed in and not graded: newcomer" in said and "for you to send" not in said


# --------------------------------------------------------------------------------------------------- late and unmarked


def test_late_and_by_how_much_is_in_report_and_csv(course, rows):
    root, said = course
    assert [rows[who].late.total_seconds() / 3600 for who in FETCHED] == [0, 41, 0, 17, 0.5]
    assert rows["zipped"].times.late is None and rows["zipped"].late == timedelta()
    assert "handed in late, late: 1 d 17 h late, due 2026-11-20 18:00 UTC" in said["report"]
    assert "17 h late, due 2026-11-21 18:00 UTC, 1 d of extension included" in said["report"]
    assert "due 2026-11-20 18:00 UTC; ? no time is known of" in said["report"]
    table = lines(root)
    assert [table[who]["hours_late"] for who in FETCHED] == ["0.0", "41.0", "0.0", "17.0", "0.5"]
    assert (table["extended"]["handed_in"], table["extended"]["due"]) == ("2026-11-22 11:00:00", "2026-11-22 18:00:00")
    assert (table["zipped"]["handed_in"], table["zipped"]["hours_late"]) == ("", "")
    html = (root / "grading" / ASSIGNMENT / "report.html").read_text(encoding="utf-8")
    summary = " ".join(BeautifulSoup(html, "html.parser").body.get_text(" ").split())
    assert "late 3 median so far" in summary and "Due 2026-11-20 18:00 UTC." in summary


def test_an_extension_for_nobody_is_told(course):
    for command in ("grade", "report"):
        assert "extensions.csv: nobody is called nobody here" in course[1][command]


def test_what_is_not_marked_counts_as_nothing_and_not_as_0(course, results, rows):
    table = lines(course[0])
    row = rows["honest"]
    assert row.points[ESSAY] is None and results.out_of_so_far(row) == results.out_of - WORTH == CHECKED
    line = table["honest"]
    assert (line["total"], line[f"{ASSIGNMENT} {ESSAY}"], line["not_marked_yet"]) == ("", "", ESSAY)
    assert (float(line["total_so_far"]), float(line["out_of_so_far"])) == (FULL, CHECKED)
    assert float(table["empty"]["total"]) == 0 and table["empty"]["not_marked_yet"] == ""  # nothing to read: that is 0
    totals, out_of, left_out = results.comparable()
    assert (totals["honest"], out_of, [c.name for c in left_out]) == (FULL, CHECKED, [ESSAY])
    said = course[1]["report"]
    assert f" {FULL:g} of {CHECKED:g} " in said and "totals leave it out until then" in said


def test_the_0_of_what_is_empty_or_cannot_be_read_is_not_the_classs_while_others_wait(results, rows):
    assert rows["unfinished"].points[ESSAY] == rows["empty"].points[ESSAY] == 0  # nbgrader's: there is nothing to mark
    essay = next(column for column in results.columns if column.grade_id == ESSAY)
    spread = distribution(results, essay)
    assert (spread.marked, spread.mean, spread.waiting) == (0, None, len(results.rows) - 4)


def test_students_are_in_order(course, results):
    names = [row.student for row in results.rows]
    assert names[0] == "tarred" and names[1] == "in-time" and names[-1] == "zipped"  # Álvarez, Baker, …, Zhou
    others = [name for name in names if name not in ("tarred", "in-time", "zipped")]
    assert others == sorted(others) and list(lines(course[0])) == names


def test_an_extension_exercise_that_was_not_tried_is_no_mistake(results, rows):
    assert rows["in-time"].verdicts[EXTRA.name]["problem"] == "not written"
    assert why(rows["in-time"], results) == "" and EXTRA.name not in why(rows["unfinished"], results)
    assert not any(row is rows["in-time"] for mistake in mistakes(results) for row in mistake.rows)


# ------------------------------------------------------------------------------------------------------- late penalties

PENALTY = """

class OnePointAnHour(__import__("nbgrader.plugins").plugins.BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return total_seconds_late / 3600

c.AssignLatePenalties.plugin_class = OnePointAnHour
"""


def test_points_are_taken_off_by_the_extended_due_date_and_again_when_that_changes(copied, capsys):
    with (copied / "nbgrader_config.py").open("a", encoding="utf-8") as file:
        file.write(PENALTY)
    assert main(["grade", ASSIGNMENT]) == 0

    def penalties():
        found = read_results(application(copied, "autograde").coursedir, ASSIGNMENT)
        return {row.student: row.penalty for row in found.rows if row.penalty}

    assert penalties() == {"extended-and-late": 17, "late": FULL, "odd[1]": 0.5}
    (copied / "extensions.csv").write_text("student,assignment,hours\nlate,a03,\"40,5\"\n", encoding="utf-8")
    capsys.readouterr()
    assert main(["grade", ASSIGNMENT]) == 0
    assert "3 graded" in capsys.readouterr().out  # those whose extension is another now, and nobody else
    assert penalties() == {"extended": FULL, "extended-and-late": FULL, "late": 0.5, "odd[1]": 0.5}
    (copied / "extensions.csv").write_text("student,assignment,until\nlate,a03,2026-11-19 18:00\n", encoding="utf-8")
    for command in ("grade", "report"):
        assert main([command, ASSIGNMENT]) == 1
        assert "late has until 2026-11-19 18:00 UTC for a03, which is due later" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------- extensions, times

GOOD = {
    "student,assignment,until\nada,a03,2026-11-22 18:00": timedelta(days=2),
    "student,assignment,until\nada,a03,2026-11-22T18:00Z": timedelta(days=2),
    "Student;Assignment;Until\nada;a03;2026-11-22 19:00 +01:00": timedelta(days=2),
    "\ufeffassignment,until,student\r\na03,2026-11-22 19:00 Europe/Berlin,ada\r\n\r\n": timedelta(days=2),
    "student,assignment,hours,until\nada,a03,1.5,\n": timedelta(hours=1.5),
    "student\tassignment\thours\nada\ta03\t24": timedelta(days=1),
}
BAD = {
    "": "the first line must name the columns student, assignment, and until or hours",
    "ada,a03,2026-11-22 18:00": "the first line must name",
    "student,assignment\nada,a03": "the first line must name",
    "student,assignment,until,reason\nada,a03,2026-11-22 18:00,flu": "it says: student, assignment, until, reason",
    "student,assignment,until,until\nada,a03,x,y": "the first line must name",
    "student,assignment,until\nada,a3,2026-11-22 18:00": "line 2: there is no assignment 'a3' (there: a03, a04)",
    "student,assignment,until\nada,a03,22.11.2026": "line 2: until: got '22.11.2026', expected a day and a time",
    "student,assignment,until\nada,a03,2026-11-22": "expected a day and a time",
    "student,assignment,until\nada,a03,2026-13-22 18:00": "expected a day and a time",
    "student,assignment,until\nada,a03,2026-11-22 18:00 CETTE": "'CETTE' is no time zone",
    "student,assignment,hours\nada,a03,-3": "hours: got '-3', expected a number above 0",
    "student,assignment,hours\nada,a03,nan": "hours: got 'nan'",
    "student,assignment,hours\nada,a03,two": "hours: got 'two'",
    "student,assignment,hours,until\nada,a03,,": "ada needs one of until and hours, and has neither",
    "student,assignment,hours,until\nada,a03,2,2026-11-22 18:00": "and has both",
    "student,assignment,hours\n,a03,2": "it names no student",
    "student,assignment,hours\nada,a03": "it has not as many cells as the first line",
    "student,assignment,hours\n\nada,a03,2\nada,a04,2\nada,a03,5": "line 5: ada has an extension for a03 already",
    'student,assignment,hours\n"ada,a03,2': "no CSV file",
}


def extensions(tmp_path, text):
    path = tmp_path / "extensions.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_extensions(path, ["a03", "a04"])


@pytest.mark.parametrize("text", GOOD)
def test_extensions_are_read_as_spreadsheets_write_them(tmp_path, text):
    found = extensions(tmp_path, text)
    assert found.of("ada", "a03", DUE) == GOOD[text] and found.students("a03") == ["ada"]
    assert found.of("bob", "a03", DUE) is None and found.of("ada", "a03", None) is None


@pytest.mark.parametrize("text", BAD)
def test_a_bad_line_of_the_extensions_is_told_with_its_number(tmp_path, text):
    with pytest.raises(CommandError) as told:
        extensions(tmp_path, text)
    assert BAD[text] in str(told.value) and "extensions.csv" in str(told.value) and "\n" not in str(told.value)


def test_extensions_that_are_no_text_are_told(tmp_path):
    with pytest.raises(CommandError, match="no CSV file in UTF-8"):
        extensions(tmp_path, b"student,assignment,hours\n\xff,a03,2")
    with pytest.raises(CommandError, match="cannot read"):
        read_extensions(tmp_path, ["a03"])


@pytest.mark.parametrize(
    ("time", "words"),
    [
        (timedelta(days=2), "2 d"),
        (timedelta(days=1, hours=17, minutes=59), "1 d 17 h"),
        (timedelta(hours=5, minutes=12, seconds=9), "5 h 12 min"),
        (timedelta(minutes=3, seconds=5), "3 min"),
        (timedelta(seconds=5.9), "5 s"),
        (timedelta(), "0 s"),
    ],
)
def test_a_time_is_said_in_its_two_largest_units(time, words):
    assert duration(time) == words


def test_lateness_is_not_known_without_both_times():
    assert Times(DUE, None).late is None and Times(None, DUE).late is None
    assert Times(DUE, DUE).late == timedelta() and Times(DUE, DUE + timedelta(1), timedelta(1)).late == timedelta()


def test_an_extension_without_a_due_date_is_nothing():
    assert Extensions({("ada", "a03"): timedelta(1)}).of("ada", "a03", None) is None


# ------------------------------------------------------------------------------------------------------------ archives


def test_an_archive_with_one_notebook_is_graded_as_that_and_flagged(course, results, rows):
    for student, name, inside in (("zipped", "my work.zip", "a03/final.ipynb"), ("tarred", "work.tar.gz", "./a03/")):
        row = rows[student]
        assert row.total == FULL and row.archive == name
        assert records_of(course[0], ASSIGNMENT).of(student)["repaired"]["archive"] == name
        assert any(f"in the archive `{name}`, as `{inside}" in text for text in row.repairs)
        assert (course[0] / "submitted" / student / ASSIGNMENT / name).is_file()
    found = {flag.row.student for flag in flags(results) if flag.kind == "handed in as an archive"}
    assert found == {"zipped", "tarred"} and rows["honest"].archive is None


def test_an_archive_with_several_notebooks_or_none_gets_a_row_and_a_line(rows):
    assert "(all.zip), in which there are 2 notebooks" in rows["two-in-one"].unreadable
    assert "(all.zip), in which there is no notebook: hand in the notebook itself" in rows["none-in-it"].unreadable
    assert rows["two-in-one"].total == 0 and not rows["two-in-one"].waiting


def bomb(member="x.csv", size=40_000_000):
    return zipped({"a.ipynb": b"{}", member: bytes(size)})


def locked():
    data = bytearray(zipped({"a.ipynb": b"{}"}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def linked():
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as made:
        entry = zipfile.ZipInfo("a.ipynb")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(entry, "/etc/passwd")
    return data.getvalue()


ARCHIVES = {
    "bomb.zip": (bomb(), "which holds 40 MB, more than is unpacked"),
    "bomb.tar.gz": (tarred({"x.csv": bytes(40_000_000), "a.ipynb": b"{}"}), "which holds more than is unpacked"),
    "large.zip": (bomb("a.ipynb", 30_000_000), "which holds 30 MB"),
    "large.tar": (tarred({"a.ipynb": bytes(20_000_001)}, "w"), "MB are allowed"),
    "out.zip": (zipped({"../../a.ipynb": b"{}"}), "a path that leads out of it"),
    "windows.zip": (zipped({"a.ipynb": b"{}", "C:\\x.py": b""}), "a path that leads out of it"),
    "root.tar": (tarred({"/a.ipynb": b"{}"}, "w"), "a path that leads out of it"),
    "link.tar": (tarred({}, "w", **{"a.ipynb": "/etc/passwd"}), "the notebook is a link"),
    "link.zip": (linked(), "the notebook is a link"),
    "many.zip": (zipped({f"{i}.txt": b"" for i in range(501)}), "more than 500 files"),
    "many.tgz": (tarred({f"{i}.txt": b"" for i in range(501)}), "more than 500 files"),
    "locked.zip": (locked(), "locked by a password"),
    "cut.zip": (zipped({"a.ipynb": b"{}"})[:-30], "which is damaged"),
    "cut.tar.gz": (tarred({"a.ipynb": b"{}" * 5000})[:-30], "which is damaged"),
    "words.zip": (b"words", "which is damaged"),
    "empty.zip": (b"", "which is damaged"),
    "nested.zip": (zipped({"inner.zip": zipped({"a.ipynb": b"{}"})}), "there is no notebook"),
    "twice.zip": (zipped({"a.ipynb": b"{}", "b/a.ipynb": b"{}"}), "there are 2 notebooks"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_is_opened_within_limits_or_refused_with_the_reason(tmp_path, name):
    data, words = ARCHIVES[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(Unreadable) as told:
        notebook_in(tmp_path / name)
    assert words in str(told.value) and name in str(told.value)


def test_an_archive_that_is_made_to_be_slow_is_given_up(tmp_path, monkeypatch):
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 15_000_000  # digits, which a pattern of tarfile's goes through again
    (tmp_path / "slow.tar").write_bytes(header.tobuf() + b"9" * header.size + bytes(4096))  # and again: minutes
    monkeypatch.setattr(archive, "SECONDS", 1.0)
    with pytest.raises(Unreadable, match=r"\(slow.tar\), which takes too long to open: hand in"):
        notebook_in(tmp_path / "slow.tar")


def test_an_archive_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "large.zip").open("wb") as file:
        file.truncate(archive.MAX_ARCHIVE + 1)
    with pytest.raises(Unreadable, match="MB are allowed"):
        notebook_in(tmp_path / "large.zip")


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_notebook_comes_out_of_a_tar_archive_as_it_went_in(tmp_path, mode):
    content = b'{"cells": []}' * 1000
    (tmp_path / "a.tar").write_bytes(tarred({"a/.hidden.ipynb": b"", "a/b.IPYNB": content, "c.txt": b""}, mode))
    assert notebook_in(tmp_path / "a.tar") == ("a/b.IPYNB", content)


def test_a_record_of_before_archives_were_opened_is_read(tmp_path):
    records = Records(tmp_path / "records")
    with records.changing("ada") as record:
        record["repaired"]["notes"] = ["renamed"]
        del record["repaired"]["archive"]
    assert "archive" not in (tmp_path / "records" / "ada.json").read_text()
    assert records.of("ada")["repaired"]["notes"] == ["renamed"] and records.of("ada")["repaired"]["archive"] is None
