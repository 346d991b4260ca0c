"""Recursive doubling and halving-doubling: bits of the definition, and counted costs."""

import numpy as np
import pytest

from refgf.comm import ring
from refgf.comm.replay import check, replay
from refgf.comm.schedule import collective, execute
from refgf.comm.slices import length, slices
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.papers.jia import doubling
from refgf.papers.scaling.collectives import halving_doubling_s, recursive_doubling_s
from refgf.papers.scaling.simulate import from_schedules
from refgf.predict.cost import Link
from tests.support.comm_cases import (
    WIRES,
    assert_bits_everywhere,
    order_sensitive,
    rounded,
    same_bits,
    sizes_of,
    tree_sum,
)


def doubling_sum(xs, wire):
    """Extra ranks join the rank before them; then neighbours add pairwise, both sides rounded."""
    p = len(xs)
    e = p - 2 ** (len(bin(p)) - 3)
    held = [xs[2 * i] + rounded(xs[2 * i + 1], wire) for i in range(e)] + xs[2 * e :]
    while len(held) > 1:
        held = [rounded(a, wire) + rounded(b, wire) for a, b in zip(held[::2], held[1::2])]
    return rounded(held[0], wire)


ALGORITHMS = {
    "recursive doubling": (doubling.recursive_doubling, doubling_sum),
    "halving-doubling": (doubling.halving_doubling, doubling_sum),
}


# inf - inf, where a number is too large for the wire
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("dtype, wire", WIRES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_same_bits_everywhere(on_ranks, name, dtype, wire):
    algorithm, definition = ALGORITHMS[name]

    def body(comm):
        assert_bits_everywhere(comm, algorithm, definition, sizes_of(comm.Get_size()), dtype, wire)

    on_ranks(body, sizes=range(1, 10))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("p", [3, 4, 5, 6, 7, 8, 9])
def test_order_sensitive_data_tells_orders_apart(p):
    """Doubling and tree differ only if an extra rank is in the middle of a subtree."""
    xs = order_sensitive(p, 1000, "float32")
    assert not same_bits(
        doubling_sum(xs, None), replay([ring.allreduce(r, p, 1000) for r in range(p)], xs)[0]
    )
    assert not same_bits(doubling_sum(xs, "float16"), doubling_sum(xs, None))
    assert same_bits(doubling_sum(xs, None), tree_sum(xs, None)) == (p not in (5, 9))


@pytest.mark.parametrize("p", range(1, 10))
@pytest.mark.parametrize("n", [0, 1, 7, 100])
@pytest.mark.parametrize("algorithm", [algorithm for algorithm, _ in ALGORITHMS.values()])
def test_schedules_never_block(algorithm, n, p):
    check([algorithm(r, p, n) for r in range(p)])


def rounds_and_extras(p):
    rounds = next(r for r in range(9) if 2 ** (r + 1) > p)
    return rounds, p - 2**rounds


def handed_over(rank, p):
    """Does this rank hand its vector over, and does it take one?"""
    e = rounds_and_extras(p)[1]
    return rank < 2 * e and rank % 2 == 1, rank < 2 * e and rank % 2 == 0


def cost_of_recursive_doubling(rank, p, n):
    gives, takes = handed_over(rank, p)
    messages = 1 if gives else rounds_and_extras(p)[0] + takes
    return messages, messages * n


def cost_of_halving_doubling(rank, p, n):
    """Down n - |B_R|, up |B_1| + ... + |B_R|; the number's bits, lowest first, pick halves."""
    (rounds, e), (gives, takes) = rounds_and_extras(p), handed_over(rank, p)
    if gives:
        return 1, n
    number, parts, sizes = (rank // 2 if takes else rank - e), slices(n, 2**rounds), []
    for j in range(rounds):
        half = len(parts) // 2
        parts = parts[half:] if number >> j & 1 else parts[:half]
        sizes.append(sum(map(length, parts)))
    return 2 * rounds + takes, (n - sizes[-1] + sum(sizes) if sizes else 0) + takes * n


COSTS = {
    "recursive doubling": cost_of_recursive_doubling,
    "halving-doubling": cost_of_halving_doubling,
}


@pytest.mark.parametrize("wire", [None, "float16"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_counted_costs(on_ranks, name, wire):
    """Messages and elements sent by each rank, as the docstrings say."""

    def body(comm):
        traced, p, r = TracedComm(comm), comm.Get_size(), comm.Get_rank()
        for n in sizes_of(p):
            traced.reset()
            collective(traced, ALGORITHMS[name][0], wire)(np.ones(n, np.float32))
            messages, elements = COSTS[name](r, p, n)
            assert (traced.messages, traced.bytes) == (messages, elements * (2 if wire else 4)), (
                name,
                p,
                r,
                n,
            )

    on_ranks(body, sizes=range(1, 10))


@pytest.mark.parametrize("p", [2, 4, 8])
def test_halving_doubling_sends_as_little_as_the_ring(p):
    for r in range(p):
        assert cost_of_halving_doubling(r, p, 800)[1] == 2 * 800 * (p - 1) // p


@pytest.mark.parametrize("p", range(1, 10))
def test_schedules_take_as_long_as_the_closed_forms(p):
    """n = 840 is divisible by 2, 4 and 8, so the closed form of the halves is exact."""
    link, n = Link(5.0, 0.25, 0.125), 840
    forms = {"recursive doubling": recursive_doubling_s, "halving-doubling": halving_doubling_s}
    for name, form in forms.items():
        schedules = [ALGORITHMS[name][0](r, p, n) for r in range(p)]
        assert from_schedules(schedules, 4, link) == form(p, n, 4, link), name


@pytest.mark.parametrize("p", [2, 5, 8])
def test_memory_beyond_the_buffer(p):
    """Scratch: n for recursive doubling, n/2 for halving-doubling (p a power of two)."""
    n = 10_001
    wanted = {"recursive doubling": n, "halving-doubling": n // 2 + 1 if p != 5 else n}

    def body(comm, name):
        mine = {}
        execute(comm, ALGORITHMS[name][0](comm.rank, p, n), np.ones(n, np.float32), scratch=mine)
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
    assert not any(same_bits(x, doubling_sum(xs, None)) for x in got)


def test_forgotten_extras_pass_for_powers_of_two():
    """Which is why p = 3, 5, 6, 7 and 9 are tested."""
    xs = order_sensitive(4, 13, "float32")
    assert same_bits(
        replay([forgotten_extras(r, 4, 13) for r in range(4)], xs)[3], doubling_sum(xs, None)
    )
