"""Lesson 04: what its table and its claims compute from times that are known."""

import math
from functools import partial
from types import SimpleNamespace

import pytest

import kit
from kit import axes, claims, record
from lab.overlap import message_progress, picture, steps
from lab.overlap.claims import CLAIMS, REVEAL
from refgf.machine import threads
from refgf.machine.timeline import Timeline

STEP_S = 10.0


def timeline(slow: int) -> Timeline:
    """Two steps, of which one ends late. Backward is from 4 to 9 of each, the first call at 5."""
    found = Timeline()
    for i, start_s in enumerate((0.0, STEP_S)):
        found.add("compute", "FORWARD", start_s, start_s + 4)
        found.add("communication", "MPI_ALLREDUCE", start_s + 5, start_s + 6)
        found.add("communication", "MPI_ALLREDUCE", start_s + 6, start_s + 9.5 + 0.4 * (i == slow))
        found.add("compute", "BACKWARD", start_s + 4, start_s + 9)
    return found


def test_the_step_nearest_to_the_median_and_what_is_left_of_its_backward():
    """Also where the last step is an outlier."""

    def one(comm, recorded):
        return steps.typical_step(SimpleNamespace(plain=comm), recorded, median_s=9.4)

    for slow, start_s in ((1, 0.0), (0, STEP_S)):
        step = threads.run(3, partial(one, recorded=timeline(slow)))[0]
        calls_s = [e.start_s for e in step.lanes["communication"]]
        assert calls_s == [start_s + 5, start_s + 6]
        assert [e.name for e in step.lanes["compute"]] == ["FORWARD", "BACKWARD"]
        assert steps.backward_left([step.lanes]) == 4.0


def test_each_step_has_a_row_that_names_its_theta():
    """And a user's theta lies between those of the curve, where the prediction reaches it."""
    thetas, predicted = (0, 1.2e8, math.inf), {"hideable_s": 5.0, "hidden_s": 4.0}
    predicted |= {"sequential": 15.0, "overlapped": 10.0}
    rows = [
        a_row(theta, 15.0, 10.4) | {"predicted": predicted | {"theta": theta}, "calls": calls}
        for theta, calls in zip(thetas, (26, 1, 1))
    ]
    curve = [predicted | {"theta": theta} for theta in (0, 2**26, math.inf)]
    result = {"steps": {"rows": rows, "curve": curve}, "regime": {"dilation": 2.0}}
    result = record.plain(result)
    names = [row.what for row in REVEAL.rows(result)]
    assert names[2] == "120,000,000 B: 1 call, no overlap" and len(set(names)) == len(names)
    _, (axis,) = axes.frame("A title", 1, 1)
    picture.shares(axis, result["steps"])
    ticks = [text.get_text() for text in axis.get_xticklabels()]
    assert ticks == ["0", "64 Mi", "114.4 Mi", "inf"]
    (line,) = [each for each in axis.lines if each.get_linestyle() == "--"]
    assert list(line.get_xdata()) == [0, 1, 2, 3]


def timing(median_s: float) -> kit.Timing:
    return kit.Timing(median_s, 0.99 * median_s, 1.01 * median_s, 3)


def a_row(theta: float, sequential_s: float, overlapped_s: float) -> dict:
    row = {
        "theta": theta,
        "calls": 1,
        "sequential": timing(sequential_s),
        "overlapped": timing(overlapped_s),
    }
    return row | steps.compared(row, ALONE, work_s=1.5, window_s=5.0)


ALONE = timing(9.0)  # the step without exchange


def test_what_can_be_hidden_and_what_is_hidden():
    """The window is shorter than the communication of 6 s, of which 1.4 s are exposed."""
    row = a_row(0, 15.0, 10.4)
    found = steps.hidden(record.plain(row))
    assert row["hideable_s"] == 5.0 and found["median_s"] == pytest.approx(4.6)
    assert found["low_s"] == pytest.approx(0.99 * 15 - 1.01 * 10.4)
    assert found["high_s"] == pytest.approx(1.01 * 15 - 0.99 * 10.4)
    assert row["own_share"]["sequential"] == pytest.approx(0.1)


@pytest.mark.parametrize("off_s, wanted", [(12.0, 3.0), (8.9, 0.0)])
def test_no_more_can_be_hidden_than_the_calls_add(off_s, wanted):
    """And nothing where noise makes the step without exchange the longer one."""
    assert a_row(0, off_s, 10.4)["hideable_s"] == pytest.approx(wanted)


def test_where_overlap_makes_a_step_longer_less_than_nothing_is_hidden():
    """The share and the two steps come from the same times, so they cannot disagree."""
    row = a_row(0, 15.0, 15.6)
    assert steps.hidden(record.plain(row))["median_s"] == pytest.approx(-0.6)
    assert steps.hidden_cells({"predicted": {"hideable_s": 5, "hidden_s": 4}} | row, ALONE, 5.0, 1)[
        1:
    ] == ["6 s", "5 s", "5 s", "-600 ms", "-12 %", "80 %"]


def test_a_message_that_progressed():
    shares = message_progress.progressed(kit.Timing(0.3, 0.0, 2.0, 3), timing(1.0))
    assert shares == {"median_s": 0.7, "low_s": 0.0, "high_s": 1.0}


def test_claims_that_a_run_has_not_measured():
    for result in ({}, {"steps": {"rows": [], "largest_error": 0.0}}, {"progress": {}}):
        found = claims.verdicts(CLAIMS, result)
        assert claims.NOT_MEASURED in {verdict.verdict for verdict in found}
    assert {v.verdict for v in claims.verdicts(CLAIMS, {})} == {claims.NOT_MEASURED}


def test_claims_about_times_that_are_known():
    rows = [a_row(0, 15.0, 10.4), a_row(math.inf, 15.0, 14.9)]
    left = {
        message_progress.THREAD: timing(1e-3),
        message_progress.NON_BLOCKING: timing(0.25),
    }
    here = {"sequential": timing(1.0), "overlapped": timing(1.2)}
    result = {"steps": {"rows": rows, "largest_error": 0.05}, "progress": {"left": left}}
    result = record.plain(result | {"here": here})
    assert [v.verdict for v in claims.verdicts(CLAIMS, result)] == [claims.HOLDS] * len(CLAIMS)
    reverse = [claims.decide(claim, result, reverse=True).verdict for claim in CLAIMS]
    assert reverse == [claims.FAILS] * len(CLAIMS)
