"""SimGrid judges shared links (refgf/papers/jia/wires.py), stragglers, placements, other traffic.

Both divide a link's bandwidth fairly. Bar: 1 %.
"""

import shutil

import pytest

from docs.tools import scale
from refgf.comm import direct, ring, tree
from refgf.comm.schedule import Step
from refgf.papers.jia import doubling
from refgf.papers.jia.hierarchical import consecutive_nodes, log_phases, three_phase, two_level_ring
from refgf.papers.jia.wires import Wires
from refgf.papers.scaling.simulate import from_schedules
from refgf.plan import platforms, replay
from refgf.plan.fabric import Fabric
from refgf.plan.question import Question
from refgf.plan.step_times import StepTimes
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


LEVELS = {"three phases": three_phase, "log phases": log_phases, "two-level ring": two_level_ring}


def placed(nodes, k, dealt):
    """(platform, node of each rank): k ranks a node in a row, or dealt out over the nodes."""
    built = platforms.build("one-link", nodes, k, BETWEEN, INSIDE, contention=True)
    if not dealt:
        return built, [rank // k for rank in range(nodes * k)]
    hosts = [built.hosts[k * (rank % nodes) + rank // nodes] for rank in range(nodes * k)]
    return platforms.Platform(built.xml, hosts), [rank % nodes for rank in range(nodes * k)]


SHARED = [(name, place) for name in [*FLAT, *LEVELS] for place in ((4, 4), (5, 3))]
SHARED.remove(("log phases", (5, 3)))  # wants a power of two of ranks on a node


@pytest.mark.parametrize("dealt", [False, True], ids=["in order", "dealt out"])
@pytest.mark.parametrize("name, place", SHARED)
def test_ranks_that_share_the_link_of_their_node(name, place, dealt):
    nodes, k = place
    algorithm = FLAT.get(name) or LEVELS[name](consecutive_nodes(nodes * k, k))
    platform, node_of_rank = placed(nodes, k, dealt)
    for elements in (1003, ELEMENTS):
        simgrid_s, ours_s = both(algorithm, node_of_rank, platform, elements)
        assert ours_s == pytest.approx(simgrid_s, rel=1e-2)


def test_a_ring_dealt_out_over_the_nodes_is_slower():
    """Neighbours on different nodes: every step sends four messages through each link."""
    (fast_s, _), (slow_s, _) = (
        both(ring.allreduce, where, platform, LONG)
        for platform, where in (placed(4, 4, dealt) for dealt in (False, True))
    )
    assert 3.5 < slow_s / fast_s < 4


def test_incast_of_direct():
    """All k ranks of a node send to other nodes at once, as docs/scale.md says."""
    platform, _ = placed(4, 4, False)
    found = replay.simulate(direct.allreduce, LONG, platform, 0.0, "contention")
    step = StepTimes("long", "this test", ((0.01, LONG),))
    asked = Question(step, Fabric("net", "this test", BETWEEN, INSIDE), 16, 4)
    assert found == pytest.approx(scale.direct_s(asked), rel=1e-2)


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
