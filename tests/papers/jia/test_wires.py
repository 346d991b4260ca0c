"""Shared and slow links: by hand, and closed forms against the simulation of comm's own ring."""

from types import SimpleNamespace

import pytest

from refgf.comm import ring
from refgf.papers.jia.wires import Wires
from refgf.papers.scaling.collectives import recursive_doubling_s
from refgf.papers.scaling.simulate import finish_times, from_schedules
from refgf.predict.cost import Link, ring_allreduce_s

INSIDE, BETWEEN = Link(1.0, 0.125, 0.25), Link(4.0, 0.5, 0.25)


def shared(link, ranks):
    """The link as each of `ranks` ranks sees it that send through it at once."""
    return Link(link.alpha_s, ranks * link.beta_s_per_byte, link.gamma_s_per_byte)


def step(to=None, sender=None, n=8, op="copy"):
    return SimpleNamespace(
        send_to=to, send=slice(0, n), receive_from=sender, receive=slice(0, n), op=op
    )


def test_two_messages_through_one_link():
    """8 bytes each: through after 4 and 8 s, then alpha = 4. Inside a node they would not meet."""
    schedules = [[step(to=2)], [step(to=3)], [step(sender=0)], [step(sender=1)]]
    assert from_schedules(schedules, 1, Wires([0, 0, 1, 1], INSIDE, BETWEEN)) == 12
    assert from_schedules(schedules, 1, Wires([0, 1, 2, 3], INSIDE, BETWEEN)) == 8
    assert from_schedules(schedules, 1, Wires([0, 0, 0, 0], INSIDE, BETWEEN)) == 2


def test_a_message_takes_what_the_others_cannot():
    """Three messages into node 3 get a third each, so 1 to 7 gets two thirds of the link of node 0.

    8 bytes take 4 s at full rate: 4 + 12 s and 4 + 6 s.
    """
    pairs = {0: 4, 2: 5, 3: 6, 1: 7}
    senders = {to: rank for rank, to in pairs.items()}
    schedules = [[step(pairs.get(rank), senders.get(rank))] for rank in range(8)]
    times_s = finish_times(schedules, 1, Wires([0, 0, 1, 2, 3, 3, 3, 4], INSIDE, BETWEEN))
    assert times_s == pytest.approx([16, 10, 16, 16, 16, 16, 16, 10])


def test_directions_do_not_share():
    exchange = [[step(to=1, sender=1)], [step(to=0, sender=0)]]
    assert from_schedules(exchange, 1, Wires([0, 1], INSIDE, BETWEEN)) == 8


@pytest.mark.parametrize("nodes, k", [(2, 2), (3, 2), (2, 4), (4, 1)])
def test_a_ring_over_nodes_runs_at_the_pace_of_the_slowest_link(nodes, k):
    """One message a step leaves each node, so ranks that share a link do not slow a ring.

    Exact for even slices.
    """
    p = nodes * k
    schedules = [ring.allreduce(rank, p, 8 * p) for rank in range(p)]
    wires = Wires([rank // k for rank in range(p)], INSIDE, BETWEEN)
    assert from_schedules(schedules, 4, wires) == ring_allreduce_s(p, 8 * p, 4, BETWEEN)


def test_ranks_dealt_out_round_robin_do_share():
    """Seeded mistake of a launcher: neighbours of the ring on different nodes.

    k messages a step through each link.
    """
    p, k = 8, 4
    schedules = [ring.allreduce(rank, p, 8 * p) for rank in range(p)]
    by_node = from_schedules(schedules, 4, Wires([rank // k for rank in range(p)], INSIDE, BETWEEN))
    round_robin = from_schedules(
        schedules, 4, Wires([rank % 2 for rank in range(p)], INSIDE, BETWEEN)
    )
    assert by_node < round_robin <= ring_allreduce_s(p, 8 * p, 4, shared(BETWEEN, k))


@pytest.mark.parametrize("p", [2, 3, 4, 5, 8])
def test_a_straggler_link_slows_the_whole_ring(p):
    slow = Link(4.0, 5.0, 0.25)
    schedules = [ring.allreduce(rank, p, 8 * p) for rank in range(p)]
    got = from_schedules(schedules, 4, Wires(range(p), INSIDE, BETWEEN, slow={p - 1: slow}))
    assert got == ring_allreduce_s(p, 8 * p, 4, Link(4.0, 5.0, 0.25))


@pytest.mark.parametrize("k", [1, 2, 4])
def test_recursive_doubling_between_two_nodes(k):
    """Rounds inside a node first, then one round in which all k ranks of a node send at once."""
    p, n = 2 * k, 16
    rounds = [
        [step(rank ^ bit, rank ^ bit, n, "add") for bit in (1, 2, 4) if bit < p]
        for rank in range(p)
    ]
    wires = Wires([rank // k for rank in range(p)], INSIDE, BETWEEN)
    inside_s = recursive_doubling_s(k, n, 1, INSIDE)
    assert from_schedules(rounds, 1, wires) == inside_s + recursive_doubling_s(
        2, n, 1, shared(BETWEEN, k)
    )
