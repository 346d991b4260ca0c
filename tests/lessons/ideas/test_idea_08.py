"""Lesson 08's idea against the predictions of refgf/predict, for real networks and odd cases."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.papers.scaling.scaling import ready_of
from refgf.papers.scaling.systems import scaling_efficiency
from refgf.papers.scaling.workloads import alexnet, resnet50
from refgf.predict.cost import Link, ring_allreduce_s, ring_line
from refgf.predict.timeline import eager, predict

LESSON = gains.module_of(gains.ROOT / "lessons" / "08_scaling.py")
RANKS, ALPHA_S, BETA_S = [1, 2, 3, 4, 64, 2048], 7.9e-6, 1 / 7e9
GRADIENTS = {
    "AlexNet": [(t, 4 * n) for t, n in ready_of(alexnet(), 128, 3297)],
    "ResNet-50": [(t, 4 * n) for t, n in ready_of(resnet50(), 64, 253.1)],
    "an empty gradient": [(0.1, 0), (0.1, 4e6), (0.3, 0)],
    "none": [],
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("tail_s", [0.0, 0.05])  # computing that follows the last gradient
def test_efficiency_is_that_of_the_timeline(name, tail_s):
    gradients = GRADIENTS[name]
    compute_s = max((t for t, _ in gradients), default=0.1) + tail_s
    ready_s, nbytes = np.array(gradients).reshape(-1, 2).T
    found = LESSON.scaling_efficiency(RANKS, compute_s, ready_s, nbytes, ALPHA_S, BETA_S)
    assert found.shape == (len(RANKS), 2) and (found[0] == 100).all()
    for p, (plain, overlapped) in zip(RANKS, found):
        line, groups = ring_line(p, Link(ALPHA_S, BETA_S)), eager(gradients)
        at_once = predict(gradients, groups, line, True, compute_s)
        assert overlapped == pytest.approx(scaling_efficiency(at_once))
        calls_s = sum(line(n) for _, n in gradients if n)
        assert plain == pytest.approx(100 * compute_s / (compute_s + calls_s))
        if not tail_s:
            after = predict(gradients, groups, line, False, compute_s)
            assert plain == pytest.approx(scaling_efficiency(after))


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("slices", [0, 1, 1000])
def test_the_ring_takes_the_time_of_its_slices(p, slices):
    link = Link(ALPHA_S, BETA_S)
    found = LESSON.ring_s(p, 4 * slices * p, ALPHA_S, BETA_S)
    assert found == pytest.approx(ring_allreduce_s(p, slices * p, 4, link))
