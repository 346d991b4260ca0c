"""SimGrid judges the closed forms: schedules replayed without contention take the same time.

Bars: 0.1 %, and 0.5 % for messages below 1 kB. Without SimGrid these tests are skipped; what is
written for it is tested everywhere.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from math import ceil, log2
from pathlib import Path
from xml.etree import ElementTree

import pytest

from refgf.comm import direct, ring, tree
from refgf.comm.schedule import Step, local
from refgf.papers.jia import doubling
from refgf.papers.jia.hierarchical import consecutive_nodes, log_phases, three_phase, two_level_ring
from refgf.papers.scaling import collectives
from refgf.plan import platforms, replay
from refgf.plan.fabric import CHOSEN, Fabric
from refgf.plan.question import Question
from refgf.plan.step_times import StepTimes
from refgf.plan.systems import fastest, two_level_ring_s
from refgf.predict.cost import Link, ring_allgather_s, ring_allreduce_s, ring_reduce_scatter_s

needs_simgrid = pytest.mark.skipif(
    not shutil.which("smpirun"), reason="SimGrid is missing: apt-get install libsimgrid-dev"
)
BETWEEN, INSIDE = Link(50e-6, 8e-10, 1e-10), Link(4e-6, 1e-10, 1e-10)
LARGE, SMALL = 1_000_003, 61  # elements; neither divides among ranks


def log_phases_s(nodes, k, n, itemsize, inside, between):
    rounds, nbytes = ceil(log2(k)), itemsize * n
    in_node_s = rounds * (2 * inside.message_s(nbytes) + inside.sum_s(nbytes))
    return in_node_s + collectives.halving_doubling_s(nodes, n, itemsize, between)


FLAT = {
    "ring": (ring.allreduce, ring_allreduce_s),
    "reduce-scatter": (ring.reduce_scatter, ring_reduce_scatter_s),
    "allgather": (ring.allgather, ring_allgather_s),
    "direct": (direct.allreduce, ring_allreduce_s),
    "tree": (tree.allreduce, collectives.tree_s),
    "recursive doubling": (doubling.recursive_doubling, collectives.recursive_doubling_s),
    "halving-doubling": (doubling.halving_doubling, collectives.halving_doubling_s),
}
LEVELS = {
    "three phases": (three_phase, collectives.hierarchical_s),
    "log phases": (log_phases, log_phases_s),
    "two-level ring": (two_level_ring, two_level_ring_s),
}


def both(name, size, elements):
    """(closed form, SimGrid without contention) in seconds."""
    k = 4 if size % 4 == 0 and size > 4 and name in LEVELS else 1
    nodes = size // k
    if name in FLAT:
        algorithm, form = FLAT[name]
        expected = form(size, elements, 4, BETWEEN)
    else:
        make, form = LEVELS[name]
        algorithm = make(consecutive_nodes(size, k))
        expected = form(nodes, k, elements, 4, INSIDE, BETWEEN)
    platform = platforms.build("one-link", nodes, k, BETWEEN, INSIDE, contention=False)
    gamma = BETWEEN.gamma_s_per_byte
    return expected, replay.simulate(algorithm, elements, platform, gamma, "off")


@needs_simgrid
@pytest.mark.parametrize("size", [3, 8])
@pytest.mark.parametrize("name", [*FLAT, *LEVELS])
def test_simgrid_agrees(name, size):
    expected, found = both(name, size, LARGE)
    assert found == pytest.approx(expected, rel=1e-3)


@needs_simgrid
@pytest.mark.long
@pytest.mark.parametrize("size", [5, 256])
@pytest.mark.parametrize("name", [*FLAT, *LEVELS])
def test_simgrid_agrees_on_more_ranks(name, size):
    expected, found = both(name, size, LARGE)
    assert found == pytest.approx(expected, rel=1e-3)


@needs_simgrid
@pytest.mark.long
@pytest.mark.parametrize("size", [2, 16])
@pytest.mark.parametrize("name", [*FLAT, *LEVELS])
def test_simgrid_agrees_on_short_messages(name, size):
    expected, found = both(name, size, SMALL)
    assert found == pytest.approx(expected, rel=5e-3)


def question(size, per_node):
    step = StepTimes("small", "this test", ((0.01, LARGE),))
    return Question(step, Fabric("net", "this test", BETWEEN, INSIDE), size, per_node)


@needs_simgrid
def test_ranks_of_a_node_share_its_link():
    """Two-level ring: k rings cross one link, which the closed form with k beta says as well."""
    platform = platforms.build("one-link", 4, 4, BETWEEN, INSIDE, contention=True)
    algorithm = two_level_ring(consecutive_nodes(16, 4))
    found = replay.simulate(algorithm, LARGE, platform, BETWEEN.gamma_s_per_byte, "contention")
    shared = Link(BETWEEN.alpha_s, 4 * BETWEEN.beta_s_per_byte, BETWEEN.gamma_s_per_byte)
    expected = two_level_ring_s(4, 4, LARGE, 4, INSIDE, shared)
    assert found == pytest.approx(expected, rel=1e-3)
    rails = platforms.build("rails:4", 4, 4, BETWEEN, INSIDE, contention=True)
    found = replay.simulate(algorithm, LARGE, rails, BETWEEN.gamma_s_per_byte, "contention")
    alone = two_level_ring_s(4, 4, LARGE, 4, INSIDE, BETWEEN)
    assert found == pytest.approx(alone, rel=1e-3)  # a link for each of the four rings


@needs_simgrid
@pytest.mark.parametrize("elements", [SMALL, LARGE])
@pytest.mark.parametrize("inside", [Link(90e-6, 2e-9, 1e-10), Link(4e-6, 2e-9, 1e-10)], ids=str)
def test_the_slowest_hop_of_a_ring_may_be_inside_a_node(inside, elements):
    asked = Question(question(16, 4).step, Fabric("net", "this test", BETWEEN, inside), 16, 4)
    platform = replay.networks(asked, "one-link")[False]
    found = replay.simulate(ring.allreduce, elements, platform, BETWEEN.gamma_s_per_byte, "off")
    assert replay.algorithms(asked)["ring"][1](elements) == pytest.approx(found, rel=1e-3)
    assert asked.flat(4 * elements) == pytest.approx(found, rel=5e-3)
    assert "ring" in replay.planned(asked)


@needs_simgrid
def test_the_closed_form_of_two_levels_is_the_plans():
    """k rings between nodes share a node's link in both."""
    asked = question(8, 4)
    found = replay.compare(asked)["allreduce"]
    for row in (found["two-level ring"], found["three phases"]):
        assert row["contention_s"] == pytest.approx(row["closed_form_s"], rel=1e-3)
    both_s = [found[name]["closed_form_s"] for name in ("ring", "two-level ring", "three phases")]
    assert fastest(asked)(4 * LARGE) == pytest.approx(min(both_s), rel=1e-3)


