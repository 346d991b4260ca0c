"""The tree's memory."""

import numpy as np
import pytest

from refgf.comm import tree
from refgf.comm.schedule import execute
from refgf.machine import threads


@pytest.mark.parametrize("p", [2, 5, 8])
def test_scratch_is_one_vector(p):
    def body(comm):
        scratch = {}
        execute(comm, tree.allreduce(comm.rank, p, 101), np.ones(101), scratch=scratch)
        return sum(buffer.size for buffer in scratch.values())

    assert max(threads.run(p, body)) <= 101
