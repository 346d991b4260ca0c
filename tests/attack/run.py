"""Attacks this project with cases drawn from a seed, and says what broke.

    python tests/attack/run.py                        600 cases of all classes
    python tests/attack/run.py --minutes 5            as many of them as 5 minutes allow
    ... --minutes 1 --seed 22                         what make test-long runs: the same each time
    python tests/attack/run.py --class damage --seed 7 --number 12      one of them again

    signals    a rank, the launcher or its proxy gets a signal; some runs are resumed: same bits?
    damage     checkpoints are harmed; the same bits, or a refusal
    calls      3 ranks call the library wrongly, differently, or leave
    commands   wrong command lines and environments of all lessons and commands
    trees      folders of images with pipes, loops, damaged images, unreadable folders
    users      another user took our names in /dev/shm and /tmp first
    library    every public class of the papers, made with one wrong argument
    students   files that want marks without work, or harm: no mark, no traceback, nothing left
    places     commands where the folder has types.py, json.py, ... or an odd path
    variables  nonsense in the variables of Python, MPICH, Hydra and the shell

Each case must end within 5 s of its cause, with an exit code that is not 0 if something was lost,
with a sentence that says what to try, and with nothing left behind (`fate.py`). A table comes last;
each broken case has the command that repeats it. Exit code 1 if anything is broken.

Not attacked, because it does not hold: SIGINT or SIGHUP to `make` alone. GNU make then waits until
its recipe ends. SIGTERM and SIGKILL to make, and Ctrl-C, do end it (tests/test_makefile.py).
"""

import argparse
import importlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

from refgf.launch import leftovers  # noqa: E402

SHARES = dict(signals=55, damage=120, calls=60, commands=95, trees=70, users=15)
SHARES |= dict(library=110, students=30, places=20, variables=25)  # of 600


def planned(cases: int, classes: list[str]) -> list[tuple[str, int]]:
    """[(class, number)] with the classes mixed, so that any beginning has all of them."""
    total, mixed = sum(SHARES.get(name, 1) for name in classes), []
    for name in classes:
        count = max(1, round(cases * SHARES.get(name, 1) / total))
        mixed += [((number + 0.5) / count, name, number) for number in range(count)]
    return [(name, number) for _, name, number in sorted(mixed)]


def attacked(name: str, seed: int, number: int) -> tuple[str, list[str]]:
    """(title, what is broken) of one case; the same case for the same three arguments."""
    kind = importlib.import_module(f"tests.attack.{name}")
    title, attack = kind.case(random.Random(f"{seed} {name} {number}"))
    with tempfile.TemporaryDirectory(prefix="refgf-attack-") as folder:
        os.chmod(folder, 0o755)  # a case may be another user
        return title, attack(Path(folder))


def left_files(since: float) -> list[str]:
    """Files of killed jobs that are still there after another program of this project started.

    Only of jobs that ended before that start: others run on this machine.
    """
    time.sleep(leftovers.MIN_AGE_S)
    found = {folder: leftovers.candidates(folder) for folder in leftovers.FOLDERS}
    files = []
    for folder, names in found.items():
        files += [Path(folder, name) for name in names.keys() - leftovers.find_used(names)]
    subprocess.run([sys.executable, "-c", "import refgf.launch"], cwd=ROOT)
    return [str(path) for path in files if path.exists() and path.stat().st_mtime > since]


def options() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--cases", type=int, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no case after these")
    parser.add_argument("--class", dest="only", action="append", metavar="NAME", help="repeatable")
    parser.add_argument("--number", type=int, help="this case of the class alone")
    return parser.parse_args()


def main() -> int:
    asked, began_s, since = options(), time.monotonic(), time.time()
    for signal_ in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):  # even in the background
        signal.signal(signal_, lambda number, _: sys.exit(128 + number))
    classes, cases, broken = asked.only or list(SHARES), Counter(), Counter()
    plan = planned(asked.cases, classes) if asked.number is None else [(classes[0], asked.number)]
    print(f"seed {asked.seed}: {len(plan)} cases of {', '.join(classes)}", flush=True)
    try:
        for name, number in plan:
            if time.monotonic() - began_s > 60 * asked.minutes:
                break
            title, wrong = attacked(name, asked.seed, number)
            cases[name] += 1
            if wrong:
                broken[name] += 1
                print(f"BROKEN {name}: {ascii(title)[1:-1]:.200}\n    {'; '.join(wrong)}")
                again = f"--class {name} --seed {asked.seed} --number {number}"
                print(f"    python tests/attack/run.py {again}", flush=True)
            elif asked.number is not None:
                print(f"held: {ascii(title)[1:-1]:.200}")
        if asked.number is None and (left := left_files(since)):
            broken["files"] += 1
            print(f"BROKEN left after the next start: {', '.join(left)}")
    finally:  # when interrupted, too
        print(f"\n{'class':<10}{'cases':>7}{'broken':>8}")
        for name in (*classes, "files"):
            print(f"{name:<10}{cases[name]:>7}{broken[name]:>8}")
        print(f"seed {asked.seed}, {time.monotonic() - began_s:.0f} s")
    return int(broken.total() > 0)


if __name__ == "__main__":
    sys.exit(main())
