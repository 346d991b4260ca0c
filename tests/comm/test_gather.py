"""The two halves of the ring: rows and slices of groups, counted costs."""

import numpy as np
import pytest

from refgf.comm import gather
from refgf.comm.slices import length, slices
from refgf.machine import threads
from refgf.machine.trace import TracedComm


def test_groups_gather_at_the_same_time(on_ranks):
    """Rows in order of the group; even and odd ranks by themselves."""

    def body(comm):
        p, r = comm.Get_size(), comm.Get_rank()
        group = [rank for rank in reversed(range(p)) if rank % 2 == r % 2]
        for k in (0, 1, 5):
            rows = gather.allgather(comm, group)(np.full(k, 10 * r, np.int32))
            assert rows.shape == (len(group), k) and rows.dtype == np.int32
            assert (rows == 10 * np.array(group)[:, None]).all()
        x = np.arange(7, dtype=np.float32) + r
        own = gather.reduce_scatter(comm, group)(x)
        assert (x[own] == np.arange(7)[own] * len(group) + sum(group)).all()
        gather.allgather_slices(comm, group)(x)
        assert (x == np.arange(7) * len(group) + sum(group)).all()

    on_ranks(body)


def test_a_group_without_this_rank_is_refused():
    def body(comm):
        with pytest.raises(ValueError, match=f"allgather on rank {comm.rank}: got the group"):
            gather.allgather(comm, [(comm.rank + 1) % 2])
        with pytest.raises(ValueError, match="different ranks"):
            gather.allgather_slices(comm, [comm.rank, comm.rank])

    threads.run(2, body)


def test_counted_costs(on_ranks):
    """p-1 messages; (p-1) k, n - |slice r+1| and n - |slice r+2| elements."""

    def body(comm):
        traced, p, r = TracedComm(comm), comm.Get_size(), comm.Get_rank()
        x, parts = np.ones(11, np.float32), slices(11, p)
        sent = 11 * (p - 1), 11 - length(parts[(r + 1) % p]), 11 - length(parts[(r + 2) % p])
        calls = gather.allgather, gather.reduce_scatter, gather.allgather_slices
        for call, elements in zip(calls, sent):
            traced.reset()
            call(traced)(x)
            assert (traced.messages, traced.bytes) == (p - 1, 4 * elements)

    on_ranks(body)
