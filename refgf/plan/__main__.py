"""The commands `python -m refgf.predict plan` and `measure`; also `refgf predict ...`.

refgf predict plan --model resnet50 --machine v100-10gbe --ranks 64
refgf predict plan --model trace.json --machine nccl.txt --ranks 256 --ranks-per-node 8 --json
mpiexec -n 2 refgf predict measure --out mine.json
"""

import argparse
import json
import os
import sys

from refgf.papers.scaling.collectives import LINES
from refgf.plan import fabric, figure, inputs, platforms, replay, report
from refgf.plan.systems import Question


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="refgf predict", description=__doc__.splitlines()[0])
    commands = found.add_subparsers(dest="command", required=True)
    plan = commands.add_parser("plan", help="predict a step on N ranks")
    add = plan.add_argument
    add("--model", required=True, help="resnet50, alexnet, ...; a trace; a list (.csv, .json)")
    add("--machine", required=True, help="v100-10gbe, ...; a machine file; nccl-tests or OSU text")
    add("--ranks", type=int, required=True)
    add("--ranks-per-node", type=int, default=1)
    add("--batch", type=int, help="samples a rank and step, of a workload")
    add("--rate", type=float, help="samples per second of one rank without exchange")
    add("--step", type=int, help="the step of a trace, as in ProfilerStep#3 (default: the last)")
    add("--overlap", type=float, default=1.0, help="backward's speed during a call, 0 to 1")
    add("--allreduce", default="ring", help=f"the flat one: {', '.join(LINES)}")
    add("--measured-ranks", type=int, help="of an OSU or nccl-tests text that does not say")
    add("--json", action="store_true", help="print JSON")
    add("--figure", metavar="FILE", help="draw efficiency over ranks (matplotlib)")
    add("--simulate", action="store_true", help="replay the allreduce in SimGrid, too (minutes)")
    add("--platform", default="one-link", help=f"for --simulate: {', '.join(platforms.NAMES)}")
    measured = commands.add_parser("measure", help="write a machine file, on at most 2 nodes")
    measured.add_argument("--out", required=True, help="the file to write")
    return found


def plan(given: argparse.Namespace) -> None:
    network = fabric.load(given.machine, given.measured_ranks)
    step = inputs.read_model(given.model, network, given.batch, given.rate, given.step)
    asked = Question(
        step, network, given.ranks, given.ranks_per_node, given.overlap, given.allreduce
    )
    found = report.answer(asked)
    if given.simulate:
        found["simgrid"] = replay.compare(asked, given.platform)
    if given.figure:
        figure.draw(found, given.figure)
    print(json.dumps(found, indent=1) if given.json else report.text(found))
    if given.simulate and not given.json:
        print("\n" + replay.text(found["simgrid"]))


def measure(given: argparse.Namespace) -> None:
    from refgf.plan.measure import world, write

    write(world(), given.out)


def main() -> int:
    given = parser().parse_args()
    try:
        {"plan": plan, "measure": measure}[given.command](given)
        sys.stdout.flush()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"{given.command}: got {error}; wanted a file to write", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
