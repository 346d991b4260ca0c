"""Lesson 10's idea against the definitions: the ring and three phases, bit for bit."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.oracle.definitions import ring_allreduce, same_bits, three_phase_allreduce

LESSON = gains.module_of(gains.ROOT / "lessons" / "10_hierarchical_allreduce.py")
NODES = [
    [[0]],
    [[0, 1, 2]],
    [[0, 1], [2, 3]],
    [[0, 2], [1, 3]],
    [[0, 1], [2]],
    [[0], [3, 1, 2], [6, 5, 4, 7]],
]


def vectors(p: int, n: int) -> list[np.ndarray]:
    return [np.random.default_rng([n, r]).standard_normal(n, np.float32) for r in range(p)]


@pytest.mark.parametrize("nodes", NODES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000])
def test_three_phases_have_the_bits_of_the_definition(nodes, n):
    xs = vectors(sum(map(len, nodes)), n)
    before = [x.copy() for x in xs]
    found = LESSON.hierarchical_sums(xs, nodes)
    wanted = three_phase_allreduce(xs, nodes)
    assert len(found) == len(xs) and all(map(same_bits, found, wanted))
    assert all(map(same_bits, xs, before)), "the gradients were changed"


@pytest.mark.parametrize("p", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [0, 1, 7, 1000])
def test_the_ring_has_the_bits_of_the_definition(p, n):
    xs = vectors(p, n)
    assert same_bits(LESSON.ring_sum(xs), ring_allreduce(xs)[0])
