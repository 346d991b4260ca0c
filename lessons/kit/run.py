"""One rank's view of a running lesson: communicator, options, timing, printing on rank 0."""

import json
import os
import statistics
import threading
import time
from dataclasses import asdict, dataclass
from typing import TextIO

from kit import gpu
from kit.record import ROOT, code_hash
from kit.regime import regime_of
from kit.reveal import COLUMNS
from kit.waiting import ERASE
from kit.words import link_probed, place, seconds
from refgf.cluster import probe
from refgf.comm.native import mpi_allreduce
from refgf.comm.topology import nodes
from refgf.device import to_host
from refgf.doctor import load
from refgf.machine.regular_files import open_regular
from refgf.machine.trace import TracedComm


@dataclass(frozen=True)
class Timing:
    """Median, lowest and highest time of the repeats; each repeat is that of the slowest rank."""

    median_s: float
    low_s: float
    high_s: float
    repeats: int

    def divided(self, factor: float) -> "Timing":
        """The same repeats in a time that runs `factor` times faster, the emulated cluster's."""
        times_s = (t / factor for t in (self.median_s, self.low_s, self.high_s))
        return Timing(*times_s, self.repeats)

    def __sub__(self, other: "Timing") -> "Timing":
        """Difference of the medians, with the widest spread that the repeats allow."""
        low_s, high_s = self.low_s - other.high_s, self.high_s - other.low_s
        repeats = min(self.repeats, other.repeats)
        return Timing(self.median_s - other.median_s, low_s, high_s, repeats)

    def __str__(self) -> str:
        return f"{seconds(self.median_s)} [{seconds(self.low_s)}..{seconds(self.high_s)}]"


