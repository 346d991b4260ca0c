"""Solutions of lesson 12, checked by the code: python lessons/solutions/12_topk.py"""

import numpy as np

from refgf.comm import gather
from refgf.machine import threads
from refgf.papers.mstopk.topk import ErrorFeedback, TopK, exact_top_k
from refgf.oracle.definitions import ring_traffic


def non_zeros(p: int, n: int, percent: float, shared: float) -> int:
    """Count the non-zeros of the sum. shared: weight of the data that all ranks have in common."""

    def body(comm):
        common, own = (
            np.random.default_rng(seed).standard_normal(n) for seed in (0, 1 + comm.rank)
        )
        x = (shared * common + (1 - shared) * own).astype(np.float32)
        TopK(n, percent, gather.allgather(comm))(x)
        return int(np.count_nonzero(x))

    return threads.run(p, body)[0]


def how_many_non_zeros() -> None:
    """1. At least k, when all ranks choose the same elements. At most p k, when no two ranks choose
    the same one. Ranks with different images lie in between. At 1 % on 4 ranks, the sum of
    independent numbers has nearly 4 % non-zeros and the sum of equal numbers 1 %. A sum of top-k
    vectors is not a top-k vector: only a second choice keeps it sparse (gTop-k does that)."""
    k, n = 1000, 100_000
    assert non_zeros(4, n, 1, shared=1.0) == k
    assert 3.9 * k < non_zeros(4, n, 1, shared=0.0) <= 4 * k
    assert k < non_zeros(4, n, 1, shared=0.9) < 2 * k


class DropsTheRest(ErrorFeedback):
    """Sends the k largest and drops everything else."""

    def take(self, gradient, choose):
        values, indices = super().take(gradient, choose)
        self.residual[...] = 0
        return values, indices


def descend(feedback) -> np.ndarray:
    """Minimise the sum of (w_i - target_i)^2 / 2 on two ranks that send one of ten coordinates.

    Each rank adds a disturbance to coordinate 0, opposite to the other rank's. It is always the
    largest element, and the two sum to zero.
    """
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
    """2. A problem where one coordinate is always the largest on every rank, although the ranks'
    contributions to it cancel. The others are never sent and never change. With error feedback
    their residual grows until it is the largest."""
    assert np.abs(descend(ErrorFeedback)[1:] - 1).max() < 0.5
    assert (descend(DropsTheRest)[1:] == 0).all()


def more_than_dense(itemsize: int, n: int = 10**6) -> int:
    """The first number of ranks at which top-k at 1 % sends more than a dense ring of this type."""
    return next(
        p
        for p in range(2, 1000)
        if (itemsize + 4) * (p - 1) * n // 100 > itemsize * ring_traffic(n, p, 0)[1]
    )


def when_dense_is_less() -> None:
    """3. (p-1) 8 k > 2(p-1)/p 4n with k = n/100 gives p > 100, so from 101 ranks. With 16-bit
    values a pair takes 6 bytes and the dense ring sends half as many. (p-1) 6 k > 2(p-1)/p 2n gives
    p > 200/3, so from 67 ranks: the indices do not shrink."""
    assert more_than_dense(4) == 101
    assert more_than_dense(2) == 67


if __name__ == "__main__":
    for exercise in (how_many_non_zeros, without_feedback, when_dense_is_less):
        exercise()
        print(exercise.__doc__.strip() + "\n")
