"""`measure` writes a machine file that `plan` reads; on threads, whose messages take real time."""

import re

import pytest

from refgf.machine import threads
from refgf.plan import fabric, measure


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(measure, "REPEATS", 3)
    monkeypatch.setattr(measure, "SUM_ELEMENTS", 1000)


@pytest.mark.parametrize("size", [2, 3])
def test_one_node(tmp_path, size, capsys):
    path = tmp_path / "mine.json"
    threads.run(size, lambda comm: measure.write(comm, str(path)))
    found = fabric.load(str(path))
    assert found.between == found.inside and found.between.beta_s_per_byte > 0
    assert found.source.startswith("measured: refgf.predict measure, 1 node(s)")
    number = r"[\d,.e+-]+"
    link = f"{number} us, {number} Gbit/s"
    wanted = f".*mine.json: between {link}; inside {link}\nall ranks were on one node: .*\n"
    assert re.fullmatch(wanted, capsys.readouterr().out)


def test_two_nodes_and_three(monkeypatch):
    names = iter(["one", "two", "one"])
    monkeypatch.setattr(measure.platform, "node", lambda: next(names))
    found = threads.run(3, measure.measure)
    assert found[1:] == [None, None] and found[0].name in ("one and two", "two and one")
    assert set(found[0].links) >= {"between"}
    names = iter(["one", "two", "three"])
    with pytest.raises(
        ValueError, match="got 3 ranks on 3 nodes; wanted 2 or more .* at most 2 nodes"
    ):
        threads.run(3, measure.measure)


def test_each_coefficient_where_it_decides():
    """A shaped link hides latency behind credit, T = max(alpha, beta m): no line goes through."""
    seconds = {m: max(2e-4, 4e-8 * m) for m in (*measure.SMALL, *measure.LARGE)}
    found = measure.fitted({m: [0.99 * t, *[t] * 4, 1.01 * t, 9 * t] for m, t in seconds.items()})
    assert found.a_s == pytest.approx(2e-4) and found.b_s_per_byte == pytest.approx(4e-8, rel=0.01)
    assert found.b_error_s_per_byte / 4e-8 < 0.02  # one disturbed repeat says nothing


def test_one_rank_has_no_link():
    with pytest.raises(ValueError, match="measure on rank 0: got 1 ranks on 1 nodes"):
        threads.run(1, measure.measure)
