"""The step's recurrence: its limits, and a dumber simulation in small ticks.

Cases by hand: tests/oracle/test_oracle_times.py, for the definitions that it is held to.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refgf.predict.cost import Line
from refgf.predict.fit import kept_share
from refgf.predict.timeline import eager, lazy, predict
from tests.support.groups_of import groups_of

GRADIENTS = [(1.0, 10), (3.0, 20), (4.0, 5)]


sizes = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 1000)), min_size=1, max_size=12)


def from_steps(steps):
    """[(duration, bytes)] -> gradients with rising ready times.

    Small integers, so that sums are exact.
    """
    return [
        (float(sum(d for d, _ in steps[: i + 1])), nbytes) for i, (_, nbytes) in enumerate(steps)
    ]


def test_eager_by_hand():
    """T(bytes) = 1 + bytes / 10: calls of 2, 3 and 1.5 s. The third waits for the second."""
    got = predict(GRADIENTS, eager(GRADIENTS), Line(1, 0.1))
    assert [(call.start_s, call.end_s) for call in got.calls] == [(1, 3), (3, 6), (6, 7.5)]
    assert (got.compute_s, got.step_s, got.exposed_s, got.communication_s) == (4, 7.5, 3.5, 6.5)


def test_a_group_without_bytes_is_no_call():
    """Empty tensors at 0, 1.5 and 9 of a step whose others are ready at 1 and 2; T = 3 + bytes."""
    gradients = [(0.0, 0), (1.0, 4), (1.5, 0), (2.0, 5), (9.0, 0)]
    for groups in (eager(gradients), groups_of([1, 1, 1, 2]), lazy(gradients, 0)):
        got = predict(gradients, groups, Line(3, 1))
        assert [(call.start_s, call.end_s, call.bytes) for call in got.calls][:1] == [(1, 8, 4)]
        assert len(got.calls) == 2
    assert predict(gradients, eager(gradients), Line(3, 1)).step_s == 16
    assert predict(gradients, lazy(gradients, 0), Line(3, 1)).step_s == 16
    assert predict([(4.0, 0)], [range(1)], Line(3, 1), overlap=False).step_s == 4


@given(sizes, st.integers(0, 3000), st.integers(0, 40), st.integers(0, 3), st.booleans())
def test_against_a_clock_of_ticks(steps, theta, a, b, overlap):
    """One tick at a time.

    Computing unless a call blocks it, communicating when something is queued.
    """
    gradients = from_steps(steps)
    groups = lazy(gradients, theta)
    last = {group[-1]: sum(gradients[i][1] for i in group) for group in groups}
    tick = computed = busy = done = 0
    queue = []
    while done < len(gradients) or queue or busy:
        if not busy and queue:
            busy = a + b * queue.pop(0)
        if busy:
            busy -= 1
            computing = overlap
        else:
            computing = True
        if computing and done < len(gradients):
            computed += 1
            while done < len(gradients) and computed >= gradients[done][0]:
                if done in last and a + b * last[done]:
                    queue.append(last[done])
                done += 1
        tick += 1
        if tick > 60_000:
            return  # too long to tick through
    assert predict(gradients, groups, Line(a, b), overlap).step_s == tick


@pytest.mark.parametrize("theta", [-1, float("nan")])
def test_bad_theta(theta):
    with pytest.raises(ValueError, match="threshold_bytes"):
        lazy(GRADIENTS, theta)


def test_gradients_out_of_order():
    with pytest.raises(ValueError, match="order of generation"):
        predict([(2.0, 1), (1.0, 1)], eager([1, 2]), Line(1, 1))


def test_overlap_out_of_range():
    with pytest.raises(ValueError, match="overlap 1.5"):
        predict(GRADIENTS, eager(GRADIENTS), Line(1, 1), overlap=1.5)


def test_no_gradients():
    assert predict([], [], Line(1, 1)).step_s == 0


@given(st.integers(1, 40), st.integers(0, 40), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]))
def test_the_kept_share_comes_back_from_the_times_it_makes(call_s, more_s, share):
    """One gradient that is ready at once, and a computation at least as long as its call."""
    compute_s = call_s + more_s
    both_s = predict([(0.0, 1)], [range(1)], Line(call_s, 0), share, compute_s).step_s
    assert kept_share(compute_s, call_s, both_s) == share


def test_kept_share_by_hand():
    assert kept_share(10.0, 4.0, 10.0) == 1  # nobody noticed
    # one after the other: one core, and the call is all its work
    assert kept_share(10.0, 4.0, 14.0) == 0
    assert kept_share(10.0, 4.0, 11.0) == 0.75
    assert kept_share(10.0, 4.0, 15.0) == 0 and kept_share(10.0, 4.0, 9.0) == 1  # noise


@pytest.mark.parametrize("times", [(3.0, 4.0, 5.0), (3.0, 0.0, 3.0), (3.0, -1.0, 3.0)])
def test_a_computation_too_short_to_tell(times):
    with pytest.raises(ValueError, match="at least as long"):
        kept_share(*times)
