"""The commands `python -m refgf.predict plan`, `score`, `measure`; also `refgf predict ...`.

refgf predict plan --model resnet50 --machine mgwfbp-10gbe --ranks 64
refgf predict plan --model trace.json --machine nccl.txt --ranks 256 --ranks-per-node 8 --json
refgf predict score
mpiexec -n 2 refgf predict measure --out mine.json
"""

import refgf.interrupt  # noqa: F401  first

# isort: split

import argparse
import json
import signal
import sys
import textwrap
from dataclasses import replace

from refgf import program
from refgf.cluster import like
from refgf.papers.scaling import machine
from refgf.papers.scaling.collectives import LINES
from refgf.plan import (
    calibration,
    fabric,
    figure,
    inputs,
    nodes,
    platforms,
    profile,
    published,
    replay,
    report,
    score,
    sharding,
    sizes,
    step_times,
    systems,
    trace,
)
from refgf.plan import measure as measuring
from refgf.plan.benchmarks import Stated
from refgf.plan.question import LEAST_OVERLAP, NCCL, Question
from refgf.plan.step_times import StepTimes


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="refgf predict", description=__doc__.splitlines()[0])
    commands = found.add_subparsers(dest="command", required=True)
    as_written = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    plan = commands.add_parser(
        "plan", help="predict a step on N ranks", epilog=formats(), **as_written
    )
    add = plan.add_argument
    models = "a network's name, a trace or those of several ranks, or a list of gradients; below"
    add("--model", required=True, nargs="+", metavar="MODEL", help=models)
    add("--machine", help="a name, a machine file, nccl-tests or OSU text; below")
    add("--ranks", type=int, required=True)
    add("--ranks-per-node", type=int, default=1, help="they share a link (default: %(default)s)")
    inside = "the link inside a node, as 5us 800gbit (default: the machine's; one node needs it)"
    add("--inside", nargs=2, metavar=("LATENCY", "RATE"), help=inside)
    between = "the link between nodes, of all adapters of a node together, as 5us 200gbit; "
    between += f"from {1e6 * calibration.TCP_LATENCY_S:g}us on it is taken for TCP"
    add("--between", nargs=2, metavar=("LATENCY", "RATE"), help=between)
    add("--batch", type=int, help="samples a rank and step of a network (default: the machine's)")
    add("--rate", type=float, help="samples/s of a rank without exchange (default: the machine's)")
    which = "the step of a trace, as 3 or ProfilerStep#3 (default: that of median length)"
    add("--step", type=step_number, help=which)
    overlap = "speed of backward during a call, 0 to 1; 1: not slowed. Two numbers: a range "
    overlap += f"(default: {LEAST_OVERLAP:g} to 1)"
    add("--overlap", type=float, nargs="+", metavar="SHARE", help=overlap)
    flat = f"the flat one: {', '.join(LINES)}; tree: binomial, not NCCL's. {NCCL}: NCCL's own "
    flat += "choice of ring or tree, with what published steps took longer than the formulas "
    flat += f"(default: {NCCL} for nodes of GPUs, --between and texts of NCCL's times, unless they "
    flat += "name NCCL_ALGO; else ring)"
    add("--allreduce", help=flat)
    add("--measured-ranks", type=int, help="of an OSU or nccl-tests text that does not say")
    add("--measured-hosts", type=int, help="of these ranks, if the text has no list of devices")
    add("--measured-table", metavar="N", help="a number or a name, if the text has several tables")
    add("--json", action="store_true", help="print JSON")
    add("--figure", metavar="FILE", help="draw efficiency over ranks (matplotlib)")
    simulated = f"replay the allreduce in SimGrid, too (minutes): 2 to {replay.MOST_RANKS} ranks "
    simulated += f"with one on a node, to {replay.ALL_MESSAGES} with more. The plan keeps the "
    simulated += "closed forms, without contention"
    add("--simulate", action="store_true", help=simulated)
    networks = f"for --simulate: {', '.join(platforms.NAMES)} (default: {platforms.NAMES[0]}). "
    networks += "rails:R has R links a node; fat-tree:S has S times fewer links up than down"
    add("--platform", help=networks)
    shared = (
        "predict ZeRO-1, FSDP, HSDP, DiLoCo, PowerSGD and votes, too, and the memory of a rank; "
    )
    shared += "below"
    add("--sharded", action="store_true", help=shared)
    given = sharding.Sharded()
    units = f"of FSDP, at most (default: a transformer's blocks, else {sharding.UNITS})"
    add("--units", type=int, help=units)
    micro = "micro-batches a step of --sharded (default: %(default)s)"
    add("--accumulate", type=int, default=given.accumulate, metavar="N", help=micro)
    steps = "H of DiLoCo (default: %(default)s)"
    add("--inner-steps", type=int, default=given.inner_steps, metavar="H", help=steps)
    measured = commands.add_parser(
        "measure",
        help="write a machine file, on at most 2 nodes",
        description=measuring.__doc__,
        **as_written,
    )
    measured.add_argument("--out", required=True, help="the file to write")
    scoring = commands.add_parser(
        "score",
        help="how right plan is, or another predictor, on public scaling results",
        description=score.__doc__,
        **as_written,
    )
    add = scoring.add_argument
    add("--predictor", metavar="COMMAND", help="another predictor (default: plan itself)")
    printed = "print each row, too; with files: predict the rows of these, and none of refgf's"
    add("--rows", nargs="*", metavar="FILE", help=printed)
    add("--json", action="store_true", help="print JSON, with all rows")
    add("--figure", metavar="FILE", help="draw predicted and measured steps (matplotlib)")
    return found


def step_number(text: str) -> int:
    return int(text.removeprefix(trace.STEP))


