"""Closed forms of top-k's messages against the schedules that send them."""

import pytest

from refgf.papers.mstopk.cost import hitopk_pairs_s, hitopk_s
from refgf.papers.mstopk.topk import keep_count
from refgf.predict.cost import Link


@pytest.mark.parametrize("m", [2, 4, 16])
def test_pairs_cost_less_than_dense_slices_below_a_density_of_50_by_m_percent(m):
    """Without latency, at 8 ranks per node."""
    n, link = 8 * 3200, Link(0.0, 1e-9)
    for percent, faster in ((49 / m, True), (51 / m, False)):
        k = keep_count(n // 8, percent)
        pairs_s, dense_s = (form(m, 8, n, k, 4, link, link) for form in (hitopk_pairs_s, hitopk_s))
        assert (pairs_s < dense_s) == faster
