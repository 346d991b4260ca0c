"""Arrays and wire types that an allreduce refuses."""

import numpy as np
import pytest

from refgf.comm import native, ring
from refgf.comm.gather import allgather, reduce_scatter
from refgf.comm.schedule import collective
from refgf.engine.pipelined import pipelined, pipelined_ring_allreduce
from refgf.engine.shared import SharedMemory
from refgf.machine import threads


@pytest.mark.parametrize(
    "x, message",
    [
        (np.zeros((2, 2), np.float32), "shape"),
        (np.zeros(8, np.float32)[::2], "ascontiguousarray"),
        (np.zeros(3, np.int64), "astype"),
        ([1.0, 2.0], "astype"),
        (np.frombuffer(bytes(8), np.float32), "copy"),
    ],
)
def test_bad_arrays_are_refused_on_every_rank(on_ranks, x, message):
    def body(comm):
        allreduce = collective(comm, ring.allreduce)
        operation = f"ring.allreduce on rank {comm.Get_rank()}"
        with pytest.raises(ValueError, match=f"{operation}: got .*{message}"):
            allreduce(x)

    on_ranks(body)


@pytest.mark.parametrize("wire", ["banana", np.int8, bool, "complex64", np.float128, object, 2, ""])
@pytest.mark.parametrize(
    "bind",
    [
        lambda comm, wire: collective(comm, ring.allreduce, wire),
        lambda comm, wire: pipelined(comm, ring.allreduce, wire),
        lambda comm, wire: reduce_scatter(comm, wire=wire),
        native.mpi_allreduce,
        SharedMemory,
    ],
)
def test_a_wire_type_that_is_no_float_is_refused(bind, wire):
    """In int8 all gradients below 1 would be 0, and every step accepted."""
    with pytest.raises(ValueError, match="on rank 0: got wire=.*; wanted None or one of float16"):
        threads.run(1, lambda comm: bind(comm, wire))


@pytest.mark.parametrize("comm", [None, "ring", 3])
@pytest.mark.parametrize(
    "bind",
    [
        ring.ring_allreduce,
        pipelined_ring_allreduce,
        allgather,
        reduce_scatter,
        native.mpi_allreduce,
        SharedMemory,
    ],
)
def test_what_is_no_communicator_is_refused(bind, comm):
    with pytest.raises(ValueError, match=f"got {comm!r}; wanted a communicator; next: "):
        bind(comm)


def test_names_and_types_mean_the_same(on_ranks):
    def body(comm):
        for wire in (np.float16, "float16", np.dtype("float16")):
            x = np.full(7, 2049, np.float32)  # float16 has no 2049
            collective(comm, ring.allreduce, wire)(x)
            assert (x == 2048 * comm.Get_size()).all()

    on_ranks(body)
