"""The form `heat` of DASO: a port of Heat's control flow passes, and each difference is named."""

from types import SimpleNamespace

import pytest

from refgf.oracle import definitions
from refgf.oracle.judge.implementations import PythonModule
from refgf.oracle.judge.verify import verify
from refgf.oracle.spec.fresh import fresh_cases
from tests.support import golden
from tests.support.heat_port import DIFFERENCES, ported

CASES = [case for case in golden.CASES if case.function.startswith("heat_")]


def test_the_port_of_heat_passes_all_cases():
    fresh = fresh_cases(6, 3, lambda case: case.function.startswith("heat_"))
    cases = [*CASES, *fresh]
    assert {case.function for case in cases} >= set(vars(ported()))
    failed = [verdict for verdict in verify(cases, PythonModule(ported())) if verdict.failure]
    assert not failed, [f"{verdict.case.name}: {verdict.failure}" for verdict in failed]


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_each_difference_from_heat_fails_and_is_named(difference):
    verdicts = verify(CASES, PythonModule(ported(difference)))
    failed = [verdict for verdict in verdicts if verdict.status == "fail"]
    named = [v for v in failed if any(DIFFERENCES[difference] in told for told in v.diagnosis)]
    assert named, [(verdict.case.name, verdict.diagnosis) for verdict in failed]


def test_the_form_paper_is_not_the_form_heat():
    """Each case fails for A1 to A12, but where nobody has waited: the forms are never confused."""
    paper = {f"heat_{name}": getattr(definitions, f"daso_{name}") for name in ("run", "merge")}
    cases = [c for c in CASES if c.function in paper and c.arguments.get("waited") != 0]
    verdicts = verify(cases, PythonModule(SimpleNamespace(**paper)))
    assert {verdict.status for verdict in verdicts} == {"fail"}


def events(phase, batches):
    """(batch of sending, batch of receipt, S) of the sums of an epoch, by the definition."""
    last = batches - 1
    for sent in range(0, last, phase[0]):
        after = range(sent + 1, batches)
        receipt = next(b for b in after if definitions.heat_receives(b, sent, batches, phase))
        yield sent, receipt, definitions.daso_wait(sent, batches, phase)


@pytest.mark.parametrize(
    "phase, batches, wanted",
    [
        ((4, 1, 1), 9, [(0, 1, 1), (4, 5, 1)]),  # as described
        ((2, 1, 1), 6, [(0, 2, 1), (2, 4, 1), (4, 5, 1)]),  # at the next sending, S = 1
        ((3, 1, 2), 8, [(0, 3, 2), (3, 6, 2), (6, 7, 1)]),
        ((8, 2, 2), 12, [(0, 2, 2), (8, 11, 2)]),  # due in batch 10, not received
        ((8, 2, 2), 11, [(0, 2, 2), (8, 9, 2)]),  # due in batch 10, received in batch 9
        ((4, 1, 5), 10, [(0, 4, 5), (4, 8, 5), (8, 9, 1)]),  # W exceeds B
    ],
)
def test_receipts_as_heat_was_seen_to_make_them(phase, batches, wanted):
    assert list(events(phase, batches)) == wanted


@pytest.mark.parametrize(
    "phase, batches, seen",
    [
        ((9, 2, 4), 16, "1111101011111011"),
        ((9, 4, 4), 17, "11111000111111111"),
        ((10, 4, 4), 17, "11111000101111001"),
    ],
)
def test_averaging_as_heat_was_seen_to_switch_it(phase, batches, seen):
    got = [str(int(definitions.heat_averaged(b, batches, phase))) for b in range(batches)]
    assert "".join(got) == seen
