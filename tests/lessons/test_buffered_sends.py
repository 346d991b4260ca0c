"""Senders that do not wait for the receiver: equal to a rendezvous where nothing can overlap."""

import pytest

from lab.hierarchy.buffered_sends import finish_s
from refgf.comm import ring, tree
from refgf.papers.jia import doubling, hierarchical
from refgf.papers.jia.wires import Wires
from refgf.papers.scaling.simulate import from_schedules
from refgf.predict.cost import Link

NODES = hierarchical.consecutive_nodes(8, 2)
WHERE = [rank // 2 for rank in range(8)]
INSIDE, BETWEEN = Link(30e-6, 4e-9, 5e-11), Link(0.5e-3, 8e-9, 5e-11)


def times(algorithm, n: int) -> tuple[float, float]:
    """Seconds with stored messages, and with a rendezvous."""
    schedules = [algorithm(rank, 8, n) for rank in range(8)]
    wires = Wires(WHERE, INSIDE, BETWEEN)
    return finish_s(schedules, 4, WHERE, INSIDE, BETWEEN), from_schedules(schedules, 4, wires)


@pytest.mark.parametrize("n", [0, 800, 800_000])
@pytest.mark.parametrize(
    "algorithm",
    [hierarchical.three_phase(NODES), hierarchical.log_phases(NODES), tree.allreduce],
    ids=["three phases", "log phases", "tree"],
)
def test_a_rank_that_sends_on_what_it_received_hides_nothing(algorithm, n):
    stored_s, rendezvous_s = times(algorithm, n)
    assert stored_s == pytest.approx(rendezvous_s)


@pytest.mark.parametrize("n", [800, 800_000])
def test_of_two_messages_on_a_link_the_first_is_sent_first(n):
    """Its rank goes on earlier than if both shared the link, which the last rank hardly gains."""
    stored_s, shared_s = times(doubling.recursive_doubling, n)
    assert 0.95 * shared_s < stored_s < shared_s


def test_the_flat_ring_hides_latency_behind_bytes():
    """Every second hop is inside a node, so a slow link sends while its rank waits for alpha."""
    stored_s, rendezvous_s = times(ring.allreduce, 262_144)
    bytes_s = 14 * BETWEEN.beta_s_per_byte * 4 * 262_144 / 8
    assert bytes_s < stored_s < bytes_s + 3 * BETWEEN.alpha_s
    assert rendezvous_s > bytes_s + 14 * BETWEEN.alpha_s
