"""Ring and direct: the same bits on threads, on MPI and in `replay`, and those of the definition; counted costs."""

import numpy as np
import pytest
from comm_cases import WIRES, assert_bits_everywhere, order_sensitive, same_bits, sizes_of

from refgf.comm import direct, ring
from refgf.machine import threads
from refgf.comm.replay import check, replay
from refgf.comm.schedule import Step, collective, execute
from refgf.comm.slices import length, slices
from refgf.comm.trace import TracedComm
from refgf.oracle.definitions import direct_allreduce, ring_allreduce

ALGORITHMS = {"ring": (ring.allreduce, ring_allreduce), "direct": (direct.allreduce, direct_allreduce)}


@pytest.mark.parametrize("dtype, wire", WIRES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_same_bits_everywhere(on_ranks, name, dtype, wire):
    algorithm, definition = ALGORITHMS[name]

    def body(comm):
        sizes = sizes_of(comm.Get_size(), 100_003)
        assert_bits_everywhere(comm, algorithm, lambda xs, wire: definition(xs, wire)[comm.Get_rank()], sizes, dtype, wire)

    on_ranks(body, sizes=range(1, 10))


def test_order_sensitive_data_tells_orders_apart():
    """Ring and rank order differ on it, else the bits above would prove nothing."""
    xs = order_sensitive(5, 1000, "float32")
    ring_bits = replay([ring.allreduce(r, 5, 1000) for r in range(5)], xs)[0]
    direct_bits = replay([direct.allreduce(r, 5, 1000) for r in range(5)], xs)[0]
    assert not same_bits(ring_bits, direct_bits)


@pytest.mark.parametrize("wire", [None, "float16"])
def test_counted_cost_of_the_ring(on_ranks, wire):
    """2(p-1) messages, 2n - |slice r+1| - |slice r+2| elements, as its docstring says."""

    def body(comm):
        traced, p, r = TracedComm(comm), comm.Get_size(), comm.Get_rank()
        for n in sizes_of(p):
            traced.reset()
            collective(traced, ring.allreduce, wire)(np.ones(n, np.float32))
            parts = slices(n, p)
            elements = 2 * n - length(parts[(r + 1) % p]) - length(parts[(r + 2) % p]) if p > 1 else 0
            assert traced.messages == 2 * (p - 1)
            assert traced.bytes == elements * (2 if wire else 4)
            assert list(traced.peers) == ([(r + 1) % p] if p > 1 else [])

    on_ranks(body, sizes=range(1, 10))


def test_counted_cost_of_direct(on_ranks):
    """2(p-1) messages, n + (p-2) |slice r| elements."""

    def body(comm):
        traced, p, r = TracedComm(comm), comm.Get_size(), comm.Get_rank()
        for n in sizes_of(p):
            traced.reset()
            collective(traced, direct.allreduce)(np.ones(n, np.float32))
            assert traced.messages == 2 * (p - 1)
            assert traced.bytes == (4 * (n + (p - 2) * length(slices(n, p)[r])) if p > 1 else 0)

    on_ranks(body, sizes=range(1, 10))


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("n", [0, 1, 7, 100])
@pytest.mark.parametrize("algorithm", [ring.allreduce, ring.reduce_scatter, ring.allgather, direct.allreduce])
def test_schedules_never_block(algorithm, n, p):
    check([algorithm(r, p, n) for r in range(p)])


def test_check_finds_blocked_sends():
    def send_then_receive(rank, size, n):
        everything, nothing = slice(0, n), slice(0, 0)
        return [
            Step((rank + 1) % size, everything, None, nothing, "copy"),
            Step(None, nothing, (rank - 1) % size, everything, "copy"),
        ]

    with pytest.raises(ValueError, match="rank 0 at step 0 waits to send to 1"):
        check([send_then_receive(r, 3, 5) for r in range(3)])


def test_check_finds_a_wrong_length():
    schedules = [ring.allreduce(r, 3, 7 if r else 8) for r in range(3)]
    with pytest.raises(ValueError, match="sends 3 elements to rank 1, which expects 2|expects 3"):
        check(schedules)


def test_check_finds_a_missing_receive():
    schedules = [ring.allreduce(r, 3, 7) for r in range(3)]
    schedules[1] = schedules[1][:-1]
    with pytest.raises(ValueError, match="wait for ever"):
        check(schedules)


def whole_tensor(rank, size, n):
    """The textbook mistake: right values for p = 2, far too many bytes for all p."""
    everything = slice(0, n)
    return [Step((rank + 1) % size, everything, (rank - 1) % size, everything, "add") for _ in range(size - 1)]


def lost_tail(rank, size, n):
    return ring.allreduce(rank, size, n // size * size)


@pytest.mark.parametrize("wrong", [whole_tensor, lost_tail])
def test_wrong_rings_are_caught_by_values(wrong):
    xs = order_sensitive(4, 13, "float32")
    got = replay([wrong(r, 4, 13) for r in range(4)], xs)
    assert not all(same_bits(a, b) for a, b in zip(got, ring_allreduce(xs)))


@pytest.mark.parametrize(
    "x, told",
    [
        (np.zeros((2, 2), np.float32), "shape"),
        (np.zeros(8, np.float32)[::2], "ascontiguousarray"),
        (np.zeros(3, np.int64), "astype"),
        ([1.0, 2.0], "astype"),
        (np.frombuffer(bytes(8), np.float32), "copy"),
    ],
)
def test_bad_arrays_are_refused_on_every_rank(on_ranks, x, told):
    def body(comm):
        allreduce = collective(comm, ring.allreduce)
        with pytest.raises(ValueError, match=f"ring.allreduce on rank {comm.Get_rank()}: got .*{told}"):
            allreduce(x)

    on_ranks(body)


def test_memory_beyond_the_buffer_is_one_slice():
    n, p = 100_000, 4
    scratch = {}

    def body(comm):
        mine = {}
        execute(comm, ring.allreduce(comm.rank, p, n), np.ones(n, np.float32), scratch=mine)
        scratch[comm.rank] = sum(buffer.size for buffer in mine.values())

    threads.run(p, body)
    assert max(scratch.values()) <= -(-n // p)
