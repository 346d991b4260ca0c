"""`make gpu-check`: every GPU test and benchmark, and one report, results/gpu_report.txt.

    python tests/gpu/run.py --mpiexec mpiexec

Without a GPU or CuPy it says so and ends with code 0: there is nothing to check. A command that
takes longer than TIMEOUT_S is ended and counts as failed. On ranks of MPI the tests run with arrays
staged through host memory, and once more with device pointers where MPI takes them (or
REFGF_CUDA_AWARE=1 says so): each way is dead code in the other run.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from usable import why_no_gpu

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
REPORT = ROOT / "results" / "gpu_report.txt"
RANKS = 4  # on one GPU too: MPI allows several ranks per device
TIMEOUT_S = 20 * 60
PATIENCE_S = 10  # between asking a command to end, and ending it
ASK = """
import refgf.launch
from mpi4py import MPI
from refgf.engine import staging
print("aware", staging.cuda_aware())
"""


def commands(mpiexec: str) -> Iterator[tuple[dict, list[str]]]:
    """(what is added to the environment, command)"""
    python, on_ranks = sys.executable, [mpiexec, "-n", str(RANKS), sys.executable]
    yield {}, [python, "-m", "refgf.doctor", "--gpu"]
    threads = [python, "-m", "pytest", str(HERE), "-rs"]  # ranks are threads, without MPI
    yield {"REFGF_CUDA_AWARE": "0"}, threads
    aware = "aware True" in run([mpiexec, "-n", "1", python, "-c", ASK])[1]
    for switch in ("0", "1") if aware else ("0",):
        tests = ["-m", "mpi4py", "-m", "pytest", "--with-mpi", str(HERE), "-rs"]
        yield {"REFGF_CUDA_AWARE": switch}, [*on_ranks, *tests]
    yield {}, [python, str(HERE / "speed_alexnet.py")]
    yield {}, [*on_ranks, str(HERE / "speed_allreduce.py")]


def main(arguments: list[str] | None = None, path: Path = REPORT) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mpiexec", default="mpiexec")
    options = parser.parse_args(arguments)
    missing = why_no_gpu()
    if missing:
        print(f"no GPU to check: {missing}")
        return 0
    path.parent.mkdir(exist_ok=True)
    codes = []
    with path.open("w") as report:
        for environment, command in commands(options.mpiexec):
            code, said = run(command, environment)
            codes.append(code)
            settings = "".join(f"{name}={value} " for name, value in environment.items())
            text = f"$ {settings}{' '.join(command)}\n{said}exit code {code}\n"
            for file in (report, sys.stdout):
                print(text, file=file, flush=True)
        ending = f"{sum(code != 0 for code in codes)} of {len(codes)} commands failed"
        print(ending, file=report)
    print(f"{ending}; report: {path}")
    return 1 if any(codes) else 0


def run(
    command: list[str], environment: dict | None = None, timeout_s: float = TIMEOUT_S
) -> tuple[int | str, str]:
    """(exit code, or why there is none; all that the command printed)"""
    # not a pipe, which would wait for every process that holds it
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | (environment or {}),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:  # no mpiexec
            return f"none: {error}", ""
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = f"none: ended after {timeout_s} s"
        finally:
            if process.returncode is None:
                end(process)
        output.seek(0)
        return code, output.read()


def end(process: subprocess.Popen) -> None:
    """End the command and what it started.

    mpiexec passes SIGTERM on to ranks, which have process groups of their own.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)


if __name__ == "__main__":
    sys.exit(main())
