"""The roofline by hand, and the study's limits."""

import pytest

from refgf.papers.barrachina.roofline import Node, layer_times, study
from refgf.papers.scaling.workloads import alexnet, resnet50
from refgf.predict.cost import Link
from refgf.predict.timeline import one_call, predict
from tests.papers.scaling.test_workloads import tiny

V100 = Node(15.7e12, 900e9)  # float32, from its data sheet


def test_by_hand():
    """100 flops and 10 bytes: 10 s at 10 flop/s; 20 s at half a byte a second."""
    assert Node(10, 1e9).kernel_s(100, 10) == 10 and Node(10, 1e9).limit(100, 10) == "flops"
    assert Node(10, 0.5).kernel_s(100, 10) == 20 and Node(10, 0.5).limit(100, 10) == "memory"


def test_layers_by_hand():
    """Batch 10: conv1 has 13,320 flops in 3744 bytes forwards.

    At 1 flop/s and 1 byte/s flops decide.
    """
    conv, fc = layer_times(tiny(), 10, Node(1, 1))
    assert (conv.forward_s, conv.forward_limit) == (10 * (2 * 9 * 18 * 4 + 36), "flops")
    assert fc.backward_s == max(10 * (4 * 36 * 3 + 3), 4 * (10 * (2 * 36 + 3) + 2 * 111))
    slow_memory = layer_times(tiny(), 10, Node(1e9, 1))
    assert {layer.forward_limit for layer in slow_memory} == {"memory"}
    assert slow_memory[0].forward_s == 4 * (10 * (50 + 36) + 76)


def test_weights_used_once_more_a_sample_move_the_limit():
    """Fully connected layers are memory-bound at batch 1 and flop-bound at batch 512.

    Normalisation never gets there.
    """
    small, large = [
        {layer.name: layer for layer in layer_times(alexnet(), batch, V100)} for batch in (1, 512)
    ]
    assert small["fc6"].forward_limit == "memory" and large["fc6"].forward_limit == "flops"
    assert large["norm1"].forward_limit == "memory"


def test_limits_of_the_study():
    free, dead = Link(0.0, 1e-18), Link(1e-3, 1e-6)
    alone = study(resnet50(), 32, V100, free, 64)
    assert alone.shares["network"] < 1e-6 and alone.bottleneck in ("flops", "memory")
    assert study(resnet50(), 32, V100, dead, 64).bottleneck == "network"
    hidden = study(resnet50(), 32, V100, Link(0.0, 5e-11), 64)
    assert (
        hidden.shares["network"]
        < 0.01
        < 2 * 64 / 65 * resnet50().parameters * 4 * 5e-11 / hidden.step_s
    )
    assert sum(alone.shares.values()) == pytest.approx(1)
    assert alone.samples_per_s == pytest.approx(64 * 32 / alone.step_s)


def test_faster_parts_never_slow_a_step():
    def studied(flops, bandwidth, beta_s_per_byte):
        link = Link(1e-5, beta_s_per_byte)
        return study(alexnet(), 64, Node(flops * V100.flops, bandwidth * V100.bandwidth), link, 16)

    base = studied(1, 1, 1e-9).step_s
    for faster in ((2, 1, 1e-9), (1, 2, 1e-9), (1, 1, 5e-10)):
        assert studied(*faster).step_s <= base


def test_another_step_is_handed_in():
    """One call costs fewer latencies than eager calls; nothing else changes."""

    def fused(ready, allreduce_s, compute_s):
        gradients = [(ready_s, 4 * elements) for ready_s, elements in ready]
        return predict(gradients, one_call(gradients), allreduce_s, compute_s=compute_s)

    slow = Link(1e-3, 1e-18)
    eager, one = study(resnet50(), 64, V100, slow, 4), study(resnet50(), 64, V100, slow, 4, fused)
    assert one.step_s < eager.step_s and one.shares["network"] < eager.shares["network"]


def test_nonsense():
    with pytest.raises(ValueError, match="wanted both > 0"):
        Node(0, 1)
