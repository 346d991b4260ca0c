"""Closed forms of allreduces against the schedules of refgf.comm and refgf.papers.jia."""

import pytest

from refgf.comm import direct, ring, tree
from refgf.papers.jia import doubling, hierarchical
from refgf.papers.jia.wires import Wires
from refgf.papers.scaling import collectives
from refgf.papers.scaling.simulate import from_schedules
from refgf.predict import cost
from refgf.predict.cost import Link

LINK = Link(3.0, 0.5, 0.25)  # binary fractions: sums are exact
SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 19)
INSIDE, BETWEEN = Link(1.0, 0.125, 0.125), Link(8.0, 2.0, 0.125)


def simulated(algorithm, p, n, link=LINK):
    return from_schedules([algorithm(rank, p, n) for rank in range(p)], 4, link)


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize(
    "algorithm, form",
    [
        (ring.reduce_scatter, cost.ring_reduce_scatter_s),
        (ring.allgather, cost.ring_allgather_s),
        (ring.allreduce, cost.ring_allreduce_s),
        (direct.allreduce, cost.ring_allreduce_s),
        (doubling.recursive_doubling, collectives.recursive_doubling_s),
        (tree.allreduce, collectives.tree_s),
    ],
)
def test_exact_for_any_number_of_elements(algorithm, form, p):
    for n in (0, 1, p - 1, p, p + 1, 100_003):
        assert simulated(algorithm, p, n) == form(p, n, 4, LINK)


@pytest.mark.parametrize("p", SIZES)
def test_halving_doubling(p):
    """Exact where q = 2**R divides the elements.

    Otherwise a round that halves b slices sends b/2 of them, each less than one element above the
    average: b/2 + b/4 + ... + 1 = q - 1 elements per phase.
    """
    rounds = p.bit_length() - 1
    for n in (0, 2**rounds, 3 * 2**rounds):
        form = collectives.halving_doubling_s(p, n, 4, LINK)
        assert simulated(doubling.halving_doubling, p, n) == form
    slack = 4 * (2**rounds - 1) * (2 * LINK.beta_s_per_byte + LINK.gamma_s_per_byte)
    form = collectives.halving_doubling_s(p, 1001, 4, LINK)
    assert 0 <= simulated(doubling.halving_doubling, p, 1001) - form <= slack


def by_node(k):
    return lambda source, dest: INSIDE if source // k == dest // k else BETWEEN


@pytest.mark.parametrize("nodes, k", [(1, 4), (2, 1), (2, 2), (2, 4), (4, 2), (3, 3), (8, 4)])
def test_three_phases(nodes, k):
    p, n = nodes * k, 5 * nodes * k
    algorithm = hierarchical.three_phase(hierarchical.consecutive_nodes(p, k))
    form = collectives.hierarchical_s(nodes, k, n, 4, INSIDE, BETWEEN)
    assert simulated(algorithm, p, n, by_node(k)) == form


@pytest.mark.parametrize("nodes, k", [(2, 1), (2, 2), (4, 2), (3, 3), (8, 4), (5, 1)])
def test_nothing_is_faster_than_the_bytes_between_nodes(nodes, k):
    """Where only bytes between nodes cost: the two-level ring reaches the bound."""
    p, n = nodes * k, 40 * nodes * k
    links = Link(0.0, 0.0), Link(0.0, 2.0)
    least_s = collectives.least_between_s(nodes, n, 4, links[1])
    split = hierarchical.consecutive_nodes(p, k)
    algorithms = [f(split) for f in (hierarchical.two_level_ring, hierarchical.three_phase)]
    algorithms += [hierarchical.log_phases(split), ring.allreduce]
    node_of_rank = [rank // k for rank in range(p)]
    times_s = [simulated(algorithm, p, n, Wires(node_of_rank, *links)) for algorithm in algorithms]
    assert times_s[0] == least_s == min(times_s)


def test_sums_in_switches_by_hand():
    """One rank a node: a message up and down. 4 ranks a node, 5 elements: slices of 2, in 3 + 3."""
    inside, between = Link(1.0, 0.5, 0.25), Link(100.0, 10.0)
    assert collectives.in_network_s(1, 5, 4, inside, between) == 100 + 20 * 10
    node_s = 6 * (1 + 8 * 0.5) + 3 * 8 * 0.25
    assert collectives.in_network_s(4, 5, 4, inside, between) == node_s + 100 + 20 * 10
    assert collectives.in_network_s(3, 0, 4, inside, between) == 4 + 100


def test_switches_send_fewer_bytes_than_ranks_that_sum():
    """As many as two nodes, whose ranks need n, too; half as many as very many nodes."""
    link = Link(0.0, 1.0)
    in_switch_s = collectives.in_network_s(1, 60, 4, link, link)
    least_s = [collectives.least_between_s(m, 60, 4, link) for m in (2, 3, 60)]
    assert [s / in_switch_s for s in least_s] == pytest.approx([1, 4 / 3, 2 * 59 / 60])
