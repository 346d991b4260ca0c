"""Named nodes next to what others published of them: the step is held, or a warning names it."""

import pytest

from refgf.plan import fabric, nodes, scored
from refgf.plan.calibration import calibrated
from refgf.plan.nccl import Nccl
from refgf.plan.published import rows_of
from refgf.plan.question import NCCL, Question
from refgf.plan.report import network_notes
from refgf.plan.step_times import StepTimes
from refgf.plan.uncertainty import planned

# {bytes: microseconds} of all_reduce_perf on two nodes of 8 GPUs, out of place
# (awsome-distributed-training, micro-benchmarks/nccl-tests/README.md)
PUBLISHED = {
    "aws-p4d": {1 << 10: 165.0, 1 << 15: 224.6, 1 << 16: 227.4, 1 << 20: 309.4, 1 << 22: 533.9}
    | {1 << 24: 1191.8, 1 << 25: 1540.2, 1 << 26: 2644.6, 1 << 28: 7201.7, 1 << 30: 26217},
    "aws-p5": {1 << 10: 69.24, 1 << 15: 111.7, 1 << 16: 135.1, 1 << 20: 123.2, 1 << 22: 168.6}
    | {1 << 24: 298.1, 1 << 25: 439.7, 1 << 26: 601.5, 1 << 28: 1468.2}
    | {1 << 30: 4607.6},
}
CALLS = [
    (name, nbytes) for name, times in PUBLISHED.items() for nbytes in times if nbytes < 1 << 30
]


def asked_of(name, nbytes, compute_s, nodes=2):
    """One call of so many bytes, behind all of the computing."""
    step = StepTimes("one call", "this test", ((compute_s, nbytes // 4),))
    return calibrated(Question(step, fabric.load(name), 8 * nodes, 8, 1.0, NCCL))


@pytest.mark.parametrize("name, nbytes", CALLS)
def test_the_interval_of_a_named_node_holds_published_calls(name, nbytes):
    compute_s = max(20e-6, 1.2e-12 * nbytes)
    found = planned("eager", asked_of(name, nbytes, compute_s))
    assert found.low_s <= compute_s + 1e-6 * PUBLISHED[name][nbytes] <= found.high_s


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_sentence_of_a_node_has_the_ratios_of_its_published_calls(name):
    network = fabric.load(name)
    model = Nccl(2, 8, network.inside, network.between)
    times = {n: us for n, us in PUBLISHED[name].items() if n <= 1 << 25}
    ratios = [1e-6 * us / model(nbytes) for nbytes, us in times.items()]
    said = f"took {min(ratios):.1f} to {max(ratios):.1f} times what is planned, of 1 GiB "
    said += f"{1e-6 * PUBLISHED[name][1 << 30] / model(1 << 30):.1f} times"
    assert said in network.doubts["between"]
    assert max(ratios) < 8 and "up to 8 times" in nodes.FAR


def test_each_named_node_and_each_given_link_warns_between_nodes():
    for name in nodes.described():
        two, one = (network_notes(asked_of(name, 1 << 20, 1e-3, count)) for count in (2, 1))
        assert [
            f"WARNING: {name}, between" in each or "WARNING: no published" in each for each in two
        ].count(True) == 1, name
        assert not any("no published" in each or ", between nodes" in each for each in one)
        given = fabric.with_between(fabric.load(name), "14us", "200gbit", "--between")
        assert "--between is stated" in given.doubts["between"] and given.ranges == fabric.CHOSEN


def test_the_warning_of_a_given_link_has_the_ratio_of_a_published_call():
    """32 nodes of 4 V100 and 2 x 100 Gbit/s took 433.8 us for 128 KiB (abci2.0benchmark)."""
    network = fabric.with_between(fabric.load("v100-4"), "5us", "200gbit", "--between")
    ratio = 433.8e-6 / Nccl(32, 4, network.inside, network.between)(1 << 17)
    assert f"up to {ratio:.1f} times on ABCI" in network.doubts["between"]


BOX = """network = "VGG-16"
batch = 64
single = 419.83
per_node = 8
node = "pcie4"
[[series]]
name = "RTX 3090"
fabric = "one box"
wire = 2
rates = { 8 = 634.67 }
"""


def test_a_box_of_pcie_may_be_far_slower_and_says_so(tmp_path):
    """server-gear.com/blog/post/rtx3090-x8-exhaustive-tf-cnn-benchmarks, fp16, 64 images."""
    (tmp_path / "box.toml").write_text(BOX)
    row = rows_of(str(tmp_path / "box.toml"))[0]
    found = scored.predicted(row, calibrated(scored.question_of(row)))
    assert row.step_s > found.high_s
    said = f"took {row.step_s / found.step_s:.1f} times what is planned"
    notes = network_notes(asked_of("pcie4", 1 << 20, 1e-3, 1))
    assert any("WARNING: pcie4, inside a node" in each and said in each for each in notes)
    assert pytest.approx(1.51, abs=5e-3) == 634.67 / 419.83
    given = fabric.with_inside(fabric.load("pcie4"), "5us", "40gbit", "--inside")
    assert "inside" not in given.doubts
