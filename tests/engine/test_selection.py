"""The measured choice: it follows the points, is the same on all ranks, times what is close."""

import time

import numpy as np
import pytest

from refgf.engine import selection
from refgf.engine.selection import OWN, Fastest, candidates, measure
from refgf.machine import threads
from refgf.machine.link import LinkComm
from refgf.papers.jia.doubling import recursive_doubling
from refgf.predict.cost import Link


def test_fastest_follows_the_points():
    """a is faster below 200 bytes, b above; between points times are interpolated."""
    taken = []
    sides = {name: (lambda x, name=name: taken.append(name)) for name in "ab"}
    fastest = Fastest(sides, {"a": [(100, 1.0), (300, 3.0)], "b": [(100, 2.0), (300, 2.0)]})
    for n in (0, 25, 49, 51, 75, 1000):
        fastest(np.zeros(n, np.float32))
    assert taken == ["a", "a", "a", "b", "b", "b"]
    assert fastest.chosen == {0: "a", 100: "a", 196: "a", 204: "b", 300: "b", 4000: "b"}
    assert fastest.seconds("b", 600) == 4.0


@pytest.mark.parametrize(
    "own_s, wanted", [(0.9, OWN), (1.0, OWN), (1.049, OWN), (1.051, "a"), (2.0, "a")]
)
def test_mpis_own_wins_a_tie_and_nothing_else(own_s, wanted):
    for first, second in (("a", OWN), (OWN, "a")):
        points = {name: [(100, {"a": 1.0, OWN: own_s}[name])] for name in (first, second)}
        assert Fastest(dict.fromkeys(points), points).choose(100) == wanted


@pytest.mark.parametrize("points", [{"a": [(4, 1.0)]}, {"a": [(4, 1.0)], "b": []}])
def test_fastest_refuses_what_was_not_measured(points):
    message = "wanted at least one point for each of a, b; next: measure"
    with pytest.raises(ValueError, match=message):
        Fastest({"a": None, "b": None}, points)


def test_measured_alike_on_all_ranks_and_summed(on_ranks):
    """All ranks hold the same points; otherwise partners could choose differently and deadlock."""

    def body(comm):
        sides = candidates(comm, {"recursive doubling": recursive_doubling})
        assert {"ring", "recursive doubling"} <= set(sides)
        assert ("MPI's own" in sides) == hasattr(comm, "Allreduce")
        points = measure(comm, sides, sizes=[64, 4096], rounds=[(1, 4.0), (1, 1.0)])
        assert all(comm.allgather(points)[0] == other for other in comm.allgather(points))
        assert {name: [n for n, _ in found] for name, found in points.items()} == dict.fromkeys(
            sides, [64, 4096]
        )
        fastest = Fastest(sides, points)
        for n in (0, 1, 7, 5000):
            x = np.full(n, 2.0 ** comm.Get_rank(), np.float32)
            fastest(x)
            assert (x == 2.0 ** comm.Get_size() - 1).all()

    on_ranks(body)


def test_ranks_agree_on_the_number_of_calls():
    """By the slowest: 0.5 ms, 40 of which fit in 20 ms. Each by its own clock would deadlock."""

    class Comm:
        def Barrier(self):
            pass

        def allgather(self, mine):
            return [mine, 5e-4]

    assert selection._calls(Comm(), lambda x: None, np.zeros(4, np.float32)) == 40
    assert selection._calls(Comm(), lambda x: None, np.zeros(0, np.float32)) == 40


def test_only_the_near_ones_are_timed_again():
    rows = []

    class Comm:
        def Barrier(self):
            rows.append(1)

        def allgather(self, mine):
            return [mine]

    sides = {"slow": lambda x: time.sleep(4e-3), "fast": lambda x: None}
    points = measure(Comm(), sides, [1 << 20], rounds=[(2, 2.0), (5, 1.0)])
    # each side has two rows to count its calls and two of the first round; then five of the second
    assert len(rows) == 2 * (2 + 2) + 5
    assert points["fast"][0][1] < points["slow"][0][1]


def test_a_stated_link_has_no_pipeline():
    def body(comm):
        sides = candidates(LinkComm(comm, Link(1e-5, 1e-9)), {})
        assert "ring" in sides and "pipelined ring" not in sides
        assert all(measure(comm, sides, [1 << 10], [(1, 1.0)]).values())

    threads.run(2, body)


def test_an_eliminated_side_keeps_its_ratio(monkeypatch):
    """If the machine slows down, an eliminated side must not win, nor may no side be left."""
    script = {"a": [1.0, 3.0, 3.0, 3.0, 3.0, 4.0], "b": [2.25]}
    monkeypatch.setattr(selection, "_calls", lambda *_: 1)
    monkeypatch.setattr(selection, "_row", lambda comm, side, x, calls: script[side].pop(0))
    points = measure(None, {"a": "a", "b": "b"}, [4], rounds=[(1, 2.0), (4, 1.2), (1, 1.0)])
    assert points == {"a": [(4, 3.0)], "b": [(4, 6.75)]} and not any(script.values())
