"""Lesson 15's idea against refgf: rooflines of whole networks, and the recurrence of a step."""

import numpy as np
import pytest

from docs.tools import gains
from refgf.papers.barrachina.roofline import Node, layer_times
from refgf.papers.scaling.workloads import alexnet, resnet50
from refgf.predict.cost import Link, ring_line
from refgf.predict.timeline import eager, predict

LESSON = gains.module_of(gains.ROOT / "lessons" / "15_performance_model.py")


@pytest.mark.parametrize("workload", [alexnet(), resnet50()], ids=lambda w: w.name)
@pytest.mark.parametrize("batch", [1, 8, 64])
def test_rooflines_of_layers(workload, batch):
    node = Node(15.7e12, 900e9)
    flops = np.array([batch * layer.forward_flops for layer in workload.layers])
    nbytes = np.array([layer.forward_bytes(batch, 4) for layer in workload.layers])
    wanted = [layer.forward_s for layer in layer_times(workload, batch, node)]
    assert LESSON.kernel_s(flops, nbytes, node.flops, node.bandwidth).tolist() == wanted


@pytest.mark.parametrize("p", [1, 3, 64])
@pytest.mark.parametrize("elements", [[], [0], [0, 0], [5], [2, 0, 7], [10, 10**6, 0, 10**5, 3]])
@pytest.mark.parametrize("alpha", [0.0, 1e-5, 1e-2])
def test_a_step_is_that_of_the_recurrence(p, elements, alpha):
    rng, beta = np.random.default_rng(len(elements)), 1e-9
    forward_s, backward_s = rng.random((2, len(elements))) / 100
    got_s, efficiency = LESSON.step_s(forward_s, backward_s, np.array(elements), p, (alpha, beta))
    ready_s = forward_s.sum() + np.cumsum(backward_s[::-1])
    sent = [(t, 4 * n) for t, n in zip(ready_s.tolist(), elements[::-1]) if n]
    compute_s = forward_s.sum() + backward_s.sum()
    line = ring_line(p, Link(alpha, beta))
    wanted = predict(sent, eager(sent), line, compute_s=compute_s)
    assert got_s == pytest.approx(wanted.step_s, rel=1e-12)
    assert efficiency == pytest.approx(compute_s / wanted.step_s if elements else 1.0, rel=1e-12)