class Run:
    """One rank's view of a running lesson.

    plain    the communicator
    comm     the same communicator with messages and bytes counted (TracedComm)
    options  the parsed arguments
    regime   the cluster that is emulated, and how many times slower this machine is
    device   what computes (gpu.py); xp, array, clock and on_gpu are its
    mine     the student's functions (mine.py); None without --mine
    """

    def __init__(self, plain, options) -> None:
        self.plain, self.options, self.regime = plain, options, regime_of(options)
        self.device = gpu.chosen(plain, options)
        self.xp, self.array = self.device.xp, self.device.array
        self.clock, self.on_gpu = self.device.clock, self.device.on_gpu
        self.comm = TracedComm(self.regime.comm(plain))
        self.native = self.comm.over(lambda comm: plain)  # for MPI's own collectives
        self.rank, self.size = plain.Get_rank(), plain.Get_size()
        self.opaque = False  # has anything been sent that self.comm does not count?
        self.verbose = getattr(options, "verbose", True)
        self.line, self.counts = "", False  # of the screen: its titles; is a counter behind them?
        self.screen = threading.Lock()  # between this thread and the counter's
        self.log: TextIO | None = None  # all tables, on rank 0
        self.looks: list = []  # at the machine's load, one at the start of each section
        self.place = place(self.plain, options)
        self.mine = None

    def say(self, text: str = "") -> None:
        """Print on rank 0, with -v; into the log always."""
        if self.verbose:
            self.tell(text)
        elif self.log:
            print(text, file=self.log, flush=True)

    def tell(self, text: str = "") -> None:
        """Print on rank 0, always."""
        if self.rank == 0:
            with self.screen:
                self.erase()
                print(f"\n{text}" if self.line else text, flush=True)
                self.line = ""
            if self.log:
                print(text, file=self.log, flush=True)

    def erase(self) -> None:
        """The counter's text leaves the screen, the titles before it stay. Needs `screen`."""
        if self.counts:
            print(f"{ERASE}{self.line}", end="", flush=True)

    def section(self, title: str) -> None:
        """A title on the screen; without -v all titles share a line, to show what is running."""
        self.looks.append(load.look())
        self.say(f"\n== {title} ==")
        if self.verbose or self.rank:
            return
        with self.screen:
            self.erase()
            if len(self.line) + len(title) + 5 > COLUMNS:
                self.line = ""
                print()
            self.line += f"{title} ... "
            print(f"{title} ... ", end="", flush=True)

    def table(self, header: list[str], rows: list[list]) -> None:
        """Print rows under a header, right-aligned columns."""
        if self.options.link:
            self.say(f"[waits like a link of {self.regime.waited_in_words}: not a network]")
        cells = [header] + [[str(cell) for cell in row] for row in rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
        for row in cells:
            self.say("  ".join(cell.rjust(width) for cell, width in zip(row, widths)))

    def quick(self, quick, default, full=None):
        """One of three sizes of the same experiment, by --quick and --full."""
        if self.options.quick:
            return quick
        return full if self.options.full and full is not None else default

    def time(self, function, repeats: int, warmup: int = 1) -> Timing:
        """Time of function() on all ranks together; a repeat ends with the slowest rank."""
        mine = [self.timed(function) for _ in range(warmup + repeats)]
        return self.slowest(mine[warmup:])

    def timed(self, function, *arguments) -> float:
        """This rank's seconds of one call, which all ranks begin together. Collective."""
        self.plain.Barrier()
        start_s = self.clock()
        function(*arguments)
        return self.clock() - start_s

    def alternate(self, functions: dict, repeats: int, warmup: int = 1) -> dict:
        """{name: Timing} of several functions, called in turn: a slow moment hits all of them."""
        mine = {name: [] for name in functions}
        for _ in range(warmup + repeats):
            for name, function in functions.items():
                mine[name].append(self.timed(function))
        return {name: self.slowest(seconds[warmup:]) for name, seconds in mine.items()}

    def on_rank_0(self, function):
        """Run function() on rank 0 while the others sleep."""
        result = function() if self.rank == 0 else None
        self.meet()
        return result

    def meet(self) -> None:
        """A barrier in which ranks sleep, because MPI's waits occupy a core. Collective."""
        if self.options.threads:
            self.plain.Barrier()
            return
        request = self.plain.Ibarrier()
        while not request.Test():
            time.sleep(0.02)

    def others(self) -> int | None:
        """On rank 0 how many processes outside the job want a core. Collective; ranks sleep."""
        return self.on_rank_0(load.wanting)

    def load(self, wanting: list[int | None]) -> dict:
        """What other programs took since the first look. wanting: `others`, now and then."""
        counts = [count for count in wanting if count is not None]
        found = load.measured(
            self.plain.allgather([*self.looks, load.look()]), max(counts, default=None)
        )
        if found is None:
            return {"busy": False, "said": load.NOT_LOOKED}
        return asdict(found) | {"lost": found.lost, "busy": found.busy, "said": str(found)}

    def slowest(self, mine: list[float]) -> Timing:
        """The Timing of repeats that each rank has timed itself."""
        slowest = [max(repeat) for repeat in zip(*self.plain.allgather(mine))]
        return Timing(statistics.median(slowest), min(slowest), max(slowest), len(slowest))

    def earlier(self) -> dict:
        """On rank 0 what this lesson's last run saved; {} if that was other code. Collective."""
        return self.on_rank_0(self._saved) or {}

    def _saved(self) -> dict:
        name = self.options.lesson
        try:
            with open_regular(self.options.output / f"{name}.json") as file:
                result = json.load(file)
        except (OSError, ValueError):
            return {}
        same = result.get("measured_with") == code_hash(ROOT / "lessons" / f"{name}.py")
        return result if same and ("device" in result) == self.on_gpu else {}

    def probe(self) -> dict:
        """Bandwidth of the link from node 0 to 1 of an emulated cluster; {} on one node."""
        if len(nodes(self.plain)) < 2 or "REFGF_CLUSTER" not in os.environ:
            return {}
        self.opaque = True
        (row,) = probe.measure(self.plain, [(0, 1)])
        self.tell(f"{link_probed(row)}; a message of one byte takes {1e6 * row['alpha_s']:.0f} us")
        return {"link_probed": row}

    def gather(self, x) -> list:
        """Every rank's x, for the oracle. These messages are not counted."""
        self.opaque = True
        return self.plain.allgather(to_host(x) if isinstance(x, self.xp.ndarray) else x)

    def mpi_allreduce(self):
        """MPI's own Allreduce as an `Allreduce`; None on threads and where links are waited for."""
        if self.options.threads or self.regime.links_are_waited_for:
            return None
        from mpi4py import MPI

        self.opaque = True
        if self.on_gpu:
            return mpi_allreduce(self.plain)
        return lambda x: self.plain.Allreduce(MPI.IN_PLACE, x)
