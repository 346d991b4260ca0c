#!/bin/sh
# The first run on a GPU: nine minutes, no network, no compiler, no make, no root.
#
#   sh run.sh [--minutes 4] [--output FOLDER]       PYTHON=...: one that has CuPy and NumPy
#
# Results, after each part: FOLDER/gpu.json, gpu.md and gpu.txt; FOLDER is results, next to this file.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit
PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH} exec "${PYTHON:-python3}" "$here/tests/gpu/run.py" "$@"
