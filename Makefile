# Each target is one call. What needs the environment makes it first; that costs nothing when nothing changed.
# Windows has no make: README.md gives the same calls.
.PHONY: setup demo test lab notebooks bench

# The first Python that runs and is new enough; 3.11 is the tested one. Another one: make setup PYTHON=/path/to/python3.12
PYTHON := $(or $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done),python3)
# nbgrader calls alembic by its name, and it lies in the environment.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
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

test: setup
	.venv/bin/pytest -n 2 --nbval-lax --nbval-current-env tests lectures src/attncourse
	.venv/bin/ruff check
	.venv/bin/mypy

lab: setup
	.venv/bin/jupyter lab --notebook-dir=. --LabApp.default_url=/lab/tree/lectures/00_getting_ready.ipynb $(LAB)

notebooks: setup
	.venv/bin/attncourse build

bench: setup
	.venv/bin/python benchmarks/check.py
	.venv/bin/python benchmarks/lectures.py
	.venv/bin/python benchmarks/ladder.py
	.venv/bin/python benchmarks/attention.py
	.venv/bin/python benchmarks/model.py
	.venv/bin/python benchmarks/grading.py
	.venv/bin/python benchmarks/viewer.py
