"""The command python -m refgf.cluster run|probe|check."""

import refgf.interrupt  # noqa: F401  first

# isort: split

import argparse
import json
import os
import platform
import shutil
import sys

from refgf import program
from refgf.cluster import capacity, check, inside, launcher, like, outside
from refgf.cluster.settings import Settings, make_settings

TRY = "next: try -- python lessons/01_ring_allreduce.py"
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # the shells' exit codes
CANNOT_RUN = 78  # EX_CONFIG of sysexits.h: the machine is not set up for it

PROBE = """
import sys
import refgf.launch
from refgf.advice import mpi
try:
    MPI = mpi("cluster probe")
except ValueError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
from refgf.cluster.probe import main
main(MPI.COMM_WORLD)
"""


def make_parser() -> argparse.ArgumentParser:
    """The command line's parser."""
    description = "emulated nodes with shaped links"
    top = argparse.ArgumentParser(prog="python -m refgf.cluster", description=description)
    tasks = top.add_subparsers(dest="task", required=True)
    for name, text in (("run", "run an MPI program on the nodes"), ("probe", "measure the links")):
        task = tasks.add_parser(name, help=text, description=text)
        add = task.add_argument
        add("--nodes", type=int, help="4, or as many as --like says")
        rate_help = "1gbit; node3=200mbit for one link (repeatable)"
        add("--rate", action="append", default=[], help=rate_help)
        add("--latency", help="added to every message between nodes, e.g. 50us")
        like_help = f"emulate this cluster, slowed down: {', '.join(like.names())}, or a file"
        add("--like", metavar="NAME", help=like_help)
        add("--mtu", type=int, default=1500, help="9000: jumbo frames")
        add("--cpus-per-node", type=int, help="whole cores; nodes share them if there are too few")
        if name == "run":
            add("--ranks-per-node", type=int, default=1)
            add("program", nargs=argparse.REMAINDER, help="-- command and its arguments")
    tasks.add_parser("check", help="can this machine run a cluster? exit code 0 or the reason")
    for task in tasks.choices.values():
        task.add_argument("--mpiexec", help="default: the one next to this Python, then PATH's")
    return top


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    try:
        if arguments[:1] == ["_inside"] and len(arguments) == 2:
            return _run_inside(json.loads(arguments[1]))
        options = make_parser().parse_args(arguments)
        if options.task == "check":
            mpiexec = launcher.find_mpiexec(options.mpiexec)
            outside.trial(mpiexec, launcher.family(mpiexec))
            print("an emulated cluster runs here")
            return 0
        return _start(options)
    except check.CannotRun as reason:
        print(f"refgf.cluster: {reason}", file=sys.stderr)
        return CANNOT_RUN
    except (ValueError, ChildProcessError) as error:
        print(f"refgf.cluster: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    except KeyboardInterrupt:
        return outside.INTERRUPTED


def _start(options: argparse.Namespace) -> int:
    check.require_linux(platform.system())
    target = like.load(options.like) if options.like else None
    settings = make_settings(
        (target.nodes if target else 4) if options.nodes is None else options.nodes,
        options.ranks_per_node if options.task == "run" else 1,
        options.rate or ([like.usual_rate(target, options.nodes)] if target else []),
        options.latency or "0s",
        options.mtu,
        options.cpus_per_node,
    )
    if target:
        if options.latency:
            raise ValueError(
                f"--latency: got {options.latency} with --like {target.name}, which has one; "
                "wanted one of the two; next: leave --latency out"
            )
        settings = like.dilated(settings, target, netem=check.has_netem())
        if options.rate:
            capacity.require(settings)
    launcher.cores_of(settings, 0)  # ValueError if there are too few
    mpiexec = launcher.find_mpiexec(options.mpiexec)
    mpi = launcher.family(mpiexec)
    if options.task == "probe":
        program = [*launcher.PYTHON, "-c", PROBE]
    else:
        program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        raise ValueError(f"run: got no command; wanted one after --; {TRY}")
    if not shutil.which(program[0], path=launcher.environment(settings, mpi)["PATH"]):
        exists = os.path.exists(program[0])
        state = "cannot be executed" if exists else "does not exist"
        got = f"run: got the command {program[0]!r}, which {state}; wanted a program"
        print(f"refgf.cluster: {got}; {TRY}", file=sys.stderr)
        return NOT_EXECUTABLE if exists else NOT_FOUND
    return outside.start(settings, mpiexec=mpiexec, mpi=mpi, program=program)


def _run_inside(order: dict) -> int:
    inside.watch(order["lifeline"])
    settings = Settings.from_json(order["settings"])
    return inside.run(settings, order["mpiexec"], order["mpi"], order["program"])


if __name__ == "__main__":
    sys.exit(program.ended(lambda: main(sys.argv[1:]), str))
