"""Solutions of lesson 01. Every answer is checked by the code below it: python
lessons/solutions/01_ring_allreduce.py
"""

import numpy as np

from refgf.comm import direct, ring
from refgf.machine import threads
from refgf.comm.replay import check, replay
from refgf.comm.schedule import Step, collective, local
from refgf.comm.slices import length, slices
from refgf.machine.trace import TracedComm


def numbers(p: int, n: int) -> list[np.ndarray]:
    return [
        np.random.default_rng([p, n, r]).standard_normal(n).astype(np.float32) for r in range(p)
    ]


def turned_allreduce(rank: int, size: int, n: int) -> list[Step]:
    """The ring of refgf/comm/ring.py in a mirror: every rank sends to its left."""
    parts = slices(n, size)
    left, right = (rank - 1) % size, (rank + 1) % size
    reduce = [
        Step(left, parts[(rank + k) % size], right, parts[(rank + k + 1) % size], "add")
        for k in range(size - 1)
    ]
    own = parts[(rank - 1) % size]
    gather = [
        Step(left, parts[(rank - 1 + k) % size], right, parts[(rank + k) % size], "copy")
        for k in range(size - 1)
    ]
    return [*reduce, local("finish", own), *gather]


def the_other_way_round() -> None:
    """1. Slice s is now a left fold over ranks s, s-1, s-2, ... (mod p): another order, so the bits
    change from p = 3 on.

    For p = 2 both rings add the same two numbers, and a + b = b + a in floating point.
    """
    for p in (2, 3, 5):
        schedules = [turned_allreduce(r, p, 1000) for r in range(p)]
        check(schedules)
        xs = numbers(p, 1000)
        turned, usual = (
            replay(schedules, xs)[0],
            replay([ring.allreduce(r, p, 1000) for r in range(p)], xs)[0],
        )
        for s, part in enumerate(slices(1000, p)):
            fold = xs[s][part]
            for k in range(1, p):
                fold = fold + xs[(s - k) % p][part]
            assert np.array_equal(turned[part], fold)
        assert np.array_equal(turned, usual) == (p == 2)


def whole_vector(rank: int, size: int, n: int) -> list[Step]:
    """Everybody passes the whole vector on p-1 times. It must send what it *received*, not its sum;
    this one sends its sum.
    """
    everything = slice(0, n)
    return [
        Step((rank + 1) % size, everything, (rank - 1) % size, everything, "add")
        for _ in range(size - 1)
    ]


def the_whole_vector() -> None:
    """2. From p = 3 on both. With two ranks the values are right, and even the bytes: n elements,
    as 2 slices of n/2. There the number of messages tells, 1 instead of 2.

    A version that passes on what it received, not its sum, has right sums for every p, up to
    rounding; its bits differ between ranks from p = 3 on, as each adds in another order, and it
    sends (p-1) n elements instead of 2n (p-1)/p: p/2 times as many.
    """

    def body(comm, p, n):
        traced, x = TracedComm(comm), np.full(n, 1.0, np.float32)
        collective(traced, whole_vector)(x)
        return traced.bytes, bool((x == p).all()), traced.messages

    for p in (2, 3, 4):
        n = 12
        got = threads.run(p, body, p, n)
        assert all(right == (p == 2) for _, right, _ in got)
        assert all(messages == p - 1 for *_, messages in got)  # the ring: 2(p-1)
        parts = slices(n, p)
        for rank, (nbytes, *_) in enumerate(got):
            wanted = 4 * (2 * n - length(parts[(rank + 1) % p]) - length(parts[(rank + 2) % p]))
            assert nbytes == 4 * (p - 1) * n and (nbytes == wanted) == (p == 2)


def when_ring_and_direct_agree() -> None:
    """3. For p = 1 and p = 2. With two ranks each slice is one addition, and addition commutes.
    With three, slice 1 of the ring is (x1 + x2) + x0, where direct has (x0 + x1) + x2: float
    addition is not associative."""
    for p in (1, 2, 3, 4, 7):
        xs = numbers(p, 1000)
        rings, directs = (
            replay([a(r, p, 1000) for r in range(p)], xs)[0]
            for a in (ring.allreduce, direct.allreduce)
        )
        assert np.array_equal(rings, directs) == (p <= 2)
    x0, x1, x2 = np.float32(2**24), np.float32(1), np.float32(-(2**24))
    assert (x0 + x1) + x2 == 0 and (x1 + x2) + x0 == 1


if __name__ == "__main__":
    for exercise in (the_other_way_round, the_whole_vector, when_ring_and_direct_agree):
        exercise()
        print(exercise.__doc__.strip() + "\n")
