"""Lines and curves. Closed forms: tests/oracle/test_oracle_own.py holds them to the definitions,

tests/papers/scaling/test_collectives.py to the schedules of refgf.comm.
"""

import pytest

from refgf.predict import cost
from refgf.predict.cost import Link
from refgf.predict.fit import Curve, bus_bandwidth

LINK = Link(alpha_s=3.0, beta_s_per_byte=0.5, gamma_s_per_byte=0.25)  # binary: sums are exact


def test_a_curve_by_hand():
    """Through (10, 1), (20, 3), (60, 4), exact in binary: constant, linear, then the last slope."""
    curve = Curve(((10, 1.0), (20, 3.0), (60, 4.0)))
    wanted = {0: 1.0, 10: 1.0, 15: 2.0, 20: 3.0, 40: 3.5, 60: 4.0, 100: 5.0}
    assert {nbytes: curve(nbytes) for nbytes in wanted} == wanted
    falling = Curve(((1, 2.0), (3, 1.0)))
    assert (falling(2), falling(9)) == (1.5, 1.0)  # never falls beyond the last point


@pytest.mark.parametrize("p", [2, 3, 5, 7])
def test_a_curve_through_a_line_is_the_line(p):
    line = cost.ring_line(p, LINK)
    sizes = [0, 1, 7, 1000, 4096]
    curve = Curve(tuple((nbytes, line(nbytes)) for nbytes in sizes))
    for nbytes in (*sizes, 3, 500, 4095, 10**6):
        # a few roundings of 2**-53 each
        assert curve(nbytes) == pytest.approx(line(nbytes), rel=1e-12)


@pytest.mark.parametrize(
    "points",
    [
        (),
        ((1, 1.0),),
        ((1, 1.0), (1, 2.0)),
        ((2, 1.0), (1, 2.0)),
        ((1, -1.0), (2, 1.0)),
        ((1, float("nan")), (2, 1.0)),
        ((1, 1.0), (2, float("inf"))),
    ],
)
def test_a_curve_refuses_nonsense(points):
    with pytest.raises(ValueError, match="wanted at least two, rising in bytes"):
        Curve(points)


def test_bus_bandwidth():
    """nccl-tests: 8 ranks, 1e9 bytes in 1 s: busbw 1.75e9. A perfect ring has its link's."""
    assert bus_bandwidth(8, 10**9, 1.0) == 1.75e9
    seconds = cost.ring_allreduce_s(8, 8000, 4, Link(0, 0.5))
    assert bus_bandwidth(8, 32000, seconds) == 2.0


@pytest.mark.parametrize(
    "values", [(-1e-6, 1e-9), (1e-6, float("nan")), (1e-6, float("inf")), (0, 0, -1)]
)
def test_link_refuses_nonsense(values):
    with pytest.raises(ValueError, match="finite number of seconds"):
        Link(*values)
