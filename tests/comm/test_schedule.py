"""What all schedules share: bits on any ranks, buffered messages, unknown operations.

The bits, messages and elements of the definitions: tests/oracle/test_oracle_own.py.
"""

import numpy as np
import pytest

from refgf.comm import direct, ring, schedule, tree
from refgf.comm.compose import receive, send
from refgf.comm.replay import replay
from refgf.comm.schedule import collective, execute, local
from refgf.machine import threads
from tests.support.comm_cases import WIRES, order_sensitive, same_bits, sizes_of


@pytest.mark.parametrize("dtype, wire", WIRES)
@pytest.mark.parametrize("kind", [ring, direct, tree], ids=lambda kind: kind.__name__)
def test_the_bits_of_replay_on_every_rank(on_ranks, kind, dtype, wire):
    """Of messages too long to be buffered by MPI, too. All sizes use the same scratch."""

    def body(comm):
        p, rank, allreduce = (
            comm.Get_size(),
            comm.Get_rank(),
            collective(comm, kind.allreduce, wire),
        )
        for n in sizes_of(p, 100_003):
            xs = order_sensitive(p, n, dtype, wire)
            x = xs[rank].copy()
            allreduce(x)
            with np.errstate(over="ignore", invalid="ignore"):
                wanted = replay([kind.allreduce(r, p, n) for r in range(p)], xs, wire)
            assert same_bits(x, wanted[rank]), (p, n)

    on_ranks(body, sizes=(1, 2, 3, 5))


def test_buffered_messages_are_private(on_ranks):
    """Two messages of one size are buffered before they are reduced: scratch is not shared."""

    def body(comm):
        rank, everything = comm.Get_rank(), slice(0, 3)
        if comm.Get_size() != 3:
            return
        steps = [send(everything, 0)]
        if rank == 0:
            steps = [receive(everything, r, "buffer") for r in (1, 2)]
            steps.append(local("reduce", everything))
        x = np.full(3, 10.0**rank, np.float32)
        execute(comm, steps, x)
        assert (x == (111 if rank == 0 else 10.0**rank)).all()

    on_ranks(body, sizes=(3,))


def test_an_unknown_operation_is_a_bug():
    with pytest.raises(AssertionError, match="unknown operation 'sum'"):
        threads.run(
            1, lambda comm: schedule.apply(local("sum", slice(0, 1)), np.ones(1), None, {}, None)
        )
