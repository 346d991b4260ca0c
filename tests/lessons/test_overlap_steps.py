"""Lesson 04: what its table and its claims compute from times that are known."""

import math

import pytest

import kit
from kit import claims, record
from lab.overlap import message_progress, steps
from lab.overlap.claims import CLAIMS
from refgf.machine.timeline import Timeline

STEP_S = 10.0


def timeline() -> Timeline:
    """Two steps. Backward lasts from 4 to 9 of each; its first call starts at 5."""
    found = Timeline()
    for start_s in (0.0, STEP_S):
        found.add("compute", "FORWARD", start_s, start_s + 4)
        found.add("communication", "MPI_ALLREDUCE", start_s + 5, start_s + 6)
        found.add("communication", "MPI_ALLREDUCE", start_s + 6, start_s + 9.5)
        found.add("compute", "BACKWARD", start_s + 4, start_s + 9)
    return found


def test_the_last_step_and_what_is_left_of_its_backward():
    last = steps.last_step(timeline())
    assert [e.start_s for e in last.lanes["communication"]] == [STEP_S + 5, STEP_S + 6]
    assert [e.name for e in last.lanes["compute"]] == ["FORWARD", "BACKWARD"]
    assert steps.backward_left([last.lanes]) == 4.0


def timing(median_s: float) -> kit.Timing:
    return kit.Timing(median_s, 0.99 * median_s, 1.01 * median_s, 3)


def a_row(theta: float, sequential_s: float, overlapped_s: float) -> dict:
    row = {
        "theta": theta,
        "calls": 1,
        "sequential": timing(sequential_s),
        "overlapped": timing(overlapped_s),
        "communication": timing(6.0),
    }
    return row | steps.compared(row, timing(9.0), work_s=1.5, window_s=5.0)


def test_what_can_be_hidden_and_what_is_hidden():
    """The window is shorter than the communication of 6 s, of which 1.4 s are exposed."""
    row = a_row(0, 15.0, 10.4)
    assert row["hideable_s"] == 5.0 and row["hidden"].median_s == pytest.approx(4.6)
    assert row["hidden"].low_s < row["hidden"].median_s < row["hidden"].high_s
    assert row["own_share"]["sequential"] == pytest.approx(0.1)


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
