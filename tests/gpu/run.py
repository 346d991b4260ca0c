"""`make gpu-check`: every GPU test and benchmark, and one report, results/gpu_report.txt.

    python tests/gpu/run.py --mpiexec mpiexec

Without a GPU or CuPy it says so and ends with code 0: there is nothing to check.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RANKS = 4  # on one GPU too: MPI allows several ranks per device


def commands(mpiexec: str) -> list[list[str]]:
    python = sys.executable
    return [
        [python, "-m", "refgf.doctor", "--gpu"],
        [python, "-m", "pytest", str(HERE), "-rs"],
        [mpiexec, "-n", str(RANKS), python, "-m", "mpi4py", "-m", "pytest", "--with-mpi", str(HERE), "-rs"],
        *([python, str(script)] for script in sorted(HERE.glob("speed_*.py"))),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpiexec", default="mpiexec")
    options = parser.parse_args()
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # no CuPy, no driver, no device: each has an exception of its own
        print(f"no GPU to check: {type(error).__name__}: {error}")
        return 0
    report, failed = [], 0
    for command in commands(options.mpiexec):
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        report.append(f"$ {' '.join(command)}\n{ended.stdout}{ended.stderr}exit code {ended.returncode}\n")
        print(report[-1], flush=True)
        failed += ended.returncode != 0
    path = ROOT / "results" / "gpu_report.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(report))
    print(f"{failed} of {len(report)} commands failed; report: {path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