@needs_simgrid
def test_an_oversubscribed_tree_is_slower_than_the_closed_form_says():
    """Halving-doubling's long messages cross the tree together; the ring's do not."""
    platform = platforms.build("fat-tree:4", 32, 1, BETWEEN, INSIDE, contention=True)
    run = partial(replay.simulate, platform=platform, gamma=0.0, model="contention")
    link = Link(BETWEEN.alpha_s, BETWEEN.beta_s_per_byte)
    slow = run(doubling.recursive_doubling, LARGE) / FLAT["recursive doubling"][1](
        32, LARGE, 4, link
    )
    assert slow > 1.2
    assert run(ring.allreduce, LARGE) / ring_allreduce_s(32, LARGE, 4, link) < 1.05


@needs_simgrid
@pytest.mark.parametrize("nodes", [8, 12, 24, 40, 64])
def test_one_link_between_two_groups_of_a_dragonfly(nodes):
    """All nodes of a group send to the next group at once: one link carries their messages."""
    groups, routers = platforms.group_shape(nodes, "dragonfly")
    of_group = nodes // groups
    assert of_group == 2 * routers and groups <= routers

    def algorithm(rank, size, n):
        message = slice(0, n)
        to, sender = (rank + of_group) % size, (rank - of_group) % size
        return [Step(to, message, sender, message, "copy")]

    platform = platforms.build("dragonfly", nodes, 1, BETWEEN, INSIDE, contention=True)
    found = replay.simulate(algorithm, 10 * LARGE, platform, 0.0, "contention")
    expected = BETWEEN.alpha_s + of_group * BETWEEN.beta_s_per_byte * 40 * LARGE
    assert found == pytest.approx(expected, rel=1e-2)


