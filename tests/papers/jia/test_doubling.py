"""Recursive doubling and halving-doubling: bits on ranks, closed forms, memory."""

import numpy as np
import pytest

from refgf.comm.replay import check, replay
from refgf.comm.schedule import execute
from refgf.machine import threads
from refgf.oracle.definitions import doubling_allreduce
from refgf.papers.jia import doubling
from refgf.papers.scaling.collectives import halving_doubling_s, recursive_doubling_s
from refgf.papers.scaling.simulate import from_schedules
from refgf.predict.cost import Link
from tests.support.comm_cases import order_sensitive, same_bits
from tests.support.conforms import require_on_ranks
from tests.support.project import Project

ALGORITHMS = {
    "recursive doubling": doubling.recursive_doubling,
    "halving-doubling": doubling.halving_doubling,
}


def test_the_bits_of_the_definition_on_ranks(on_ranks):
    """On threads, with messages and elements: tests/oracle/test_oracle_own.py."""
    on_ranks(require_on_ranks, Project(), "doubling_allreduce", sizes=(1, 3, 5, 6))


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("n", [0, 1, 7, 100])
@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_schedules_never_block(algorithm, n, p):
    check([algorithm(r, p, n) for r in range(p)])


@pytest.mark.parametrize("p", range(1, 10))
def test_schedules_take_as_long_as_the_closed_forms(p):
    """n = 840 is divisible by 2, 4 and 8, so the closed form of the halves is exact."""
    link, n = Link(5.0, 0.25, 0.125), 840
    forms = {"recursive doubling": recursive_doubling_s, "halving-doubling": halving_doubling_s}
    for name, form in forms.items():
        schedules = [ALGORITHMS[name](r, p, n) for r in range(p)]
        assert from_schedules(schedules, 4, link) == form(p, n, 4, link), name


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


def unrounded_own_side(rank, size, n):
    """A likely mistake: a + round(b) on one rank, round(a) + b on the other."""
    return [step for step in doubling.recursive_doubling(rank, size, n) if step.op != "finish"]


def forgotten_extras(rank, size, n):
    """Right for powers of two, and wrong for every other p."""
    q = 2 ** (size.bit_length() - 1)
    return doubling.halving_doubling(rank, q, n) if rank < q else []


def test_partners_that_do_not_round_their_own_side_differ():
    xs = [np.array([1 + 2**-12], np.float32), np.array([2.0], np.float32)]
    right = replay([doubling.recursive_doubling(r, 2, 1) for r in range(2)], xs, "float16")
    wrong = replay([unrounded_own_side(r, 2, 1) for r in range(2)], xs, "float16")
    assert same_bits(*right) and not same_bits(*wrong)


def test_forgotten_extras_are_caught_by_values():
    xs = order_sensitive(5, 13, "float32")
    got = replay([forgotten_extras(r, 5, 13) for r in range(5)], xs)
    assert not any(same_bits(x, doubling_allreduce(xs)[0]) for x in got)


def test_forgotten_extras_pass_for_powers_of_two():
    """Which is why p = 3, 5, 6, 7 and 9 are tested."""
    xs = order_sensitive(4, 13, "float32")
    assert same_bits(
        replay([forgotten_extras(r, 4, 13) for r in range(4)], xs)[3], doubling_allreduce(xs)[0]
    )
