"""SimGrid judges the closed forms on 2048 ranks."""

import shutil

import pytest

from refgf.comm import ring, tree
from refgf.papers.jia import doubling
from refgf.papers.jia.hierarchical import consecutive_nodes, two_level_ring
from refgf.papers.scaling import collectives
from refgf.plan import platforms, replay
from refgf.plan.systems import two_level_ring_s
from refgf.predict.cost import Link, ring_allreduce_s

pytestmark = pytest.mark.skipif(
    not shutil.which("smpirun"), reason="SimGrid is missing: apt-get install libsimgrid-dev"
)
BETWEEN, INSIDE = Link(50e-6, 8e-10, 1e-10), Link(4e-6, 1e-10, 1e-10)
SIZE, ELEMENTS = 2048, 1_000_003
FLAT = {
    "tree": (tree.allreduce, collectives.tree_s),
    "recursive doubling": (doubling.recursive_doubling, collectives.recursive_doubling_s),
    "halving-doubling": (doubling.halving_doubling, collectives.halving_doubling_s),
    "ring": (ring.allreduce, ring_allreduce_s),
}
LONG = {"halving-doubling": pytest.mark.long}
LONG["ring"] = [pytest.mark.long, pytest.mark.timeout(1800)]  # 8 million messages: minutes


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in FLAT])
def test_one_rank_a_node(name, monkeypatch):
    monkeypatch.setattr(replay, "LONGEST_S", 1500.0)
    algorithm, form = FLAT[name]
    platform = platforms.build("one-link", SIZE, 1, BETWEEN, INSIDE, contention=False)
    found = replay.simulate(algorithm, ELEMENTS, platform, BETWEEN.gamma_s_per_byte, "off")
    assert found == pytest.approx(form(SIZE, ELEMENTS, 4, BETWEEN), rel=1e-3)


@pytest.mark.long
def test_two_levels():
    """64 rings share the link of each of 32 nodes; without sharing no node has such links."""
    nodes, k = 32, SIZE // 32
    platform = platforms.build("one-link", nodes, k, BETWEEN, INSIDE, contention=True)
    algorithm = two_level_ring(consecutive_nodes(SIZE, k))
    found = replay.simulate(algorithm, ELEMENTS, platform, BETWEEN.gamma_s_per_byte, "contention")
    shared = Link(BETWEEN.alpha_s, k * BETWEEN.beta_s_per_byte, BETWEEN.gamma_s_per_byte)
    assert found == pytest.approx(
        two_level_ring_s(nodes, k, ELEMENTS, 4, INSIDE, shared), rel=5e-3
    )  # slices of 15 and 16 thousand elements share a link unequally
