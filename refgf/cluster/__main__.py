"""Command line: python -m refgf.cluster run|probe|check."""

import argparse
import json
import os
import platform
import shutil
import sys

from refgf.cluster import check, inside, launcher, outside
from refgf.cluster.settings import Settings, checked

NOT_EXECUTABLE, NOT_FOUND, CANNOT = 126, 127, 78  # as shells say; as sysexits.h says of a machine not set up for it

PROBE = "import refgf.launch; from mpi4py import MPI; from refgf.cluster.probe import main; main(MPI.COMM_WORLD)"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m refgf.cluster", description="emulated nodes with shaped links")
    tasks = top.add_subparsers(dest="task", required=True)
    for name, text in (("run", "run an MPI program on the nodes"), ("probe", "measure the links")):
        task = tasks.add_parser(name, help=text, description=text)
        task.add_argument("--nodes", type=int, default=4)
        task.add_argument("--rate", action="append", default=[], help="1gbit; node3=200mbit for one link (repeatable)")
        task.add_argument("--latency", default="0s", help="added to every message between nodes, e.g. 50us")
        task.add_argument("--mtu", type=int, default=1500, help="9000: jumbo frames")
        task.add_argument("--cpus-per-node", type=int, help="whole cores; nodes share cores where there are too few")
        if name == "run":
            task.add_argument("--ranks-per-node", type=int, default=1)
            task.add_argument("program", nargs=argparse.REMAINDER, help="-- command and its arguments")
    tasks.add_parser("check", help="can this machine do it? exit code 0 or the reason")
    for task in tasks.choices.values():
        task.add_argument("--mpiexec", help="default: the one beside this Python, then PATH's")
    return top


def main(arguments: list[str]) -> int:
    try:
        if arguments[:1] == ["_inside"]:
            return _inside(json.loads(arguments[1]))
        options = parser().parse_args(arguments)
        if options.task == "check":
            check.unshare_command()
            launcher.family(launcher.find_mpiexec(options.mpiexec))
            print("an emulated cluster runs here")
            return 0
        return _start(options)
    except check.CannotRun as reason:
        print(f"refgf.cluster: {reason}", file=sys.stderr)
        return CANNOT
    except ValueError as error:
        print(f"refgf.cluster: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return outside.INTERRUPTED


def _start(options: argparse.Namespace) -> int:
    each = getattr(options, "ranks_per_node", 1)
    check.require_linux(platform.system())
    settings = checked(options.nodes, each, options.rate, options.latency, options.mtu, options.cpus_per_node)
    launcher.cores(settings, 0)
    mpiexec = launcher.find_mpiexec(options.mpiexec)
    mpi = launcher.family(mpiexec)
    if options.task == "probe":
        program = [sys.executable, "-c", PROBE]
    else:
        program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        raise ValueError("run: got no command; wanted one after --; next: try -- python lessons/01_ring_allreduce.py")
    if not shutil.which(program[0], path=launcher.environment(settings, mpi)["PATH"]):
        there = os.path.exists(program[0])
        got = f"got the command {program[0]!r}, which {'cannot be executed' if there else 'is not there'}; wanted a program"
        print(f"refgf.cluster: {got}; next: try -- python lessons/01_ring_allreduce.py", file=sys.stderr)
        return NOT_EXECUTABLE if there else NOT_FOUND
    return outside.start(settings, mpiexec=mpiexec, mpi=mpi, program=program)


def _inside(order: dict) -> int:
    inside.watch(order["lifeline"])
    settings = Settings.from_json(order["settings"])
    return inside.run(settings, order["mpiexec"], order["mpi"], order["program"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
