"""Solutions of lesson 17, checked by the code: python lessons/solutions/17_low_rank.py"""

import numpy as np

from refgf.machine import threads
from refgf.comm.direct import direct_allreduce
from refgf.papers.powersgd.low_rank import low_rank_sum


def rank_two() -> None:
    """1. Nothing, up to rounding: the columns of M Q span those of M, so P P^T M is M. Only where Q
    has no part in one of M's two directions would it be lost, and a drawn Q has. With rank 1 the
    error is what the second direction holds, and the next step sends it."""
    rng = np.random.default_rng(0)
    m = rng.standard_normal((9, 2)) @ rng.standard_normal((2, 7))
    for r, whole in ((2, True), (1, False)):
        _, _, error = low_rank_sum(m, rng.standard_normal((7, r)), lambda x: None)
        assert bool(np.abs(error).max() < 1e-12) is whole


def another_q_each() -> None:
    """2. The first step's sum is wrong, the second step's is not. In the first step P is the sum of
    each M times another Q, and not (sum of M) Q: where the sum has rank 1, its direction is missed.
    But all ranks agree on P and on the new Q, because both are sums: from then on all have the same
    Q. Only without the warm start, where each rank draws again in each step, does it stay wrong."""
    size, rng = 4, np.random.default_rng(1)
    ms = rng.standard_normal((size, 9, 7))
    low = np.outer(rng.standard_normal(9), rng.standard_normal(7))
    ms[-1] += low - ms.sum(axis=0)  # the sum has rank 1, no rank's own gradient has

    def off(same: bool, warm: bool = True) -> list[float]:
        """How far each of three sums is off."""

        def body(comm):
            drawn, off, q = np.random.default_rng(0 if same else comm.Get_rank()), [], None
            for _ in range(3):
                q = q if warm and off else drawn.standard_normal((7, 1))
                total, q, _ = low_rank_sum(ms[comm.Get_rank()], q, direct_allreduce(comm))
                off.append(np.abs(total - low).max())
            return off

        return np.max(threads.run(size, body), axis=0).tolist()

    assert max(off(same=True)) < 1e-12
    first, *later = off(same=False)
    assert first > 0.1 and max(later) < 1e-12
    assert min(off(same=False, warm=False)) > 0.1


def majorities_of_majorities() -> None:
    """3. No. Of nine votes 4 are for, in groups of three as 2 + 2 + 0: two of three groups are for,
    and all ranks together against. A sign cannot be added up on the way; a count of votes can."""
    groups = np.array([[1, 1, -1], [1, 1, -1], [-1, -1, -1]])
    assert np.sign(np.sign(groups.sum(axis=1)).sum()) == 1
    assert np.sign(groups.sum()) == -1


if __name__ == "__main__":
    for exercise in (rank_two, another_q_each, majorities_of_majorities):
        exercise()
        print(exercise.__doc__.strip() + "\n")
