"""Lesson 12's formulas of bytes: worked out once a density, and compared with what was counted."""

import pytest

from kit import flow
from lab.topk import picture, traffic

ELEMENTS = 20_000


@pytest.mark.parametrize(
    "percent, nodes, ranks_per_node", [(1.0, 3, 2), (10.0, 2, 1), (100.0, 4, 2)]
)
def test_csc_sends_what_its_own_formula_says(percent, nodes, ranks_per_node):
    found = traffic.leaving_a_node(ELEMENTS, nodes, ranks_per_node, percent)
    assert found["CSC"] == flow.csc_bytes(ELEMENTS, nodes * ranks_per_node, percent)


def test_the_chunks_are_listed_once_for_all_cluster_sizes(monkeypatch):
    asked = []
    monkeypatch.setattr(flow, "csc_bytes", lambda *a: asked.append(a) or 8.0)
    traffic.csc_payload_bytes.cache_clear()
    for nodes in (2, 4, 8):
        traffic.leaving_a_node(ELEMENTS, nodes, 2, 1.0)
    traffic.csc_payload_bytes.cache_clear()
    assert len(asked) == 1


def test_formulas_of_all_rows():
    nodes, shown = [[0, 1], [2, 3]], [("dense ring", 100.0), ("CSC", 1.0), ("top-k", 1.0)]
    dense, chunks, pairs = traffic.leaving_at(shown, ELEMENTS, nodes)
    assert (dense, pairs) == (2 * 3 / 4 * 4 * ELEMENTS, 3 * 8 * 200) and chunks < dense / 4


@pytest.mark.parametrize("percent", [0.1, 1.0, 30.0])
def test_pairs_over_the_dense_ring(percent):
    for p in (2, 3, 5, 7, 1000):
        pairs, dense = (p - 1) * 8 * percent / 100, 2 * (p - 1) / p * 4
        assert float(traffic.share_of_dense(p, percent)) == pytest.approx(pairs / dense)
    assert float(traffic.share_of_dense(1, percent)) == pytest.approx(percent / 100)


def test_other_bytes_than_the_formulas_are_refused():
    row = {"name": "top-k", "percent": 1.0, "between": 10, "formula": 10}
    traffic.require_bytes(row)
    traffic.require_bytes(row | {"name": "CSC", "between": 9})  # a formula that is nearly exact
    with pytest.raises(AssertionError, match="top-k at 1 %: got 9 bytes out of a node; wanted 10"):
        traffic.require_bytes(row | {"between": 9})


def timing(seconds, noise=0.1):
    return {"median_s": seconds, "low_s": seconds - noise, "high_s": seconds + noise}


def test_the_figure_says_when_a_search_or_a_hierarchy_loses():
    times = {"MSTopK": timing(1.5), "exact selection": timing(1.0)}
    assert picture.search_in_words(times) == "MSTopK takes 1.5 x as long as exact selection"
    times["MSTopK"] = timing(0.5)
    assert "takes 0.5 x" in picture.search_in_words(times)
    rows = [
        {"name": name, "percent": 1.0, "messages": timing(s)}
        for name, s in (("HiTopKComm", 3.0), ("top-k", 2.0))
    ]
    assert "At 1 % messages of HiTopKComm take 1.5 x" in picture.hitopk_in_words(rows)
    assert picture.hitopk_in_words([rows[1], rows[0] | {"messages": timing(1.0)}]) == ""
    assert picture.hitopk_in_words([rows[1], rows[0] | {"messages": timing(3.0, noise=1)}]) == ""
