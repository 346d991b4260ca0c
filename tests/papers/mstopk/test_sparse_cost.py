"""Closed forms of top-k's messages against the schedules that send them."""

import numpy as np
import pytest

from refgf.comm import ring
from refgf.papers.mstopk.cost import gather_s, hitopk_pairs_s, hitopk_s
from refgf.papers.mstopk.topk import keep_count
from refgf.papers.scaling.simulate import from_schedules
from refgf.predict.cost import Link

LINK = Link(3e-5, 2e-9)


def allgather_s(p, k, itemsize, link=LINK):
    return from_schedules([ring.allgather(r, p, p * k) for r in range(p)], itemsize, link)


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("k, itemsize", [(0, 4), (1, 2), (1000, 4), (1000, 2)])
def test_gathering_is_two_allgathers(p, k, itemsize):
    wanted = allgather_s(p, k, itemsize) + allgather_s(p, k, 4)
    assert np.isclose(gather_s(p, k, itemsize, LINK), wanted, rtol=1e-12)


@pytest.mark.parametrize("m, g", [(1, 1), (1, 4), (4, 1), (4, 2), (3, 3)])
def test_hitopk_is_its_phases(m, g):
    """n that g does not divide; slow links between nodes."""
    n, k, slow = 1003, 7, Link(1e-4, 8e-9)
    phases = [
        from_schedules([make(r, g, n) for r in range(g)], 4, LINK)
        for make in (ring.reduce_scatter, ring.allgather)
    ]
    between = from_schedules([ring.allgather(r, m, m * k) for r in range(m)], 4, slow)
    assert np.isclose(hitopk_s(m, g, n, k, 4, LINK, slow), sum(phases) + 2 * between, rtol=1e-12)


@pytest.mark.parametrize("m, g", [(1, 1), (1, 4), (4, 1), (4, 2), (3, 3)])
def test_hitopk_with_pairs_is_its_phases(m, g):
    n, k, slow = 1008, 7, Link(1e-4, 8e-9)
    reduce_s = from_schedules([ring.reduce_scatter(r, g, n) for r in range(g)], 4, LINK)
    gathers_s = 2 * allgather_s(m, k, 4, slow) + 2 * allgather_s(g, m * k, 4)
    wanted = reduce_s + gathers_s
    assert np.isclose(hitopk_pairs_s(m, g, n, k, 4, LINK, slow), wanted, rtol=1e-12)


@pytest.mark.parametrize("m", [2, 4, 16])
def test_pairs_cost_less_than_dense_slices_below_a_density_of_50_by_m_percent(m):
    """Without latency, at 8 ranks per node."""
    n, link = 8 * 3200, Link(0.0, 1e-9)
    for percent, faster in ((49 / m, True), (51 / m, False)):
        k = keep_count(n // 8, percent)
        pairs_s, dense_s = (form(m, 8, n, k, 4, link, link) for form in (hitopk_pairs_s, hitopk_s))
        assert (pairs_s < dense_s) == faster