def formats() -> str:
    """What --model and --machine take, and what the systems are: the modules' own docstrings."""
    networks = ", ".join(step_times.plain(name) for name in step_times.NETWORKS)
    named = [name for name in like.names() if name != like.HERE]
    paces = "; ".join(f"{name} has {', '.join(fabric.load(name).steps)}" for name in named)
    paces = f"A network needs --batch and --rate, unless the machine has them: {paces}."
    return f"""networks (--model):
{indented(networks)}
{indented(paces)}

machines (--machine): {", ".join(named)}
{indented("nodes of GPUs: " + ", ".join(nodes.described()))}
    A text of nccl-tests or OSU gives the link between nodes: of nccl-tests the out-of-place time,
    or the in-place one where it is alone.
    A machine file can have two links, "between" nodes and "inside" one. --inside adds or replaces
    the second one. Without it one node is refused, and of several the link between them stands for
    it, with a warning.
    nccl-tests on one host is refused, and without its list of devices it needs --measured-hosts.
    A text of several tables needs --measured-table. Tags of launchers and logs, times, colours,
    indentation and UTF-16 do not matter. Best is all_reduce_perf on as many ranks as you plan for:
    its measured times are used.

a trace (--model):
{profile.__doc__}
a list (--model):
{sizes.__doc__}
a machine file (--machine):
{machine.__doc__}
systems:
{systems.__doc__}
--sharded:
{sharding.__doc__}"""


def indented(text: str) -> str:
    return textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    ")


def plan(given: argparse.Namespace) -> None:
    stated = Stated(given.measured_ranks, given.measured_hosts, given.measured_table)
    network = network_of(given, stated)
    if given.inside:
        network = fabric.with_inside(network, *given.inside, "--inside")
    step = inputs.read_model(given.model, network, given.batch, given.rate, given.step)
    asked = asked_of(given, step, network, given.ranks)
    if given.platform and not given.simulate:
        raise ValueError(
            f"plan: got --platform {given.platform} alone; wanted --simulate with it; next: add it"
        )
    if given.simulate and asked.allreduce == NCCL:
        raise ValueError(
            "plan: got --simulate with --allreduce nccl; wanted an algorithm of refgf, which "
            "SimGrid replays; next: add --allreduce ring"
        )
    shared = sharding.Sharded(given.units, given.accumulate, given.inner_steps)
    if not given.sharded and shared != sharding.Sharded():
        raise ValueError(
            "plan: got --units, --accumulate or --inner-steps; wanted --sharded with it; next: "
            "add --sharded"
        )
    found = report.answer(asked, lambda size: asked_of(given, step, network, size))
    if given.sharded:
        found["sharded"] = sharding.answer(asked, shared)
    platform = given.platform or platforms.NAMES[0]
    if given.simulate:
        replay.require(asked, platform)
    if given.figure:
        figure.draw(found, given.figure)
    if not given.json:
        print(report.text(found), flush=True)
    if given.sharded and not given.json:
        print("\n" + sharding.text(found["sharded"]), flush=True)
    if given.simulate:
        print(replay.announcement(asked), file=sys.stderr, flush=True)
        found["simgrid"] = replay.compare(asked, platform)
    if given.json:
        print(json.dumps(found, indent=1))
    elif given.simulate:
        print("\n" + replay.text(found["simgrid"]))


def network_of(given: argparse.Namespace, stated: Stated) -> fabric.Fabric:
    """--machine and --between, of which one may be missing."""
    if not (given.machine or given.between):
        raise ValueError(
            "plan: got no --machine; wanted one, or --between; next: --between 5us 200gbit"
        )
    network = fabric.load(given.machine, stated) if given.machine else None
    if given.between:
        network = fabric.with_between(network, *given.between, "--between")
    return network


def asked_of(
    given: argparse.Namespace, step: StepTimes, network: fabric.Fabric, size: int
) -> Question:
    """With NCCL's allreduce what published steps say of it is an input, too."""
    own = given.between or given.machine in nodes.described() or network.nccl_times
    named = given.allreduce or (NCCL if own else "ring")
    shares = sorted(given.overlap or [1.0])
    if len(shares) > 2 or not 0 <= shares[0] <= shares[-1] <= 1:
        got = " ".join(map(str, given.overlap))
        raise ValueError(
            f"plan: got --overlap {got}; wanted one or two shares of 0 to 1; next: --overlap 0.7 1"
        )
    asked = Question(step, network, size, given.ranks_per_node, shares[-1], named)
    if named == NCCL and asked.size > 1:
        asked = calibration.calibrated(asked)
    if given.overlap:
        least = replace(asked.unmodelled, least_overlap=shares[0])
        asked = replace(asked, unmodelled=least)
    return asked


def scored(given: argparse.Namespace) -> None:
    own = tuple(row for path in given.rows or () for row in published.rows_of(path))
    found = score.answer(given.predictor, own)
    if given.figure:
        figure.draw_score(found, given.figure)
    every = given.rows is not None
    print(json.dumps(found, indent=1) if given.json else score.text(found, every))


def measure(given: argparse.Namespace) -> None:
    measuring.write(measuring.world(), given.out)


def main() -> int:
    given = parser().parse_args()
    run = {"plan": plan, "score": scored, "measure": measure}[given.command]

    def said(error: Exception) -> str:
        if isinstance(error, ValueError):
            return str(error)
        wanted = "wanted a file to write; next: a folder that exists"
        return f"{given.command}: got {error}; {wanted}"

    return program.ended(lambda: run(given), said, ValueError, OSError)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):  # SimGrid ends with this process
        signal.signal(number, lambda received, frame: sys.exit(128 + received))
    sys.exit(main())
