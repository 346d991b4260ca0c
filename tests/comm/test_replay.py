"""`check` and `replay` refuse what would deadlock under MPI, and name the ranks that wait."""

import numpy as np
import pytest

from refgf.comm import ring
from refgf.comm.compose import receive, send
from refgf.comm.replay import check, replay


def blocked(size, n):
    """Every rank sends before it receives."""
    whole = slice(0, n)
    return [
        [send(whole, (r + 1) % size), receive(whole, (r - 1) % size, "copy")] for r in range(size)
    ]


def test_blocked_sends():
    message = "rank 0 at step 0 waits to send to 1; rank 1 at step 0 waits to send to 2"
    with pytest.raises(ValueError, match=message):
        check(blocked(3, 5))
    with pytest.raises(ValueError, match=message):
        replay(blocked(3, 5), [np.ones(5)] * 3)


def test_a_wrong_length():
    schedules = [ring.allreduce(r, 3, 7 if r else 8) for r in range(3)]
    with pytest.raises(ValueError, match="rank 2 of 3: got 2 elements to send to rank 0; wanted 3"):
        check(schedules)


@pytest.mark.parametrize("position", [0, -1])
def test_a_missing_step(position):
    schedules = [ring.allreduce(r, 3, 7) for r in range(3)]
    del schedules[1][position]
    with pytest.raises(ValueError, match="deadlock|elements"):
        check(schedules)


def test_a_partner_that_does_not_exist():
    with pytest.raises(ValueError, match="rank 0 at step 0 waits to send to 2"):
        check([[send(slice(0, 1), 2)], []])


def test_an_odd_rank_that_receives_first_frees_the_others():
    schedules = blocked(3, 5)
    schedules[1].reverse()
    check(schedules)
    xs = replay(schedules, [np.full(5, r, np.float32) for r in range(3)])
    assert [x.tolist() for x in xs] == [[2] * 5, [0] * 5, [0] * 5]


def test_a_message_is_what_was_sent_not_what_came_later():
    """Both ranks overwrite the slice that they send: each receives the partner's old elements."""
    swap = [[ring.Step(1 - r, slice(0, 2), 1 - r, slice(0, 2), "copy")] for r in range(2)]
    xs = replay(swap, [np.zeros(2), np.ones(2)])
    assert xs[0].tolist() == [1, 1] and xs[1].tolist() == [0, 0]
