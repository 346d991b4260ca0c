"""Curves to 2048 ranks: against one evaluation of the timeline each, and by their limits."""

from dataclasses import replace
from itertools import product
from math import inf

import pytest

from refgf.predict.cost import Link, ring_line
from refgf.papers.scaling.interval import Input
from refgf.papers.scaling.scaling import best_theta_step, curve, ready_of, speedup_on
from refgf.papers.scaling.systems import System, stack, step
from refgf.predict.timeline import thresholds
from refgf.papers.scaling.workloads import alexnet, resnet50

EAGER, LAZY = System("eager"), System("lazy", threshold_bytes=inf)
SIZES = (1, 2, 3, 7, 64, 2048)


def given(name, *values):
    return Input(name, values, "", "inferred", "a test")


INPUTS = (given("batch", 64), given("rate", 100.0, 1000.0), given("alpha_s", 1e-6, 1e-4), given("bandwidth", 1e9, 1e10))


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
        values = [speedup_on(alexnet(), system, size, *v) for v in product(*(i.values for i in INPUTS))]
        assert found[size] == (min(values), max(values))


def test_limits():
    """One rank does not communicate; links without cost give p; more ranks never lose throughput to a free start-up."""
    for system in stack(inf):
        assert speedup_on(alexnet(), system, 1, 64, 1000.0, 1e-3, 1e9) == 1
        assert speedup_on(alexnet(), system, 512, 64, 1000.0, 0.0, 1e18) == pytest.approx(512)
    found = [speedup_on(resnet50(), LAZY, size, 64, 250.0, 0.0, 1e10) for size in (4, 16, 256, 2048)]
    assert found == sorted(found)
    half = speedup_on(alexnet(), LAZY, 16, 64, 1000.0, 1e-5, 1e9, small_batch=0.5)
    assert half == speedup_on(alexnet(), LAZY, 16, 64, 500.0, 1e-5, 1e9)


def test_the_worst_theta_would_be_seen():
    """Seeded mistake: max in place of min over theta."""
    ready, line = ready_of(alexnet(), 64, 1000.0), ring_line(64, Link(1e-3, 1e-9))
    candidates = thresholds([(t, 4 * n) for t, n in ready], per_octave=1)
    worst = max(step(ready, replace(LAZY, threshold_bytes=theta), line).step_s for theta in candidates)
    assert best_theta_step(ready, LAZY, line).step_s < 0.9 * worst
