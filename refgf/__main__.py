"""The command `refgf`: one door to what `python -m refgf.oracle`, `refgf.doctor` and others do.

refgf verify --python mine.py       judge an implementation: needs NumPy only
refgf lesson                        the lessons, and the folder where they lie
refgf lesson 03 --threads 8         run one: its figure and numbers go to ./results
mpiexec -n 8 refgf lesson 03        the same on MPI ranks
refgf --version
"""

import refgf.interrupt  # noqa: F401  first

# isort: split

import errno
import runpy
import sys
from importlib import metadata
from pathlib import Path

from refgf import advice, program

PACKAGE = Path(__file__).resolve().parent
ORACLE = {
    "verify": "judge an implementation",
    "reveal": "the order in which an allreduce adds",
    "schedule": "judge a schedule file",
    "step": "rounding or a bug? judge a training step",
    "explain": "name the orders of summation that give a result",
    "grade": "marks for students' files",
    "export": "write the golden cases",
}
PROGRAMS = {
    "doctor": "check this machine",
    "cluster": "run on emulated nodes with shaped links",
    "course": "build an assignment for a teaching platform",
    "predict": "how long a step takes on N ranks of your cluster (plan, measure)",
}
EXTRAS = {"mpi4py": "mpi", "torch": "torch", "numba": "fast", "cupy": "gpu"}  # the rest: lessons
HELP = ("-h", "--help")


def main() -> int:
    """Run the command that the first argument names. Exit code 2: there is no such command."""
    name, *rest = sys.argv[1:] or ["--help"]

    def said(error: Exception) -> str:
        if isinstance(error, ValueError):
            return f"refgf: {error}"
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return f"refgf {name}: {program.NO_ROOM}"
        missing = (getattr(error, "name", None) or "").split(".")[0]
        if isinstance(error, OSError) or missing in ("", "refgf"):
            raise error
        command = advice.install(EXTRAS.get(missing, "lessons"))
        return f"refgf {name}: {missing} is missing; next: {command}"

    return program.ended(lambda: run(name, rest), said, ValueError, OSError, ModuleNotFoundError)


def run(name: str, rest: list[str]) -> int:
    """Run one command."""
    if name in HELP:
        print(usage(), flush=True)
        return 0
    if name == "--version":
        print(f"refgf {metadata.version('refgf')}")
        return 0
    if name == "lesson":
        return lesson(rest)
    if name not in ORACLE | PROGRAMS:
        known = ", ".join(["lesson", *ORACLE, *PROGRAMS])
        raise ValueError(f"got {name}; wanted one of {known}; next: refgf --help")
    module = "refgf.oracle" if name in ORACLE else f"refgf.{name}"
    sys.argv = [f"refgf {name}", *([name] if name in ORACLE else []), *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=False)
    return 0


def usage() -> str:
    rows = {"lesson": "list the lessons, or run one"} | ORACLE | PROGRAMS
    lines = [f"  refgf {name:<9} {what}" for name, what in rows.items()]
    return "\n".join(["usage: refgf COMMAND ...", "", *lines, "", "refgf COMMAND --help says more"])


def lesson(arguments: list[str]) -> int:
    """List the lessons, or run the one whose number comes first, as its file would be run."""
    folder = lessons_folder()
    files = {path.name[:2]: path for path in sorted(folder.glob("[0-9][0-9]_*.py"))}
    if not arguments or arguments[0] in HELP:
        print(f"usage: refgf lesson NUMBER [OPTION...]    the files: {folder}\n")
        titles = [path.read_text().splitlines()[0].lstrip('r"') for path in files.values()]
        print("\n".join(f"  {title}" for title in titles), flush=True)
        return 0
    if arguments[0] not in files:
        raise ValueError(f"lesson: got {arguments[0]}; wanted one of {' '.join(files)}")
    path = files[arguments[0]]
    sys.argv = [str(path), *arguments[1:]]
    sys.path.insert(0, str(folder))  # lessons import kit and lab from beside them
    runpy.run_path(str(path), run_name="__main__")
    return 0


def lessons_folder() -> Path:
    """lessons/ of this checkout, or its copy in an installed package."""
    places = (PACKAGE.parent / "lessons", PACKAGE / "shipped" / "lessons")
    found = [place for place in places if (place / "kit").is_dir()]
    if not found:
        raise ValueError(f"lesson: no lessons in {' or '.join(map(str, places))}")
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
