"""What the worker makes of a submission's process: floods, odd ends, and faults that are the machine's."""

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from nbformat import from_dict
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.utils import determine_grade
from traitlets.config import Config

from attncourse_lessons import course as lessons
from lessonkit.grading.engine.pool import PutOff, Worker
from lessonkit.grading.engine.preprocessors import ExecuteOrReplay
from lessonkit.grading.sandbox import linux as walls
from lessonkit.grading.sandbox import outputs as shown
from lessonkit.grading.sandbox import protocol
from lessonkit.grading.sandbox.forkserver import Started
from lessonkit.grading.sandbox.limits import Limits
from lessonkit.grading.sandbox.observer import Run
from lessonkit.grading.sandbox.outputs import Outputs
from lessonkit.grading.sandbox.protocol import Channel
from lessonkit.grading.sandbox.visible_package import build_view
from lessonkit.mimetype import VERDICT

ASSIGNMENT = "a03"
sandboxed = pytest.mark.skipif(walls.why_not() is not None, reason=str(walls.why_not()))


def cell(source, exercise=None):
    return {"source": source, "grade_id": exercise and f"check-{exercise}", "exercise": exercise, "skip": False}


def job(*cells, **seeds):
    return {"course": "attncourse_lessons", "cells": list(cells), "files": {}, "seeds": seeds, "limits": {}}


def text_of(cell):
    """All that a cell of a record shows."""
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"])


def started(assignment):
    worker = Worker("attncourse_lessons", assignment, "bubblewrap")
    worker.start()
    return worker


@pytest.fixture(scope="module")
def worker():
    worker = started(ASSIGNMENT)
    yield worker
    worker.kill()


# --------------------------------------------------------------------------------------------- the machine's own faults


def test_a_process_that_is_gone_before_it_is_ready_is_not_the_submissions_end():
    here, there = socket.socketpair()
    there.close()
    lost = SimpleNamespace(connection=here, descriptors=(), pid=0, kill=lambda: None, how_it_ended=lambda: "killed")
    with here, pytest.raises(RuntimeError, match="lost before it was ready"):
        Run(job(cell("1")), lambda: lost, Limits()).execution()


@sandboxed
def test_what_a_hostile_reply_makes_in_the_worker_has_2_gb(worker):
    most = resource.prlimit(worker._process.pid, resource.RLIMIT_DATA)
    status = Path(f"/proc/{worker._process.pid}/status").read_text()
    own = 1024 * int(status.partition("VmData:")[2].split()[0])
    assert most[0] == most[1] and own + (1 << 30) < most[0] <= own + (2 << 30)


@sandboxed
def test_a_reply_that_fills_the_workers_memory_is_an_error_of_that_answer(worker):
    # Two replies, each small, whose difference has 2.8 GB.
    code = """
import torch
from attncourse import check
calls = []
def attention_distribution(scores, mask):
    calls.append(1)
    return torch.rand(1 << 20, 1) if len(calls) % 2 else torch.rand(1, 700)
"""
    name = "attention_distribution"
    hostile = job(cell(code), cell(f"check('{name}', {name})", name), **{name: [1]})
    assert worker.execute(hostile)["cells"][1]["verdict"][VERDICT]["points"] == 0
    most = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{worker._process.pid}/status").read_text())
    assert int(most[1]) < 2.5 * 2**20  # kB: what would not fit was not made
    assert text_of(worker.execute(job(cell("print('next')")))["cells"][0]) == "next\n"


@sandboxed
def test_an_assignment_of_the_instructors_own_has_a_sandbox_and_sees_the_package(tmp_path):
    hidden = build_view(lessons, "quiz", tmp_path)
    assert hidden == () and not (tmp_path / "lessonkit/grading/engine/grade.py").exists()
    worker = started("quiz")
    try:
        sees = cell("import attncourse.attention, os; print(sorted(os.listdir('/course')), os.getcwd())")
        reaches = cell("import attncourse_lessons.l03_cross_attention.exercises")
        first, second = worker.execute(job(sees, reaches))["cells"]
    finally:
        worker.kill()
    assert text_of(first) == f"['attncourse', 'attncourse_lessons', 'commandkit', 'lessonkit'] {walls.HOME}\n"
    assert second["outputs"][-1]["ename"] == "ModuleNotFoundError"


# --------------------------------------------------------------------------------------------------- limits and endings


@pytest.mark.parametrize(("timeout", "seconds"), [(20, 20), (-1, 50), (None, 50)])
def test_without_a_limit_for_a_cell_it_has_the_notebooks(tmp_path, monkeypatch, timeout, seconds):
    monkeypatch.chdir(tmp_path)
    course = Config(Lessonkit={"course": "attncourse_lessons"})
    step = ExecuteOrReplay(config=course, timeout=timeout, notebook_timeout=50)
    assert step.job(new_notebook(), ASSIGNMENT, [], "ada")["limits"]["cell_seconds"] == seconds


@sandboxed
def test_what_takes_longer_than_others_wait_is_put_off_and_the_worker_goes_on(worker):
    began = time.monotonic()
    with pytest.raises(PutOff):
        worker.execute({**job(cell("import time\ntime.sleep(30)")), "patience": 0.3})
    assert time.monotonic() - began < 15
    assert text_of(worker.execute({**job(cell("print('next')")), "patience": 20})["cells"][0]) == "next\n"


