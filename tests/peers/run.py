"""`make peers`: this project and its peers side by side, every comparison in this folder, one after another.

    python tests/peers/run.py [--mpiexec mpiexec] [--only nn_speed]

Each *_speed.py prints a table of ratios with their spread and writes results/peers/NAME.json; a script that defines RANKS
runs under mpiexec. Inside a script the two sides alternate, so that a noisy machine favours neither, and have the same
threads. A peer that is not installed is named and left out. Exit code 1 if a script failed.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HOLDS_BLAS_BACK = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")  # an environment that pins them makes every ratio worthless


def command(script: Path, mpiexec: str, result: Path) -> list[str]:
    ranks = re.search(r"^RANKS = (\d+)", script.read_text(), re.MULTILINE)
    start = [mpiexec, "-n", ranks[1]] if ranks else []
    return [*start, sys.executable, str(script), str(result)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--only", help="run only scripts whose name contains this")
    options = parser.parse_args()
    environment = {name: value for name, value in os.environ.items() if name not in HOLDS_BLAS_BACK}
    unset = [name for name in HOLDS_BLAS_BACK if name in os.environ]
    if unset:
        print(f"left out of the environment, so that BLAS may choose its kernels: {', '.join(unset)}")
    results = ROOT / "results" / "peers"
    results.mkdir(parents=True, exist_ok=True)
    failed = []
    for script in sorted(HERE.glob("*_speed.py")):
        if options.only and options.only not in script.stem:
            continue
        print(f"\n==== {script.stem} ====", flush=True)
        call = command(script, options.mpiexec, results / f"{script.stem}.json")
        if subprocess.run(call, cwd=ROOT, env=environment).returncode:
            failed.append(script.stem)
    print(f"\nnumbers: {results}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
