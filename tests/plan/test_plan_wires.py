"""SimGrid judges shared links (refgf/papers/jia/wires.py), stragglers, placements, other traffic.

Where messages never meet on a link, both say the same. Where they meet, SimGrid's links divide
their bandwidth as TCP does, and those of wires.py send one message after the other: which algorithm
is slower is the same, the seconds differ by what is written here.
"""

import shutil

import pytest

from refgf.comm import direct, ring, tree
from refgf.comm.schedule import Step
from refgf.papers.jia import doubling
from refgf.papers.jia.hierarchical import consecutive_nodes, three_phase
from refgf.papers.jia.wires import Wires
from refgf.papers.scaling.simulate import from_schedules
from refgf.plan import platforms, replay
from refgf.predict.cost import Link

pytestmark = pytest.mark.skipif(
    not shutil.which("smpirun"), reason="SimGrid is missing: apt-get install libsimgrid-dev"
)
BETWEEN, INSIDE = Link(50e-6, 8e-10, 1e-10), Link(4e-6, 1e-10, 1e-10)
SLOW = Link(BETWEEN.alpha_s, 5 * BETWEEN.beta_s_per_byte, BETWEEN.gamma_s_per_byte)
ELEMENTS, LONG = 1_000_003, 100_000_003
FLAT = {
    "ring": ring.allreduce,
    "direct": direct.allreduce,
    "tree": tree.allreduce,
    "recursive doubling": doubling.recursive_doubling,
    "halving-doubling": doubling.halving_doubling,
}


def both(algorithm, node_of_rank, platform, elements=ELEMENTS, slow=None):
    """(SimGrid, wires.py) in seconds."""
    size, gamma = len(node_of_rank), BETWEEN.gamma_s_per_byte
    simgrid_s = replay.simulate(algorithm, elements, platform, gamma, "contention")
    schedules = [algorithm(rank, size, elements) for rank in range(size)]
    wires = Wires(node_of_rank, INSIDE, BETWEEN, slow)
    return simgrid_s, from_schedules(schedules, 4, wires)


def with_a_straggler(nodes, slow_node):
    """One rank a node; both links of one node are slow."""
    built = platforms.rails(1, nodes, 1, BETWEEN, INSIDE)
    xml = built.xml
    for way in ("up", "down"):
        usual = f'id="{way}{slow_node}.0" bandwidth="{platforms.rate(BETWEEN)}"'
        assert usual in xml
        xml = xml.replace(usual, usual.replace(platforms.rate(BETWEEN), platforms.rate(SLOW)))
    return platforms.Platform(xml, built.hosts)


@pytest.mark.parametrize("slow_node", [None, 1], ids=["equal links", "a straggler"])
@pytest.mark.parametrize("name", FLAT)
def test_one_rank_a_node(name, slow_node):
    for nodes in (5, 8):
        if slow_node is None:
            platform = platforms.build("one-link", nodes, 1, BETWEEN, INSIDE, contention=True)
        else:
            platform = with_a_straggler(nodes, slow_node)
        slow = {} if slow_node is None else {slow_node: SLOW}
        simgrid_s, ours_s = both(FLAT[name], range(nodes), platform, slow=slow)
        assert ours_s == pytest.approx(simgrid_s, rel=1e-3)


@pytest.mark.parametrize("name", ["ring", "tree", "three phases"])
def test_ranks_of_a_node_whose_messages_do_not_meet(name):
    algorithm = FLAT.get(name) or three_phase(consecutive_nodes(16, 4))
    platform = platforms.build("one-link", 4, 4, BETWEEN, INSIDE, contention=True)
    simgrid_s, ours_s = both(algorithm, [rank // 4 for rank in range(16)], platform)
    assert ours_s == pytest.approx(simgrid_s, rel=1e-3)


def test_a_ring_dealt_out_over_the_nodes():
    """Neighbours on different nodes: every step sends four messages through each link."""
    built = platforms.build("one-link", 4, 4, BETWEEN, INSIDE, contention=True)
    dealt = platforms.Platform(built.xml, [built.hosts[4 * (r % 4) + r // 4] for r in range(16)])
    in_order = both(ring.allreduce, [rank // 4 for rank in range(16)], built, LONG)
    dealt_out = both(ring.allreduce, [rank % 4 for rank in range(16)], dealt, LONG)
    assert dealt_out[1] == pytest.approx(dealt_out[0], rel=0.02)
    for fast_s, slow_s in zip(in_order, dealt_out):
        assert 3.5 < slow_s / fast_s < 4


def test_incast_of_direct():
    """Four ranks of a node send to four ranks of another: both say three times a ring or more.

    In wires.py a message waits for both of its links, and others behind it wait although theirs are
    free: a quarter too slow.
    """
    platform = platforms.build("one-link", 4, 4, BETWEEN, INSIDE, contention=True)
    place = [rank // 4 for rank in range(16)]
    rings, directs = (both(FLAT[name], place, platform, LONG) for name in ("ring", "direct"))
    for ring_s, direct_s in zip(rings, directs):
        assert direct_s / ring_s > 3
    assert 1.2 < directs[1] / directs[0] < 1.3


def test_background_traffic_takes_its_share_of_a_link():
    """Two more ranks, on nodes 0 and 1, exchange a message meanwhile: 5 % of the ring's bytes.

    Node 0's link carries both, so the ring, which waits for its slowest link, takes as much longer
    as these bytes alone would take.
    """
    nodes, bytes_share = 8, 0.05
    background = slice(0, round(bytes_share * 2 * LONG))

    def algorithm(rank, size, n):
        if rank < nodes:
            return ring.allreduce(rank, nodes, n)
        other = nodes + (rank == nodes)
        return [Step(other, background, other, background, "copy")]

    built = platforms.build("one-link", nodes, 1, BETWEEN, INSIDE, contention=True)
    busy = platforms.Platform(built.xml, [*built.hosts, *built.hosts[:2]])
    alone_s = replay.simulate(ring.allreduce, LONG, built, 0.0, "contention")
    with_it_s = replay.simulate(algorithm, LONG, busy, 0.0, "contention")
    background_s = BETWEEN.beta_s_per_byte * 4 * (background.stop - background.start)
    assert with_it_s - alone_s == pytest.approx(background_s, rel=0.02)
