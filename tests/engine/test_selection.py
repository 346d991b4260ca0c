"""The choice by size: the closed forms of predict/cost, crossovers, and the recorded choice."""

import time

import numpy as np
import pytest
from comm_cases import order_sensitive, same_bits

from refgf.comm import ring, topology
from refgf.comm.replay import replay
from refgf.comm.schedule import collective
from refgf.engine import selection as select
from refgf.engine.selection import (
    CANDIDATES,
    OWN,
    BySize,
    Fastest,
    candidates,
    crossover_bytes,
    measure,
    terms,
)
from refgf.machine import threads
from refgf.machine.link import LinkComm
from refgf.papers.scaling.collectives import halving_doubling_s, recursive_doubling_s
from refgf.papers.scaling.simulate import from_schedules
from refgf.predict.cost import Link, ring_allreduce_s

FORMS = {
    "recursive doubling": recursive_doubling_s,
    "halving-doubling": halving_doubling_s,
    "ring": ring_allreduce_s,
}


@pytest.mark.parametrize("p", range(1, 18))
@pytest.mark.parametrize("name", CANDIDATES)
def test_terms_are_the_predicted_costs(name, p):
    """n = 16 * 9 * 5 * 7 * 11 * 13 * 17 is divisible by every p up to 18."""
    n, link = 12_252_240, Link(5e-6, 0.3e-9, 0.1e-9)
    wanted = FORMS[name](p, n, 4, link)
    assert terms(name, p).seconds(4 * n, 5e-6, 0.3e-9, 0.1e-9) == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize("p", [2, 3, 5, 8])
def test_the_choice_is_the_fastest_schedule(p):
    """Judged by a clock on the schedules themselves, not by the forms that made the choice."""
    link = Link(20e-6, 0.5e-9, 0.1e-9)
    algorithm = BySize(20e-6, 0.5e-9, 4, 0.1e-9)
    for n in (0, 64, 840, 8400, 84_000, 840_000):
        clock = {
            name: from_schedules([f(r, p, n) for r in range(p)], 4, link)
            for name, f in CANDIDATES.items()
        }
        assert clock[algorithm.choose(p, n)] <= min(clock.values()) * (1 + 1e-9), (n, clock)


def test_short_middle_long():
    """8 ranks: few messages for short vectors, few bytes for long ones; the ring if p != 2**R."""
    algorithm = BySize(20e-6, 0.5e-9, 4)
    assert [algorithm.choose(8, n) for n in (1, 10_000_000)] == [
        "recursive doubling",
        "halving-doubling",
    ]
    assert [algorithm.choose(6, n) for n in (1, 10_000_000)] == ["recursive doubling", "ring"]


def test_it_sums_and_says_what_it_chose(on_ranks):
    def body(comm):
        p = comm.Get_size()
        algorithm = BySize(1e-5, 1e-9, 4)
        allreduce = collective(comm, algorithm)
        for n in (1, 100_000):
            xs = order_sensitive(p, n, "float32")
            x = xs[comm.Get_rank()].copy()
            allreduce(x)
            name = algorithm.chosen[n]
            assert same_bits(x, replay([CANDIDATES[name](r, p, n) for r in range(p)], xs)[0])
            assert algorithm.explain(p, n).startswith(
                f"{4 * n} B on {p} ranks: {name} (fastest); predicted: {name} "
            )

    on_ranks(body)


def test_overridable():
    algorithm = BySize(1e-5, 1e-9, 4, always="ring")
    assert algorithm(1, 4, 3) == ring.allreduce(1, 4, 3)
    assert "ring (as asked)" in algorithm.explain(4, 3)


@pytest.mark.parametrize(
    "arguments, told",
    [
        ({"alpha_s": -1.0}, "alpha -1.0 s"),
        ({"beta_s_per_byte": float("nan")}, "beta nan"),
        ({"itemsize": 0}, "itemsize 0"),
        ({"always": "best"}, "got algorithm 'best'; wanted one of recursive doubling"),
    ],
)
def test_nonsense_is_refused(arguments, told):
    with pytest.raises(ValueError, match=told):
        BySize(**({"alpha_s": 1e-5, "beta_s_per_byte": 1e-9, "itemsize": 4} | arguments))


def test_crossover():
    assert crossover_bytes((1.0, 3.0), (5.0, 1.0)) == 2.0
    assert crossover_bytes((1.0, 1.0), (5.0, 1.0)) == np.inf
    assert crossover_bytes((6.0, 3.0), (5.0, 1.0)) == 0.0
    assert crossover_bytes((6.0, 1.0), (5.0, 3.0)) == 0.0


