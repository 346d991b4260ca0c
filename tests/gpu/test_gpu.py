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


def gradients(xp, dtype):
    network = AlexNet(7, 67, width=1 / 8, dropout=0.0, dtype=dtype, xp=xp)
    parameters, pool = Pool(network.tensors, dtype, xp), Pool(network.tensors, dtype, xp)
    network.bind(parameters.views, pool.views)
    network.initialize(0)
    random = np.random.default_rng(0)
    images = xp.asarray(random.standard_normal((6, 67, 67, 3)).astype(dtype))
    loss = network.loss(images, random.integers(0, 7, 6), 6)
    network.backward(lambda i: None)
    return float(loss), device.to_host(pool.flat), pool.offsets


def test_alexnet_in_float64_agrees_with_the_cpu():
    cpu_loss, cpu, offsets = gradients(np, np.float64)
    gpu_loss, gpu, _ = gradients(cupy, np.float64)
    assert abs(cpu_loss - gpu_loss) <= 1e-10 * cpu_loss
    scale = max(np.linalg.norm(cpu[a:b]) for a, b in zip(offsets, offsets[1:]))
    assert np.linalg.norm(cpu - gpu) <= 1e-10 * scale
