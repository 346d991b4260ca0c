"""Lesson 01's idea: the ring in one process has the definition's bits, and the core's."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.comm import ring
from refgf.comm.replay import replay
from refgf.oracle.definitions import ring_allreduce, same_bits

LESSON = gains.module_of(gains.ROOT / "lessons" / "01_ring_allreduce.py")


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("n", [0, 1, 2, 4, 7, 1000])
def test_the_ring_has_the_bits_of_the_definition(n, p):
    xs = [np.random.default_rng([n, r]).standard_normal(n).astype(np.float32) for r in range(p)]
    before = [x.copy() for x in xs]
    found = LESSON.ring_sums(xs)
    core = replay([ring.allreduce(rank, p, n) for rank in range(p)], xs)
    assert len(found) == p
    for got, wanted, of_core in zip(found, ring_allreduce(xs), core):
        assert same_bits(got, wanted) and same_bits(got, of_core)
    assert all(same_bits(x, old) for x, old in zip(xs, before))  # the inputs stay as they are
