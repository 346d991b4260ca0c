"""The best theta, and curves to 2048 ranks: against single evaluations, and by their limits."""

from dataclasses import replace
from itertools import accumulate, product
from math import inf

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from refgf.papers.scaling.interval import Input
from refgf.papers.scaling.scaling import (
    Cluster,
    best_theta,
    best_theta_step,
    curve,
    efficiency_on,
    ready_of,
    thresholds,
)
from refgf.papers.scaling.systems import System, stack, step
from refgf.papers.scaling.workloads import alexnet, resnet50
from refgf.predict.cost import Line, Link, ring_line
from refgf.predict.timeline import eager, lazy, one_call, predict

EAGER, LAZY = System("eager"), System("lazy", threshold_bytes=inf)
SIZES = (1, 2, 3, 7, 64, 2048)


def given(name, *values):
    return Input(name, values, "", "inferred", "a test")


INPUTS = (
    given("batch", 64),
    given("rate", 100.0, 1000.0),
    given("alpha_s", 1e-6, 1e-4),
    given("bandwidth", 1e9, 1e10),
)


def test_ready_times_end_with_the_computation():
    ready = ready_of(resnet50(), 64, 128.0)
    assert ready[-1][0] == pytest.approx(0.5) and sum(n for _, n in ready) == 25_557_032
    assert all(a <= b for (a, _), (b, _) in zip(ready, ready[1:]))


def test_best_theta_is_the_best_of_the_sweep():
    ready, line = ready_of(alexnet(), 64, 1000.0), ring_line(16, Link(1e-4, 1e-9))
    candidates = thresholds([(t, 4 * n) for t, n in ready], per_octave=1)
    times = [step(ready, replace(LAZY, threshold_bytes=theta), line).step_s for theta in candidates]
    assert best_theta_step(ready, LAZY, line).step_s == min(times) < times[0]
    assert best_theta_step(ready, EAGER, line) == step(ready, EAGER, line)


@pytest.mark.parametrize("system", [EAGER, LAZY], ids=["eager", "lazy"])
def test_interval_holds_every_combination_and_touches_its_ends(system):
    found = curve(alexnet(), system, SIZES, INPUTS)
    for size in SIZES:
        clusters = [Cluster(*values) for values in product(*(i.values for i in INPUTS))]
        values = [efficiency_on(alexnet(), system, size, cluster) for cluster in clusters]
        assert found[size] == (min(values), max(values))


def test_limits():
    """One rank does not communicate; free links give 100 %; throughput rises with p."""
    for system in stack(inf):
        assert efficiency_on(alexnet(), system, 1, Cluster(64, 1000.0, 1e-3, 1e9)) == 100
        free = efficiency_on(alexnet(), system, 512, Cluster(64, 1000.0, 0.0, 1e18))
        assert free == pytest.approx(100)
    cluster = Cluster(64, 250.0, 0.0, 1e10)
    found = [size * efficiency_on(resnet50(), LAZY, size, cluster) for size in (4, 16, 256, 2048)]
    assert found == sorted(found)
    half = efficiency_on(alexnet(), LAZY, 16, Cluster(64, 1000.0, 1e-5, 1e9, small_batch=0.5))
    assert half == efficiency_on(alexnet(), LAZY, 16, Cluster(64, 500.0, 1e-5, 1e9))


@drawn(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 1000)), min_size=1, max_size=12),
    st.integers(0, 40),
)
def test_without_overlap_waiting_for_everything_is_best(steps, a):
    ready_s = accumulate(seconds for seconds, _ in steps)
    gradients = [(float(at_s), nbytes) for at_s, (_, nbytes) in zip(ready_s, steps)]
    _, best = best_theta(gradients, Line(a, 1), overlap=False)
    assert best.step_s == predict(gradients, one_call(gradients), Line(a, 1), overlap=False).step_s


def test_with_overlap_the_best_theta_lies_between():
    """Ten gradients a second apart, latency 1.5 s: eager queues, one call hides nothing."""
    gradients = [(float(i + 1), 100) for i in range(10)]
    theta, best = best_theta(gradients, Line(1.5, 0.001))
    assert 0 < theta < inf
    assert best.step_s < predict(gradients, eager(gradients), Line(1.5, 0.001)).step_s
    assert best.step_s <= predict(gradients, one_call(gradients), Line(1.5, 0.001)).step_s


def test_best_theta_is_the_best_of_the_thresholds():
    gradients, line = [(1.0, 8), (1.5, 80), (4.0, 800)], Line(1, 0.01)
    times = {
        theta: predict(gradients, lazy(gradients, theta), line).step_s
        for theta in thresholds(gradients)
    }
    theta, best = best_theta(gradients, line)
    assert best.step_s == min(times.values()) == times[theta] < max(times.values())
    equals = [t for t, seconds in times.items() if seconds == times[theta]]
    assert theta == min(equals) < max(equals)


def test_thresholds_cover_the_limits():
    values = thresholds([(1.0, 10), (3.0, 20), (4.0, 5)])
    assert values[0] == 0 and values[-1] == inf and 5 in values
    assert values == sorted(set(values))
