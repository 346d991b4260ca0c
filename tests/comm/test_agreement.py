"""Ranks that submit different things say so everywhere."""

from functools import partial

import numpy as np
import pytest

from refgf.comm import ring
from refgf.comm.agreement import HASH_BYTES, CheckedAllreduce, agree, function_name, records
from refgf.comm.native import mpi_allreduce
from refgf.comm.schedule import collective
from refgf.machine.trace import TracedComm


def test_records_arrive_in_rank_order_at_the_stated_cost(on_ranks):
    def body(comm):
        traced, p = TracedComm(comm), comm.Get_size()
        assert records(traced, f"rank {comm.Get_rank()}", 32) == [f"rank {r}" for r in range(p)]
        assert traced.messages == (p - 1).bit_length()
        assert traced.bytes == (p - 1) * HASH_BYTES

    on_ranks(body, sizes=range(1, 9))


def test_different_sizes_are_named_on_every_rank(on_ranks):
    def body(comm):
        if comm.Get_size() == 1:
            return
        allreduce = CheckedAllreduce(comm, collective(comm, ring.allreduce))
        with pytest.raises(
            ValueError, match="'call 1 sums 6 elements of float32' on rank 0; 'call 1 sums 5"
        ):
            allreduce(np.ones(5 if comm.Get_rank() else 6, np.float32))

    on_ranks(body)


def test_different_types_and_layouts(on_ranks):
    def body(comm):
        if comm.Get_size() == 1:
            return
        with pytest.raises(ValueError, match="float64' on rank 0; .*float32' on rank 1"):
            CheckedAllreduce(comm, None)(np.ones(3, np.float32 if comm.Get_rank() else np.float64))
        with pytest.raises(ValueError, match="gradient pool differs"):
            agree(comm, "gradient pool", "a b" if comm.Get_rank() else "b a")

    on_ranks(body)


def test_equal_calls_pass_and_are_summed(on_ranks):
    def body(comm):
        allreduce = CheckedAllreduce(comm, collective(comm, ring.allreduce))
        x = np.ones(7, np.float32)
        allreduce(x)
        assert (x == comm.Get_size()).all() and allreduce.calls == 1 and allreduce.seconds >= 0

    on_ranks(body)


def test_a_difference_far_behind_is_shown(on_ranks):
    def body(comm):
        if comm.Get_size() == 1:
            return
        value = "a" * 500 + ("x" if comm.Get_rank() == 1 else "y") + "b" * 500
        with pytest.raises(ValueError, match=r"'a{30}yb{29}' on rank 0.*'a{30}xb{29}' on rank 1"):
            agree(comm, "layout", value)
        agree(comm, "layout", "a" * 1001)

    on_ranks(body)


def test_functions_are_named_without_addresses():
    assert function_name(ring.ring_allreduce) == (
        "refgf.comm.schedule.collective('algorithm', refgf.comm.ring.allreduce)"
    )
    assert function_name(mpi_allreduce) == "refgf.comm.native.mpi_allreduce"
    assert function_name(np.zeros(3)) == "numpy.ndarray"
    assert function_name(partial(max, 3, None, 0.5)) == "builtins.max(3, None, 0.5)"
