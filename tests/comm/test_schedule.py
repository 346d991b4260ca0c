"""What all schedules share: buffered messages, unknown operations."""

import numpy as np
import pytest

from refgf.comm import schedule
from refgf.comm.compose import receive, send
from refgf.comm.schedule import execute, local
from refgf.machine import threads


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
