"""The ring: the definition's bits on threads, on MPI and in `replay`, and counted costs."""

import numpy as np
import pytest

from refgf.comm import ring
from refgf.comm.replay import check, replay
from refgf.comm.schedule import Step, execute
from refgf.comm.slices import length, slices
from refgf.machine import threads
from refgf.oracle.definitions import ring_allreduce
from tests.support.comm_cases import (
    WIRES,
    assert_bits_everywhere,
    assert_counted_costs,
    order_sensitive,
    same_bits,
    sizes_of,
)


@pytest.mark.parametrize("dtype, wire", WIRES)
def test_bits_of_the_definition(on_ranks, dtype, wire):
    def body(comm):
        sizes = sizes_of(comm.Get_size(), 100_003)
        assert_bits_everywhere(comm, ring.allreduce, ring_allreduce, sizes, dtype, wire)

    on_ranks(body, sizes=range(1, 10))


@pytest.mark.parametrize("wire", [None, "float16"])
def test_counted_costs(on_ranks, wire):
    """2(p-1) messages, 2n - |slice r+1| - |slice r+2| elements, all to the next rank."""

    def cost(r, p, n):
        parts = slices(n, p)
        sent = 2 * n - length(parts[(r + 1) % p]) - length(parts[(r + 2) % p]) if p > 1 else 0
        return 2 * (p - 1), sent

    def body(comm):
        traced, p = assert_counted_costs(comm, ring.allreduce, cost, wire), comm.Get_size()
        assert list(traced.peers) == ([(comm.Get_rank() + 1) % p] if p > 1 else [])

    on_ranks(body, sizes=range(1, 10))


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("n", [0, 1, 7, 100])
@pytest.mark.parametrize("algorithm", [ring.allreduce, ring.reduce_scatter, ring.allgather])
def test_schedules_never_block(algorithm, n, p):
    check([algorithm(r, p, n) for r in range(p)])


def test_ring_allreduce_takes_a_communicator_and_a_wire_type(on_ranks):
    def body(comm):
        x = np.full(5, 1 + 2**-12, np.float32)
        ring.ring_allreduce(comm, wire=np.float16)(x)
        xs = [np.full(5, 1 + 2**-12, np.float32)] * comm.Get_size()
        assert same_bits(x, ring_allreduce(xs, np.float16)[0])

    on_ranks(body)


def whole_tensor(rank, size, n):
    """The textbook mistake: right values for p = 2, far too many bytes for all p."""
    everything = slice(0, n)
    step = Step((rank + 1) % size, everything, (rank - 1) % size, everything, "add")
    return [step] * (size - 1)


def lost_tail(rank, size, n):
    return ring.allreduce(rank, size, n // size * size)


@pytest.mark.parametrize("wrong", [whole_tensor, lost_tail])
def test_wrong_rings_are_caught_by_values(wrong):
    xs = order_sensitive(4, 13, "float32")
    got = replay([wrong(r, 4, 13) for r in range(4)], xs)
    assert not all(same_bits(a, b) for a, b in zip(got, ring_allreduce(xs)))


def test_scratch_is_one_slice():
    n, p = 100_000, 4

    def body(comm):
        scratch = {}
        execute(comm, ring.allreduce(comm.rank, p, n), np.ones(n, np.float32), scratch=scratch)
        return sum(buffer.size for buffer in scratch.values())

    assert max(threads.run(p, body)) <= -(-n // p)
