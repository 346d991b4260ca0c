"""The two halves of the ring as callables, over all ranks or a group of them.

    allgather(comm, ranks)          gather(x) -> array (g, k): row i is the x (k,) of ranks[i]
    reduce_scatter(comm, ranks)     reduce(x) -> the slice of x that now holds the group's sum
    allgather_slices(comm, ranks)   gather(x): every rank gets the slices that the others own

`ranks` has this rank in it, and every rank of the group passes the same list; None stands for all
ranks. Groups without a common rank may call at the same time.

Cost per call and rank with g ranks in the group, of which this is number i: g-1 messages, and
(g-1) k, n - |slice i+1| or n - |slice i+2| elements sent.
"""

from collections.abc import Callable, Sequence

from refgf import ops
from refgf.comm import ring
from refgf.comm.arguments import Comm, Wire, rank_and_size, require_flat, wire_type
from refgf.comm.compose import on_ranks
from refgf.comm.schedule import Algorithm, execute
from refgf.comm.slices import slices
from refgf.device import Array, Memory, array_module

SliceCall = Callable[[Array], slice]


def allgather(comm: Comm, ranks: Sequence[int] | None = None) -> Callable[[Array], Array]:
    """Bind to a group. The result takes x (k,), of one length and type on all ranks -> (g, k)."""
    group, place = _group(comm, ranks, "allgather")
    # position i of `ring.allgather` contributes slice i+1, so the positions are shifted by one
    position, shifted = (place - 1) % len(group), group[1:] + group[:1]
    scratch = Memory()

    def gather(x: Array) -> Array:
        rows = array_module(x).empty((len(group), x.size), x.dtype)
        rows[place] = x
        schedule = on_ranks(shifted, ring.allgather(position, len(group), rows.size))
        execute(comm, schedule, rows.reshape(-1), scratch=scratch)
        return rows

    return gather


def reduce_scatter(comm: Comm, ranks: Sequence[int] | None = None, wire: Wire = None) -> SliceCall:
    """Bind to a group. The result sums x (n,) over the group and returns this rank's slice.

    The other slices of x hold partial sums afterwards.
    """
    return _bind(comm, ranks, wire, ring.reduce_scatter)


def allgather_slices(
    comm: Comm, ranks: Sequence[int] | None = None, wire: Wire = None
) -> SliceCall:
    """Bind to a group. The result completes x (n,) after `reduce_scatter`, in place."""
    return _bind(comm, ranks, wire, ring.allgather)


def _bind(comm: Comm, ranks: Sequence[int] | None, wire: Wire, half: Algorithm) -> SliceCall:
    group, place = _group(comm, ranks, half.__name__)
    rank, scratch = comm.Get_rank(), Memory()
    comm, wire = ops.exact(comm), wire_type(wire, half.__name__, rank)

    def call(x: Array) -> slice:
        require_flat(x, half.__name__, rank)
        schedule = on_ranks(group, half(place, len(group), x.size))
        execute(comm, schedule, x, wire, scratch)
        return slices(x.size, len(group))[(place + 1) % len(group)]

    return call


def _group(comm: Comm, ranks: Sequence[int] | None, operation: str) -> tuple[list[int], int]:
    """(the group, this rank's place in it)."""
    rank, size = rank_and_size(comm, operation)
    group = list(range(size) if ranks is None else ranks)
    if rank not in group or len(set(group)) < len(group):
        raise ValueError(
            f"{operation} on rank {rank}: got the group {group}; wanted different ranks, this one "
            "included; next: give each rank the group that it is in"
        )
    return group, group.index(rank)
