"""Solutions of lesson 11, checked by the code: python lessons/solutions/11_large_batch.py"""

import itertools
from collections import namedtuple

import numpy as np

from refgf.comm import direct
from refgf.machine import threads
from refgf.comm.schedule import collective
from refgf.nn.alexnet import AlexNet
from refgf.papers.jia.lars import LARS, ParallelNorms, squared_norms
from refgf.training.sgd import MomentumSGD

Spec = namedtuple("Spec", "name shape decay")
N = 1200
SPECS = [Spec("one", (N // 2,), True), Spec("other", (N // 2,), True)]


def change_in_one_step(optimizer_of, g) -> np.ndarray:
    """The change of each weight in one step."""
    w = np.random.default_rng(1).standard_normal(N).astype(np.float32)
    optimizer = optimizer_of(SPECS, w.copy(), weight_decay=0.0)
    optimizer.step(g, 0.01)
    return optimizer.parameters - w


def a_larger_gradient() -> None:
    """1. SGD's step in that layer becomes 1000 times as large. LARS's step stays the same except
    for rounding, because the ratio becomes 1/1000 of what it was. A layer's LARS step has length
    rate * trust * |w| for any gradient length. LARS therefore also ignores how strongly the loss
    depends on a layer (the decay in the denominator only limits the ratio)."""
    g = np.random.default_rng(2).standard_normal(N).astype(np.float32)
    larger = g * np.where(np.arange(N) < N // 2, np.float32(1000), np.float32(1))
    sgd, sgd_larger, lars, lars_larger = (
        change_in_one_step(kind, x)[: N // 2] for kind in (MomentumSGD, LARS) for x in (g, larger)
    )
    assert np.allclose(np.linalg.norm(sgd_larger), 1000 * np.linalg.norm(sgd), rtol=1e-3)
    assert np.allclose(lars_larger, lars, atol=1e-6)


class SumsOfNorms(ParallelNorms):
    """The mistake: each rank takes the square root of its share before the allreduce."""

    def __call__(self, w, g, tensors):
        norms = np.sqrt(squared_norms(w, g, self.share(tensors)))
        self.allreduce(norms.reshape(-1))
        return norms**2


def ratio(p: int, w, g, norms) -> float:
    """The LARS ratio of one tensor, computed by p ranks."""

    def body(comm):
        optimizer = LARS([Spec("w", (w.size,), True)], w.copy(), trust=1.0, weight_decay=0.0)
        optimizer.norms = norms(collective(comm, direct.allreduce), comm.rank, p)
        return optimizer.ratios(g, [[slice(0, w.size)]])[0]

    return threads.run(p, body)[0]


def sums_of_norms() -> None:
    """2. With p equal shares each norm becomes sqrt(p) times as large: p sqrt(S/p) instead of
    sqrt(S). This holds for w and for g, so the ratio is right and a test with equal shares misses
    the mistake. Where w is spread evenly but all of g lies in one rank's slice, |w| is sqrt(p)
    times too large and |g| is right. The ratio is then wrong by up to sqrt(p), and it depends on
    p."""
    even, one_slice, p = np.ones(400, np.float32), np.zeros(400, np.float32), 4
    one_slice[:100] = 1
    assert np.isclose(ratio(p, even, even, SumsOfNorms), ratio(p, even, even, ParallelNorms))
    assert np.isclose(
        ratio(p, even, one_slice, SumsOfNorms), p**0.5 * ratio(p, even, one_slice, ParallelNorms)
    )


def busiest(sizes, p: int = 4) -> float:
    """Share of the busiest rank when each of p ranks gets equally many consecutive tensors."""
    each = len(sizes) // p
    return max(sum(sizes[rank * each : rank * each + each]) for rank in range(p)) / sum(sizes)


def the_best_order() -> None:
    """3. Any order in which fc6 shares its rank with the smallest of the eight, the first
    convolution. That rank then has 60.6 % of the work instead of 61.9 % in backward order. The
    norms are computed 1.65 times as fast, on 4 ranks or on 4000, because one layer stays on one
    rank. Equal slices of the pool are 4 times as fast on 4 ranks, in any order."""
    sizes = [spec.size for spec in AlexNet(1000, 227).tensors if spec.decay]
    best = min(busiest(order) for order in itertools.permutations(sizes))
    assert best == (max(sizes) + min(sizes)) / sum(sizes)
    assert (
        round(100 * busiest(sizes), 1) == 61.9
        and round(100 * best, 1) == 60.6
        and round(1 / best, 2) == 1.65
    )


if __name__ == "__main__":
    for exercise in (a_larger_gradient, sums_of_norms, the_best_order):
        exercise()
        print(exercise.__doc__.strip() + "\n")
