"""Sums of device arrays over ranks: the defined bits, or within the bound of any order."""

import numpy as np
import pytest

from refgf import device
from refgf.comm import direct, ring
from refgf.comm.native import mpi_allreduce
from refgf.comm.schedule import collective
from refgf.exchange import overlap
from refgf.oracle.definitions import (
    direct_allreduce,
    exact_sum,
    ring_allreduce,
    same_bits,
    summation_bound,
)
from refgf.papers.daso.bfloat16 import ring_on_ranks

WIRES = pytest.mark.parametrize("wire", [None, "float16"])


def own_and_all(comm, cupy, n):
    """This rank's device array, and the arrays of all ranks on the host."""
    device.select(comm.Get_rank())
    xs = [
        np.random.default_rng([n, r]).standard_normal(n).astype(np.float32)
        for r in range(comm.Get_size())
    ]
    return cupy.asarray(xs[comm.Get_rank()]), xs


@WIRES
@pytest.mark.parametrize(
    "algorithm, definition",
    [(ring.allreduce, ring_allreduce), (direct.allreduce, direct_allreduce)],
)
def test_allreduce_has_the_defined_bits(cupy, on_ranks, algorithm, definition, wire):
    def body(comm):
        for n in (0, 1, 7, 100_003):
            x, xs = own_and_all(comm, cupy, n)
            collective(comm, algorithm, wire)(x)
            assert same_bits(device.to_host(x), definition(xs, wire)[comm.Get_rank()])

    on_ranks(body)


def test_bfloat16_on_the_wire_has_the_bits_of_the_cpu(cupy, on_ranks):
    def body(comm):
        allreduce = ring_on_ranks(comm, range(comm.Get_size()), "bfloat16")
        for n in (0, 1, 7, 100_003):
            x, xs = own_and_all(comm, cupy, n)
            wanted = xs[comm.Get_rank()]
            allreduce(wanted)
            allreduce(x)
            assert same_bits(device.to_host(x), wanted)

    on_ranks(body)


@WIRES
def test_mpi_sums_within_the_bound_of_any_order(cupy, on_ranks, request, wire):
    if not request.config.getoption("--with-mpi"):
        next_step = "mpiexec -n 4 python -m mpi4py -m pytest --with-mpi"
        pytest.skip(f"MPI's own Allreduce wants ranks of MPI; next: {next_step}")

    def body(comm):
        allreduce = mpi_allreduce(comm, wire)
        for n in (0, 1, 100_003):
            x, xs = own_and_all(comm, cupy, n)
            exact, bound = exact_sum(xs), summation_bound(xs, wire)
            for turn in range(2):  # the second one meets the buffers of the first
                x[...] = cupy.asarray(xs[comm.Get_rank()])
                allreduce(x)
                error = np.abs(device.to_host(x) - exact)
                assert (error <= bound).all(), (n, turn)
            assert len(set(comm.allgather(device.to_host(x).tobytes()))) == 1

    on_ranks(body)


@pytest.mark.parametrize(
    "waits", [True, False], ids=["as it is", "seeded: the thread does not wait for the event"]
)
def test_the_communication_thread_sums_what_was_computed(cupy, spin, on_ranks, monkeypatch, waits):
    """An array is announced while its computation waits behind a kernel of seconds."""
    if not waits:
        if hasattr(cupy, "waits"):
            pytest.skip("the stand-in computes at once, so nothing is there to wait for")
        # an event that is never recorded is done at once
        monkeypatch.setattr(overlap, "mark", lambda x: cupy.cuda.Event())

    def body(comm):
        own, xs = own_and_all(comm, cupy, 10_007)
        x, stream = cupy.zeros_like(own), cupy.cuda.get_current_stream()
        thread, allreduce = overlap.CommunicationThread(), collective(comm.Dup(), ring.allreduce)
        # the first time compiles kernels and fills memory pools, which waits for the device
        for cycles in (1, 4e9):
            x[...] = 0
            stream.synchronize()
            comm.Barrier()
            spin(cycles)
            x[...] = own
            thread.run(allreduce, x)
            announced_early = not stream.done
            comm.Barrier()  # ranks that are threads share the stream
            thread.wait()
        thread.close()
        assert announced_early
        assert same_bits(device.to_host(x), ring_allreduce(xs)[comm.Get_rank()]) == waits

    on_ranks(body, sizes=(2, 3))
