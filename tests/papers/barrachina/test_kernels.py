"""Kernel models on made-up kernels with a known law.

Latency, two levels of memory, a product that likes wide rows.
"""

import random

import pytest

from refgf.papers.barrachina.kernels import (
    KernelShape,
    Perceptrons,
    Roofline,
    Sample,
    draw_shapes,
    errors,
    fit_roofline,
    held_out,
    measure,
    repeatability,
    shapes_of,
)
from refgf.papers.scaling.workloads import WORKLOADS


def law(shape, direction):
    peak = 2e11 * shape.outputs / (shape.outputs + 40) * shape.rows / (shape.rows + 30)
    memory = 4e10 if shape.bytes(direction) < 4e6 else 1e10
    return 2e-5 + shape.flops(direction) / peak + shape.bytes(direction) / memory


def timer(seed, noise=0.03):
    rng = random.Random(seed)
    return lambda shape: tuple(
        law(shape, d) * (1 + rng.gauss(0, noise)) for d in ("forward", "backward")
    )


@pytest.fixture(scope="module")
def samples():
    return measure(draw_shapes("conv", 200, seed=1), timer(2))


def test_shapes_by_hand():
    """8 images of 27 x 27 x 96, 5 x 5 windows padded by 2, 256 outputs: conv2 of AlexNet."""
    shape = KernelShape("conv", 8, 27, 96, 256, kernel=5, padding=2)
    assert (shape.output_side, shape.rows, shape.patch) == (27, 8 * 729, 2400)
    assert shape.flops("forward") == 2 * 5832 * 2400 * 256
    assert shape.flops("backward") == 2 * shape.flops("forward")
    assert shape.bytes("forward") == 4 * (8 * 729 * 96 + 2400 * 256 + 5832 * 256)


@pytest.mark.parametrize("name", ["AlexNet", "ResNet-50", "VGG-16", "DenseNet-201"])
def test_shapes_of_a_network_have_its_flops(name):
    network = WORKLOADS[name]()
    shapes = shapes_of(network, 4)
    for layer in network.layers:
        if layer.kind in ("conv", "fc"):
            bias = layer.output_elements if "bias" in layer.tensors[0].name else 0
            assert shapes[layer.name].flops("forward") == 4 * (layer.forward_flops - bias)


def test_the_first_convolution_owes_no_input_gradient():
    """As many products backwards as refgf.nn counts.

    One for images of 3 channels, two for everything else.
    """
    images, inside = KernelShape("conv", 2, 9, 3, 4, 3), KernelShape("conv", 2, 9, 4, 4, 3)
    assert images.flops("backward") == images.flops("forward") and images.bytes(
        "backward"
    ) == images.bytes("forward")
    assert inside.flops("backward") == 2 * inside.flops("forward")
    assert KernelShape("fc", 2, 1, 3, 4).flops("backward") == 2 * 2 * 2 * 3 * 4


def test_rounds_keep_the_least_time_of_each_shape():
    """Round 2 is slow for all, round 3 fast for one.

    a shape's time is the least of its own, in either direction.
    """
    shapes, calls = draw_shapes("fc", 3, seed=1), []

    def timer(shape):
        calls.append(shape)
        number = (len(calls) - 1) // 3
        return (5.0, 9.0 - number) if number != 1 else (50.0, 1.0)

    assert [(s.forward_s, s.backward_s) for s in measure(shapes, timer, rounds=3)] == [
        (5.0, 1.0)
    ] * 3
    rounds = [calls[i : i + 3] for i in (0, 3, 6)]
    assert (
        all(set(one) == set(shapes) for one in rounds) and len({tuple(one) for one in rounds}) > 1
    )


def test_repeatability_by_hand():
    """Times 2 against 1, 1 against 1, 3 against 2, 1 against 4: misses 1, 0, 0.5, 0.75.

    The upper median is 0.75.
    """
    a, b = KernelShape("fc", 1, 1, 8, 8), KernelShape("fc", 2, 1, 8, 8)
    assert (
        repeatability(
            [Sample(a, 2.0, 1.0), Sample(b, 3.0, 1.0)], [Sample(b, 2.0, 4.0), Sample(a, 1.0, 1.0)]
        )
        == 0.75
    )


@pytest.mark.parametrize("kind", ["conv", "fc"])
def test_drawn_shapes(kind):
    shapes = draw_shapes(kind, 60, seed=3)
    assert len(set(shapes)) == 60 and draw_shapes(kind, 60, seed=3) == shapes != draw_shapes(
        kind, 60, seed=4
    )
    assert all(3e6 <= shape.flops("forward") <= 3e9 and shape.output_side >= 1 for shape in shapes)


def test_held_out_shapes_were_never_seen(samples):
    training, unseen = held_out(samples)
    assert len(unseen) == 50 and len(training) == 150
    assert not {s.shape for s in training} & {s.shape for s in unseen}


def test_a_roofline_finds_its_roofs():
    """Times that are a roofline's.

    30 flop/s and 1 byte/s, within half a step of the search, 0.02**(-1/39) = 1.105.
    """
    shapes = draw_shapes("conv", 80, seed=5)
    exact = [Sample(s, 1.0, max(s.flops("backward") / 30, s.bytes("backward") / 1)) for s in shapes]
    node = fit_roofline(exact, "backward")
    assert node.flops == pytest.approx(30, rel=0.06) and node.bandwidth == pytest.approx(
        1, rel=0.06
    )


def median(values):
    return values[len(values) // 2]


def test_perceptrons_beat_the_roofline(samples):
    pytest.importorskip("sklearn")
    training, unseen = held_out(samples)
    plain, ours = (
        errors(Roofline(training), unseen),
        errors(Perceptrons(training, (16,), 0.1, members=2), unseen),
    )
    for key in ours:
        assert median(ours[key]) <= 0.10 and median(ours[key]) < median(plain[key])


def test_nonsense():
    with pytest.raises(ValueError, match="wanted times > 0"):
        measure([KernelShape("fc", 1, 1, 32, 32)], lambda shape: (0.0, 1.0))
    with pytest.raises(ValueError, match="widen it"):
        draw_shapes("fc", 50, seed=1, least_flops=1e6, most_flops=1.001e6)
