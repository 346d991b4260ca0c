"""What all lessons share: arguments, ranks, timing, tables, result files. It has no algorithms.

    lesson = kit.Lesson(__file__, __doc__)          a lesson
    lesson.argument("--theta", ...)                 its own arguments
    lesson.main(measure, draw)

    measure(run) -> dict      runs on every rank; rank 0's dict goes to results/NN_name.json
    draw(result) -> figure    draws results/NN_name.png from that dict; `--plot` does only this,
                              without MPI

`run` is a `Run`: communicator, options, timing, printing on rank 0. Other modules:

    words, record, axes         units and sentences; contents of the JSON; the frame of figures
    images, flow, trials        images and networks; the stack, timed and trained; repeated runs
    step_times, call_times      steps on ranks that share cores; allreduce calls in and out of steps
    calls                       call times of each kind of sum in the stack
    replay, layers              a backward pass with given times; a step layer by layer
    rounding, placement         bounds on rounding errors; which ranks share a node

Code of a single lesson is in `lab`.
"""

import argparse
import json
import os
import statistics
import sys
import textwrap
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import refgf.launch as launch
from kit.record import ROOT, code_hash, machine, plain
from refgf.cluster import probe
from refgf.machine import threads
from refgf.comm.topology import nodes
from refgf.machine.trace import TracedComm
from refgf.comm.native import mpi_allreduce  # noqa: F401  for the lessons
from refgf.exchange.lazy import Theta
from kit import claims, regime
from kit.regime import regime_of
from kit.words import before_and_after, link_probed, place, seconds
from kit.words import errors_in_words, number_of_bytes  # noqa: F401  for the lessons


COLUMNS = 100  # of the screen


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

    def __str__(self) -> str:
        return f"{seconds(self.median_s)} [{seconds(self.low_s)}..{seconds(self.high_s)}]"


class Run:
    """One rank's view of a running lesson.

    plain    the communicator
    comm     the same communicator with messages and bytes counted (TracedComm)
    options  the parsed arguments
    regime   the cluster that is emulated, and how many times slower this machine is
    """

    def __init__(self, plain, options) -> None:
        self.plain, self.options, self.regime = plain, options, regime_of(options)
        self.comm = TracedComm(self.regime.comm(plain))
        self.native = self.comm.over(lambda comm: plain)  # for MPI's own collectives
        self.rank, self.size = plain.Get_rank(), plain.Get_size()
        self.opaque = False  # has anything been sent that self.comm does not count?
        self.place = place(self.plain, options)

    def say(self, text: str = "") -> None:
        """Print on rank 0."""
        if self.rank == 0:
            print(text, flush=True)

    def section(self, title: str) -> None:
        self.say(f"\n== {title} ==")

    def table(self, header: list[str], rows: list[list]) -> None:
        """Print rows under a header, right-aligned columns."""
        if self.regime.links_are_waited_for:
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
        mine = []
        for _ in range(warmup + repeats):
            self.plain.Barrier()
            start_s = time.perf_counter()
            function()
            mine.append(time.perf_counter() - start_s)
        return self.slowest(mine[warmup:])

    def alternate(self, functions: dict, repeats: int) -> dict:
        """{name: Timing} of several functions, called in turn: a slow moment hits all of them."""
        mine = {name: [] for name in functions}
        for repeat in range(repeats + 1):
            for name, function in functions.items():
                self.plain.Barrier()
                start_s = time.perf_counter()
                function()
                if repeat:
                    mine[name].append(time.perf_counter() - start_s)
        return {name: self.slowest(seconds) for name, seconds in mine.items()}

    def on_rank_0(self, function):
        """Run function() on rank 0 while the others sleep, because MPI's waits occupy a core."""
        result = function() if self.rank == 0 else None
        if self.options.threads:
            self.plain.Barrier()
        elif self.rank == 0:
            for rank in range(1, self.size):
                self.plain.Send(np.empty(0), rank)
        else:
            request = self.plain.Irecv(np.empty(0), 0)
            while not request.Test():
                time.sleep(0.02)
        return result

    def slowest(self, mine: list[float]) -> Timing:
        """The Timing of repeats that each rank has timed itself."""
        slowest = [max(repeat) for repeat in zip(*self.plain.allgather(mine))]
        return Timing(statistics.median(slowest), min(slowest), max(slowest), len(slowest))

    def earlier(self) -> dict:
        """The result that the last run of this lesson saved; {} if none can be read."""
        try:
            return json.loads((self.options.output / f"{self.options.lesson}.json").read_text())
        except (OSError, ValueError):
            return {}

    def probe(self) -> dict:
        """Bandwidth of the link from node 0 to 1 of an emulated cluster; {} on one node."""
        if len(nodes(self.plain)) < 2 or "REFGF_CLUSTER" not in os.environ:
            return {}
        self.opaque = True
        (row,) = probe.measure(self.plain, [(0, 1)])
        self.say(f"{link_probed(row)}; MPI's alpha {1e6 * row['alpha_s']:.0f} us")
        return {"link_probed": row}

    def gather(self, x) -> list:
        """Every rank's x, for the oracle. These messages are not counted."""
        self.opaque = True
        return self.plain.allgather(x)

    def mpi_allreduce(self):
        """MPI's own Allreduce as an `Allreduce`; None on threads and where links are waited for."""
        if self.options.threads or self.regime.links_are_waited_for:
            return None
        from mpi4py import MPI

        self.opaque = True
        return lambda x: self.plain.Allreduce(MPI.IN_PLACE, x)


