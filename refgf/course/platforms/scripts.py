"""Scripts that several platforms need."""

LAUNCHER = '''"""Starts the marks of this folder's own refgf, whatever else is installed."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
{prepare}
from {module} import main  # noqa: E402

sys.exit(main())
'''

RUN = """#!/usr/bin/env bash
root=${{AUTOGRADER_ROOT:-/autograder}}
python=$root/venv/bin/python
[ -x "$python" ] || python=python3
exec "$python" -I "$root/source/{script}" "$root"
"""

# Python 3.11 is a package of Ubuntu 22.04; later ones have a newer python3.
SETUP = """#!/usr/bin/env bash
# Makes {root}/venv with Python 3.11 or newer and what the marks import.
set -e
export DEBIAN_FRONTEND=noninteractive
root=${{AUTOGRADER_ROOT:-/autograder}}
complete() {{ "$1" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }}
python=python3
if ! complete python3; then
    apt-get update
    apt-get install -y python3 python3-venv
    complete python3 || {{ apt-get install -y python3.11 python3.11-venv; python=python3.11; }}
fi
"$python" -m venv {options}"$root/venv"
"$root/venv/bin/python" -c '{imports}' 2>/dev/null ||
    "$root/venv/bin/python" -m pip install --quiet {libraries}
"""


def launcher(module: str, prepare: str = "") -> str:
    """A script that puts its own folder first on the path and runs main() of a module."""
    return LAUNCHER.format(module=module, prepare=prepare)


def run(script: str) -> str:
    """run_autograder: starts a script of the archive. Its argument is the folder of submission/."""
    return RUN.format(script=script)


def setup(imports: str, libraries: str, system: bool = True) -> str:
    """setup.sh: imports is what must work, libraries what pip installs otherwise."""
    options = "--system-site-packages " if system else ""
    return SETUP.format(root="/autograder", imports=imports, libraries=libraries, options=options)
