"""Signals to a rank, to the launcher, or to its proxy, at a random moment.

A lesson must end at once. A training is run again in the folder of its checkpoints, and ends with
the bits of a run that nobody interrupted. One in four is struck while it writes a checkpoint.

A rank that SIGINT meets, by itself or through the launcher, while Python itself starts (6 of its 50
ms) ends with an exit code. MPICH then leaves the others in MPI_Init: they have STALL_S more.
"""

import os
import random
import re
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.attack.fate import GONE_S, Fate, family, fate_of, judge
from tests.support.jobs import mpiexec

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "lessons").glob("[0-9][0-9]_*.py"))
TRAINING = ROOT / "tests" / "machine" / "resumable.py"
RANKS, LONGEST_S, LESSON_S, STALL_S = 3, 120.0, 10.0, 20.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
VICTIMS = ("rank", "rank", "launcher", "proxy")
FORMS = ("training", "training", "training", "writing")


def job(*arguments: object) -> list[str]:
    return [mpiexec(), "-n", str(RANKS), sys.executable, *map(str, arguments)]


def hash_of(fate: Fate) -> str | None:
    """The hash that the training prints at its end."""
    found = re.search(r"hash (\w+)", fate.out)
    return found and found[1]


@cache
def uninterrupted() -> tuple[str, float]:
    """(hash, seconds) of a training without a signal."""
    with tempfile.TemporaryDirectory() as folder:
        fate = fate_of(job(TRAINING, folder), Path(folder), limit_s=LONGEST_S)
    assert fate.code == 0, fate.err
    return hash_of(fate), fate.seconds


def victims(launcher: int, kind: str) -> list[int]:
    """The processes of a job that are its ranks, its proxy, or the launcher itself."""
    found = {launcher: ("", "", 0)} | family(launcher)
    proxies = [pid for pid, (name, *_) in found.items() if name.startswith("hydra_pmi_prox")]
    ranks = [pid for pid, (*_, parent) in found.items() if parent in proxies]
    return sorted({"launcher": [launcher], "proxy": proxies, "rank": ranks}[kind])


def is_writing(folder: Path) -> bool:
    """Is there a checkpoint without its manifest?"""
    return any(not (step / "manifest.json").exists() for step in folder.glob("step-*"))


def case(rng: random.Random) -> tuple[str, Callable]:
    kind, victim = rng.choice(SIGNALS), rng.choice(VICTIMS)
    if victim == "proxy":
        kind = signal.SIGKILL  # the proxy ignores the others, and the job goes on
    place, share = rng.random(), rng.random()
    form, saves = rng.choice((*FORMS, "lesson", "lesson")), rng.randrange(12)
    lesson = rng.choice(LESSONS)
    title = lesson.stem if form == "lesson" else form
    title += f": {kind.name} to the {victim}, at {share:.2f} of its time"

    def attack(folder: Path) -> list[str]:
        kept, names, struck = folder / "kept", set(), []
        program = job(TRAINING, kept)
        if form == "lesson":
            program = job(lesson, "--quick", "--output", folder)
        length_s = LESSON_S if form == "lesson" else uninterrupted()[1]

        def has_come(seconds: float) -> bool:
            if form != "writing":
                return seconds > share * length_s
            names.update(path.name for path in kept.glob("step-*"))
            return len(names) > saves and is_writing(kept)

        def strike(launcher: int, seconds: float) -> bool:
            if has_come(seconds) and (pids := victims(launcher, victim)):
                os.kill(pids[int(place * len(pids))], kind)
                struck.append(kind)
            return bool(struck) or seconds > LONGEST_S

        env = {"REFGF_STALL_S": STALL_S} if kind == signal.SIGINT and victim != "proxy" else {}
        limit_s = GONE_S + STALL_S if env else GONE_S
        fate = fate_of(program, folder, strike=strike, limit_s=limit_s, env=env)
        in_init = "Timeout (0:" in fate.err
        over = hash_of(fate) or "numbers: " in fate.out or not struck
        # an interrupt during the imports, before refgf.launch, has Python's own traceback
        early = fate.err.endswith("KeyboardInterrupt\n") and "rank" not in fate.err
        wrong = judge(fate, lost=None if over else True, says=False, own=early or in_init)
        if fate.seconds > GONE_S and not in_init and fate.code is not None:
            wrong.append(f"ended only after {fate.seconds:.0f} s")
        return wrong if form == "lesson" else wrong + resumed(kept, folder)

    return title, attack


def resumed(kept: Path, folder: Path) -> list[str]:
    """The same command again: the same bits, or a refusal."""
    fate = fate_of(job(TRAINING, kept), folder, limit_s=LONGEST_S)
    wrong = [f"resumed: {text}" for text in judge(fate, lost=None)]
    if fate.code == 0 and hash_of(fate) != uninterrupted()[0]:
        wrong.append("resumed: other bits")
    return wrong
