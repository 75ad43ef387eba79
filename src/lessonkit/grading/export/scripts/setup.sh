#!/usr/bin/env bash
# Install what grading needs into an environment beside this folder. Gradescope calls it once, as root, when the image
# of the assignment is built; a workflow calls it before each check. What was installed to the end is left as it is.
set -euo pipefail
HERE="${AUTOGRADER_ROOT:-/autograder}/source"
[ -f "$HERE/autograder.json" ] || HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
VENV="$(dirname "$HERE")/venv"
[ -f "$VENV/installed" ] && exit 0

new_enough() { command -v "$1" >/dev/null && "$1" -c "import sys, ${2:-venv, ensurepip}; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; }
for PYTHON in python3.11 python3.12 python3.13 python3 none; do new_enough "$PYTHON" && break; done
if [ "$PYTHON" = none ]; then
    if new_enough python3 os; then PYTHON=python3; else PYTHON=python3.11; fi  # Ubuntu has venv in a package of its own
    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y "$PYTHON" "$PYTHON-venv"
fi
"$PYTHON" -m venv "$VENV"
# torch's build for CPUs, where its own index can be reached: pip's own choice on Linux is several times as large.
"$VENV/bin/python" -m pip install --quiet --no-deps --timeout 15 --retries 1 -c "$HERE/constraints.txt" \
    --index-url https://download.pytorch.org/whl/cpu torch || echo "torch comes from the usual index"
"$VENV/bin/python" -m pip install --quiet -c "$HERE/constraints.txt" -r "$HERE/requirements.txt"
touch "$VENV/installed"
