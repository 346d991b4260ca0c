"""The direct allreduce: the bits of a sum in rank order, however it is cut, and counted costs."""

import numpy as np
import pytest

from refgf.comm import direct, ring, schedule
from refgf.comm.replay import check, replay
from refgf.comm.slices import length, slices
from refgf.oracle.definitions import direct_allreduce
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
        assert_bits_everywhere(comm, direct.allreduce, direct_allreduce, sizes, dtype, wire)

    on_ranks(body, sizes=range(1, 10))


def test_order_sensitive_data_tells_orders_apart():
    """Ring and rank order differ on it, otherwise equal bits would prove nothing."""
    xs = order_sensitive(5, 1000, "float32")
    ring_bits, direct_bits = (
        replay([algorithm(r, 5, 1000) for r in range(5)], xs)[0]
        for algorithm in (ring.allreduce, direct.allreduce)
    )
    assert not same_bits(ring_bits, direct_bits)


@pytest.mark.parametrize("wire", [None, "float16"])
def test_counted_costs(on_ranks, wire):
    """2(p-1) messages, n + (p-2) |slice r| elements."""

    def cost(r, p, n):
        return 2 * (p - 1), n + (p - 2) * length(slices(n, p)[r]) if p > 1 else 0

    on_ranks(
        lambda comm: assert_counted_costs(comm, direct.allreduce, cost, wire) and None,
        sizes=range(1, 10),
    )


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("n", [0, 1, 7, 100])
def test_schedules_never_block(n, p):
    check([direct.allreduce(r, p, n) for r in range(p)])


def test_blocks_do_not_change_bits(monkeypatch):
    xs = order_sensitive(3, 1000, "float32")
    schedules = [direct.allreduce(r, 3, 1000) for r in range(3)]
    whole = replay(schedules, xs, "float16")
    monkeypatch.setattr(schedule, "BLOCK_ELEMENTS", 7)
    assert all(map(same_bits, replay(schedules, xs, "float16"), whole))


def test_direct_allreduce_takes_a_communicator_and_a_wire_type(on_ranks):
    """Only inputs and the result are rounded: p times a number that float16 does not have."""

    def body(comm):
        x = np.full(5, 1 + 2**-12, np.float32)
        direct.direct_allreduce(comm, wire=np.float16)(x)
        assert (x == comm.Get_size()).all()

    on_ranks(body)