@needs_simgrid
def test_compare_prints_all_models():
    found = replay.compare(question(8, 2))
    assert set(found["allreduce"]) >= {"ring", "tree", "two-level ring"}
    for row in found["allreduce"].values():
        # a flat algorithm's messages in a node are faster than its closed form says
        assert row["off_s"] <= row["closed_form_s"] * (1 + 1e-3)
        assert row["contention_s"] >= row["off_s"] * (1 - 1e-3)
    for name, same in {"ring": True, "tree": False, "halving-doubling": False}.items():
        row = found["allreduce"][name]  # as the legend says of ranks that share a node
        assert (row["off_s"] == pytest.approx(row["closed_form_s"], rel=1e-3)) is same
    by_contention = {name: row["contention_s"] for name, row in found["allreduce"].items()}
    assert by_contention["direct"] > 1.5 * by_contention["ring"]  # 12/7 of its bytes on a link
    assert by_contention[replay.RANDOM] > 1.5 * by_contention["ring"]  # two messages on a link
    said = replay.text(found)
    assert "8 ranks, platform one-link" in said and max(map(len, said.splitlines())) <= 100


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_simulator_ends_with_the_command(tmp_path, name):
    """smpirun has a session of its own, so nobody else ends it."""
    marked, folders = f"{600 + tmp_path.stat().st_ino % 10**6}", tmp_path / "folders"
    folders.mkdir()
    simulator = tmp_path / "smpirun"
    simulator.write_text(f"#!/bin/sh\ntouch {tmp_path}/began\nsleep {marked}\n")
    simulator.chmod(0o755)
    command = [sys.executable, "-m", "refgf.predict", "plan", "--model", "resnet50", "--simulate"]
    command += ["--machine", "mgwfbp-10gbe", "--ranks", "4"]
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(folders)}
    plan = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    while plan.poll() is None and not (tmp_path / "began").exists():
        time.sleep(0.05)
    plan.send_signal(signal.Signals[name])
    plan.communicate(timeout=20)
    assert plan.returncode and subprocess.run(["pgrep", "-f", f"sleep {marked}"]).returncode == 1
    assert not list(folders.iterdir())


def test_a_simulated_time_outside_the_plans_interval_is_said():
    """Not of rows that the plan has no form of: those have no interval."""
    row = {"low_s": 0.09, "high_s": 0.12, "smpi_s": 0.13}
    found = {"ring": row, "direct": {"smpi_s": 0.13}, "tree": row | {"smpi_s": 0.1}}
    said = " ".join(replay.judgement(found))
    assert said.startswith("SMPI's TCP is outside the plan's interval of ring (90.0 .. 120.0). ")
    assert "no costs of protocol and contention (docs/scale.md)" in " ".join(said.split())
    assert replay.judgement({"tree": found["tree"]}) == []
    assert replay.planned(question(8, 1)) == {*collectives.LINES}
    assert replay.planned(question(8, 2)) == {"ring", "three phases", "two-level ring"}


def test_the_interval_of_a_closed_form_is_the_plans():
    asked = question(8, 1)
    low_s, high_s = (replay.algorithms(end)["ring"][1](LARGE) for end in replay.interval(asked))
    usual_s, (least, most) = asked.flat(4 * LARGE), CHOSEN["beta"]  # latencies are small here
    assert (low_s / usual_s, high_s / usual_s) == pytest.approx((least, most), rel=0.1)
    assert low_s < usual_s < high_s


def test_a_measured_mean_hop_is_not_the_formula_of_a_ring():
    """SimGrid has the links of the machine, and the slowest of them decides its ring."""
    mean = Link(2e-6, BETWEEN.beta_s_per_byte, BETWEEN.gamma_s_per_byte)
    measured = Fabric("net", "this test", BETWEEN, INSIDE, lines_per_node=4, ring_hop=mean)
    asked = replace(question(8, 4), fabric=measured)
    expected = ring_allreduce_s(8, LARGE, 4, BETWEEN)
    assert replay.algorithms(asked)["ring"][1](LARGE) == pytest.approx(expected)
    assert replay.planned(asked) == {"three phases", "two-level ring"}
    row = {f"{key}_s": 1.0 for key in ("closed_form", *replay.MODELS)}
    found = {"elements": LARGE, "ranks": 8, "platform": "one-link"}
    said = replay.text(found | {"allreduce": {"ring": row}})
    assert "\nring: a formula, while the plan has the ring that was measured\n" in said
    usual = row | {"low_s": 0.5, "high_s": 1.5}
    assert "a formula, while" not in replay.text(found | {"allreduce": {"ring": usual}})


