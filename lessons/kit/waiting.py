"""What a run says while it measures: how long it takes, a counter on a terminal, tables in a file.

    about = estimate(options)
    with Counter(run, about):    [37 s of about 80 s] behind the titles of the sections, each second
        ...

Nothing of the counter goes into a pipe. All tables go to results/NN_name.txt as they come, with -v
and without, and the numbers of each section to NN_name.part: Ctrl-C then loses one section.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import refgf.launch as launch
from kit.record import ROOT
from kit.words import number_of_ranks

LONG_S = 10.0
ANCESTORS, LAUNCHERS = 4, ("mpiexec", "mpirun", "prterun")  # from a rank to its launcher
ERASE = "\r\x1b[K"


def estimate(options) -> tuple[float, str] | None:
    """(seconds, where they are from): the last run of this size, else the committed figure's.

    The words say on how many ranks; this run may have others.
    """
    sizes = [bool(getattr(options, key)) for key in ("quick", "full")]
    places = {
        options.output: "as the last run here",
        ROOT / "figures": "where the committed figure was measured",
    }
    for folder, where in places.items():
        try:
            result = json.loads((Path(folder) / f"{options.lesson}.json").read_text())
            if [bool(result["options"][key]) for key in ("quick", "full")] == sizes:
                pairs = result["options"].get("pairs")
                other = pairs is not None and pairs != getattr(options, "pairs", pairs)
                where = f"on {number_of_ranks(result['ranks'])}, {where}"
                return float(result["took_s"]), where + f" with --pairs {pairs}" * other
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return None


def in_words(about: tuple[float, str] | None, log: Path, mine: bool = False) -> str:
    """The sentence before a long run; "" before a short one, and where nothing is known."""
    if about is None or about[0] < LONG_S:
        return ""
    more = ", longer with your functions" * mine
    said = f"This takes about {about[0]:.0f} s, {about[1]}{more}. Tables as they come: {log}"
    return f"{said}; numbers of each section that has ended: {log.stem}.part"


def on_terminal(proc: Path = Path("/proc")) -> bool:
    """Does what this process prints reach a terminal, through mpiexec as well?"""
    if sys.stdout.isatty() or not launch.job.launcher:
        return sys.stdout.isatty()
    process = os.getppid()
    try:
        for _ in range(ANCESTORS):
            if any(name in (proc / f"{process}/comm").read_text() for name in LAUNCHERS):
                return os.readlink(proc / f"{process}/fd/1").startswith(("/dev/pts/", "/dev/tty"))
            process = int((proc / f"{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return False


class Counter:
    """Counts the seconds on rank 0's terminal while its block runs."""

    def __init__(self, run, about: tuple[float, str] | None) -> None:
        self.run, self.of = run, f" of about {about[0]:.0f} s" if about else ""
        self.ended, self.thread = threading.Event(), threading.Thread(target=self._count)
        self.thread.daemon = True

    def __enter__(self) -> None:
        self.run.counts = self.run.rank == 0 and not self.run.verbose and on_terminal()
        if self.run.counts:
            self.thread.start()

    def __exit__(self, *_error) -> None:
        if self.run.counts:
            self.ended.set()
            self.thread.join()
            self.run.erase()
            self.run.counts = False

    def _count(self) -> None:
        start_s = time.monotonic()
        while not self.ended.wait(1.0):
            with self.run.screen:
                self.run.erase()
                passed_s = time.monotonic() - start_s
                print(f"[{passed_s:.0f} s{self.of}]", end="", flush=True)
