"""Staging between arrays and MPI, on the CPU; tests/gpu has the other half."""

import sys
import types

import numpy as np
import pytest

from refgf import device
from refgf.device import Staging


def test_numpy_in_its_own_type_is_not_copied():
    x = np.arange(6, dtype=np.float32)
    staging = Staging(x, np.float32)
    assert staging.direct and staging.outgoing(x[1:3]) is not x
    assert np.shares_memory(staging.outgoing(x[1:3]), x)
    arrived = staging.incoming(2)
    assert staging.arrived(arrived) is arrived


def test_a_wire_type_casts_to_scratch():
    x = np.array([1.0, 2049.0, 1e6], np.float32)
    staging = Staging(x, np.float16)
    with np.errstate(over="ignore"):
        out = staging.outgoing(x[:])
    assert out.dtype == np.float16 and out.tolist() == [1.0, 2048.0, np.inf]
    assert x.tolist() == [1.0, 2049.0, 1e6]


def test_scratch_is_kept_and_grows():
    x, scratch = np.zeros(8, np.float32), {}
    first = Staging(x, np.float32, scratch).incoming(4)
    assert np.shares_memory(first, Staging(x, np.float32, scratch).incoming(3))
    assert Staging(x, np.float32, scratch).incoming(8).size == 8
    assert len(scratch) == 1


def test_kept_arrivals_are_private():
    x = np.zeros(4, np.float32)
    staging = Staging(x, np.float32)
    kept = []
    for value in (7, 8):
        buffer = staging.incoming(2, keep=True)
        buffer[:] = value
        kept.append(staging.keep(buffer))
    staging.incoming(2)[:] = 0
    assert [buffer.tolist() for buffer in kept] == [[7, 7], [8, 8]]


def test_unknown_devices_and_settings_are_named(monkeypatch):
    with pytest.raises(ValueError, match="got 'tpu'; wanted 'cpu' or 'gpu'"):
        device.module("tpu")
    monkeypatch.setenv("REFGF_CUDA_AWARE", "maybe")
    device.cuda_aware.cache_clear()
    with pytest.raises(ValueError, match="got 'maybe'; wanted auto, 0 or 1"):
        device.cuda_aware()
    monkeypatch.setenv("REFGF_CUDA_AWARE", "1")
    device.cuda_aware.cache_clear()
    assert device.cuda_aware() is True
    device.cuda_aware.cache_clear()


def test_without_cupy_the_message_says_what_to_install():
    try:
        import cupy  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match=r"pip install 'refgf\[gpu\]', or use 'cpu'"):
            device.module("gpu")


def library(kinds, vendor):
    """mpi4py.MPI as far as it is asked about CUDA; its file is none, so a query would find no library."""
    some = types.SimpleNamespace
    world = some(Get_info=lambda: some(Get={"mpi_memory_alloc_kinds": kinds}.get))
    return some(Is_initialized=lambda: True, COMM_WORLD=world, get_vendor=lambda: vendor, __file__="queried")


NEW = ("MPICH", (5, 0, 2))


@pytest.mark.parametrize("kinds, vendor, says, queries", [
    ("mpi,system,cuda", NEW, True, 0), ("system,cuda:host:device", NEW, True, 0), ("mpi,cuda:host", NEW, False, 0),
    ("mpi,system", NEW, True, 1), (None, ("Open MPI", (4, 1, 6)), True, 1), (None, ("MPICH", (3, 4, 3)), False, 0),
])  # fmt: skip
def test_the_library_is_asked_for_device_memory(monkeypatch, kinds, vendor, says, queries):
    """By its info key, then by a query that says yes here, but not in MPICH before 4, where the query ends the process."""
    asked = []
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", library(kinds, vendor))
    query = types.SimpleNamespace(MPIX_Query_cuda_support=lambda: 1)
    monkeypatch.setattr(device.ctypes, "CDLL", lambda path: asked.append(path) or query)
    assert device._library_says_cuda() is says
    assert asked == ["queried"] * queries
