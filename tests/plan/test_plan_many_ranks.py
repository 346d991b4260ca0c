"""SimGrid judges closed forms on 2048 ranks; those of p messages a rank: test_plan_replay.py."""

import shutil

import pytest

from refgf.comm import tree
from refgf.papers.jia import doubling
from refgf.papers.scaling import collectives
from refgf.plan import platforms, replay
from refgf.predict.cost import Link

pytestmark = pytest.mark.skipif(
    not shutil.which("smpirun"), reason="SimGrid is missing: apt-get install libsimgrid-dev"
)
BETWEEN, INSIDE = Link(50e-6, 8e-10, 1e-10), Link(4e-6, 1e-10, 1e-10)
SIZE, ELEMENTS = 2048, 1_000_003
FLAT = {
    "tree": (tree.allreduce, collectives.tree_s),
    "recursive doubling": (doubling.recursive_doubling, collectives.recursive_doubling_s),
    "halving-doubling": (doubling.halving_doubling, collectives.halving_doubling_s),
}
LONG = {"halving-doubling": pytest.mark.long}


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in FLAT])
def test_one_rank_a_node(name):
    algorithm, form = FLAT[name]
    platform = platforms.build("one-link", SIZE, 1, BETWEEN, INSIDE, contention=False)
    found = replay.simulate(algorithm, ELEMENTS, platform, BETWEEN.gamma_s_per_byte, "off")
    assert found == pytest.approx(form(SIZE, ELEMENTS, 4, BETWEEN), rel=1e-3)
