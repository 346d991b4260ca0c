"""The GPU's half of the code on a CuPy that computes on the CPU: the CPU's bits, no waiting host.

`fake_cupy.py` refuses what CuPy refuses and counts what makes the host wait. Nothing here runs on a
GPU; tests/gpu is for that.
"""

import contextlib

import numpy as np
import pytest
from fake_cuda_c import needs_a_compiler
from fake_cupy import installed
from gpu_cases import NETWORKS, SETTINGS, one_step, train

from refgf import device, engine
from refgf.comm import direct, ring
from refgf.comm.schedule import collective
from refgf.engine import staging
from refgf.engine.fused_gpu import KERNELS
from refgf.engine.residual import FusedResidual
from refgf.machine import threads
from refgf.oracle.definitions import direct_allreduce, ring_allreduce, same_bits


@pytest.fixture
def cupy():
    with installed() as module:
        yield module


@needs_a_compiler
@pytest.mark.parametrize("kind, options", NETWORKS, ids=lambda value: str(value))
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("with_engine", [True, False])
def test_a_step_has_the_bits_of_the_cpu_and_the_host_never_waits(
    cupy, kind, options, dtype, with_engine
):
    with contextlib.nullcontext() if with_engine else engine.off():
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


# of the MPI: threads read host memory whatever it can
@pytest.mark.parametrize("aware", [False, True])
@pytest.mark.parametrize("wire", [None, "float16"])
@pytest.mark.parametrize(
    "algorithm, definition",
    [(ring.allreduce, ring_allreduce), (direct.allreduce, direct_allreduce)],
)
def test_sums_through_host_memory(cupy, monkeypatch, algorithm, definition, wire, aware):
    monkeypatch.setattr(staging, "cuda_aware", lambda: aware)

    def body(comm):
        for n in (0, 1, 7, 1003):
            xs = [
                np.random.default_rng([n, r]).standard_normal(n).astype(np.float32)
                for r in range(comm.size)
            ]
            x = cupy.asarray(xs[comm.rank])
            collective(comm, algorithm, wire)(x)
            assert same_bits(device.to_host(x), definition(xs, wire)[comm.rank])

    for size in (1, 2, 3, 5):
        threads.run(size, body)


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
    for settings in {}, {"density": 20, "chunk": 100, "residual": FusedResidual}:
        threads.run(1, train, cupy, settings)
    assert made == set(KERNELS)


def test_mistakes_that_only_a_gpu_would_show_are_seen(cupy):
    x, host = cupy.asarray(np.ones(3)), np.ones(3)
    for mistake in (
        lambda: x + host,
        lambda: host + x,
        lambda: cupy.add(x, host),
        lambda: np.add(x, x),
        lambda: x.__setitem__(slice(0, 2), host[:2]),
        lambda: np.asarray(x),
        lambda: x[np.arange(2)],
    ):
        with pytest.raises(TypeError):
            mistake()
    with pytest.raises(AttributeError):
        cupy.linalg  # noqa: B018  not on the list
