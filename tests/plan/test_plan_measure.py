"""`measure` writes a machine file that `plan` reads; on threads, whose messages take real time."""

import re
import time

import pytest

from refgf.machine import threads
from refgf.plan import fabric, measure
from refgf.predict.cost import Link


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(measure, "ROUNDS", 3)
    monkeypatch.setattr(measure, "ROUND_S", 0.0)
    monkeypatch.setattr(measure, "SUM_ELEMENTS", 1000)


@pytest.mark.parametrize("size", [2, 3])
def test_one_node(tmp_path, size, capsys):
    path = tmp_path / "mine.json"
    threads.run(size, lambda comm: measure.write(comm, str(path)))
    found = fabric.load(str(path))
    assert found.between == found.inside and found.between.beta_s_per_byte > 0
    assert found.source.startswith("measured: refgf.predict measure, 1 node(s)")
    number = r"[\d,.]+ \+- [\d,.]+"
    link = f"{number} us, {number} Gbit/s"
    wanted = f".*mine.json: between {link}; inside {link}\nall ranks were on one node: .*\n"
    wanted += r"(WARNING: between, (latency|rate): .*\n)*"
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
    disturbed = {m: [0.99 * t, *[t] * 4, 1.01 * t, 9 * t] for m, t in seconds.items()}
    found = measure.fitted([disturbed] * 4)
    assert found.a_s == pytest.approx(2e-4) and found.b_s_per_byte == pytest.approx(4e-8, rel=0.01)
    assert found.b_error_s_per_byte / 4e-8 < 0.02  # one disturbed repeat says nothing


def test_errors_are_those_from_round_to_round():
    """Repeats of a moment agree; a later round may not, and another run will say as it."""
    sizes = (*measure.SMALL, *measure.LARGE)
    rounds = [{m: [k * (2e-6 + 1e-10 * m)] * 3 for m in sizes} for k in (1, 2, 3)]
    found = measure.fitted(rounds)
    assert found.a_s == pytest.approx(4e-6, rel=0.05)
    assert found.b_s_per_byte == pytest.approx(2e-10, rel=0.05)
    assert found.a_error_s == pytest.approx(4e-6 / 1.35, rel=0.05)
    assert found.b_error_s_per_byte == pytest.approx(2e-10 / 1.35, rel=0.05)


def test_rounds_alternate_their_sizes(monkeypatch):
    asked = []
    monkeypatch.setattr(measure, "exchanges_s", lambda comm, other, size, _: asked.append(size))
    monkeypatch.setattr(measure, "longest_s", lambda comm, other, begin_s: 0.0)
    measure.rounds_s(None, 1)
    each = len(asked) // 3
    assert asked[:each] == asked[each : 2 * each][::-1] == asked[2 * each :] == sorted(asked[:each])


@pytest.mark.parametrize("limit_s, rounds", [(-1.0, 3), (1e9, 5)])
def test_a_slow_link_ends_the_rounds(monkeypatch, limit_s, rounds):
    monkeypatch.setattr(measure, "ROUNDS", 5)
    monkeypatch.setattr(measure, "LIMIT_S", limit_s)
    monkeypatch.setattr(measure, "exchanges_s", lambda *_: [1.0])
    found = threads.run(2, lambda comm: measure.rounds_s(comm, 1 - comm.Get_rank()))
    assert [len(each) for each in found] == [rounds, rounds]


def test_both_ranks_agree_on_the_time_of_the_slower_one():
    def longest_s(comm):
        rank = comm.Get_rank()
        return measure.longest_s(comm, 1 - rank, time.perf_counter() - 5 * rank)

    one, other = threads.run(2, longest_s)
    assert one == other and 5 <= one < 60


@pytest.mark.parametrize(
    "value, error, said",
    [(7.1755, 0.42, "7.2 +- 0.4"), (119.2, 31.0, "120 +- 30"), (0.9123, 0.0031, "0.912 +- 0.003")],
)
def test_as_many_digits_as_the_error_lets(value, error, said):
    assert measure.with_error(value, error) == said


def test_an_error_above_a_third_of_the_value_is_warned_of():
    link = Link(6e-6, 5e-10)
    assert measure.warnings("between", link, (2e-6, 1e-10)) == []
    (said,) = measure.warnings("between", link, (1e-6, 9.9e-10))
    assert said.startswith("WARNING: between, rate: its error is 198 % of it; next: ")


def test_one_rank_has_no_link():
    with pytest.raises(ValueError, match="measure on rank 0: got 1 ranks on 1 nodes"):
        threads.run(1, measure.measure)
