"""The pool: one buffer, a view per tensor, in order."""

from collections import namedtuple

import numpy as np

from refgf.exchange.pool import Pool

Spec = namedtuple("Spec", "name shape")


def test_views_lie_next_to_each_other_in_the_buffer():
    pool = Pool(
        [Spec("b", (3,)), Spec("w", (2, 5)), Spec("none", (0, 4)), Spec("s", ())], np.float64
    )
    assert pool.offsets == [0, 3, 13, 13, 14] and pool.flat.shape == (14,)
    pool.flat[:] = np.arange(14)
    assert pool.views[1].tolist() == [[3, 4, 5, 6, 7], [8, 9, 10, 11, 12]]
    pool.views[0][1] = -1
    assert pool.flat[1] == -1 and all(np.shares_memory(v, pool.flat) for v in pool.views if v.size)


def test_memory_may_come_from_elsewhere():
    memory = np.full(20, 7, np.float32)
    pool = Pool([Spec("b", (3,)), Spec("w", (2, 5))], zeros=lambda n, dtype: memory[:n])
    assert np.shares_memory(pool.flat, memory) and pool.flat.size == 13
    assert pool.elements(1) == slice(3, 13)


def test_layout_tells_orders_apart():
    a, b = Spec("a", (3,)), Spec("b", (3,))
    assert Pool([a, b]).layout() != Pool([b, a]).layout()
    assert Pool([a]).layout() != Pool([a], np.float64).layout()
    assert Pool([a]).layout() != Pool([Spec("a", (4,))]).layout()
