"""The ring: costs that are counted as it runs, schedules that never block, and memory."""

import numpy as np
import pytest

from refgf.comm import ring
from refgf.comm.replay import check
from refgf.comm.schedule import execute
from refgf.comm.slices import length, slices
from refgf.machine import threads
from tests.support.comm_cases import (
    assert_counted_costs,
)


@pytest.mark.parametrize("wire", [None, "float16"])
def test_counted_costs(on_ranks, wire):
    """2(p-1) messages, 2n - |slice r+1| - |slice r+2| elements, all to the next rank."""

    def cost(r, p, n):
        parts = slices(n, p)
        sent = 2 * n - length(parts[(r + 1) % p]) - length(parts[(r + 2) % p]) if p > 1 else 0
        return 2 * (p - 1), sent

    def body(comm):
        traced, p = assert_counted_costs(comm, ring.allreduce, cost, wire), comm.Get_size()
        assert list(traced.peers) == ([(comm.Get_rank() + 1) % p] if p > 1 else [])

    on_ranks(body, sizes=range(1, 10))


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("n", [0, 1, 7, 100])
@pytest.mark.parametrize("algorithm", [ring.allreduce, ring.reduce_scatter, ring.allgather])
def test_schedules_never_block(algorithm, n, p):
    check([algorithm(r, p, n) for r in range(p)])


def test_scratch_is_one_slice():
    n, p = 100_000, 4

    def body(comm):
        scratch = {}
        execute(comm, ring.allreduce(comm.rank, p, n), np.ones(n, np.float32), scratch=scratch)
        return sum(buffer.size for buffer in scratch.values())

    assert max(threads.run(p, body)) <= -(-n // p)
