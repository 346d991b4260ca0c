"""The end of a step, and the observer that records nothing."""

import dataclasses

import pytest

from refgf.exchange.result import UNOBSERVED, Closed, StepResult


def test_a_result_is_accepted_and_whole_unless_it_says_otherwise():
    assert StepResult() == StepResult(accepted=True, sent=None, waited=None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        StepResult().accepted = False


def test_nothing_is_observed():
    called = []
    with UNOBSERVED.span("compute", "FORWARD"):
        UNOBSERVED.watched(called.append, itemsize=2)(7)
    assert called == [7]


@pytest.mark.parametrize("use", [lambda closed: closed(1), lambda closed: closed[0], list])
def test_what_is_closed_refuses_every_use(use):
    with pytest.raises(ValueError, match="flow: got a call after close"):
        use(Closed("flow"))
