"""The two halves of the ring as callables, over all ranks or over a group of them.

    allgather(comm, ranks)          gather(x) -> array (group, k): row i is what ranks[i] brought, any type, k alike
    reduce_scatter(comm, ranks)     reduce(x) -> slice of x that now holds the group's sum (the rest: partial sums)
    spread(comm, ranks)             spread(x): everyone receives the slices that the others own after `reduce_scatter`

`ranks` is a list that all ranks of the group pass alike, and that has this rank in it; groups without a common rank may
call at the same time. None stands for all. Cost per call and rank, g ranks in the group: g-1 messages, and (g-1) k,
n - |slice i+1|, n - |slice i+2| elements sent, where i is this rank's place in the group.
"""

from collections.abc import Callable, Sequence

import numpy as np

from refgf.comm import ring
from refgf.comm.schedule import among, execute, require_flat
from refgf.comm.slices import slices
from refgf.device import array_module


def allgather(comm, ranks: Sequence[int] | None = None) -> Callable:
    """Bind to a group. The result takes a flat array (k,), k and type alike on all ranks, and returns (group, k)."""
    group, place = _group(comm, ranks, "allgather")
    position = (place - 1) % len(group)  # the rank at position i of `ring.allgather` brings slice i+1
    turned = group[1:] + group[:1]
    scratch = {}

    def gather(x):
        rows = array_module(x).empty((len(group), x.size), x.dtype)
        rows[place] = x
        execute(comm, among(turned, ring.allgather(position, len(group), rows.size)), rows.reshape(-1), scratch=scratch)
        return rows

    return gather


def reduce_scatter(comm, ranks: Sequence[int] | None = None, wire=None) -> Callable[[np.ndarray], slice]:
    """Bind to a group. The result sums a flat array (n,) over the group; this rank's slice of the sum is returned."""
    group, place = _group(comm, ranks, "reduce_scatter")
    scratch = {}

    def reduce(x) -> slice:
        require_flat(x, "reduce_scatter", comm.Get_rank())
        execute(comm, among(group, ring.reduce_scatter(place, len(group), x.size)), x, wire, scratch)
        return slices(x.size, len(group))[(place + 1) % len(group)]

    return reduce


def spread(comm, ranks: Sequence[int] | None = None, wire=None) -> Callable[[np.ndarray], None]:
    """Bind to a group. The result completes a flat array (n,) of which each rank of the group holds its slice."""
    group, place = _group(comm, ranks, "spread")
    scratch = {}

    def gather(x) -> None:
        require_flat(x, "spread", comm.Get_rank())
        execute(comm, among(group, ring.allgather(place, len(group), x.size)), x, wire, scratch)

    return gather


def _group(comm, ranks: Sequence[int] | None, operation: str) -> tuple[list[int], int]:
    """(the group, this rank's place in it)."""
    group, rank = list(range(comm.Get_size()) if ranks is None else ranks), comm.Get_rank()
    if rank not in group or len(set(group)) < len(group):
        raise ValueError(
            f"{operation} on rank {rank}: got the group {group}; wanted different ranks, this one among them; "
            "next: give each rank the group that it is in"
        )
    return group, group.index(rank)
