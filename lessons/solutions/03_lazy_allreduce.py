"""Solutions of lesson 03. The code below each answer checks it.

python lessons/solutions/03_lazy_allreduce.py
"""

import math
from dataclasses import dataclass

import numpy as np

from refgf.comm import direct
from refgf.machine import threads
from refgf.comm.schedule import collective
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.exchange.pool import Pool
from refgf.nn.alexnet import AlexNet


@dataclass(frozen=True)
class Size:
    name: str
    shape: tuple[int, ...]


def number_of_calls(lazy: LazyAllreduce, pool: Pool) -> int:
    """Announce all gradients of the pool, then flush; count the calls."""
    for i in range(len(pool.specs)):
        lazy.ready(i)
    lazy.finish()
    return len(lazy.calls)


def nothing(x) -> None:
    """An Allreduce of one rank."""


def a_theta_for_two_calls() -> None:
    """1. Any theta for which the bytes after the first call are above 0 and at most theta.

    Let S(i) be the bytes up to gradient i. The first call starts at the first i with S(i) > theta.
    The rest, S(last) - S(i), then waits for the flush. Every theta from half of all bytes to just
    below all bytes without the last gradient's works. With large tensors smaller thetas work too,
    as the code shows.
    """
    network = AlexNet(10, 67, width=1 / 8)
    pool = Pool(network.tensors)
    sums = [4 * offset for offset in pool.offsets[1:]]
    theta = sums[-1] // 2
    first = next(i for i, total in enumerate(sums) if total > theta)
    assert 0 < sums[-1] - sums[first] <= theta

    def calls(theta):
        return number_of_calls(LazyAllreduce(pool, nothing, Theta(theta)), pool)

    assert calls(theta) == 2
    two = [t for t in range(0, sums[-1], 4) if calls(t) == 2]
    print(f"of {sums[-1]:,} bytes: two calls for theta = {two[0]:,} to {two[-1]:,}")
    assert two == list(range(two[0], two[-1] + 4, 4)) and two[0] < theta <= two[-1]


def exactly_theta() -> None:
    """2. Any theta that equals the bytes of waiting gradients: 4 and 4 bytes, theta = 4.

    "Greater than" makes one call of both, because 8 > 4. "Greater or equal" makes two calls,
    because 4 >= 4.
    """
    pool = Pool([Size("a", (1,)), Size("b", (1,))])
    assert number_of_calls(LazyAllreduce(pool, nothing, Theta(4)), pool) == 1
    below = Theta(math.nextafter(4, 0))  # what "greater or equal" would do
    assert number_of_calls(LazyAllreduce(pool, nothing, below), pool) == 2


class WithoutFlush(LazyAllreduce):
    """The mistake: gradients that still wait after the last `ready` are never sent."""

    def finish(self) -> None:
        self._start = self._next = 0


def the_forgotten_flush() -> None:
    """3. The losses are wrong from the second step on, and fall more slowly.

    The first loss is right because it is computed before any exchange. Each rank then applies its
    own gradient to the tensors that were not sent, those of the first layers. Parameters now differ
    between ranks, and every rank's loss is that of another network. It looks like a slow training;
    comparing parameters finds the mistake.
    """

    def body(comm, kind):
        pool = Pool([Size("late layer", (6,)), Size("first layer", (3,))])
        w = np.zeros(9)
        lazy = kind(pool, collective(comm, direct.allreduce), Theta(20))
        losses = []
        for _ in range(4):
            losses.append(float(((w - comm.rank - 1) ** 2).sum()))
            pool.flat[:] = 2 * (w - comm.rank - 1)  # every rank pulls towards its own number
            number_of_calls(lazy, pool)
            w -= 0.1 * pool.flat.astype(float)
        return losses, w.tolist()

    right, wrong = threads.run(2, body, LazyAllreduce), threads.run(2, body, WithoutFlush)
    assert right[0][1] == right[1][1] and wrong[0][1] != wrong[1][1]  # parameters of both ranks
    for rank in range(2):
        assert right[rank][0][0] == wrong[rank][0][0] and right[rank][0][1] != wrong[rank][0][1]
        assert wrong[rank][1][:6] == right[rank][1][:6]  # the late layer was sent


if __name__ == "__main__":
    for exercise in (a_theta_for_two_calls, exactly_theta, the_forgotten_flush):
        exercise()
        print(exercise.__doc__.strip() + "\n")
