# Each target is one call. What needs the environment makes it first; that costs nothing when nothing changed.
# Windows has no make: README.md gives the same calls.
.PHONY: setup demo test test-all browser lab notebooks site slides bench

# The first Python that runs and is new enough; 3.11 is the tested one. Another one: make setup PYTHON=/path/to/python3.12
PYTHON := $(or $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done),python3)
# On Linux pip takes torch's CUDA build, some 4 GB more than the one for CPUs. Where there is no NVIDIA GPU, that one is
# asked of torch's own index; make setup TORCH=cuda takes pip's.
TORCH := $(if $(and $(filter Linux,$(shell uname -s)),$(if $(shell command -v nvidia-smi),,none)),cpu,cuda)
CPU_TORCH = .venv/bin/python -m pip install --quiet --no-deps --disable-pip-version-check --timeout 5 --retries 0 \
	--index-url https://download.pytorch.org/whl/cpu -c constraints.txt torch
# nbgrader calls alembic by its name, and it lies in the environment.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Jupyter's settings and its kernel are this environment's, whatever lies in the user's folder or whoever owns .venv.
export JUPYTER_PREFER_ENV_PATH := 1
# More for JupyterLab: make lab LAB="--no-browser --port=8890" (in a container also --allow-root).
LAB :=
# One more lecture in `make test`: those that differ from what was pushed.
CHANGED = $(shell git diff --name-only --diff-filter=d $$(git merge-base HEAD @{upstream} 2>/dev/null || echo HEAD) -- 'lectures/*.ipynb')

# Three environments in one folder: to read the course, to grade it, to write it, which holds the other two.
setup: .venv/dev

.venv/lab .venv/grading .venv/dev: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo \
	"attncourse needs Python 3.11 or newer, and $(PYTHON) is not: install one, then make setup PYTHON=/path/to/it"; exit 1; }
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@test $(TORCH) != cpu || .venv/bin/python -c 'import torch' 2>/dev/null || $(CPU_TORCH) 2>/dev/null || \
	echo "torch's own index cannot be reached, so pip takes the registry's build of torch, which may be larger"
	.venv/bin/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[$(@F)]'
	@touch $@

lab: $(firstword $(wildcard .venv/dev) .venv/lab)
	.venv/bin/attncourse lab $(LAB)

demo: $(firstword $(wildcard .venv/dev) .venv/grading)
	.venv/bin/attncourse demo

# What a contributor runs: two seeds for each known answer, some of the places where grading can be stopped, three lectures.
test: setup
	.venv/bin/pytest -n 3 --nbval-lax --nbval-current-env tests src $(sort lectures/00_getting_ready.ipynb \
	lectures/05_order.ipynb lectures/12_cheap_attention.ipynb $(CHANGED))
	.venv/bin/ruff check
	.venv/bin/mypy

# Everything; continuous integration runs it.
test-all: setup
	.venv/bin/pytest -n 3 --all --nbval-lax --nbval-current-env tests src lectures
	.venv/bin/ruff check
	.venv/bin/mypy

# Some tests need a browser; where there is none they are skipped. Root, which one is in a container, gets it here: the
# shell, which is the browser without its windows, or the whole where apt-get does not have that.
browser:
	@for name in chromium-headless-shell chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit; done; \
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { echo "install Chromium: the tests look for it"; exit 1; }; \
	echo "installing Chromium for the tests"; export DEBIAN_FRONTEND=noninteractive; \
	{ apt-get update && { apt-get install -y --no-install-recommends chromium-headless-shell || \
	apt-get install -y --no-install-recommends chromium; }; } >/dev/null 2>&1 || \
	{ echo "apt-get could not install Chromium"; exit 1; }

notebooks: setup
	.venv/bin/attncourse build

site: setup
	.venv/bin/attncourse site

slides: setup
	.venv/bin/attncourse slides

bench: setup
	.venv/bin/python benchmarks/check.py
	.venv/bin/python benchmarks/lectures.py
	.venv/bin/python benchmarks/ladder.py
	.venv/bin/python benchmarks/attention.py
	.venv/bin/python benchmarks/model.py
	.venv/bin/python benchmarks/grading.py
	.venv/bin/python benchmarks/viewer.py
	.venv/bin/python benchmarks/site.py
	.venv/bin/python benchmarks/mutants.py
