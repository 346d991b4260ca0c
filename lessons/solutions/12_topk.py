"""Solutions of lesson 12, each checked by the code below it: python lessons/solutions/12_topk.py"""

import numpy as np

from refgf.comm import gather
from refgf.machine import threads
from refgf.papers.mstopk.topk import ErrorFeedback, TopK, exact_top_k
from refgf.oracle.definitions import ring_traffic


def non_zeros(p: int, n: int, percent: float, shared: float) -> int:
    """How many elements of the sum are not 0 when the ranks' data are `shared` alike."""

    def body(comm):
        common, own = (
            np.random.default_rng(seed).standard_normal(n) for seed in (0, 1 + comm.rank)
        )
        x = (shared * common + (1 - shared) * own).astype(np.float32)
        TopK(n, percent, gather.allgather(comm))(x)
        return int(np.count_nonzero(x))

    return threads.run(p, body)[0]


def how_many_non_zeros() -> None:
    """1. At least k, when all ranks choose the same elements; at most p k, when no two do. Ranks that see other images are in
    between: the sum of 4 ranks at 1 % of independent numbers has nearly 4 %, of the same numbers 1 %. So the sum of a
    top-k is not a top-k: a second choice would be needed to keep it sparse (gTop-k does that)."""
    k, n = 1000, 100_000
    assert non_zeros(4, n, 1, shared=1.0) == k
    assert 3.9 * k < non_zeros(4, n, 1, shared=0.0) <= 4 * k
    assert k < non_zeros(4, n, 1, shared=0.9) < 2 * k


class DropsTheRest(ErrorFeedback):
    """Sends the k largest, and forgets what it has not sent."""

    def take(self, gradient, choose):
        values, indices = super().take(gradient, choose)
        self.residual[...] = 0
        return values, indices


def descend(feedback) -> np.ndarray:
    """sum of (w_i - target_i)^2 / 2 on two ranks; one of ten coordinates travels. Each rank adds its own disturbance to
    coordinate 0, opposite to the other's: it is always the largest, and sums to nothing."""
    target = np.ones(10, np.float32)

    def body(comm):
        exchange, w = TopK(10, 10, gather.allgather(comm), exact_top_k), np.zeros(10, np.float32)
        exchange.feedback = feedback(10)
        for step in range(400):
            gradient = (w - target) / 2
            gradient[0] += 3 * (-1) ** (comm.rank + step)
            exchange(gradient)
            w -= 0.05 * gradient
        return w

    return threads.run(2, body)[0]


def without_feedback() -> None:
    """2. Where one coordinate is always the largest on every rank, though the ranks' parts of it cancel: the others are never
    sent, and never move. With error feedback what waits grows until it is the largest."""
    assert np.abs(descend(ErrorFeedback)[1:] - 1).max() < 0.5
    assert (descend(DropsTheRest)[1:] == 0).all()


def more_than_dense(itemsize: int, n: int = 10**6) -> int:
    """The first number of ranks at which top-k at 1 % sends more than a dense ring of as long values."""
    return next(
        p
        for p in range(2, 1000)
        if (itemsize + 4) * (p - 1) * n // 100 > itemsize * ring_traffic(n, p, 0)[1]
    )


def when_dense_is_less() -> None:
    """3. (p-1) 8 k > 2(p-1)/p 4n with k = n/100: p > 100, so from 101 ranks. With 16-bit values a pair takes 6 bytes and the
    dense ring half: (p-1) 6 k > 2(p-1)/p 2n, p > 200/3, from 67: the indices do not shrink."""
    assert more_than_dense(4) == 101
    assert more_than_dense(2) == 67


if __name__ == "__main__":
    for exercise in (how_many_non_zeros, without_feedback, when_dense_is_less):
        exercise()
        print(exercise.__doc__.strip() + "\n")
