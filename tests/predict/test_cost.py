"""Closed forms against the simulation of schedules that are written here, independently of refgf.comm.

test_schedules.py does the same with the schedules of refgf.comm and more ranks.
"""

from types import SimpleNamespace

import pytest

from refgf.predict import cost
from refgf.predict.cost import Curve, Line, Link, from_schedules

LINK = Link(alpha_s=3.0, beta_s_per_byte=0.5, gamma_s_per_byte=0.25)  # binary fractions: sums are exact
NO_SUMS = Link(3.0, 0.5)


def step(to, send, sender, receive, op):
    return SimpleNamespace(send_to=to, send=slice(*send), receive_from=sender, receive=slice(*receive), op=op)


def cuts(n, p):
    """Bounds of p slices, the first n mod p one longer."""
    starts = [sum(n // p + (s < n % p) for s in range(r)) for r in range(p + 1)]
    return list(zip(starts, starts[1:]))


def ring_schedule(rank, p, n):
    part = cuts(n, p)
    right, left, ops = (rank + 1) % p, (rank - 1) % p, ["add"] * (p - 1) + ["copy"] * (p - 1)
    return [step(right, part[(rank - k) % p], left, part[(rank - k - 1) % p], op) for k, op in enumerate(ops)]


def doubling_schedule(rank, p, n):
    return [step(rank ^ 1 << k, (0, n), rank ^ 1 << k, (0, n), "add") for k in range(p.bit_length() - 1)]


def halving_doubling_schedule(rank, p, n):
    low, high, steps = 0, n, []
    for bit in [p >> k for k in range(1, p.bit_length())]:
        middle = (low + high) // 2
        mine, other = ((low, middle), (middle, high)) if not rank & bit else ((middle, high), (low, middle))
        steps.append(step(rank ^ bit, other, rank ^ bit, mine, "add"))
        low, high = mine
    for s in reversed(steps[:]):
        mine, other = (s.receive.start, s.receive.stop), (s.send.start, s.send.stop)
        steps.append(step(s.send_to, mine, s.send_to, other, "copy"))
    return steps


def tree_schedule(rank, p, n):
    """Binomial tree with root 0, for any p."""
    up, bit = [], 1
    while bit < p:
        if rank & bit:
            up.append(step(rank - bit, (0, n), None, (0, 0), "copy"))
            break
        if rank + bit < p:
            up.append(step(None, (0, 0), rank + bit, (0, n), "add"))
        bit *= 2
    down = [
        step(None, (0, 0), s.send_to, (0, n), "copy") if s.send_to is not None
        else step(s.receive_from, (0, n), None, (0, 0), "copy")
        for s in reversed(up)
    ]
    return up + down


def hierarchical_schedule(rank, nodes, k, n):
    """Reduce-scatter and gather to each node's first rank, ring over those, scatter and allgather in the node."""
    first, local = rank - rank % k, rank % k
    part = cuts(n, k)

    def inside(steps):
        return [step(first + s.send_to, (s.send.start, s.send.stop), first + s.receive_from,
                     (s.receive.start, s.receive.stop), s.op) for s in steps]

    ring_in_node = inside(ring_schedule(local, k, n))
    owned = part[(local + 1) % k]
    gather, scatter = [], []
    for other in range(1, k):
        theirs = part[(other + 1) % k]
        if local == 0:
            gather.append(step(None, (0, 0), first + other, theirs, "copy"))
            scatter.append(step(first + other, theirs, None, (0, 0), "copy"))
        elif local == other:
            gather.append(step(first, owned, None, (0, 0), "copy"))
            scatter.append(step(None, (0, 0), first, owned, "copy"))
    masters = []
    if local == 0:
        masters = [step(k * s.send_to, (s.send.start, s.send.stop), k * s.receive_from,
                        (s.receive.start, s.receive.stop), s.op) for s in ring_schedule(rank // k, nodes, n)]
    return ring_in_node[: k - 1] + gather + masters + scatter + ring_in_node[k - 1 :]


def simulated(schedule, p, n, itemsize=4, link=LINK):
    return from_schedules([schedule(rank, p, n) for rank in range(p)], itemsize, link)


SIZES = (0, 1, 2, 7, 8, 13, 1000)


@pytest.mark.parametrize("p", range(1, 9))
@pytest.mark.parametrize("n", SIZES)
def test_ring_is_exact_for_uneven_slices(p, n):
    assert cost.ring_allreduce_s(p, n, 4, LINK) == simulated(ring_schedule, p, n)


def test_ring_by_hand():
    """p = 3, n = 7 float32: slices of 3, 2, 2. Four steps of 3 + 12/2, two additions of 12/4."""
    assert cost.ring_allreduce_s(3, 7, 4, LINK) == 4 * (3 + 6) + 2 * 3


@pytest.mark.parametrize("p", [3, 5, 8])
def test_a_ring_that_drops_the_tail_costs_less(p):
    """Seeded mistake: n // p in place of the largest slice. Invisible where p divides n."""
    wrong = 2 * (p - 1) * LINK.message_s(4 * (13 // p)) + (p - 1) * LINK.sum_s(4 * (13 // p))
    assert wrong != simulated(ring_schedule, p, 13)


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("n", SIZES)
def test_recursive_doubling(p, n):
    assert cost.recursive_doubling_s(p, n, 4, LINK) == simulated(doubling_schedule, p, n)


@pytest.mark.parametrize("p", [1, 2, 4, 8])
def test_halving_doubling(p):
    for n in (0, 8, 1000):
        assert cost.halving_doubling_s(p, n, 4, LINK) == simulated(halving_doubling_schedule, p, n)
    rounds = p.bit_length() - 1
    slack = 4 * 2 * rounds * (LINK.beta_s_per_byte + LINK.gamma_s_per_byte)
    assert 0 <= simulated(halving_doubling_schedule, p, 13) - cost.halving_doubling_s(p, 13, 4, LINK) <= slack


@pytest.mark.parametrize("p", range(1, 9))
@pytest.mark.parametrize("n", SIZES)
def test_tree(p, n):
    assert cost.tree_s(p, n, 4, LINK) == simulated(tree_schedule, p, n)


@pytest.mark.parametrize("nodes, k", [(1, 2), (2, 1), (2, 2), (2, 4), (4, 2), (3, 2), (2, 3)])
def test_hierarchical(nodes, k):
    n, inside, between = 12 * k * nodes, Link(1.0, 0.25, 0.125), Link(8.0, 2.0, 0.125)

    def link(source, dest):
        return inside if source // k == dest // k else between

    schedules = [hierarchical_schedule(rank, nodes, k, n) for rank in range(nodes * k)]
    assert cost.hierarchical_s(nodes, k, n, 4, inside, between) == from_schedules(schedules, 4, link)


def test_hierarchical_counts_the_paper_s_steps():
    one_a_message = Link(1, 0)
    assert cost.hierarchical_s(64, 16, 10**6, 4, one_a_message, one_a_message) == 186
    assert cost.ring_allreduce_s(1024, 10**6, 4, one_a_message) == 2046


@pytest.mark.parametrize("p", [2, 4, 8])
def test_lines_equal_the_exact_forms_on_even_slices(p):
    n = 1000 * p
    for line, form in [
        (cost.ring_line, cost.ring_allreduce_s),
        (cost.recursive_doubling_line, cost.recursive_doubling_s),
        (cost.halving_doubling_line, cost.halving_doubling_s),
        (cost.tree_line, cost.tree_s),
    ]:
        assert line(p, LINK)(4 * n) == pytest.approx(form(p, n, 4, LINK), rel=1e-15 * 8)  # a few roundings


def test_ring_line_is_not_sensitive_to_powers_of_two_only():
    assert cost.ring_line(5, LINK)(4 * 1000) == pytest.approx(cost.ring_allreduce_s(5, 1000, 4, LINK), rel=1e-14)
    assert Line(1, 2)(3) == 7


def test_a_curve_by_hand():
    """Through (10, 1), (20, 3), (60, 4), exact in binary: as the first below it, straight between, as steep beyond."""
    curve = Curve(((10, 1.0), (20, 3.0), (60, 4.0)))
    wanted = {0: 1.0, 10: 1.0, 15: 2.0, 20: 3.0, 40: 3.5, 60: 4.0, 100: 5.0}
    assert {nbytes: curve(nbytes) for nbytes in wanted} == wanted
    assert Curve(((1, 2.0), (3, 1.0)))(2) == 1.5 and Curve(((1, 2.0), (3, 1.0)))(9) == 1.0  # never falls beyond what is known


@pytest.mark.parametrize("p", [2, 3, 5, 7])
def test_a_curve_through_a_line_is_the_line(p):
    line = cost.ring_line(p, LINK)
    sizes = [0, 1, 7, 1000, 4096]
    curve = Curve(tuple((nbytes, line(nbytes)) for nbytes in sizes))
    for nbytes in (*sizes, 3, 500, 4095, 10**6):
        assert curve(nbytes) == pytest.approx(line(nbytes), rel=1e-12)  # a few roundings of 2**-53 each


@pytest.mark.parametrize("points", [(), ((1, 1.0),), ((1, 1.0), (1, 2.0)), ((2, 1.0), (1, 2.0)), ((1, -1.0), (2, 1.0)),
                                    ((1, float("nan")), (2, 1.0)), ((1, 1.0), (2, float("inf")))])  # fmt: skip
def test_a_curve_refuses_nonsense(points):
    with pytest.raises(ValueError, match="wanted at least two, rising in bytes"):
        Curve(points)


def test_other_sizes_cost_two_messages_more():
    assert cost.recursive_doubling_s(5, 10, 4, NO_SUMS) == cost.recursive_doubling_s(4, 10, 4, NO_SUMS) + 2 * 23
    assert cost.halving_doubling_s(5, 8, 4, NO_SUMS) == cost.halving_doubling_s(4, 8, 4, NO_SUMS) + 2 * 19


def test_one_rank_costs_nothing():
    for form in (cost.ring_allreduce_s, cost.recursive_doubling_s, cost.halving_doubling_s, cost.tree_s):
        assert form(1, 1000, 4, LINK) == 0


def test_bandwidths():
    """nccl-tests: 8 ranks, 1e9 bytes in 1 s: algbw 1e9, busbw 1.75e9."""
    assert cost.algorithm_bandwidth(10**9, 2.0) == 5e8
    assert cost.bus_bandwidth("allreduce", 8, 10**9, 1.0) == 1.75e9
    assert cost.bus_bandwidth("allgather", 8, 10**9, 1.0) == 0.875e9
    assert cost.bus_bandwidth("broadcast", 8, 10**9, 1.0) == 1e9
    with pytest.raises(ValueError, match="allgatherv"):
        cost.bus_bandwidth("allgatherv", 8, 1, 1.0)


def test_a_perfect_ring_has_the_link_s_bandwidth_on_the_bus():
    seconds = cost.ring_allreduce_s(8, 8000, 4, Link(0, 0.5))
    assert cost.bus_bandwidth("allreduce", 8, 32000, seconds) == 2.0


@pytest.mark.parametrize("values", [(-1e-6, 1e-9), (1e-6, float("nan")), (1e-6, float("inf")), (0, 0, -1)])
def test_link_refuses_nonsense(values):
    with pytest.raises(ValueError, match="finite number of seconds"):
        Link(*values)
