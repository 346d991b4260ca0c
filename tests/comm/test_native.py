"""MPI's own Allreduce as an `Allreduce`; where there is none, a sentence."""

import numpy as np
import pytest

from refgf.comm.native import mpi_allreduce
from refgf.machine.trace import TracedComm
from refgf.oracle.definitions import exact_sum, summation_bound


@pytest.mark.parametrize("wire", [None, np.float16])
@pytest.mark.parametrize("n", [0, 1, 1000])
def test_sums_within_the_bound_of_any_order(on_ranks, n, wire):
    def body(comm):
        if not hasattr(comm, "Allreduce"):  # threads
            with pytest.raises(ValueError, match="got a ThreadComm; wanted a communicator of MPI"):
                mpi_allreduce(comm)
            return
        xs = [
            np.random.default_rng(r).standard_normal(n).astype(np.float32)
            for r in range(comm.Get_size())
        ]
        x = xs[comm.Get_rank()].copy()
        mpi_allreduce(TracedComm(comm), wire)(x)
        bound = summation_bound(xs, None if wire is None else "float16")
        assert (np.abs(x - exact_sum(xs)) <= bound).all()
        assert all(other.tobytes() == x.tobytes() for other in comm.allgather(x))

    on_ranks(body)
