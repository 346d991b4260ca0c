"""Buffers between arrays and MPI, on the CPU; tests/gpu has the other half."""

import sys
import types

import numpy as np
import pytest

from refgf.engine import PLAIN, staging
from refgf.engine.staging import StagedBuffers

KINDS = pytest.mark.parametrize("Buffers", [PLAIN["Buffers"], StagedBuffers])


@KINDS
def test_numpy_in_its_own_type_is_not_copied(Buffers):
    x = np.arange(6, dtype=np.float32)
    buffers = Buffers(x, np.float32)
    assert buffers.in_place and buffers.outgoing(x[1:3]) is not x
    assert np.shares_memory(buffers.outgoing(x[1:3]), x)
    arrived = buffers.incoming(2)
    assert buffers.arrived(arrived) is arrived


@KINDS
def test_a_wire_type_casts_to_scratch(Buffers):
    x = np.array([1.0, 2049.0, 1e6], np.float32)
    buffers = Buffers(x, np.float16)
    with np.errstate(over="ignore"):
        out = buffers.outgoing(x[:])
    assert out.dtype == np.float16 and out.tolist() == [1.0, 2048.0, np.inf]
    assert x.tolist() == [1.0, 2049.0, 1e6]


@KINDS
def test_scratch_is_kept_and_grows(Buffers):
    x, scratch = np.zeros(8, np.float32), {}
    first = Buffers(x, np.float32, scratch).incoming(4)
    assert np.shares_memory(first, Buffers(x, np.float32, scratch).incoming(3))
    assert Buffers(x, np.float32, scratch).incoming(8).size == 8
    assert len(scratch) == 1


def test_settings_are_named(monkeypatch):
    monkeypatch.setenv("REFGF_CUDA_AWARE", "maybe")
    staging.cuda_aware.cache_clear()
    with pytest.raises(ValueError, match="got 'maybe'; wanted auto, 0 or 1"):
        staging.cuda_aware()
    monkeypatch.setenv("REFGF_CUDA_AWARE", "1")
    staging.cuda_aware.cache_clear()
    assert staging.cuda_aware() is True
    staging.cuda_aware.cache_clear()


def library(kinds, vendor):
    """mpi4py.MPI as far as CUDA support is queried; its file does not exist."""
    some = types.SimpleNamespace
    world = some(Get_info=lambda: some(Get={"mpi_memory_alloc_kinds": kinds}.get))
    return some(
        Is_initialized=lambda: True, COMM_WORLD=world, get_vendor=lambda: vendor, __file__="queried"
    )


NEW = ("MPICH", (5, 0, 2))


@pytest.mark.parametrize(
    "kinds, vendor, says, queries",
    [
        ("mpi,system,cuda", NEW, True, 0),
        ("system,cuda:host:device", NEW, True, 0),
        ("mpi,cuda:host", NEW, False, 0),
        ("mpi,system", NEW, True, 1),
        (None, ("Open MPI", (4, 1, 6)), True, 1),
        (None, ("MPICH", (3, 4, 3)), False, 0),
    ],
)
def test_the_library_is_asked_for_device_memory(monkeypatch, kinds, vendor, says, queries):
    """By its info key, then by a query, except in MPICH before 4, whose query ends the process."""
    asked = []
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", library(kinds, vendor))
    query = types.SimpleNamespace(MPIX_Query_cuda_support=lambda: 1)
    monkeypatch.setattr(staging.ctypes, "CDLL", lambda path: asked.append(path) or query)
    assert staging._library_says_cuda() is says
    assert asked == ["queried"] * queries
