"""The project's own files agree with each other, importing costs nothing, and the command line says what is wrong."""

import argparse
import importlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from attncourse import __version__
from attncourse_lessons.cli import COMMANDS, GROUPS, main
from commandkit.errors import MissingExtra, require_extra

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def constraints():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def python(code, cwd=ROOT):
    """Run code in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=60)


def attncourse(*arguments, cwd=ROOT, before="pass"):
    """Run the command in a fresh interpreter, after the code `before`."""
    code = f"import sys; {before}; from attncourse_lessons.cli import main; sys.exit(main({list(arguments)}))"
    return python(code, cwd)


# The files that say what to install


def test_constraints_are_exact_versions_sorted_and_without_local_labels(constraints):
    pins = [str(requirement.specifier) for requirement in constraints]
    assert [pin for pin in pins if not re.fullmatch(r"==[\w.]+", pin)] == []
    names = [requirement.name.lower() for requirement in constraints]
    assert names == sorted(names) and len({canonicalize_name(name) for name in names}) == len(names)
    assert any(str(requirement) == "torch==2.13.0" for requirement in constraints)


def test_every_requirement_has_a_pin_that_it_accepts(project, constraints):
    pins = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in constraints}
    extras = project["optional-dependencies"]
    wanted = [Requirement(line) for group in (project["dependencies"], *extras.values()) for line in group]
    assert len(wanted) > 20
    for requirement in wanted:
        if requirement.name == "attncourse":
            assert requirement.extras <= extras.keys()
        else:
            assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_conda_installs_what_make_lab_installs(project, environment):
    interpreter, pip, by_pip = environment["dependencies"]
    assert interpreter == f"python{project['requires-python']}" and pip == "pip"
    assert environment["name"] == "attncourse" and environment["channels"] == ["conda-forge"]
    install = re.search(r"pip install (?:--\S+ )*(-c constraints.txt -e .*)", (ROOT / "Makefile").read_text())
    assert install and " ".join(by_pip["pip"]) == install[1].replace("'", "").replace("$(@F)", "lab")
    extra = re.fullmatch(r"-e \.\[(\w+)\]", by_pip["pip"][-1])
    assert extra and extra[1] in project["optional-dependencies"]


PIP = """#!/bin/sh
echo "$*" >> calls
case "$*" in
    *"import torch"*) exit {installed} ;;
    *--index-url*) exit {index} ;;
