"""A lesson as a command: its arguments, its run, its result file and its figure."""

import argparse
import errno
import json
import os
import sys
import textwrap
import time
from dataclasses import asdict
from pathlib import Path

import refgf.launch as launch
from kit import axes, checks, claims, gpu, memory, mine, mine_shown, regime, rejected, waiting
from kit.record import WRITABLE, code_hash, kept, machine, not_written, plain, write
from kit.regime import regime_of
from kit.reveal import COLUMNS, Reveal, indented
from kit.run import Run
from kit.words import before_and_after, link_probed, number_of_ranks, question
from refgf import program
from refgf.advice import mpi
from refgf.cluster import like as clusters
from refgf.doctor import load
from refgf.exchange.lazy import Theta
from refgf.machine import threads
from refgf.machine.regular_files import open_regular

# what reading or drawing a damaged JSON raises
DAMAGE = OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError


class Lesson:
    """A lesson script: its arguments, its measurement and its figure.

    reveal  what it says of its numbers: claims, guess and answer (reveal.py)
    probe   measure the link of an emulated cluster first
    like    the cluster that is emulated unless --like or the emulated cluster says otherwise
    link    what the ranks of one machine wait for unless --link says otherwise
    estimate, an attribute: (options, batch) -> bytes that a rank needs
    """

    def __init__(
        self,
        file: str,
        doc: str,
        reveal: Reveal,
        probe: bool = False,
        like: str | None = None,
        link: str | None = None,
    ) -> None:
        self.file, self.probe, self.reveal = Path(file).resolve(), probe, reveal
        self.like, self.link = like, link
        self.name, self.estimate = self.file.stem, memory.process_bytes
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
            help="run P ranks (at most 256) as threads of this process, without MPI",
        )
        add(
            "--link",
            metavar="RATE,LATENCY",
            help="wait for as long as a link of this rate and latency would take "
            f"({link or '1gbit,50us'}); none: the links that are there",
        )
        add(
            "--device",
            default=gpu.CPU,
            metavar="cpu|gpu|gpu:N|auto",
            help="NumPy on the CPU, or CuPy on a GPU: number N, or by rank",
        )
        if like:
            add(
                "--like",
                metavar="NAME",
                help=f"the cluster that is emulated (default {like}, on several machines "
                "this-machine: none)",
            )
        add(
            "--predict",
            metavar="GUESS",
            help="your answer to the lesson's question; the end of the run compares it",
        )
        if reveal and reveal.yours:
            add(
                "--mine",
                type=Path,
                metavar="FILE",
                help="measure your functions next to the project's: lessons/student/"
                f"{self.name[:2]}.py with {reveal.yours.in_words()}",
            )
        add(
            "--wrong-anyway",
            action="store_true",
            help="measure also what the oracle rejects; the figures then say WRONG",
        )
        add("-v", "--verbose", action="store_true", help="print all tables and claims")
        add(
            "--plot",
            action="store_true",
            help="only redraw the figure from the JSON of an earlier run",
        )
        add(
            "--format",
            choices=["png", "svg", "pdf"],
            default="png",
            help="of the figure (png)",
        )
        add(
            "--no-notes",
            action="store_true",
            help="a figure without caption and signature, for slides and papers",
        )
        add(
            "--output",
            type=Path,
            metavar="DIR",
            help="folder of the JSON and the figure (results/; with --quick results/quick/)",
        )

    def argument(self, *names, **settings) -> None:
        self.parser.add_argument(*names, **settings)

    def main(self, measure, draw) -> None:
        options = self._parse()
        if options.plot:
            self._draw(draw, options)
            return
        rejected.begin(options.wrong_anyway)
        if options.threads:
            from threadpoolctl import threadpool_limits

            try:
                with threadpool_limits(1):  # as each rank has under mpiexec
                    threads.run(options.threads, lambda comm: self._measure(comm, measure, options))
            except ValueError as error:  # a user's mistake ends with a sentence, not a traceback
                self.parser.exit(2, f"\n{self.parser.prog}: {error}\n")
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self.parser.exit(2, f"\n{self.parser.prog}: {program.NO_ROOM}\n")
            self._draw(draw, options)
        else:
            try:
                MPI = mpi("the lesson on MPI ranks")
            except ValueError as error:
                self.parser.error(f"{error}, or --threads 3")
            require_one_mpi(MPI.COMM_WORLD.Get_size())
            try:
                run = self._measure(MPI.COMM_WORLD, measure, options)
            except ValueError as error:
                if "wanted" not in str(error):  # not an error message of refgf, but a bug
                    raise
                launch.abort.end(f"\n{self.parser.prog}, rank {launch.job.rank}: {error}\n", 2)
            run.on_rank_0(lambda: self._draw(draw, options))

    def _parse(self):
        """Parse the arguments; rank 0 alone prints an error."""
        if launch.job.rank != 0:
            self.parser.print_help = lambda: None
            self.parser.error = leave_after_rank_0
        options = self.parser.parse_args(namespace=argparse.Namespace(lesson=self.name))
        if options.quick:  # each rank would compile loops for longer than all steps take
            os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
        if options.threads and launch.job.size > 1:
            self.parser.error(
                f"got --threads {options.threads} under {launch.job.size} ranks of mpiexec; "
                "wanted threads or MPI ranks; next: leave one of them out"
            )
        try:
            gpu.resolve(options)
            kind = [gpu.GPU] * gpu.is_asked(options) + ["quick"] * options.quick
            options.output = options.output or WRITABLE.joinpath("results", *kind)
            asked = options.link or getattr(options, "like", None) or regime.environment()
            if not asked:  # between several machines are real links, which nobody has to emulate
                near = launch.job.on_machine == launch.job.size and not gpu.is_asked(options)
                options.link = self.link if near else None
                if self.like:
                    options.like = self.like if near else clusters.HERE
            options.link = None if options.link == "none" else options.link
            if options.link and regime.environment():
                raise ValueError(
                    f"--link {options.link} on an emulated cluster, which has links; "
                    "next: leave one of them out"
                )
            regime_of(options)
            checks.require(options)
            if options.predict and (wrong := self.reveal.guess.refuse(options.predict)):
                raise ValueError(f"--predict: {wrong}. The question: {self.reveal.ask}")
            if getattr(options, "mine", None):
                mine.require(options.mine, self.name, self.reveal.yours)
        except ValueError as error:
            self.parser.error(str(error))
        return options

    def _measure(self, comm, measure, options) -> Run:
        run = Run(comm, options)
        ranks = number_of_ranks(run.size)
        run.tell(textwrap.fill(f"{self.name} on {ranks}: {run.place}", COLUMNS))
        for head in [run.device.in_words(), run.regime.in_words() if self.like else ""]:
            if head:
                run.tell(textwrap.fill(head, COLUMNS))
        if run.size == 1:
            run.tell(
                "ONE RANK EXCHANGES NOTHING: all times of exchanges below are noise;\n"
                "next: mpiexec -n 3, or --threads 3"
            )
        memory.require(self.name, options, self.estimate)
        if getattr(options, "mine", None):
            run.mine = mine.of(run, self.reveal.yours)
        link = run.probe() if self.probe else {}
        before, after = before_and_after(self.parser.description)
        run.say(f"\n{before}")
        self._ask(run)
        wanting = run.others()
        run.looks.append(load.look())
        about, log = waiting.estimate(options), options.output / f"{self.name}.txt"
        unfinished = log.with_suffix(".part")
        if said := waiting.in_words(about, log, run.mine is not None):
            run.tell(f"{textwrap.fill(said, COLUMNS)}\n")
        if run.rank == 0:
            run.log = log.open("w")
        start_s = time.perf_counter()
        with waiting.Counter(run, about):
            found = kept(run.rank, measure(run), unfinished)
            if run.mine:
                run.section("Your functions")
                series = self.reveal.yours.measure(run, found)
                found["mine"] = run.mine.record() | {"series": series}
        wrong = rejected.of_all(run.plain)
        took_s = time.perf_counter() - start_s
        found["load"] = run.load([wanting, run.others()])
        peak_bytes = max(run.plain.allgather(memory.peak_bytes()))
        if run.rank == 0:
            result = self._record(run, took_s) | link | {"peak_bytes": peak_bytes} | found
            result = plain(result | ({"rejected": wrong} if wrong else {}))
            decided = claims.verdicts(self.reveal.claims, result)
            result["verdicts"] = plain([asdict(verdict) for verdict in decided])
            self._reveal(run, result, decided)
        run.say(f"\n{after}")
        run.tell(f"Measuring took {took_s:.0f} s, without starting and drawing.")
        if os.environ.get("REFGF_TRACE_DIR"):
            run.comm.save(os.environ["REFGF_TRACE_DIR"], run.opaque)
        if run.rank == 0:
            write(unfinished, result)  # a full disk must not cost the earlier numbers
            unfinished.replace(log.with_suffix(".json"))
        return run

    def _record(self, run: Run, took_s: float) -> dict:
        """What the JSON says besides the measurements."""
        given = {k: v for k, v in vars(run.options).items() if k not in ("output", "lesson")}
        return {
            "lesson": self.name,
            "date": time.strftime("%Y-%m-%d"),
            "ranks": run.size,
            "place": run.place,
            "took_s": took_s,
            "options": given,
            "machine": machine(run.options),
            "measured_with": code_hash(self.file),
            "regime": run.regime.record(),
            "alt": self.reveal.picture,
        } | run.device.record()

    def _ask(self, run: Run) -> None:
        """Without -v, the question; always, the guess."""
        if not run.verbose:
            run.tell(f"\n{textwrap.fill(question(self.parser.description), COLUMNS)}")
        if run.options.quick:
            return
        options, ask, form = run.options, self.reveal.ask, self.reveal.guess
        if options.predict is None and run.rank == 0 and sys.stdin and sys.stdin.isatty():
            while guess := input(f"Your guess: {ask} (such as {form.example}; Enter: none) "):
                if not (wrong := form.refuse(guess)):
                    break
                print(wrong.partition("; next")[0])
            options.predict = guess or None
        guess = options.predict or f"none; next time: --predict '{form.example}'"
        run.tell(textwrap.fill(f"{ask} Your guess: {guess}", COLUMNS) + "\n")

    def _reveal(self, run: Run, result: dict, decided: list) -> None:
        """What was measured, the verdicts and the guess; with --quick only `mine` and WRONG."""
        if caveat := claims.caveat(result, self.reveal.claims):
            run.tell("\n" + textwrap.fill(caveat, COLUMNS))
        elif result["load"]["said"] == load.NOT_LOOKED:
            run.tell(f"\n({load.NOT_LOOKED})")
        if run.verbose and not run.options.quick:
            run.section("What you should see, decided by your numbers")
            run.say(self.reveal.full(result, decided))
        elif not run.options.quick:
            run.tell("\n" + "\n".join(self.reveal.lines(result, decided)))
        for series in result.get("mine", {}).get("series", ()):
            said = mine_shown.said(series, result["load"]["busy"])
            run.tell(textwrap.fill(said, COLUMNS, subsequent_indent="    "))
        for sentence in result.get("rejected", ()):
            run.tell(textwrap.fill(f"WRONG: {sentence}", COLUMNS, subsequent_indent="    "))
        if run.options.quick:
            if run.options.predict:
                run.tell(f"You predicted {run.options.predict}: --quick compares it with nothing.")
            return
        guess, said = run.options.predict, self.reveal.answer(result)
        answer = (f"You predicted {guess}; " if guess else "") + f"measured: {said}."
        answer += self.reveal.guess.sentence(guess, said, bool(caveat)) if guess else ""
        run.tell(f"{self.reveal.ask}\n{indented(answer[0].upper() + answer[1:])}")

    def _draw(self, draw, options) -> None:
        import matplotlib

        matplotlib.use("Agg")
        path = options.output / f"{self.name}.json"
        if not path.exists():
            self.parser.error(f"--plot: got no {path}; next: run the lesson once without --plot")
        try:
            with open_regular(path) as file:
                result = json.load(file)
            drawn = draw(result)
            if options.plot and options.verbose and not result["options"]["quick"]:
                print(self.reveal.full(result, claims.verdicts(self.reveal.claims, result)))
        except DAMAGE as error:
            if not options.plot:
                raise
            self.parser.error(
                f"--plot: {path} is damaged or of another version ({type(error).__name__}: "
                f"{error}); next: run the lesson once without --plot"
            )
        where = result.get("where", f"{number_of_ranks(result['ranks'])}, {result['place']}")
        foot = [result["machine"]["cpu"]]
        if "device" in result:
            foot.append(result["device"]["name"])
        if "link_probed" in result:
            foot.insert(0, link_probed(result["link_probed"]))
        figures = drawn if isinstance(drawn, dict) else {"": drawn}  # {"theta": figure, ...}
        if result.get("mine", {}).get("series"):
            figures = mine_shown.draw(result, figures)
        for figure in figures.values() if "rejected" in result else ():
            mine_shown.call_wrong(figure)
        print()
        caveat = claims.caveat(result, self.reveal.claims)
        for name, figure in figures.items():
            stem = f"{self.name}_{name}" if name else self.name
            file = path.with_name(f"{stem}.{options.format}")
            axes.warn(figure, caveat, result["options"]["quick"])
            if options.no_notes:
                axes.without_notes(figure)
            else:
                axes.sign(figure, figure.get_label() or where, *foot)  # a label: its own ranks
            try:
                figure.savefig(file, dpi=110)
            except OSError as error:
                self.parser.error(not_written(file, error))
            print(f"figure: {file}")
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
