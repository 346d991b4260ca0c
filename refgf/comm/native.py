"""MPI's own Allreduce as an `Allreduce`: the baseline of every comparison.

The order of summation is the library's; it is not part of any definition. With a wire type the
array is cast, summed in that type by the library, and cast back. Cost: the library's; with a wire
type also one copy of x in that type.
"""

import sys

import numpy as np

from refgf import ops
from refgf.comm.arguments import Comm, Wire, rank_and_size, require_flat, wire_type
from refgf.device import Allreduce, Array, Memory


def mpi_allreduce(comm: Comm, wire: Wire = None) -> Allreduce:
    """Bind MPI's Allreduce to an mpi4py communicator, or to a wrapper such as `TracedComm`."""
    rank, scratch = rank_and_size(comm, "mpi_allreduce")[0], Memory()
    wire = wire_type(wire, "mpi_allreduce", rank)
    try:
        mpi_sum = ops.exact(comm).Allreduce
    except AttributeError as error:
        raise ValueError(
            f"mpi_allreduce on rank {rank}: got a {type(comm).__name__}; wanted a communicator of "
            "MPI; next: run under mpiexec, or use ring_allreduce"
        ) from error
    in_place = sys.modules["mpi4py.MPI"].IN_PLACE

    def allreduce(x: Array) -> None:
        require_flat(x, "MPI's Allreduce", rank)
        if wire is None and isinstance(x, np.ndarray):
            mpi_sum(in_place, x)  # the rest would double the time of a short vector
            return
        buffers = ops.Buffers(x, wire or x.dtype, scratch, comm)
        with np.errstate(over="ignore", invalid="ignore"):  # too large for the wire type is inf
            buffer = buffers.outgoing(x)
            mpi_sum(in_place, buffer)
            if not buffers.in_place:
                x[...] = buffers.arrived(buffer)

    return allreduce
