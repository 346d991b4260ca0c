"""The options of python -m refgf.oracle schedule.

What it needs of the rest of the project is imported when it runs: the other commands need nothing.
"""

import argparse
from typing import Any

ALGORITHMS = (  # of refgf: the keys of OWN in own.py
    *("ring", "direct", "tree", "recursive-doubling", "halving-doubling"),
    *("three-phase", "two-level", "log-phases"),
)
FORMATS = ("msccl-xml", "mscclpp-json", "chakra")


def run(options: argparse.Namespace) -> int:
    """0 if every file is right."""
    from refgf.oracle.schedules.command import run

    return run(options)


def add_command(commands: Any) -> None:
    """The subcommand `schedule`."""
    sub = commands.add_parser(
        "schedule",
        help="judge MSCCL XML, MSCCL++ plans and Chakra traces; write refgf's own",
        description="Exit code 0: all right, 1: one is not, 2: cannot judge. A channel holds any "
        "number of messages here: deadlocks of full channels are not found. One launch is judged, "
        "in which all ranks' inputs are ready before any rank starts: a plan that reads another "
        "rank's memory before any signal may read it too early, and a plan that is launched again "
        "may race with itself, for example in its scratch memory. The predicted time gives each "
        "pair of ranks a link in each direction, which all channels between them share; other "
        "pairs share nothing.",
    )
    sub.set_defaults(run=run)
    about = ".xml, .json, or .et (NAME.0.et stands for the traces of all ranks)"
    sub.add_argument("files", nargs="*", metavar="FILE", help=about)
    sub.add_argument("--draw", metavar="SVG", help="print the messages of one FILE and draw them")
    sub.add_argument("--bytes", type=int, default=1 << 20, help="of the vector (default: 1 MiB)")
    sub.add_argument("--alpha", type=float, default=1e-5, help="seconds per message")
    sub.add_argument("--beta", type=float, default=1e-10, help="seconds per byte sent")
    sub.add_argument("--gamma", type=float, default=0.0, help="seconds per byte added")
    about = "write one of refgf's own: " + ", ".join(ALGORITHMS)
    sub.add_argument("--export", choices=ALGORITHMS, metavar="ALGORITHM", help=about)
    sub.add_argument("--ranks", type=int, default=4, help="of --export")
    sub.add_argument("--ranks-per-node", type=int, default=2, help="of --export, in hierarchies")
    sub.add_argument("--chunks", type=int, help="of the vector of --export (default: the ranks)")
    sub.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="of --export")
    sub.add_argument("--output", default=".", help="folder of --export")
