"""The border of the region where lazy allreduce gains so much.

Against the timeline's own arithmetic.
"""

import pytest

from refgf.papers.scaling.region import gain, latency_of_gain
from refgf.predict.cost import Line, Link, ring_line
from refgf.predict.timeline import eager, one_call, predict

GRADIENTS = [(0.0, nbytes) for nbytes in (4, 4000, 12, 800_000, 8, 20_000)]
CALLS, BYTES = len(GRADIENTS), sum(nbytes for _, nbytes in GRADIENTS)


@pytest.mark.parametrize("line", [Line(1e-3, 1e-9), Line(0.0, 1e-9), Line(1e-3, 0.0)])
def test_gain_is_the_timelines(line):
    times = [
        predict(GRADIENTS, groups(GRADIENTS), line, overlap=False).step_s
        for groups in (eager, one_call)
    ]
    assert gain(CALLS, BYTES, line) == pytest.approx(times[0] / times[1])


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("wanted", [1.0, 1.5, 3.0, 5.9])
def test_on_the_border_the_gain_is_the_wanted_one(wanted, size):
    alpha_s = latency_of_gain(wanted, CALLS, BYTES, size, 8e-9)
    assert gain(CALLS, BYTES, ring_line(size, Link(alpha_s, 8e-9))) == pytest.approx(wanted)


def test_no_latency_gains_more_than_the_number_of_calls():
    assert gain(CALLS, BYTES, Line(1e9, 1e-9)) < CALLS
    with pytest.raises(ValueError, match="got a gain of 6 for 6 calls"):
        latency_of_gain(6, CALLS, BYTES, 8, 8e-9)
