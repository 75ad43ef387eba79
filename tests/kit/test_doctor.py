"""The doctor finds what is broken, says how to mend it, and exits accordingly."""

import argparse
import importlib.metadata
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from attncourse_lessons.cli import main
from commandkit.errors import CommandError
from lessonkit import doctor
from lessonkit.doctor import BROKEN, FOUND, WARNING
from lessonkit.grading.engine import pool as workers

COURSE = Path(__file__).parents[2]


@pytest.fixture
def healthy(monkeypatch, tmp_path):
    """No settings of the user's, and an exchange."""
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")  # the user's settings go before the environment's
    (tmp_path / "exchange").mkdir()
    monkeypatch.setenv("ATTNCOURSE_EXCHANGE", str(tmp_path / "exchange"))
    monkeypatch.delenv("ATTNCOURSE_DATA", raising=False)
    return tmp_path


def findings(check):
    return list(check(COURSE))


def only(check):
    (finding,) = findings(check)
    return finding


def test_this_environment_is_in_order(healthy, capsys):
    assert main(["doctor", "--course", str(COURSE)]) == 0
    lines = capsys.readouterr().out.splitlines()
    expected = "Python 3|torch|jupyterlab|nbgrader|kernel python3|alembic|exchange|grading|GB free"
    for what in expected.split("|"):
        assert any(what in line for line in lines), what
    assert not any(line.startswith(BROKEN) for line in lines)


def test_a_machine_without_a_sandbox_is_a_warning_with_the_fix(monkeypatch):
    def refuse():
        raise CommandError("no sandbox for students' code: install bubblewrap")

    monkeypatch.setattr(workers, "how_to_execute", refuse)
    finding = only(doctor._sandbox)
    assert finding.mark == WARNING and "install bubblewrap" in finding.what


@pytest.mark.parametrize(("how", "words"), [("bubblewrap", "in a sandbox"), ("kernel", "trust")])
def test_the_doctor_says_how_submissions_run_here(monkeypatch, how, words):
    monkeypatch.setattr(workers, "how_to_execute", lambda: how)
    assert words in only(doctor._sandbox).what


def test_something_broken_makes_the_exit_status_1_and_says_the_fix(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "CHECKS", (lambda folder: iter([doctor.Finding(BROKEN, "flat tyre", "pump it up")]),))
    assert doctor.main(argparse.Namespace(course=COURSE)) == 1
    assert "flat tyre\n    pump it up" in capsys.readouterr().out


def test_a_check_that_fails_itself_hides_no_other(monkeypatch):
    def _trips(folder):
        raise ModuleNotFoundError("No module named 'zmq'")

    monkeypatch.setattr(doctor, "CHECKS", (_trips, doctor._disk))
    first, second = doctor.examine(COURSE)
    assert first.mark == BROKEN and "zmq" in first.what and "pip install" in first.fix
    assert "GB free" in second.what


def test_an_old_package_is_named_with_what_is_asked(monkeypatch):
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.9.5" if name == "nbgrader" else version(name))
    lab = next(finding for finding in findings(doctor._packages) if "extra 'lab'" in finding.what)
    assert lab.mark == BROKEN and "nbgrader 0.9.5 is not >=0.9.6" in lab.what and "[lab]" in lab.fix


def test_without_what_grading_needs_a_learner_is_only_warned(monkeypatch):
    version = importlib.metadata.version

    def without_rich(name):
        if name == "rich":
            raise importlib.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(importlib.metadata, "version", without_rich)
    marks = {finding.what.split(":")[0]: finding.mark for finding in findings(doctor._packages)}
    assert marks == {"packages": FOUND, "extra 'lab'": FOUND, "extra 'grading'": WARNING}


def test_torch_is_looked_at_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(doctor, "TORCH", "import os; os.abort()")
    assert only(doctor._torch).mark == BROKEN
    monkeypatch.setattr(doctor, "TORCH", "import no_such_torch")
    assert "no_such_torch" in only(doctor._torch).what
    monkeypatch.setattr(doctor, "TORCH", "print('2.13.0|True|2|13.0|A Fine GPU')")
    torch, gpu = findings(doctor._torch)
    assert torch.mark == gpu.mark == FOUND and gpu.what == "GPU: A Fine GPU"
    assert re.match(r"torch 2\.13\.0 \(the build for CUDA 13\.0, \d\.\d GB\) computes, on 2 threads", torch.what)


def test_a_kernel_of_another_environment_is_found(healthy, monkeypatch):
    folder = healthy / "JUPYTER_DATA_DIR" / "kernels" / "python3"
    folder.mkdir(parents=True)
    spec = {
        "argv": ["/elsewhere/bin/python", "-m", "ipykernel_launcher"],
        "display_name": "Python 3",
        "language": "python",
    }
    (folder / "kernel.json").write_text(json.dumps(spec))
    found = only(doctor._kernel)
    assert found.mark == BROKEN and "/elsewhere/bin/python" in found.what and str(folder) in found.fix
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    assert only(doctor._kernel).mark == FOUND


def test_extensions_that_were_switched_off_are_found(healthy):
    folder = healthy / "JUPYTER_CONFIG_DIR"
    (folder / "labconfig").mkdir(parents=True)
    off = {"ServerApp": {"jpserver_extensions": {"nbgrader.server_extensions.formgrader": False}}}
    (folder / "jupyter_server_config.json").write_text(json.dumps(off))
    (folder / "labconfig" / "page_config.json").write_text(
        json.dumps({"disabledExtensions": {"@jupyter/nbgrader": True}})
    )
    server, lab = findings(doctor._extensions)
    assert server.mark == lab.mark == BROKEN
    assert "formgrader" in server.what and "enable" in server.fix and "enable" in lab.fix


def test_alembic_beside_python_will_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert only(doctor._alembic).mark == FOUND
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert only(doctor._alembic).mark == BROKEN


def test_a_missing_exchange_is_a_fault_only_where_somebody_chose_it(healthy, monkeypatch):
    assert only(doctor._exchange).mark == FOUND
    monkeypatch.setenv("ATTNCOURSE_EXCHANGE", str(healthy / "nowhere"))
    found = only(doctor._exchange)
    assert found.mark == BROKEN and f"mkdir -p {healthy / 'nowhere'}" in found.fix
    monkeypatch.delenv("ATTNCOURSE_EXCHANGE")
    if not Path("/usr/local/share/nbgrader/exchange").exists():
        assert only(doctor._exchange).mark == WARNING


def test_outside_a_course_the_exchange_is_not_looked_at(tmp_path):
    (finding,) = doctor._exchange(tmp_path)
    assert finding.mark == WARNING and "no course" in finding.what


def test_a_data_folder_that_is_not_there_is_a_fault(healthy, monkeypatch):
    assert findings(doctor._data) == []
    monkeypatch.setenv("ATTNCOURSE_DATA", str(healthy / "nowhere"))
    assert only(doctor._data).mark == BROKEN
    monkeypatch.setenv("ATTNCOURSE_DATA", str(healthy))
    assert only(doctor._data).mark == FOUND


@pytest.mark.parametrize(("free", "mark"), [(1e8, BROKEN), (1e9, WARNING), (1e11, FOUND)])
def test_a_full_disk_is_noticed(monkeypatch, free, mark):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: argparse.Namespace(free=free))
    assert only(doctor._disk).mark == mark