class Lesson:
    """A lesson script: its arguments, its measurement and its figure.

    probe   measure the link of an emulated cluster first
    like    the cluster that is emulated unless --like or the emulated cluster says otherwise
    claims  what the lesson says you should see: see claims.py
    picture what the figure shows, in a sentence for those who cannot see it
    """

    def __init__(
        self,
        file: str,
        doc: str,
        probe: bool = False,
        like: str | None = None,
        claims=(),
        picture: str = "",
    ) -> None:
        self.file, self.probe, self.picture = Path(file).resolve(), probe, picture
        self.like, self.claims = like, tuple(claims)
        self.name = self.file.stem
        self.parser = argparse.ArgumentParser(
            description=doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            prog=f"lessons/{self.file.name}",
        )
        add = self.parser.add_argument
        size = self.parser.add_mutually_exclusive_group()
        size.add_argument(
            "--quick", action="store_true", help="tiny sizes, a few seconds: a smoke test"
        )
        size.add_argument(
            "--full",
            action="store_true",
            help="full sizes, more repeats, folds and seeds: takes long",
        )
        add(
            "--threads",
            type=positive,
            metavar="P",
            help="run P ranks as threads of this process, without MPI",
        )
        add(
            "--link",
            metavar="RATE,LATENCY",
            help="wait for as long as a link of this rate and latency would take (1gbit,50us)",
        )
        if like:
            add(
                "--like",
                metavar="NAME",
                help=f"the cluster that is emulated (default {like}; this-machine: none)",
            )
        add(
            "--plot",
            action="store_true",
            help="only redraw the figure from the JSON of an earlier run",
        )
        add(
            "--output",
            type=Path,
            metavar="DIR",
            help="folder of the JSON and the PNG (results/; with --quick results/quick/)",
        )

    def argument(self, *names, **settings) -> None:
        self.parser.add_argument(*names, **settings)

    def main(self, measure, draw) -> None:
        options = self._parse()
        if options.plot:
            self._draw(draw, options)
            return
        if options.threads:
            from threadpoolctl import threadpool_limits

            try:
                with threadpool_limits(1):  # as each rank has under mpiexec
                    threads.run(options.threads, lambda comm: self._measure(comm, measure, options))
            except ValueError as error:  # a user's mistake ends with a sentence, not a traceback
                self.parser.exit(2, f"{self.parser.prog}: {error}\n")
        else:
            from mpi4py import MPI

            require_one_mpi(MPI.COMM_WORLD.Get_size())
            try:
                self._measure(MPI.COMM_WORLD, measure, options)
            except ValueError as error:
                if "wanted" not in str(error):  # not an error message of refgf, but a bug
                    raise
                launch.abort.end(f"{self.parser.prog}, rank {launch.job.rank}: {error}\n", 2)
        if launch.job.rank == 0:
            self._draw(draw, options)

    def _parse(self):
        """Parse the arguments; rank 0 alone prints an error."""
        if launch.job.rank != 0:
            self.parser.print_help = lambda: None
            self.parser.error = leave_after_rank_0
        options = self.parser.parse_args(namespace=argparse.Namespace(lesson=self.name))
        if self.like and not (options.link or options.like or regime.environment()):
            options.like = self.like
        options.output = options.output or ROOT / "results" / ("quick" if options.quick else "")
        if options.threads and launch.job.size > 1:
            self.parser.error(
                f"got --threads {options.threads} under {launch.job.size} ranks of mpiexec; "
                "wanted threads or MPI ranks; next: leave one of them out"
            )
        if options.link and regime.environment():
            self.parser.error(
                f"--link {options.link} on an emulated cluster, which has links; "
                "next: leave one of them out"
            )
        try:
            regime_of(options)
        except ValueError as error:
            self.parser.error(str(error))
        return options

    def _measure(self, comm, measure, options) -> None:
        run = Run(comm, options)
        run.say(f"{self.name} on {run.size} ranks: {run.place}")
        if self.like:
            run.say(textwrap.fill(run.regime.in_words(), COLUMNS))
        if run.size == 1:
            run.say(
                "ONE RANK EXCHANGES NOTHING: all times of exchanges below are noise; "
                "next: mpiexec -n 3, or --threads 3"
            )
        link = run.probe() if self.probe else {}
        before, after = before_and_after(self.parser.description)
        run.say(f"\n{before}")
        start_s = time.perf_counter()
        result = plain(measure(run))
        took_s = time.perf_counter() - start_s
        decided = claims.verdicts(self.claims, result) if run.rank == 0 else []
        if decided:
            run.section("What you should see, decided by your numbers (x: larger over smaller)")
        for verdict in decided:
            run.say(textwrap.fill(f"- {verdict}", COLUMNS, subsequent_indent="  "))
        if decided and options.quick:
            run.say("(--quick is too small to decide: run it without)")
        run.say(f"\n{after}\n\nThis took {took_s:.0f} s.")
        if "REFGF_TRACE_DIR" in os.environ:
            run.comm.save(os.environ["REFGF_TRACE_DIR"], run.opaque)
        if run.rank == 0:
            given = {k: v for k, v in vars(options).items() if k not in ("output", "lesson")}
            record = {
                "lesson": self.name,
                "date": time.strftime("%Y-%m-%d"),
                "ranks": run.size,
                "place": run.place,
                "took_s": took_s,
                "options": given,
                "machine": machine(options),
                "measured_with": code_hash(self.file),
                "regime": run.regime.record(),
                "verdicts": [asdict(verdict) for verdict in decided],
                "alt": self.picture,
            }
            options.output.mkdir(parents=True, exist_ok=True)
            path = options.output / f"{self.name}.json"
            path.write_text(json.dumps(plain(record | link) | result, indent=1) + "\n")

    def _draw(self, draw, options) -> None:
        import matplotlib

        matplotlib.use("Agg")
        path = options.output / f"{self.name}.json"
        if not path.exists():
            self.parser.error(f"--plot: got no {path}; next: run the lesson once without --plot")
        result = json.loads(path.read_text())
        foot = [f"{result['ranks']} ranks, {result['place']}", result["machine"]["cpu"]]
        if "link_probed" in result:
            foot.insert(1, link_probed(result["link_probed"]))
        drawn = draw(result)
        figures = drawn if isinstance(drawn, dict) else {"": drawn}  # {"theta": figure, ...}
        print()
        for name, figure in figures.items():
            png = path.with_name(f"{self.name}_{name}.png" if name else f"{self.name}.png")
            figure.text(0.01, 0.005, "; ".join(foot), fontsize=7)
            figure.savefig(png, dpi=110)
            print(f"figure: {png}")
        print(f"numbers: {path}")


def leave_after_rank_0(message: str) -> None:
    """Exit, but give rank 0 the time to print: a launcher ends the job when any rank exits."""
    time.sleep(5)
    os._exit(2)


def require_one_mpi(size: int) -> None:
    """Exit if mpiexec is another MPI's, because then each rank believes it is the only one."""
    if size != launch.job.size:
        if launch.job.rank == 0:
            print(
                f"start: got {size} rank of {launch.job.size}, because mpiexec and this Python use "
                "different MPIs; wanted one MPI; next: python -m refgf.doctor",
                file=sys.stderr,
            )
        os._exit(1)


def positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}; wanted a whole number above 0")
    return int(text)


def threshold_bytes(text: str) -> float:
    """Parse theta, a lesson's argument: 0, 65536, 1e6, inf."""
    try:
        return Theta(float(text)).threshold_bytes
    except ValueError:
        wanted = "bytes >= 0; next: 0 for eager, 65536, 1e6, inf for one call"
        raise argparse.ArgumentTypeError(f"got {text!r}; wanted {wanted}") from None