def test_memory_that_looks_too_much_is_counted_exactly_for_a_tenth_of_the_time(monkeypatch):
    """The pages that a hundred forks share are counted a hundred times, and to count them once takes long."""
    looks = []

    def processes_of(pid, exact=False):
        if exact:
            looks.append(time.sleep(0.05))
        return 3, 1 << (20 if exact else 40)

    monkeypatch.setattr(walls, "processes_of", processes_of)
    run = Run(job(), lambda: SimpleNamespace(pid=0, descriptors=()), Limits())
    until = time.monotonic() + 0.6
    while time.monotonic() < until:
        run._watch()
    assert 1 <= len(looks) <= 2


def test_an_end_by_a_signal_without_a_name_has_words():
    number = signal.SIGRTMIN + 1
    process = subprocess.Popen(["sleep", "100"])
    here, there = socket.socketpair()
    with here, there:
        process.send_signal(number)
        assert Started(here, [], process.pid, process.wait).how_it_ended() == signal.strsignal(number)


# ------------------------------------------------------------------------------------------------------ floods and bulk


def test_messages_that_never_stop_are_timed_out():
    here, there = map(Channel, socket.socketpair())
    passed = time.monotonic() - 1
    with here.socket, there.socket:
        there.send("stream")
        assert here.receive(passed) == ("stream", {})  # it came while this process was stopped, perhaps
        there.send("stream")
        with pytest.raises(TimeoutError):
            here.receive(passed)
        assert here.receive(time.monotonic() + 60) == ("stream", {})


def many(outputs):
    for _ in range(shown.MAX_OUTPUTS):
        display(outputs, "1")


def much(outputs):
    display(outputs, "x" * (shown.MAX_SHOWN - 500))


def display(outputs, text):
    outputs.take("display", {"data": {"text/plain": text}, "metadata": {}, "name": None})


def fail(outputs):
    outputs.take("error", {"name": "AssertionError", "value": "wrong " * 100, "traceback": ["wrong " * 100]})


@pytest.mark.parametrize("flood", [many, much])
def test_an_instructors_own_test_that_fails_after_a_flood_earns_nothing(flood):
    outputs = Outputs()
    flood(outputs)
    before = len(outputs.end())
    fail(outputs)
    assert len(outputs.end()) == before + 1
    test = {"grade": True, "solution": False, "locked": True, "points": 2, "grade_id": "test", "schema_version": 3}
    graded = from_dict(new_code_cell(outputs=outputs.end(), metadata={"nbgrader": test}))
    assert determine_grade(graded) == (0, 2)


def test_what_a_display_is_called_takes_no_memory_to_speak_of():
    outputs = Outputs()
    for _ in range(3):
        outputs.take("display", {"data": {"text/plain": "a"}, "metadata": {}, "name": "x" * 8_000_000})
    assert sum(map(len, outputs._displays)) <= 200


def test_a_tensor_of_too_many_axes_is_told_as_one_and_does_not_end_the_connection():
    packed = protocol._pack_tensor(torch.zeros([1] * 40), [])
    assert packed == {"opaque": "a tensor of 40 axes, which is too many,"}


def test_a_flood_of_errors_is_cut():
    outputs = Outputs()
    many(outputs)
    fail(outputs)
    fail(outputs)
    assert len(outputs.end()) == shown.MAX_OUTPUTS + 1


@sandboxed
def test_showing_more_than_a_message_holds_does_not_end_the_cell(worker):
    record = worker.execute(
        job(
            cell("from IPython.display import display\nlarge = 'x' * (9 << 20)"),
            cell("display(large)\nprint('on')"),
            cell("handle = display(1, display_id=True)\nhandle.update(large)\nprint('on')"),
            cell("large"),
        )
    )
    assert record["ended"] is None
    _, *cells = record["cells"]
    assert all("(not shown: too large: 9 MB)" in text_of(each) for each in cells)
    assert [text_of(each).count("on\n") for each in cells] == [1, 1, 0]
    assert not [output for each in cells for output in each["outputs"] if output["output_type"] == "error"]


# ----------------------------------------------------------------------------------------------- what is imported ahead


@sandboxed
def test_what_an_assignments_cells_import_is_there_and_the_library_is_read_anew_from_the_sandbox(worker):
    record = worker.execute(
        job(
            cell("import sys\nprint('matplotlib' in sys.modules, 'attncourse.viz' in sys.modules)"),
            cell("from attncourse import viz\nprint(viz.__file__)"),
            cell("from matplotlib.figure import Figure\nfigure = Figure()\nfigure.text(0, 0, 'seen')"),
            cell("figure.canvas.draw()\nprint('drawn')"),
        )
    )
    ahead, library, _, drawn = record["cells"]
    assert text_of(ahead) == "True False\n"
    assert text_of(library).startswith(walls.COURSE)
    assert text_of(drawn) == "drawn\n"  # and not a word of fonts that are looked for


# ---------------------------------------------------------------------------------------------------- what stays behind


def test_a_worker_that_is_killed_leaves_no_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    worker = Worker("attncourse_lessons", ASSIGNMENT, "none")  # without a sandbox, a submission's folder lies there too
    worker.start()
    record = worker.execute(job(cell("open('kept', 'w').write('something')")))
    assert record["ended"] is None and list(tmp_path.iterdir())
    worker._process.kill()
    worker.kill()
    assert not list(tmp_path.iterdir())


def test_a_worker_whose_main_process_has_died_leaves_no_temporary_files(tmp_path):
    start = f"Worker('attncourse_lessons', {ASSIGNMENT!r}, 'none').start()"
    main = f"import os\nfrom lessonkit.grading.engine.pool import Worker\n{start}\nos._exit(1)"
    subprocess.run([sys.executable, "-c", main], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    until = time.monotonic() + 60
    while list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.05)  # the worker notices by itself that nobody holds its other end
    assert not list(tmp_path.iterdir())
