"""Solutions of lesson 03. Every answer is checked by the code below it: python
lessons/solutions/03_lazy_allreduce.py
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


def calls(lazy: LazyAllreduce, pool: Pool) -> int:
    for i in range(len(pool.specs)):
        lazy.ready(i)
    lazy.finish()
    return len(lazy.calls)


def nothing(x) -> None:
    """An Allreduce of one rank."""


def a_theta_for_two_calls() -> None:
    """1. Any theta for which something is left after the first call, but not more than theta: two
    calls.

    The first call goes out at the first gradient i with S(i) > theta, S(i) being the bytes up to
    there. What is left, S(last) - S(i), must be above 0 and at most theta; then it waits for the
    flush. From half of all bytes to just below all without the last gradient that is always so;
    large tensors let smaller thetas do as well, as below.
    """
    network = AlexNet(10, 67, width=1 / 8)
    pool = Pool(network.tensors)
    sums = [4 * offset for offset in pool.offsets[1:]]
    theta = sums[-1] // 2
    first = next(i for i, total in enumerate(sums) if total > theta)
    assert 0 < sums[-1] - sums[first] <= theta
    assert calls(LazyAllreduce(pool, nothing, Theta(theta)), pool) == 2
    two = [
        t for t in range(0, sums[-1], 4) if calls(LazyAllreduce(pool, nothing, Theta(t)), pool) == 2
    ]
    print(f"of {sums[-1]:,} bytes: two calls for theta = {two[0]:,} to {two[-1]:,}")
    assert two == list(range(two[0], two[-1] + 4, 4)) and two[0] < theta <= two[-1]


def exactly_theta() -> None:
    """2. Any theta that waiting gradients hit exactly: sizes 4, 4 bytes and theta = 4. Greater
    than: 8 > 4, one call of both. Greater or equal: 4 >= 4, two calls."""
    pool = Pool([Size("a", (1,)), Size("b", (1,))])
    assert calls(LazyAllreduce(pool, nothing, Theta(4)), pool) == 1
    below = Theta(math.nextafter(4, 0))  # what "greater or equal" would do
    assert calls(LazyAllreduce(pool, nothing, below), pool) == 2


class ForgetsTheTail(LazyAllreduce):
    def finish(self) -> None:
        self._start = self._next = 0


def the_forgotten_tail() -> None:
    """3. The first step's loss is right: it was computed before any exchange. From the second on,
    each rank has taken its own gradient for the tensors that were not sent (the first layers), so
    parameters differ between ranks and every rank's loss is that of another network. It still
    falls: each rank learns from its own images. Only comparing parameters finds it."""

    def body(comm, kind):
        pool = Pool([Size("late layer", (6,)), Size("first layer", (3,))])
        w = np.zeros(9)
        lazy = kind(pool, collective(comm, direct.allreduce), Theta(20))
        losses = []
        for _ in range(4):
            losses.append(float(((w - comm.rank - 1) ** 2).sum()))
            pool.flat[:] = 2 * (w - comm.rank - 1)  # every rank pulls towards its own number
            calls(lazy, pool)
            w -= 0.1 * pool.flat.astype(float)
        return losses, w.tolist()

    right, wrong = threads.run(2, body, LazyAllreduce), threads.run(2, body, ForgetsTheTail)
    assert right[0][1] == right[1][1] and wrong[0][1] != wrong[1][1]  # parameters of both ranks
    for rank in range(2):
        assert right[rank][0][0] == wrong[rank][0][0] and right[rank][0][1] != wrong[rank][0][1]
        assert wrong[rank][1][:6] == right[rank][1][:6]  # the late layer was sent


if __name__ == "__main__":
    for exercise in (a_theta_for_two_calls, exactly_theta, the_forgotten_tail):
        exercise()
        print(exercise.__doc__.strip() + "\n")
