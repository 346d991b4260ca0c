"""The GPU gives the CPU's answers: bits where the order of summation is the same, float64 differences elsewhere."""

import numpy as np
import pytest

from refgf import device
from refgf.comm import direct, ring
from refgf.comm.schedule import collective
from refgf.exchange.pool import Pool
from refgf.nn.alexnet import AlexNet
from refgf.oracle.definitions import direct_allreduce, ring_allreduce, same_bits

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.fixture(autouse=True)
def gpu():
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no GPU: {error}")


@pytest.mark.parametrize("wire", [None, "float16"])
@pytest.mark.parametrize("algorithm, definition", [(ring.allreduce, ring_allreduce), (direct.allreduce, direct_allreduce)])
def test_allreduce_of_device_arrays_has_the_defined_bits(on_ranks, algorithm, definition, wire):
    def body(comm):
        device.select(comm.Get_rank())
        for n in (0, 1, 7, 100_003):
            xs = [np.random.default_rng([n, r]).standard_normal(n).astype(np.float32) for r in range(comm.Get_size())]
            x = cupy.asarray(xs[comm.Get_rank()])
            collective(comm, algorithm, wire)(x)
            assert same_bits(device.to_host(x), definition(xs, wire)[comm.Get_rank()])

    on_ranks(body)


def gradients(xp, dtype, rounded=None):
    """Loss, gradients and offsets; with weights and images rounded to another type first."""
    network = AlexNet(7, 67, width=1 / 8, dropout=0.0, dtype=dtype, xp=xp)
    parameters, pool = Pool(network.tensors, dtype, xp), Pool(network.tensors, dtype, xp)
    network.bind(parameters.views, pool.views)
    network.initialize(0)
    random = np.random.default_rng(0)
    images = xp.asarray(random.standard_normal((6, 67, 67, 3)).astype(rounded or dtype).astype(dtype))
    if rounded:
        parameters.flat[...] = parameters.flat.astype(rounded)
    loss = network.loss(images, random.integers(0, 7, 6), 6)
    network.backward(lambda i: None)
    return float(loss), device.to_host(pool.flat), pool.offsets


def test_alexnet_in_float64_agrees_with_the_cpu():
    cpu_loss, cpu, offsets = gradients(np, np.float64)
    gpu_loss, gpu, _ = gradients(cupy, np.float64)
    assert abs(cpu_loss - gpu_loss) <= 1e-10 * cpu_loss
    scale = max(np.linalg.norm(cpu[a:b]) for a, b in zip(offsets, offsets[1:]))
    assert np.linalg.norm(cpu - gpu) <= 1e-10 * scale


def assert_within_float16(got, wanted, offsets):
    """Tensor by tensor. A gradient has gone through at most 2 x 8 products of float16, each followed by normalisation and
    ReLU: some 50 roundings of 2^-11 on its way, which add up to 2 % if they all agree. 8 % of the largest tensor's norm
    are left to what a ReLU or a maximum lets through on one side only; NumPy's own float16 stays below 6 %."""
    largest = max(np.linalg.norm(wanted[a:b]) for a, b in zip(offsets, offsets[1:]))
    for a, b in zip(offsets, offsets[1:]):
        assert np.linalg.norm(got[a:b] - wanted[a:b]) <= 50 * 2.0**-11 * np.linalg.norm(wanted[a:b]) + 0.08 * largest


def test_alexnet_in_float16_agrees_with_the_cpu_in_float64():
    loss, wanted, offsets = gradients(np, np.float64, rounded=np.float16)
    got_loss, got, _ = gradients(cupy, np.float16)
    assert abs(got_loss - loss) <= 50 * 2.0**-11 * loss
    assert_within_float16(got.astype(np.float64), wanted, offsets)
    with pytest.raises(AssertionError):
        assert_within_float16(np.where(np.arange(len(got)) < offsets[2], 0, got.astype(np.float64)), wanted, offsets)


def test_a_step_waits_for_nothing():
    """The host has queued a whole step before the GPU has begun it: it queues behind a kernel that takes a second."""
    stream = cupy.cuda.get_current_stream()
    gradients(cupy, np.float32)  # compiles the kernels
    network = AlexNet(7, 67, width=1 / 8, xp=cupy)
    pools = [Pool(network.tensors, np.float32, cupy) for _ in range(2)]
    network.bind(*(pool.views for pool in pools))
    network.initialize(0)
    images = np.zeros((6, 67, 67, 3), np.float32)
    for busy in (False, True):  # the first time fills the memory pools
        stream.synchronize()
        if busy:
            spin = cupy.RawKernel("extern \"C\" __global__ void spin(long long n) {long long t = clock64(); "
                                  "while (clock64() - t < n);}", "spin")  # fmt: skip
            spin((1,), (1,), (np.int64(2_000_000_000),))
        network.loss(images, np.zeros(6, int), 6)
        network.backward(lambda i: None)
        network.accept()
    assert not stream.done