def test_forgotten_extras_are_caught(monkeypatch):
    """Seeded mistake: the forms for powers of two, used for every p."""

    def powers_of_two(name, size):
        rounds = size.bit_length() - 1
        return (
            select.Terms(rounds, rounds, rounds)
            if name == "recursive doubling"
            else terms(name, size)
        )

    monkeypatch.setattr(select, "terms", powers_of_two)
    link, algorithm, n = Link(20e-6, 0.5e-9), BySize(20e-6, 0.5e-9, 4), 24_000
    clock = {
        name: from_schedules([f(r, 3, n) for r in range(3)], 4, link)
        for name, f in CANDIDATES.items()
    }
    assert clock[algorithm.choose(3, n)] > min(clock.values()) * 1.01


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
    assert Fastest(sides, fastest.points, always="a").choose(4000) == "a"


@pytest.mark.parametrize(
    "own_s, wanted", [(0.9, OWN), (1.0, OWN), (1.049, OWN), (1.051, "a"), (2.0, "a")]
)
def test_mpis_own_wins_a_tie_and_nothing_else(own_s, wanted):
    for first, second in (("a", OWN), (OWN, "a")):
        points = {name: [(100, {"a": 1.0, OWN: own_s}[name])] for name in (first, second)}
        assert Fastest(dict.fromkeys(points), points).choose(100) == wanted


@pytest.mark.parametrize(
    "points, always",
    [
        ({"a": [(4, 1.0)]}, None),
        ({"a": [(4, 1.0)], "b": []}, None),
        ({"a": [(4, 1.0)], "b": [(4, 1.0)]}, "c"),
    ],
)
def test_fastest_refuses_what_was_not_measured(points, always):
    with pytest.raises(
        ValueError, match="wanted at least one point for each of a, b; next: measure"
    ):
        Fastest({"a": None, "b": None}, points, always)


def test_measured_alike_on_all_ranks_and_summed(on_ranks):
    """All ranks hold the same points; otherwise partners could choose differently and deadlock."""

    def body(comm):
        sides = candidates(comm)
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

    assert select._calls(Comm(), lambda x: None, np.zeros(4, np.float32)) == 40
    assert select._calls(Comm(), lambda x: None, np.zeros(0, np.float32)) == 40


def test_only_the_near_ones_are_timed_again():
    rows = []

    class Comm:
        def Barrier(self):
            rows.append(1)

        def allgather(self, mine):
            return [mine]

    sides = {"slow": lambda x: time.sleep(4e-3), "fast": lambda x: None}
    points = measure(Comm(), sides, [1 << 20], rounds=[(2, 2.0), (5, 1.0)])
    assert (
        len(rows) == 2 * (2 + 2) + 5
    )  # each side two rows to count its calls and two of the first round; five of the second
    assert points["fast"][0][1] < points["slow"][0][1]


def test_a_stated_link_has_no_pipeline():
    def body(comm):
        sides = candidates(LinkComm(comm, Link(1e-5, 1e-9)))
        assert "ring" in sides and "pipelined ring" not in sides
        assert all(measure(comm, sides, [1 << 10], [(1, 1.0)]).values())

    threads.run(2, body)


def test_who_is_out_keeps_his_distance(monkeypatch):
    """If the machine slows down, an eliminated side must not win, nor may no side be left."""
    script = {"a": [1.0, 3.0, 3.0, 3.0, 3.0, 4.0], "b": [2.25]}
    monkeypatch.setattr(select, "_calls", lambda *_: 1)
    monkeypatch.setattr(select, "_row", lambda comm, side, x, calls: script[side].pop(0))
    points = measure(None, {"a": "a", "b": "b"}, [4], rounds=[(1, 2.0), (4, 1.2), (1, 1.0)])
    assert points == {"a": [(4, 3.0)], "b": [(4, 6.75)]} and not any(script.values())


@pytest.mark.parametrize(
    "nodes, two_levels",
    [
        ([[0, 1], [2, 3]], True),
        ([[0, 1, 2], [3]], False),
        ([[0], [1], [2], [3]], False),
        ([[0, 1, 2, 3]], False),
    ],
)
def test_two_levels_where_nodes_are_alike(monkeypatch, nodes, two_levels):
    monkeypatch.setattr(topology, "nodes", lambda comm: nodes)

    def body(comm):
        sides = candidates(comm)
        assert ({"two-level ring", "log phases", "doubling phases"} <= set(sides)) == two_levels
        for name, allreduce in sides.items():
            x = np.arange(9, dtype=np.float32) + comm.rank
            allreduce(x)
            assert (x == 4 * np.arange(9) + 6).all(), name

    threads.run(4, body)