esac
"""


@pytest.mark.parametrize("makefile", ["Makefile", "src/lessonkit/authoring/student/Makefile"])
@pytest.mark.parametrize(
    ("installed", "index", "torch", "asked", "told"),
    [
        pytest.param(1, 0, "cpu", True, False, id="the CPU build is asked of torch's index"),
        pytest.param(1, 1, "cpu", True, True, id="an index that cannot be reached costs a line"),
        pytest.param(0, 0, "cpu", False, False, id="a torch that is there stays"),
        pytest.param(1, 0, "cuda", False, False, id="who wants CUDA gets pip's"),
    ],
)
def test_setup_takes_the_small_torch_where_it_can_be_had(makefile, installed, index, torch, asked, told, tmp_path):
    for name, text in (("Makefile", (ROOT / makefile).read_text()), ("pyproject.toml", ""), ("constraints.txt", "")):
        (tmp_path / name).write_text(text)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PIP.format(installed=installed, index=index))
    python.chmod(0o755)
    command = ["make", "setup", f"TORCH={torch}", f"PYTHON={python}"]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert any("--index-url" in call and "--no-deps" in call for call in calls) == asked
    assert ("cannot be reached" in made.stdout) == told
    assert re.search(r"-c constraints.txt -e \.\[(dev|lab)\]$", calls[-1])


def test_the_oldest_python_is_the_same_everywhere(project):
    assert SpecifierSet(project["requires-python"]) == SpecifierSet(">=3.11")
    assert "sys.version_info < (3, 11)" in (ROOT / "Makefile").read_text()
    assert "sys.version_info < (3, 11)" in (ROOT / "src/attncourse/__init__.py").read_text()


def test_continuous_integration_runs_the_readmes_command_for_all_tests():
    commands = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert commands == ["make browser && exec make test-all"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make test " in readme and "make test-all" in readme


def test_no_file_names_the_folder_of_whoever_wrote_it():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    files = [ROOT / name for name in listed if name and (ROOT / name).is_file()]
    assert len(files) > 20
    private = re.compile(rb"(?<![\w.])(/home/\w+/|/root/|/Users/\w+/|[A-Z]:\\Users\\\w)")
    found = {file.name: private.findall(file.read_bytes()) for file in files if file != Path(__file__)}
    assert {name: paths for name, paths in found.items() if paths} == {}


# Importing


def test_importing_the_package_imports_nothing_heavy():
    result = python("import sys; old = {*sys.modules}; import attncourse; print(*({*sys.modules} - old))")
    modules = {name.partition(".")[0] for name in result.stdout.split()}
    assert "attncourse" in modules
    assert modules - sys.stdlib_module_names == {"attncourse"} and len(modules) < 10


@pytest.mark.parametrize("arguments", [["--help"], ["doctor", "--help"]])
def test_asking_for_help_imports_no_torch(arguments):
    result = attncourse(*arguments, before="import atexit; atexit.register(lambda: print('torch' in sys.modules))")
    assert result.returncode == 0
    assert "usage: attncourse" in result.stdout and result.stdout.endswith("False\n")


def test_an_old_python_is_told_in_one_line():
    result = python("import sys; sys.version_info = (3, 10, 0); import attncourse")
    assert result.returncode != 0
    assert re.match(r"ImportError: attncourse needs Python 3.11 or newer.*make setup", result.stderr.splitlines()[-1])


# The command line


@pytest.mark.slow
def test_every_command_exists():
    shown = attncourse("--help").stdout
    assert [command for command in COMMANDS if not re.search(rf"^ +{command} ", shown, re.MULTILINE)] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: attncourse {command} ")


def test_an_unknown_command_is_told_with_the_known_ones():
    result = attncourse("bild")
    assert result.returncode == 2
    assert result.stderr.endswith("attncourse: error: invalid choice: 'bild'. Did you mean 'build'?\n")
    assert "The commands are: lab, progress, hint," in attncourse("xyz").stderr


def test_the_help_lists_the_commands_by_what_somebody_wants_to_do():
    shown = attncourse("--help").stdout
    groups = re.findall(r"^(\w[\w ]+):\n((?:  [a-z]+ +\w.*\n)+)", shown, re.MULTILINE)
    listed = {title: re.findall(r"^  (\w+)", lines, re.MULTILINE) for title, lines in groups}
    assert listed == {title: [*commands] for title, commands in GROUPS.items()}


def test_a_slip_in_a_command_is_told_with_its_own_usage():
    result = attncourse("reset", "a02", "--foo")
    assert result.returncode == 2
    assert result.stderr.startswith("usage: attncourse reset [-h] name\n")
    assert result.stderr.endswith("attncourse reset: error: unrecognized arguments: --foo\n")


def test_the_version_is_told():
    assert attncourse("--version").stdout == f"attncourse {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples_that_its_parser_understands(command):
    module = importlib.import_module(COMMANDS[command][0])
    examples = [line.partition("#")[0].partition(">")[0] for line in module.EXAMPLES.strip().splitlines()]
    examples = [words for line in examples if (words := shlex.split(line))[1] == command]
    parser = argparse.ArgumentParser(prog=f"attncourse {command}")
    module.add_arguments(parser)
    for program, _, *words in examples:
        _, unknown = parser.parse_known_args(words)
        assert program == "PROGRAM" and (not unknown or module.PASSES_ON)
    assert examples


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands_and_options(shell):
    script = attncourse("completion", shell).stdout
    assert all(command in script for command in COMMANDS) and "--force" in script.replace("-l ", "--")
    if shell == "bash" and shutil.which("bash"):
        typed = "COMP_WORDS=(attncourse bu); COMP_CWORD=1; _attncourse; echo ${COMPREPLY[@]}"
        typed += "; COMP_WORDS=(attncourse build --fo); COMP_CWORD=2; _attncourse; echo ${COMPREPLY[@]}"
        done = subprocess.run(["bash", "-c", f"{script}\n{typed}"], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["build", "--force"] and done.stderr == ""


def test_progress_and_a_hint_are_shown_in_a_terminal(monkeypatch, tmp_path):
    monkeypatch.setenv("LESSONKIT_PROGRESS", str(tmp_path))
    (tmp_path / "softmax.json").write_text('{"last": 5, "best": 7}')
    shown = attncourse("progress", "a00").stdout
    assert "7 of 31 by checks, 3 by hand" in shown and "7 of 7 (the last check: 5)" in shown
    assert attncourse("hint", "softmax", "2").stdout.startswith("Hint 2 of 3. ")
    wrong = attncourse("hint", "softmaks")
    assert wrong.returncode == 1 and wrong.stderr.startswith("error: there is no exercise 'softmaks'. Did you mean")


def test_building_outside_a_course_is_told_in_one_line(tmp_path):
    result = attncourse("build", cwd=tmp_path)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr == (
        f"error: no course here (looked for nbgrader_config.py in {tmp_path}): "
        "run it in the folder that holds pyproject.toml\n"
    )


def test_building_an_unknown_notebook_is_told_in_one_line():
    result = attncourse("build", "99_nothing")
    assert result.returncode == 1
    assert re.fullmatch(r"error: no notebook '99_nothing'; the notebooks are: .*03_cross_attention.*\n", result.stderr)


def test_building_with_another_copys_package_is_refused(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text((ROOT / "nbgrader_config.py").read_text())
    result = attncourse("build", cwd=tmp_path)
    assert result.returncode == 1
    said = r"error: the attncourse_lessons that is installed is the one in .*: run pip install -e . here\n"
    assert re.fullmatch(said, result.stderr)


@pytest.mark.parametrize(("package", "said"), [("torch", "PyTorch"), ("numpy", "numpy")])
def test_a_check_without_torch_or_numpy_is_told_in_one_line(package, said):
    result = python(f"import sys; sys.modules['{package}'] = None; from attncourse import check")
    assert result.stderr.splitlines()[-1] == (
        f"ImportError: attncourse needs {said}, which is not installed here: "
        "pip install -c constraints.txt -e '.'"
    )


def test_a_command_without_a_package_that_it_needs_is_told_in_one_line():
    result = attncourse("build", before="sys.modules['tqdm'] = None")
    assert result.returncode == 1
    assert result.stderr == "error: tqdm is not installed: pip install -c constraints.txt -e '.[dev]'\n"


def test_a_missing_extra_is_told_in_one_line():
    result = attncourse("build", before="sys.modules['jupytext'] = None")
    assert result.returncode == 1
    assert result.stderr == (
        "error: attncourse build needs the extra 'dev' (no jupytext here): "
        "pip install -c constraints.txt -e '.[dev]'\n"
    )


def test_an_import_that_fails_inside_the_package_is_no_missing_extra():
    with pytest.raises(ModuleNotFoundError, match=r"attncourse\.nothing"), require_extra("it", "dev"):
        import attncourse.nothing  # noqa: F401
    with pytest.raises(MissingExtra), require_extra("it", "dev"):
        import a_package_that_nobody_has  # noqa: F401


def test_a_reader_who_has_read_enough_is_no_error():
    command = f"{sys.executable} -m attncourse_lessons.cli doctor | head -1"
    said = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout.startswith("✓ Python") and said.stderr == ""


def test_nothing_that_git_ignores_lies_in_src_because_a_wheel_would_lack_it():
    lines = (ROOT / ".gitignore").read_text().splitlines()
    ignored = [line for line in lines if line and not line.startswith(("#", "/"))]
    made = {"__pycache__/", ".ipynb_checkpoints/", "*.egg-info/"}
    folders = {f"{path.name}/" for path in (ROOT / "src").rglob("*") if path.is_dir()}
    assert len(ignored) > 5 and folders & {*ignored} <= made