def test_a_trace_by_hand():
    steps = [
        Step(1, slice(0, 10), 2, slice(10, 30), "add"),
        Step(None, slice(0, 0), 2, slice(10, 30), "buffer"),
        local("reduce", slice(10, 30)),
        local("finish", slice(10, 30)),
        Step(3, slice(0, 0), None, slice(0, 0), "copy"),
    ]
    assert replay.lines(7, steps, 4, 1e-9) == [
        "7 init",
        "7 irecv 2 0 80",
        "7 isend 1 0 40",
        "7 wait 2 7 0",
        "7 wait 7 1 0",
        "7 compute 80",
        "7 irecv 2 0 80",
        "7 wait 2 7 0",
        "7 compute 80",
        "7 isend 3 0 0",
        "7 wait 7 3 0",
        "7 finalize",
    ]


@pytest.mark.parametrize("contention", [True, False])
@pytest.mark.parametrize("name", platforms.NAMES)
def test_platforms_are_xml_with_a_host_for_each_rank(name, contention):
    platform = platforms.build(name, 16, 2, BETWEEN, INSIDE, contention)
    assert len(platform.hosts) == 32
    root = ElementTree.fromstring(platform.xml)
    assert root.tag == "platform"


@pytest.mark.parametrize(
    "name, nodes, per_node, said",
    [
        ("torus", 8, 1, "wanted one of one-link, rails:2"),
        ("rails:0", 8, 1, "wanted one of one-link, rails:2"),
        ("rails:2", 8, 1, "2 or more a node"),
        ("rails:2", 512, 2, "at most 256 in all"),
        ("fat-tree:2", 3, 1, "got 3 nodes; wanted an even number, 4 or more"),
        ("fat-tree:3", 32, 1, "got 32 nodes, 16 a switch; wanted S that divides 16"),
        ("dragonfly", 9, 1, "got 9 nodes; wanted 2 g r with 2 <= g <= r"),
        ("dragonfly", 14, 1, "got 14 nodes; wanted 2 g r with 2 <= g <= r"),
    ],
)
def test_platforms_that_cannot_be(name, nodes, per_node, said):
    with pytest.raises(
        ValueError, match=f"plan --platform {name}: got .*; next: one-link"
    ) as error:
        platforms.build(name, nodes, per_node, BETWEEN, INSIDE, True)
    assert said in str(error.value)


def test_without_simgrid_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(replay.shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match="got no smpirun; wanted SimGrid; next: apt-get install"):
        replay.compare(question(8, 2))


def test_a_simulator_that_does_not_end_is_ended(monkeypatch, tmp_path):
    """smpirun is a shell script: ending it alone would leave the simulator behind it running."""
    script, pid = tmp_path / "smpirun", tmp_path / "pid"
    script.write_text(f"#!/bin/sh\nsleep 60 & echo $! > {pid}\nwait\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(replay, "LONGEST_S", 1.0)
    with pytest.raises(ValueError, match="got no end of SimGrid on 4 ranks in 1 s; .*next: fewer"):
        replay.run(tmp_path, 4, "off")
    time.sleep(0.2)
    state = Path(f"/proc/{pid.read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.parametrize(
    "size, per_node, most", [(512, 2, 256), (8192, 1, 4096), (1, 1, 2)], ids=str
)
def test_too_many_ranks(monkeypatch, size, per_node, most):
    monkeypatch.setattr(replay, "installed", lambda: True)
    with pytest.raises(ValueError, match=f"got --ranks {size}, .*; wanted 2 to .*--ranks {most}"):
        replay.compare(question(size, per_node))


@pytest.mark.parametrize("size, n", [(3, 10), (8, 61), (13, 7)])
def test_the_first_steps_are_those_of_the_ring(monkeypatch, size, n):
    monkeypatch.setattr(replay, "STEPS", 2)
    for rank in range(size):
        both = ring.reduce_scatter(rank, size, n)[:2] + ring.allgather(rank, size, n)[1:3]
        assert replay.first_steps(rank, size, n) == both


@needs_simgrid
def test_more_ranks_than_all_messages_are_sent_for(monkeypatch):
    """The ring's first steps, multiplied: as long as all of them."""
    sent = replay.compare(question(16, 1), "fat-tree:2")["allreduce"]
    monkeypatch.setattr(replay, "ALL_MESSAGES", 8)
    found = replay.compare(question(16, 1), "fat-tree:2")
    assert "\nring: from the first 4 steps of each phase, which are alike\n" in replay.text(found)
    found = found["allreduce"]
    assert "direct" not in found
    for name in ("ring", replay.RANDOM):
        assert found[name] == pytest.approx(sent[name], rel=2e-3)
