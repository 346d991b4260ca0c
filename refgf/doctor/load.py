"""Do other programs take the cores? Then measured times are theirs.

    looks = [look()]               on each rank: before a measurement, and after each part of it
    load = measured(all_looks)     what others took: all_looks[rank] is that rank's list
    load = now()                   half a second, while this process sleeps

A job may have more ranks than cores by design, so neither the load average nor the time that ranks
wait for a core tells a busy machine from a quiet one. What counts is processor time of programs
outside the job, and time that a hypervisor gives to other machines (`steal`):

    others = time of all programs (/proc/stat, without interrupts) - time of the job's processes
    lost   = max(0, others + stolen - cores that the ranks leave free) / cores that they want

Only the cores that the job may use count. Elsewhere than on Linux there is no /proc/stat: nobody
looked, and that is said.
"""

import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

BUSY = 0.1  # lost share of the wanted cores, from which on times are not believed
LONG_S = 5.0  # a part of a measurement counts by itself from here on
NOT_LOOKED = "no /proc/stat here: nobody looked whether other programs take the cores"
USER, NICE, SYSTEM, STEAL = 1, 2, 3, 8  # fields of a line of /proc/stat


@dataclass(frozen=True)
class Look:
    """Seconds since the machine's start: of its cores, and of this process.

    cores: {number: (seconds of all programs, stolen seconds)} of those that this process may use
    own_s: of this process and of its children that have ended. kernel: which machine this is
    """

    at_s: float
    cores: dict[int, tuple[float, float]]
    own_s: float
    kernel: str
    process: int


@dataclass(frozen=True)
class Load:
    """others, stolen: cores that were taken on average. lost: see above. wanting: processes."""

    seconds: float
    cores: int
    ranks: int
    others: float
    stolen: float
    wanting: int | None = None

    @property
    def lost(self) -> float:
        free = max(0, self.cores - self.ranks)
        return max(0.0, self.others + self.stolen - free) / min(self.ranks, self.cores)

    @property
    def busy(self) -> bool:
        return self.lost > BUSY

    def __str__(self) -> str:
        """24 processes want 2 cores: others took 1.3 of them, so times are not to be believed"""
        many = f"{self.wanting} processes want {self.cores} cores" if self.wanting else ""
        took = f"others took {self.others:.2g} of {'them' if many else f'{self.cores} cores'}"
        if self.stolen >= 0.05:
            took += f", the hypervisor {self.stolen:.2g}"
        so = ", so times are not to be believed" if self.busy else ""
        return f"{many}{': ' * bool(many)}{took}{so}"


def look(proc: Path = Path("/proc")) -> Look | None:
    """This moment's Look; None where the system does not tell."""
    try:
        lines = [line.split() for line in (proc / "stat").read_text().splitlines()]
        kernel = (proc / "sys/kernel/random/boot_id").read_text().strip()
        mine, tick_s = os.sched_getaffinity(0), 1 / os.sysconf("SC_CLK_TCK")
        cores = {}
        for name, *fields in lines:
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in mine:
                field = [0, *map(int, fields)]
                used = field[USER] + field[NICE] + field[SYSTEM]
                cores[int(name[3:])] = used * tick_s, field[STEAL] * tick_s
    except (OSError, AttributeError, ValueError, IndexError):
        return None
    if not any(used_s for used_s, _ in cores.values()):  # a sandbox that counts nothing
        return None
    return Look(time.monotonic(), cores, sum(os.times()[:4]), kernel, os.getpid())


def measured(looks: list[list[Look | None]], wanting: int | None = None) -> Load | None:
    """The Load of the busiest long part and machine, or of the whole; None if nobody looked.

    looks: of each rank, in time. wanting: processes outside the job that wanted a core.
    """
    taken = [[each for each in mine if each is not None] for mine in looks]
    if taken != looks or not looks:
        return None
    parts = [(0, -1)]
    if len({len(mine) for mine in taken}) == 1:  # else ranks do not agree what a part is
        parts += [(i, i + 1) for i in range(len(taken[0]) - 1)]
    found = []
    for first, last in parts:
        for kernel in {mine[0].kernel for mine in taken}:
            near = [(mine[first], mine[last]) for mine in taken if mine[0].kernel == kernel]
            load = between(near, wanting)
            if load.seconds >= LONG_S or (first, last) == (0, -1):
                found.append(load)
    return max(found, key=lambda load: load.lost)


def between(pairs: list[tuple[Look, Look]], wanting: int | None = None) -> Load:
    """The Load between two looks of each rank of one machine."""
    seconds = max(max(after.at_s - before.at_s for before, after in pairs), 1e-9)
    cores = {core: end for _, after in pairs for core, end in after.cores.items()}
    start = {core: begun for before, _ in pairs for core, begun in before.cores.items()}
    used_s, stolen_s = (
        sum(max(0.0, cores[core][i] - start.get(core, cores[core])[i]) for core in cores)
        for i in (0, 1)
    )
    own_s = {after.process: after.own_s - before.own_s for before, after in pairs}  # or threads
    others = max(0.0, used_s - sum(own_s.values())) / seconds
    want = None if wanting is None else wanting + len(pairs)
    return Load(seconds, len(cores), len(pairs), others, stolen_s / seconds, want)


def wanting(samples: int = 10, pause_s: float = 0.02) -> int | None:
    """Other processes that want a core, the median of samples; the job's own must sleep."""
    try:
        counts = []
        for _ in range(samples):
            time.sleep(pause_s)
            counts.append(int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) - 1)
    except (OSError, ValueError, IndexError):
        return None
    return round(statistics.median(counts))


def now(seconds: float = 0.5) -> Load | None:
    """The Load while this process sleeps, as a job that wants all cores would meet it."""
    before = look()
    others = wanting(round(seconds / 0.02))
    after = look()
    if before is None or after is None:
        return None
    load, cores = between([(before, after)]), len(after.cores)
    return Load(load.seconds, cores, cores, load.others, load.stolen, others)
