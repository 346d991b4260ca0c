"""The exposed-time meter: its arithmetic, and that overlap that does not help gets no credit."""

import pytest

from refgf.machine.meter import ExposedTime


def values(meter):
    return meter.exposed_s, meter.hidden_s, meter.hideable_s, meter.hidden_share


def test_everything_hidden():
    meter = ExposedTime(
        compute_s=1.0, communication_s=0.5, together_s=1.0, sequential_s=1.5, window_s=0.7
    )
    assert values(meter) == (0, 0.5, 0.5, 1)


def test_only_the_time_after_the_first_gradient_can_hide_communication():
    meter = ExposedTime(
        compute_s=1.0, communication_s=2.0, together_s=2.5, sequential_s=3.0, window_s=0.5
    )
    assert values(meter) == (1.5, 0.5, 0.5, 1)


def test_half_hidden_and_slower_compute():
    meter = ExposedTime(
        compute_s=1.0,
        communication_s=0.5,
        together_s=1.25,
        sequential_s=1.5,
        waited_s=0.05,
        window_s=0.6,
    )
    assert meter.hidden_share == pytest.approx(0.5) and meter.slowdown == pytest.approx(1.2)
    assert "hidden 50 % of the 0.5 s" in str(meter) and "compute 1.20 x as long" in str(meter)


def test_a_spinning_thread_does_not_count_as_hiding():
    """Nothing is waited for, but the thread slowed the computation: the step is not shorter."""
    meter = ExposedTime(
        compute_s=1.0, communication_s=0.5, together_s=1.6, sequential_s=1.5, waited_s=0.0
    )
    assert meter.hidden_share is None and not meter.pays and meter.slowdown == pytest.approx(1.6)
    assert "%" not in str(meter) and "without overlap the step takes 1.5 s" in str(meter)


def test_nothing_to_hide():
    meter = ExposedTime(compute_s=1.0, communication_s=0.0, together_s=1.0, sequential_s=1.1)
    assert meter.hidden_share is None and "nothing could be hidden" in str(meter)


@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_times_are_seconds(bad):
    with pytest.raises(ValueError, match="wanted seconds"):
        ExposedTime(compute_s=bad, communication_s=0.5, together_s=1.0, sequential_s=1.5)
    with pytest.raises(ValueError, match="the two steps above 0"):
        ExposedTime(compute_s=1.0, communication_s=0.5, together_s=0.0, sequential_s=1.5)
