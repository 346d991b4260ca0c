"""The tree: bits of its definition on every rank, and counted costs."""

import numpy as np
import pytest

from refgf.comm import tree
from refgf.comm.replay import check
from refgf.comm.schedule import execute
from refgf.machine import threads
from tests.support.comm_cases import (
    WIRES,
    assert_bits_everywhere,
    assert_counted_costs,
    sizes_of,
    tree_sum,
)


@pytest.mark.filterwarnings("ignore:invalid value")  # inf - inf, if too large for the wire type
@pytest.mark.parametrize("dtype, wire", WIRES)
def test_bits_of_the_definition(on_ranks, dtype, wire):
    def body(comm):
        sizes = sizes_of(comm.Get_size())
        assert_bits_everywhere(comm, tree.allreduce, tree_sum, sizes, dtype, wire)

    on_ranks(body, sizes=range(1, 10))


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("n", [0, 1, 7, 100])
def test_schedules_never_block(n, p):
    check([tree.allreduce(r, p, n) for r in range(p)])


def cost_of_tree(rank, p, n):
    children = [d for d in (1, 2, 4, 8) if rank % (2 * d) == 0 and rank + d < p]
    messages = (rank > 0) + len(children)
    return messages, messages * n


@pytest.mark.parametrize("wire", [None, "float16"])
def test_counted_costs(on_ranks, wire):
    def body(comm):
        assert_counted_costs(comm, tree.allreduce, cost_of_tree, wire)

    on_ranks(body, sizes=range(1, 10))


@pytest.mark.parametrize("p", [2, 5, 8])
def test_scratch_is_one_vector(p):
    def body(comm):
        scratch = {}
        execute(comm, tree.allreduce(comm.rank, p, 101), np.ones(101), scratch=scratch)
        return sum(buffer.size for buffer in scratch.values())

    assert max(threads.run(p, body)) <= 101
