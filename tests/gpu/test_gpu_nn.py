"""Networks on a GPU: differences from the CPU in float64 and float16, a host that does not wait."""

import numpy as np
import pytest

from refgf import device
from refgf.exchange.pool import Pool
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from tests.support.gpu_cases import NETWORKS, one_step


@pytest.mark.parametrize("kind, options", NETWORKS, ids=str)
def test_a_step_in_float64_agrees_with_the_cpu(cupy, kind, options):
    """Loss, gradients, and predictions with the running statistics that the step left. Sums are in
    another order: CPUs differ by 3e-14 of the norm if they take their images in other blocks."""
    wanted, _ = one_step(np, kind, np.float64, **options)
    got, _ = one_step(cupy, kind, np.float64, **options)
    for a, b in zip(got, wanted):
        assert np.linalg.norm(b) > 0 and np.linalg.norm(a - b) <= 1e-10 * np.linalg.norm(b)


def gradients(xp, dtype, rounded=None):
    """Loss, gradients and offsets; with weights and images rounded to another type first."""
    network = AlexNet(7, 67, width=1 / 8, dropout=0.0, workspace=Workspace(xp, dtype))
    parameters, pool = (Pool(network.tensors, dtype, xp.zeros) for _ in range(2))
    network.bind(parameters.views, pool.views)
    network.initialize(0)
    random = np.random.default_rng(0)
    images = random.standard_normal((6, 67, 67, 3)).astype(rounded or dtype)
    images = xp.asarray(images.astype(dtype))
    if rounded:
        parameters.flat[...] = parameters.flat.astype(rounded)
    loss = network.loss(images, random.integers(0, 7, 6), 6)
    network.backward(lambda i: None)
    return float(loss), device.to_host(pool.flat), pool.offsets


def assert_within_float16(got, wanted, offsets):
    """Tensor by tensor. A gradient has gone through at most 2 x 8 products of float16, each
    followed by normalisation and ReLU: some 50 roundings of 2^-11 on its way, which add up to 2 %
    if they all agree. 8 % of the largest tensor's norm are left to what a ReLU or a maximum lets
    through on one side only; NumPy's own float16 stays below 6 %."""
    largest = max(np.linalg.norm(wanted[a:b]) for a, b in zip(offsets, offsets[1:]))
    for a, b in zip(offsets, offsets[1:]):
        allowed = 50 * 2.0**-11 * np.linalg.norm(wanted[a:b]) + 0.08 * largest
        assert np.linalg.norm(got[a:b] - wanted[a:b]) <= allowed


def test_alexnet_in_float16_agrees_with_the_cpu_in_float64(cupy):
    loss, wanted, offsets = gradients(np, np.float64, rounded=np.float16)
    got_loss, got, _ = gradients(cupy, np.float16)
    assert abs(got_loss - loss) <= 50 * 2.0**-11 * loss
    got = got.astype(np.float64)
    assert_within_float16(got, wanted, offsets)
    got[: offsets[2]] = 0
    with pytest.raises(AssertionError):
        assert_within_float16(got, wanted, offsets)


def test_a_step_waits_for_nothing(cupy, spin):
    """The host queues a whole step behind a kernel that takes seconds, and is done before it."""
    stream = cupy.cuda.get_current_stream()
    network = AlexNet(7, 67, width=1 / 8, workspace=Workspace(cupy))
    pools = [Pool(network.tensors, np.float32, cupy.zeros) for _ in range(2)]
    network.bind(*(pool.views for pool in pools))
    network.initialize(0)
    images = np.zeros((6, 67, 67, 3), np.float32)
    for cycles in (1, 1, 4e9):  # the first times compile the kernels and fill the memory pools
        stream.synchronize()
        spin(cycles)
        network.loss(images, np.zeros(6, int), 6)
        network.backward(lambda i: None)
        network.accept()
    assert not stream.done
