"""MPI's own Allreduce as an `Allreduce`, to compare with and to begin with.

The order of summation is the library's; it is not part of any definition. Where a wire type is asked for the array is
cast, summed in that type (as the library does it) and cast back: one copy of x in the wire type.
"""

import sys

import numpy

from refgf.comm.schedule import Allreduce, require_flat
from refgf.device import Staging


def mpi_allreduce(comm, wire=None) -> Allreduce:
    """Bind MPI's Allreduce to an mpi4py communicator (or to one that passes the call on, such as `TracedComm`)."""
    if not hasattr(comm, "Allreduce"):
        raise ValueError(
            f"mpi_allreduce: got a {type(comm).__name__}; wanted a communicator of MPI; "
            "next: run under mpiexec, or use a schedule such as ring.allreduce"
        )
    in_place, rank, scratch = sys.modules["mpi4py.MPI"].IN_PLACE, comm.Get_rank(), {}

    def allreduce(x) -> None:
        require_flat(x, "MPI's Allreduce", rank)
        if wire is None and isinstance(x, numpy.ndarray):
            comm.Allreduce(in_place, x)  # at once: of a short vector the rest would be a good part of the time
            return
        staging = Staging(x, wire or x.dtype, scratch, comm)
        with numpy.errstate(over="ignore", invalid="ignore"):  # a number too large for the wire type travels as inf
            buffer = staging.outgoing(x)
            comm.Allreduce(in_place, buffer)
            if not staging.direct:
                x[...] = staging.arrived(buffer)

    return allreduce
