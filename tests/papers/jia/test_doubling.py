"""Recursive doubling and halving-doubling: bits on ranks, closed forms, memory."""

import numpy as np
import pytest

from refgf.comm.schedule import execute
from refgf.machine import threads
from refgf.papers.jia import doubling
from tests.support.conforms import require_on_ranks
from tests.support.project import Project

ALGORITHMS = {
    "recursive doubling": doubling.recursive_doubling,
    "halving-doubling": doubling.halving_doubling,
}


def test_the_bits_of_the_definition_on_ranks(on_ranks):
    """On threads, with messages and elements: tests/oracle/test_oracle_own.py."""
    on_ranks(require_on_ranks, Project(), "doubling_allreduce", sizes=(1, 3, 5, 6))


@pytest.mark.parametrize("p", [2, 5, 8])
def test_memory_beyond_the_buffer(p):
    """Scratch: n for recursive doubling, n/2 for halving-doubling (p a power of two)."""
    n = 10_001
    wanted = {"recursive doubling": n, "halving-doubling": n // 2 + 1 if p != 5 else n}

    def body(comm, name):
        mine = {}
        execute(comm, ALGORITHMS[name](comm.rank, p, n), np.ones(n, np.float32), scratch=mine)
        return sum(buffer.size for buffer in mine.values())

    for name, most in wanted.items():
        assert max(threads.run(p, body, name)) <= most, name
