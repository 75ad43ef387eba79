# Each target is one call. What needs the environment makes it first; that costs nothing when nothing changed.
# Windows has no make: README.md gives the same calls.
.PHONY: setup demo test browser lab notebooks site bench

# The first Python that runs and is new enough; 3.11 is the tested one. Another one: make setup PYTHON=/path/to/python3.12
PYTHON := $(or $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done),python3)
# nbgrader calls alembic by its name, and it lies in the environment.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Jupyter's settings and its kernel are this environment's, whatever lies in the user's folder or whoever owns .venv.
export JUPYTER_PREFER_ENV_PATH := 1
# More for JupyterLab: make lab LAB="--no-browser --port=8890" (in a container also --allow-root).
LAB :=

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo \
	"attncourse needs Python 3.11 or newer, and $(PYTHON) is not: install one, then make setup PYTHON=/path/to/it"; exit 1; }
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	.venv/bin/attncourse demo

test: setup browser
	.venv/bin/pytest -n 2 --nbval-lax --nbval-current-env tests lectures src/attncourse
	.venv/bin/ruff check
	.venv/bin/mypy

# Some tests need a browser. Root, which one is in a container, gets it by apt-get; elsewhere they say why they are skipped.
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit; done; \
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0; \
	echo "installing Chromium for the tests"; export DEBIAN_FRONTEND=noninteractive; \
	{ apt-get update && apt-get install -y --no-install-recommends chromium; } >/dev/null 2>&1 || \
	echo "apt-get could not install Chromium: the tests that need a browser cannot run"

lab: setup
	.venv/bin/jupyter lab --notebook-dir=. --LabApp.default_url=/lab/tree/START.md $(LAB)

notebooks: setup
	.venv/bin/attncourse build

site: setup
	.venv/bin/attncourse site

bench: setup
	.venv/bin/python benchmarks/check.py
	.venv/bin/python benchmarks/lectures.py
	.venv/bin/python benchmarks/ladder.py
	.venv/bin/python benchmarks/attention.py
	.venv/bin/python benchmarks/model.py
	.venv/bin/python benchmarks/grading.py
	.venv/bin/python benchmarks/viewer.py
	.venv/bin/python benchmarks/mutants.py
