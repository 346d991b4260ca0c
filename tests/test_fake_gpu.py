"""The GPU's half of the code on a CuPy that computes on the CPU: the CPU's bits, and a host that does not wait.

`fake_cupy.py` refuses what CuPy refuses and counts what makes the host wait. Nothing here runs on a GPU; tests/gpu is for that.
"""

import numpy as np
import pytest
from fake_cuda_c import needs_a_compiler
from fake_cupy import installed

from stacks import new_flow

from refgf import device
from refgf.comm import direct, ring
from refgf.machine import threads
from refgf.comm.schedule import collective
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale
from refgf.engine.fused_gpu import KERNELS
from refgf.nn.alexnet import AlexNet
from refgf.papers.resnet50.resnet50 import ResNet50
from refgf.oracle.definitions import direct_allreduce, ring_allreduce, same_bits
from refgf.training import gradientflow

IMAGES = 4  # as many to a block on the CPU as on the GPU, which takes all: the order of summation is then the same


@pytest.fixture
def cupy():
    with installed() as module:
        yield module


def one_step(xp, kind, dtype, **options):
    """Loss, gradients and predictions, and how often the host waited before it asked for them."""
    network = kind(7, 67, width=1 / 16, dtype=dtype, xp=xp, images_per_block=IMAGES, **options)
    pools = [Pool(network.tensors, dtype, xp) for _ in range(2)]
    network.bind(*(pool.views for pool in pools))
    network.initialize(0)
    rng = np.random.default_rng(0)
    images = rng.standard_normal((IMAGES, 67, 67, 3)).astype(dtype)
    before = getattr(xp, "waits", 0)
    loss = network.loss(images, rng.integers(0, 7, IMAGES), IMAGES)
    network.backward(lambda i: None)
    network.accept()
    waits = getattr(xp, "waits", 0) - before
    return [np.float64(loss), device.to_host(pools[1].flat), device.to_host(network.predict(images))], waits


NETWORKS = [(AlexNet, {"normalization": n}) for n in ("batch", "local", "none")] + [(ResNet50, {})]


@needs_a_compiler
@pytest.mark.parametrize("kind, options", NETWORKS, ids=lambda value: str(value))
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_step_has_the_bits_of_the_cpu_and_the_host_never_waits(cupy, kind, options, dtype):
    wanted, _ = one_step(np, kind, dtype, **options)
    got, waits = one_step(cupy, kind, dtype, **options)
    assert all(same_bits(np.asarray(a), np.asarray(b)) for a, b in zip(got, wanted))
    assert np.isfinite(wanted[1]).all() and wanted[1].any()
    assert waits == 0


def test_a_loss_that_is_read_is_a_wait(cupy):
    """The count can go up: reading the loss inside the step would be seen."""
    with pytest.raises(AssertionError):
        before = cupy.waits
        float(cupy.asarray(np.ones(1)).sum())
        assert cupy.waits == before


@pytest.mark.parametrize("aware", [False, True])  # of the MPI: threads read host memory whatever it can
@pytest.mark.parametrize("wire", [None, "float16"])
@pytest.mark.parametrize("algorithm, definition", [(ring.allreduce, ring_allreduce), (direct.allreduce, direct_allreduce)])
def test_sums_through_host_memory(cupy, monkeypatch, algorithm, definition, wire, aware):
    monkeypatch.setattr(device, "cuda_aware", lambda: aware)

    def body(comm):
        for n in (0, 1, 7, 1003):
            xs = [np.random.default_rng([n, r]).standard_normal(n).astype(np.float32) for r in range(comm.size)]
            x = cupy.asarray(xs[comm.rank])
            collective(comm, algorithm, wire)(x)
            assert same_bits(device.to_host(x), definition(xs, wire)[comm.rank])

    for size in (1, 2, 3, 5):
        threads.run(size, body)


def train(comm, xp, settings):
    """Three steps; the losses, and the hash of the parameters."""
    settings = dict(settings)
    network = AlexNet(5, 67, width=1 / 32, dropout=0.3, xp=xp, images_per_block=IMAGES, dtype=settings.pop("dtype", np.float32))
    network.dropout_rng = np.random.default_rng(comm.rank)
    settings = settings | ({"loss_scale": LossScale(settings["loss_scale"])} if "loss_scale" in settings else {})
    rng, losses = np.random.default_rng([1, comm.rank]), []
    with new_flow(comm, network, **settings) as flow:
        for _ in range(3):
            images = rng.standard_normal((3, 67, 67, 3)).astype(np.float32)
            losses.append(flow.step(images, rng.integers(0, 5, 3), 3 * comm.size, 0.01))
        return losses, flow.require_same_parameters()


SETTINGS = [
    {"weight_decay": 1e-3, "wire": np.float16, "loss_scale": 2.0**10, "half_weights": True},
    {"dtype": np.float16, "wire": np.float16, "loss_scale": 2.0**10, "overlap": True},
    {"overlap": True, "theta_bytes": 1000, "allreduce": gradientflow.direct_allreduce},
    {"density": 20, "chunk": 100, "weight_decay": 1e-3},
    {"density": 20, "chunk": 100, "form": "history", "overlap": True, "wire": np.float16, "after": True},
    {"density": 30, "chunk": 64, "form": "history", "trust": 0.01, "weight_decay": 1e-3},
    {"trust": 0.01, "norms": "slices"},
]


@needs_a_compiler
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(settings))
def test_training_has_the_bits_of_the_cpu(cupy, settings):
    assert threads.run(2, train, cupy, settings) == threads.run(2, train, np, settings)


@needs_a_compiler
def test_training_takes_every_kernel(cupy):
    real, made = cupy.ElementwiseKernel, set()

    def counted(*args, **options):
        made.add(args[3])
        return real(*args, **options)

    cupy.ElementwiseKernel = counted
    for settings in {}, {"density": 20, "chunk": 100}:
        threads.run(1, train, cupy, settings)
    assert made == set(KERNELS)


def test_mistakes_that_only_a_gpu_would_show_are_seen(cupy):
    x, host = cupy.asarray(np.ones(3)), np.ones(3)
    for mistake in (lambda: x + host, lambda: host + x, lambda: cupy.add(x, host), lambda: np.add(x, x),
                    lambda: x.__setitem__(slice(0, 2), host[:2]), lambda: np.asarray(x), lambda: x[np.arange(2)]):  # fmt: skip
        with pytest.raises(TypeError):
            mistake()
    with pytest.raises(AttributeError):
        cupy.linalg  # noqa: B018  not on the list
