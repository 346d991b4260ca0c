"""python -m refgf.oracle reveal: its options, and what it does."""

import argparse
from typing import Any

from refgf.oracle.reveal import report
from refgf.oracle.reveal.probes import BITS, require_ranks
from refgf.oracle.reveal.search import reveal

ABOUT = "in which order does an allreduce add? The tree of every element"


def add_parser(commands: Any) -> None:
    sub = commands.add_parser("reveal", help=ABOUT)
    sub.set_defaults(run=run)
    sub.add_argument("--python", help="a module: its name, or a path that ends in .py")
    about = "its function (default: allreduce, ring_allreduce, direct_allreduce, reduce_scatter)"
    sub.add_argument("--function", help=about)
    about = "the MPI of mpi4py: mpiexec -n 4 python -m refgf.oracle reveal --mpi"
    sub.add_argument("--mpi", action="store_true", help=about)
    sub.add_argument("--torch", choices=("gloo",), help="torch.distributed")
    about = "of MPI or PyTorch (default: allreduce)"
    choices = ("allreduce", "reduce_scatter")
    sub.add_argument("--collective", choices=choices, default="allreduce", help=about)
    sub.add_argument("--ranks", type=int, help="default 4; with --mpi those of mpiexec")
    sub.add_argument("--dtype", choices=tuple(BITS), default="float32")
    about = "elements (default: 1, p-1, p+1, 1000, 100000)"
    sub.add_argument("--sizes", type=int, nargs="+", metavar="N", help=about)
    sub.add_argument("--repeats", type=int, default=2, help="of all probes (default: 2)")
    sub.add_argument("--timeout", type=float, default=60.0, help="seconds per call")


def run(options: argparse.Namespace) -> int:
    """0: one order, the same on all ranks and each time. 1: not so."""
    given = [bool(options.python), options.mpi, bool(options.torch)]
    if sum(given) != 1:
        raise ValueError(
            f"reveal: got {sum(given)} of --python, --mpi, --torch; wanted one; next: "
            "--python mine.py"
        )
    if not 0 < options.timeout < float("inf"):
        raise ValueError(f"reveal: got --timeout {options.timeout}; wanted seconds, more than 0")
    if options.mpi:
        return of_mpi(options)
    if options.python and options.collective != "allreduce":
        raise ValueError(
            "reveal: got --collective with --python; wanted it with --mpi or --torch; next: name "
            "the function, --function reduce_scatter"
        )
    p = 4 if options.ranks is None else options.ranks
    require_ranks(p, options.dtype)
    if options.torch:
        from refgf.oracle.reveal.gloo import GlooSum

        box = GlooSum(options.collective, p, options.dtype, options.timeout)
        return judged(box, p, f"{options.collective} of torch, gloo", options)
    from refgf.oracle.reveal.isolation import IsolatedFunction
    from refgf.oracle.reveal.sources import OVERWRITES

    box = IsolatedFunction(options.python, options.function, options.dtype, options.timeout)
    code = judged(box, p, f"{box.function} of {options.python}", options)
    if not box.other_types:
        return code
    if box.other_types.startswith(OVERWRITES):
        rank = box.other_types.removeprefix(OVERWRITES)
        print(
            f"{box.function} overwrites the input of rank {rank}; wanted all inputs as they were, "
            "or in each the result of its rank (SPEC.md); next: copy before adding in place"
        )
        return code
    types = box.other_types.replace("-", ", ")
    print(
        f"results: got the type {types}; wanted {options.dtype}, the inputs' type "
        "(SPEC.md); next: return it"
    )
    return 1


def of_mpi(options: argparse.Namespace) -> int:
    from refgf.oracle.reveal.mpi import MPISum

    box = MPISum(options.collective, options.dtype)
    if box.rank > 0:
        box.serve()
        return 0
    if options.ranks not in (None, box.p):
        box.close()
        raise ValueError(
            f"reveal: got --ranks {options.ranks} and {box.p} ranks of mpiexec; wanted no --ranks; "
            f"next: mpiexec -n {options.ranks}"
        )
    return judged(box, box.p, f"{options.collective} of {box.library()}", options)


def judged(box: Any, p: int, name: str, options: argparse.Namespace) -> int:
    sizes = options.sizes or sorted({1, p - 1, p + 1, 1000, 100_000})
    found = []
    try:
        print(f"{name}, {p} ranks, {options.dtype}", flush=True)
        for each in reveal(box, p, options.dtype, sizes, options.repeats):
            found.append(each)
            print("\n".join(report.lines_of(each)), flush=True)
    finally:
        box.close()
    print("\n".join(report.closing_lines(found, options.repeats)))
    return 0 if all(each.right for each in found) else 1
