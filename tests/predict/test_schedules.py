"""The closed forms against the schedules of refgf.comm themselves, for every p up to 32 and for hierarchies."""

import pytest

from refgf.comm import direct, ring, tree
from refgf.papers.jia import doubling
from refgf.papers.jia import hierarchical
from refgf.predict import cost
from refgf.predict.cost import Link, from_schedules
from refgf.papers.jia.wires import Wires, slowest

LINK = Link(3.0, 0.5, 0.25)  # binary fractions: sums are exact
INSIDE, BETWEEN = Link(1.0, 0.125, 0.125), Link(8.0, 2.0, 0.125)


def simulated(algorithm, p, n, link=LINK):
    return from_schedules([algorithm(rank, p, n) for rank in range(p)], 4, link)


@pytest.mark.parametrize("p", range(1, 33))
@pytest.mark.parametrize(
    "algorithm, form",
    [
        (ring.reduce_scatter, cost.ring_reduce_scatter_s),
        (ring.allgather, cost.ring_allgather_s),
        (ring.allreduce, cost.ring_allreduce_s),
        (direct.allreduce, cost.ring_allreduce_s),
        (doubling.recursive_doubling, cost.recursive_doubling_s),
        (tree.allreduce, cost.tree_s),
    ],
)
def test_exact_for_any_number_of_elements(algorithm, form, p):
    for n in (0, 1, p - 1, p, p + 1, 100_003):
        assert simulated(algorithm, p, n) == form(p, n, 4, LINK)


@pytest.mark.parametrize("p", range(1, 33))
def test_halving_doubling(p):
    """Exact where q = 2**R divides the elements. Otherwise a round that cuts b slices in two sends b/2 of them, each
    less than one element above the average: b/2 + b/4 + ... + 1 = q - 1 elements a phase."""
    rounds = p.bit_length() - 1
    for n in (0, 2**rounds, 3 * 2**rounds):
        assert simulated(doubling.halving_doubling, p, n) == cost.halving_doubling_s(p, n, 4, LINK)
    slack = 4 * (2**rounds - 1) * (2 * LINK.beta_s_per_byte + LINK.gamma_s_per_byte)
    assert 0 <= simulated(doubling.halving_doubling, p, 1001) - cost.halving_doubling_s(p, 1001, 4, LINK) <= slack


def by_node(k):
    return lambda source, dest: INSIDE if source // k == dest // k else BETWEEN


@pytest.mark.parametrize("nodes, k", [(1, 4), (2, 1), (2, 2), (2, 4), (4, 2), (3, 3), (8, 4)])
def test_three_phases(nodes, k):
    p, n = nodes * k, 5 * nodes * k
    algorithm = hierarchical.three_phase(hierarchical.blocks(p, k))
    assert simulated(algorithm, p, n, by_node(k)) == cost.hierarchical_s(nodes, k, n, 4, INSIDE, BETWEEN)


@pytest.mark.parametrize("nodes, k", [(1, 4), (2, 1), (2, 2), (2, 5), (4, 2), (3, 3), (8, 4), (5, 6)])
def test_log_phases(nodes, k):
    """Exact where 2**R of the nodes divide the elements."""
    p, n = nodes * k, 40
    algorithm = hierarchical.log_phases(hierarchical.blocks(p, k))
    assert simulated(algorithm, p, n, by_node(k)) == cost.log_phases_s(nodes, k, n, 4, INSIDE, BETWEEN)


@pytest.mark.parametrize("nodes, k", [(2, 1), (2, 2), (4, 2), (3, 3), (8, 4), (5, 1)])
def test_nothing_is_faster_than_the_bytes_between_nodes(nodes, k):
    """Where only bytes between nodes cost: the two-level ring reaches the bound, nothing goes below it."""
    p, n = nodes * k, 40 * nodes * k
    links = Link(0.0, 0.0), Link(0.0, 2.0)
    least_s = cost.least_between_s(nodes, n, 4, links[1])
    split = hierarchical.blocks(p, k)
    shapes = hierarchical.two_level_ring(split), hierarchical.three_phase(split), hierarchical.log_phases(split), ring.allreduce
    times_s = [simulated(shape, p, n, Wires([rank // k for rank in range(p)], *links)) for shape in shapes]
    assert times_s[0] == least_s == min(times_s)


@pytest.mark.parametrize("nodes, k", [(1, 4), (2, 1), (2, 2), (2, 4), (4, 2), (3, 3), (8, 4)])
def test_two_level_ring(nodes, k):
    """Exact where only bytes cost; with start-ups and additions, which overlap with other ranks' bytes, a bound."""
    p, n = nodes * k, 5 * nodes * k
    algorithm = hierarchical.two_level_ring(hierarchical.blocks(p, k))
    places = [rank // k for rank in range(p)]
    for inside, between, exact in [(Link(1.0, 0.125), Link(0.0, 2.0), True), (INSIDE, BETWEEN, False)]:
        got = simulated(algorithm, p, n, Wires(places, inside, between))
        form = cost.two_level_ring_s(nodes, k, n, 4, inside, between)
        assert got == form if exact else 0.6 * form < got <= form


@pytest.mark.parametrize("nodes, k", [(2, 2), (2, 4), (3, 3)])
def test_a_flat_ring_over_nodes(nodes, k):
    p = nodes * k
    flat = simulated(ring.allreduce, p, 5 * p, Wires([rank // k for rank in range(p)], INSIDE, BETWEEN))
    assert flat == cost.ring_allreduce_s(p, 5 * p, 4, slowest([INSIDE, BETWEEN]))


@pytest.mark.parametrize("p", [3, 5, 6, 7])
def test_forgotten_extra_ranks_are_seen(p):
    """Seeded mistake: log2 p rounds for any p, as if it were a power of two."""
    rounds = p.bit_length() - 1
    wrong = rounds * (LINK.message_s(400) + LINK.sum_s(400))
    assert wrong < simulated(doubling.recursive_doubling, p, 100)
