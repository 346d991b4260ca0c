"""Lesson 06's check refuses wrong lists of chunks, also where all bits follow from them."""

import pytest

from lab.csc import oracle
from refgf.oracle import definitions

FORM, STEPS = "dgc", 5


def outcome(choose):
    """(gradients, lists, (weights, residual)) of rank 0, where `choose` makes each step's list."""
    gs = oracle.gradients(2, STEPS)
    wire = {"wire": "float16", "order": "ring", "theta_bytes": oracle.THETA_BYTES}
    numbers = oracle.RATE, oracle.MOMENTUM, oracle.DECAY
    settings = definitions.CSCRunSettings(oracle.SIZES, oracle.CHUNK, FORM, *numbers, **wire)
    percents = [definitions.percent_of_step(t, 1, (), oracle.PERCENT) for t in range(STEPS + 1)]
    lists, run = [None], None
    for t in range(1, STEPS + 1):
        given = gs[:t], settings, percents[: t + 1], lists
        run = definitions.csc_run(oracle.random_vector(9), *given)
        lists.append(choose(run[-1]["importance"], oracle.PERCENT))
    return gs, lists[:-1], ([report["w"][0] for report in run], run[-1]["kept"][0])


WRONG = {
    "the least": lambda norms, percent: definitions.choose(-norms, percent),
    "one too few": lambda norms, percent: definitions.choose(norms, percent)[1:],
    "dense": lambda norms, percent: None,
}


def test_the_defined_lists_are_right():
    oracle.require(0, FORM, *outcome(definitions.choose))


@pytest.mark.parametrize("name", WRONG)
def test_other_lists_are_refused(name):
    with pytest.raises(AssertionError, match="step 1: got chunks .*; wanted"):
        oracle.require(0, FORM, *outcome(WRONG[name]))
