"""Loss scaling, finite checks, underflow and working copies against the definitions."""

import numpy as np
import pytest

from refgf.exchange.precision import LossScale, WorkingCopy
from refgf.oracle.definitions import same_bits, working_copy

AWKWARD = np.array(
    [
        0,
        -0.0,
        1,
        -1,
        65504,
        65519.99,
        65520,
        -1e9,
        6.1e-5,
        5.96e-8,
        2.98e-8,
        2.99e-8,
        1e-20,
        1 + 2**-11,
        1 + 3 * 2**-11,
    ],
    np.float32,
)  # in order: zeros, ones, float16's largest and beyond, denormals and the border of zero, ties


def test_static_scale_never_changes_but_counts():
    scale = LossScale(8.0)
    for finite in (True, False, True):
        scale.update(finite)
    assert (scale.scale, scale.skipped, scale.skipped_in_a_row) == (8.0, 1, 0)


def test_many_skipped_steps_in_a_row_are_not_a_matter_of_scale():
    scale = LossScale(2.0**10, dynamic=True, patience=12)
    for _ in range(11):
        scale.update(False)
    assert scale.scale == 1.0
    with pytest.raises(
        ValueError, match="infinite or NaN in 12 steps in a row, the last with loss scale 1.0"
    ):
        scale.update(False)


@pytest.mark.parametrize("bad", [0, -2, 3, 1000.0, float("inf"), float("nan")])
def test_a_scale_is_a_power_of_two(bad):
    with pytest.raises(ValueError, match=r"got scale = .*; wanted a power of two; next: 2.0\*\*16"):
        LossScale(bad)


@pytest.mark.parametrize("wrong", [{"interval": 0}, {"interval": float("nan")}, {"patience": -1}])
def test_bad_counts(wrong):
    """With NaN the scale was never doubled, without a word."""
    with pytest.raises(ValueError, match="got interval=.*; wanted at least 1 of each; next: "):
        LossScale(2.0**10, dynamic=True, **wrong)


def test_state_is_all_there_is():
    scale = LossScale(2.0**10, dynamic=True, interval=3)
    for finite in (True, False, True, True):
        scale.update(finite)
    other = LossScale(1.0, dynamic=True, interval=3)
    other.restore(scale.state())
    for one in (scale, other):
        one.update(True)
    assert scale.state() == other.state() and scale.scale == 2.0**10


def test_working_copy_is_rounded_where_it_was_asked_to_be():
    working = np.full_like(AWKWARD, 7)
    copy = WorkingCopy(AWKWARD, working)
    copy.refresh([slice(0, 2), slice(5, 11)])
    wanted = working_copy(AWKWARD)
    changed = np.r_[0:2, 5:11]
    assert same_bits(working[changed], wanted[changed])
    assert (np.delete(working, changed) == 7).all()
    copy.refresh()
    assert same_bits(working, wanted) and not same_bits(working, AWKWARD)


def test_working_copy_of_another_length_is_refused():
    with pytest.raises(ValueError, match="got .* for master weights"):
        WorkingCopy(np.zeros(3, np.float32), np.zeros(4, np.float32))
