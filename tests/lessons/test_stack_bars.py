"""Lesson 07's bars: what each gains over the one before, efficiencies with their range, colours."""

from math import inf
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from docs.tools import gains
from kit import virtual
from lab.scaling.points import short
from lab.stack import bars, claims, ladder
from refgf.papers.scaling.systems import stack


def row(name, step_s):
    return {"name": name, "step": timing(step_s, step_s, step_s)}


def timing(low, median, high):
    return {"low_s": low, "median_s": median, "high_s": high}


def test_gains_by_hand():
    """MPI's lazy calls are no part of the stack: nothing is gained over them."""
    rows = [row(bars.FUSED, 9.0), row(bars.NATIVE, 8.0), row(bars.RING, 6.0), row(bars.HALF, 7.0)]
    assert bars.gains_s(rows) == [None, None, 2.0, -1.0]
    assert bars.in_all(rows) == 8 / 7


def test_gains_without_mpi():
    rows = [row(bars.RING, 6.0), row(bars.HALF, 4.0)]
    assert bars.gains_s(rows) == [None, 2.0]
    assert bars.in_all(rows) == 1.5


def test_efficiency_has_the_range_of_both_times():
    (found,) = bars.efficiencies([timing(3, 4, 5)], [timing(8, 10, 12)])
    assert found == pytest.approx({"median_s": 40.0, "low_s": 25.0, "high_s": 62.5})


def test_one_colour_for_a_technique_in_lessons_07_and_08():
    assert {short(system.name) for system in stack(inf)} == set(bars.COLOURS)
    assert len(set(bars.COLOURS.values())) == len(bars.COLOURS)


def test_one_order_of_techniques_in_lessons_07_and_08():
    lesson = gains.module_of(gains.ROOT / "lessons" / "07_gradientflow.py")
    options = SimpleNamespace(network="alexnet")
    run = SimpleNamespace(options=options, mpi_allreduce=lambda: None)
    assert list(lesson.stacks(run, 1.0, None)) == [short(system.name) for system in stack(inf)]


def test_a_machine_that_slows_down_is_in_the_range_of_exchange_off(monkeypatch):
    """Steps without exchange are measured before the stacks and after them."""
    found = iter(([1.0, 1.1], [3.0, 3.1]))
    monkeypatch.setattr(virtual, "seconds_without_exchange", lambda *_: next(found))
    monkeypatch.setattr(virtual, "model", Mock())
    monkeypatch.setattr(virtual, "workload", Mock())
    monkeypatch.setattr(virtual, "idle_work", lambda *_: (0.0, 0.0))
    monkeypatch.setattr(virtual, "ready", lambda *_: ([(1.0, 10)], 1.0))
    here = ladder.measure(Mock(slowest=sorted), "alexnet", {}, None)
    assert here["alone"] == [1.0, 1.1, 3.0, 3.1]


def ladder_of(network: str, *bars_s: tuple) -> dict:
    like = "v100-56gbit" if network == "alexnet" else "mgwfbp-10gbe"
    rows = [
        row(name, step_s) | {"predicted_s": predicted_s} for name, step_s, predicted_s in bars_s
    ]
    return {"network": network, "like": like, "ranks": 4, "rows": rows}


def test_bars_of_mpi_that_save_no_latency_are_not_in_the_figure():
    own = (bars.FUSED, 20.0, 5.0), (bars.NATIVE, 9.0, 5.0)
    ring, half = (bars.RING, 10.0, 9.0), (bars.HALF, 8.0, 8.8)
    result = {"places": {"": ladder_of("alexnet", *own, ring, half)}}
    assert claims.longest(result) == 0.8
    assert claims.missed(result) == pytest.approx(1 / 0.9)  # the ring's, by 11 %


def test_no_claim_on_bars_without_a_run():
    result = {"places": {"": ladder_of("resnet50", (bars.RING, 10.0, 9.0))}}
    assert claims.longest(result) is None
    assert claims.missed({"places": {}}) is None
