"""Solutions of lesson 01. The code below each answer checks it.

python lessons/solutions/01_ring_allreduce.py
"""

import numpy as np

from refgf.comm import direct, ring
from refgf.machine import threads
from refgf.comm.replay import check, replay
from refgf.comm.schedule import Step, collective, local
from refgf.comm.slices import length, slices
from refgf.machine.trace import TracedComm


def numbers(p: int, n: int) -> list[np.ndarray]:
    """A random float32 vector for each rank."""
    return [
        np.random.default_rng([p, n, r]).standard_normal(n).astype(np.float32) for r in range(p)
    ]


def reversed_allreduce(rank: int, size: int, n: int) -> list[Step]:
    """The ring of refgf/comm/ring.py reversed: every rank sends to its left neighbour."""
    cut = slices(n, size)
    left, right = (rank - 1) % size, (rank + 1) % size
    reduce = [
        Step(left, cut[(rank + k) % size], right, cut[(rank + k + 1) % size], "add")
        for k in range(size - 1)
    ]
    own = cut[(rank - 1) % size]
    gather = [
        Step(left, cut[(rank - 1 + k) % size], right, cut[(rank + k) % size], "copy")
        for k in range(size - 1)
    ]
    return [*reduce, local("finish", own), *gather]


def reverse_the_ring() -> None:
    """1. Slice s is now a left fold over ranks s, s-1, s-2, ... (mod p).

    The order is another one, so the bits change for p >= 3. For p = 2 both rings add the same two
    numbers, and a + b = b + a in floating point. The lesson's oracle stops at 3 ranks and more: the
    definition wants slice 0 as x0 + x1 + x2, added from left to right.
    """
    for p in (2, 3, 5):
        schedules = [reversed_allreduce(r, p, 1000) for r in range(p)]
        check(schedules)
        xs = numbers(p, 1000)
        backwards = replay(schedules, xs)[0]
        usual = replay([ring.allreduce(r, p, 1000) for r in range(p)], xs)[0]
        for s, range_s in enumerate(slices(1000, p)):
            fold = xs[s][range_s]
            for k in range(1, p):
                fold = fold + xs[(s - k) % p][range_s]
            assert np.array_equal(backwards[range_s], fold)
        assert np.array_equal(backwards, usual) == (p == 2)


def whole_vector(rank: int, size: int, n: int) -> list[Step]:
    """Every rank sends the whole vector on p-1 times.

    It should send the vector that it *received*. This one sends its partial sum.
    """
    everything = slice(0, n)
    return [
        Step((rank + 1) % size, everything, (rank - 1) % size, everything, "add")
        for _ in range(size - 1)
    ]


def the_whole_vector() -> None:
    """2. All three checks catch it for p >= 3: values, bytes and messages.

    For p = 2 the values are right, and so are the bytes: n elements, as with 2 slices of n/2. Only
    the number of messages catches it: 1 instead of 2.

    A version that sends on what it received has right sums for every p, up to rounding. For p >= 3
    its bits differ between ranks, because each rank adds in another order. It sends (p-1) n
    elements instead of 2n (p-1)/p: p/2 times as many.
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
        cut = slices(n, p)
        for rank, (nbytes, *_) in enumerate(got):
            wanted = 4 * (2 * n - length(cut[(rank + 1) % p]) - length(cut[(rank + 2) % p]))
            assert nbytes == 4 * (p - 1) * n and (nbytes == wanted) == (p == 2)


def when_ring_and_direct_agree() -> None:
    """3. For p = 1 and p = 2.

    With two ranks each slice is one addition, and addition commutes. With three ranks, slice 1 of
    the ring is (x1 + x2) + x0, but direct computes (x0 + x1) + x2. Float addition is not
    associative.
    """
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
    for exercise in (reverse_the_ring, the_whole_vector, when_ring_and_direct_agree):
        exercise()
        print(exercise.__doc__.strip() + "\n")
