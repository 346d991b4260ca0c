"""Fixtures of the GPU tests.

A test that takes `cupy` runs twice: on a GPU, where there is one, and on the CPU with the stand-in
of tests/support/fake_cupy.py. A machine without a GPU then finds at least mistakes in the tests.
"""

import os

import numpy as np
import pytest

from refgf.engine import staging
from tests.gpu.measure import benchmark
from tests.gpu.usable import why_no_gpu
from tests.support.fake_cuda_c import needs_a_compiler
from tests.support.fake_cupy import installed

SPIN = """
extern "C" __global__ void spin(long long n) {
    long long t = clock64();
    while (clock64() - t < n);
}
"""


def pytest_exception_interact(node, report):
    """In the run of run.py, print a traceback at once: a part that is ended has no summary."""
    if benchmark.BEGUN in os.environ:
        node.config.get_terminal_writer().line(report.longreprtext)


@pytest.fixture
def gpu():
    """CuPy on a GPU."""
    missing = why_no_gpu()
    if missing:
        pytest.skip(f"no GPU: {missing}")
    import cupy

    return cupy


@pytest.fixture(params=[pytest.param("stand-in", marks=needs_a_compiler), "gpu"])
def cupy(request, monkeypatch):
    """CuPy on a GPU, or what stands in for it."""
    if request.param == "gpu":
        yield request.getfixturevalue("gpu")
        return
    monkeypatch.setattr(staging, "cuda_aware", lambda: False)  # MPI cannot reach its arrays
    with installed() as module:
        yield module


@pytest.fixture
def spin(cupy):
    """spin(cycles) keeps the current stream busy: 4e9 cycles are two or three seconds.

    The stand-in's stream is busy until the host waits.
    """
    if hasattr(cupy, "waits"):
        return lambda cycles: setattr(cupy.cuda.get_current_stream(), "done", False)
    kernel = cupy.RawKernel(SPIN, "spin")
    return lambda cycles: kernel((1,), (1,), (np.int64(cycles),))
