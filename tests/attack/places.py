"""Commands where the folder is odd: it has types.py, json.py, ..., or its path is no plain text.

A student's folder with a random.py is ordinary. Nothing of it may run, except what the command is
told to run. A checkout with a blank, a quote, $ or a backtick in its path works as any other: no
shell reads the path. (A colon cannot be in PATH, and venv refuses it.)
"""

import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from refgf.cluster import check
from tests.attack.fate import fate_of, judge
from tests.support.jobs import mpiexec

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 120.0
CONSOLE = [
    sys.executable,
    "-P",
    "-c",
    "import sys; from refgf.__main__ import main; sys.exit(main())",
]
RAN = "RAN FROM THE FOLDER"
SHADOW = f"import os; os.write(2, b'{RAN}: ' + __name__.encode()); raise SystemExit(9)\n"
ALWAYS = ["types", "json", "random", "signal", "socket", "numpy", "refgf", "mpi4py"]
MINE = "def slice_bounds(n, p):\n    return [(0, n)]\n"
COMMANDS = {  # console command: may its exit code be other than 0?
    "verify --python mine.py --only slice_bounds": True,
    "reveal --python mine.py --ranks 3": True,
    "schedule plan.xml": True,
    "grade 00 answers.py": True,
    "explain some.safetensors": True,
    "lesson 01 --threads 2 --quick --output out": False,
    "predict plan --model alexnet --machine mgwfbp-10gbe --ranks 4": False,
    "course build 00 --for plain --output course": False,
    "doctor": False,
    "cluster check": False,
    "cluster run --nodes 2 -- true": False,
    "export golden": False,
}
NAMES = [
    *("mein Projekt ü's (1)", "a#b%20c", "-rf", "tick`touch pwned`", "dol$UNSETx", 'quo"te'),
    *("semi;touch pwned", "new\nline", "l" * 120, "$(touch pwned)", "back\\slash", "star*?[a]"),
]
PROGRAMS = {  # run in a copy of the checkout; {mpiexec}, {python} and {here} are in it
    "cluster": "{python} -m refgf.cluster run --nodes 2 -- {python} -c 1",
    "probe": "{python} -m refgf.cluster probe --nodes 2",
    "ranks": "{mpiexec} -n 2 {python} {here}/lessons/00_two_ranks.py --quick --output out",
    "threads": "{python} {here}/lessons/01_ring_allreduce.py --threads 2 --quick --output out",
    "grade": "{python} -m refgf.oracle grade 00 {here}/lessons/student/00.py",
    "course": "{python} -m refgf.course build 00 --for plain --output course",
    "export": "{python} -m refgf.oracle export golden",
}


def case(rng: random.Random) -> tuple[str, Callable]:
    return (shadowed if rng.random() < 0.5 else in_an_odd_path)(rng)


def shadowed(rng: random.Random) -> tuple[str, Callable]:
    command = rng.choice(list(COMMANDS))
    others = sorted(name for name in sys.stdlib_module_names if not name.startswith("_"))
    modules = ALWAYS if rng.random() < 0.5 else [*rng.sample(others, 20), "types"]

    def attack(folder: Path) -> list[str]:
        if "cluster" in command and not has_cluster():
            return []
        for name in modules:
            (folder / f"{name}.py").write_text(SHADOW)
        for name in ("mine.py", "answers.py"):
            (folder / name).write_text(MINE)
        words = [*CONSOLE, *command.split()]
        environment = {"PYTHONPATH": str(ROOT)}
        fate = fate_of(words, folder, limit_s=LIMIT_S, env=environment)
        wrong = judge(fate, lost=None if COMMANDS[command] else False, says=False)
        if RAN in fate.err + fate.out:
            wrong.append((fate.err + fate.out)[(fate.err + fate.out).index(RAN) :][:60])
        return wrong

    return f"refgf {command}, beside {', '.join(modules[:3])}.py, ...", attack


def in_an_odd_path(rng: random.Random) -> tuple[str, Callable]:
    name, kind = rng.choice(NAMES), rng.choice(list(PROGRAMS))

    def attack(folder: Path) -> list[str]:
        if kind in ("cluster", "probe") and not has_cluster():
            return []
        here = folder / name / "refgf"
        skipped = shutil.ignore_patterns("__pycache__", "results", "slides")
        for part in ("refgf", "lessons"):
            shutil.copytree(ROOT / part, here / part, ignore=skipped)
        shutil.copy(ROOT / "LICENSE", here)  # course build packs it
        prefix = Path(sys.prefix)
        (here / ".venv").symlink_to(prefix)
        inside = {"python": here / ".venv/bin/python", "here": here}
        own = Path(mpiexec()).is_relative_to(prefix)
        inside["mpiexec"] = here / ".venv/bin/mpiexec" if own else mpiexec()
        words = [word.format(**inside) for word in PROGRAMS[kind].split()]
        fate = fate_of(words, here, limit_s=LIMIT_S, env={"PYTHONPATH": None})
        marks = kind == "grade"  # the starter loses most, which is exit code 1
        wrong = judge(fate, lost=None if marks else False, says=not marks)
        pwned = [path for path in folder.rglob("pwned") if path.exists()]
        return wrong + ["a shell ran what stands in the path"] * bool(pwned)

    return f"{kind} in {name!r}", attack


def has_cluster() -> bool:
    try:
        check.unshare_command()
    except check.CannotRun:
        return False
    return os.path.exists("/proc/self/ns/net")
