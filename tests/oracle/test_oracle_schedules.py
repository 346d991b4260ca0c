"""Schedules as data: round trips, values, orders, times, and the command."""

import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from refgf.oracle import definitions
from refgf.oracle.__main__ import main
from refgf.oracle.schedules.command import plan_files
from refgf.oracle.schedules.layout import layout
from refgf.oracle.schedules.options import ALGORITHMS, FORMATS
from refgf.oracle.schedules.order import Graph
from refgf.oracle.schedules.own import OWN, own_plan
from refgf.oracle.schedules.times import schedule_times
from refgf.oracle.schedules.values import Values
from refgf.oracle.schedules.verdict import judge
from refgf.predict.cost import ring_allreduce_s
from tests.support.schedule_cases import LINK, back, plans, report, verdict

SIZES = (1, 2, 3, 4, 5, 6, *(pytest.param(p, marks=pytest.mark.long) for p in (7, 8, 12, 16)))


def test_the_options_name_every_algorithm():
    assert tuple(OWN) == ALGORITHMS


@pytest.mark.parametrize("p", SIZES)
def test_round_trips_are_the_identity_and_every_plan_is_right(p):
    for plan in plans([p]):
        assert back(plan) == plan, (plan.name, plan.format)
        assert plan_files(back(plan), "x") == plan_files(plan, "x")
        judged = verdict(plan)
        assert judged.kind == "right", (plan.name, plan.format, judged.found[:2])


def evaluated(values, rank, xs):
    """Rank's result of the symbolic trees on numbers; every chunk is one element."""
    held = []
    for tree, children in enumerate(values.trees.children):
        if children:
            held.append(held[children[0]] + held[children[1]])
        else:
            r = values.trees.ranks[tree].bit_length() - 1
            held.append(xs[r][values.trees.chunk[tree]])
    return np.array([held[values.held(cell)] for cell, _, _ in values.where.wanted(rank)])


@pytest.mark.parametrize("p", (2, 3, 4, 6, 7))
@pytest.mark.parametrize("form", FORMATS)
def test_the_trees_have_the_bits_of_the_definitions(p, form):
    """The definitions know nothing of schedules."""
    rng, n = np.random.default_rng(p), 2 * p + 1
    xs = [(rng.standard_normal(n) * 1000).astype(np.float32) for _ in range(p)]
    nodes = [list(range(p))[i : i + 2] for i in range(0, p, 2)]
    wanted = {
        "ring": definitions.ring_allreduce(xs),
        "direct": definitions.direct_allreduce(xs),
        "tree": definitions.tree_allreduce(xs),
        "recursive-doubling": definitions.doubling_allreduce(xs),
        "halving-doubling": definitions.doubling_allreduce(xs),
        "three-phase": definitions.three_phase_allreduce(xs, nodes),
        "log-phases": definitions.log_phases_allreduce(xs, nodes),
    }
    if p % 2 == 0:
        wanted["two-level"] = definitions.two_level_allreduce(xs, nodes)
    for name, results in wanted.items():
        plan = own_plan(name, p, form, n)
        values = Values(Graph(plan), layout(plan)[0])
        for rank, result in enumerate(results):
            found = evaluated(values, rank, xs)
            assert found.tobytes() == result.tobytes(), (name, rank)


@pytest.mark.parametrize("p", (2, 3, 8))
@pytest.mark.parametrize("form", FORMATS)
def test_a_ring_takes_the_time_and_the_bytes_of_the_cost_model(p, form):
    nbytes = 4 * p * 100
    judged = judge(own_plan("ring", p, form, p), LINK, nbytes)
    assert judged.seconds == pytest.approx(ring_allreduce_s(p, p * 100, 4, LINK))
    for rank, (messages, chunks) in enumerate(judged.traffic):
        assert (messages, chunks) == definitions.ring_traffic(p, p, rank)


@pytest.mark.parametrize("channels", (1, 2, 16))
def test_channels_to_one_neighbour_share_its_link(channels):
    """A ring cut into channels: no faster than its bytes, and one latency for each step."""
    p, nbytes = 8, 1 << 20
    step = nbytes / p / channels
    one = own_plan("ring", p, "chakra", p)
    ranks = tuple(
        tuple(shifted(s, k, len(steps)) for k in range(channels) for s in steps)
        for steps in one.ranks
    )
    sizes = ((channels * p, channels * p, 0),) * p
    plan = replace(one, ranks=ranks, collective="", inplace=False, sizes=sizes)
    seconds, transfers = schedule_times(Graph(plan), step, LINK)
    at_least = 2 * (p - 1) / p * nbytes * LINK.beta_s_per_byte
    assert at_least < seconds <= at_least + 2 * (p - 1) * LINK.message_s(step)
    by_link = defaultdict(list)
    for t in transfers:
        by_link[t.source, t.dest].append(t.start_s)
    for starts in by_link.values():
        gaps = [b - a for a, b in zip(starts, starts[1:])]
        assert min(gaps) > 0.999 * LINK.beta_s_per_byte * step


def shifted(step, channel, length):
    """A step of the same ring on another channel, in nodes of its own."""
    sends, receives = (
        tuple(replace(port, channel=channel) for port in ports)
        for ports in (step.sends, step.receives)
    )
    after = tuple((rank, node + channel * length) for rank, node in step.after)
    lane = step.lane + channel * length
    return replace(
        step, lane=lane, sends=sends, receives=receives, after=after, reads=(), writes=()
    )


def test_the_prediction_names_the_cost_models_numbers():
    plan = own_plan("ring", 2, "msccl-xml", 2)
    numbers = " us with alpha 10 us, beta 1 ns/byte, gamma 0.1 ns/byte"
    assert report(plan, verdict(plan)).endswith(numbers)


@pytest.mark.parametrize("form", FORMATS)
def test_the_command_writes_and_judges(form, tmp_path, capsys):
    arguments = ["--export", "halving-doubling", "--ranks", "6", "--format", form]
    assert main(["schedule", *arguments, "--output", str(tmp_path)]) == 0
    written = capsys.readouterr().out.splitlines()
    files = [line.removeprefix("wrote ") for line in written]
    assert files != written and main(["schedule", *files]) == 0
    out = capsys.readouterr().out
    assert out.count(": right (6 ranks, allreduce, ") == 1 and "predicted" in out
    drawing = tmp_path / "a.svg"
    assert main(["schedule", files[0], "--draw", str(drawing)]) == 0
    lines = capsys.readouterr().out.splitlines()
    arrows = len(re.findall("marker-end", drawing.read_text()))
    assert arrows == len(lines) - lines.index(next(s for s in lines if "start us" in s)) - 1
    ET.fromstring(drawing.read_text())


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a.xml", "--export", "ring"],
        ["a.xml", "b.xml", "--draw", "c.svg"],
        ["a.xml", "--bytes", "0"],
        ["a.xml", "--alpha", "-1"],
        ["--export", "ring", "--ranks", "0"],
        ["--export", "two-level", "--ranks", "5"],
        ["--export", "ring", "--ranks", "1000", "--chunks", "60000"],
        ["--export", "ring", "--output", "no-such-folder"],
    ],
)
def test_wrong_arguments_end_with_a_sentence(arguments, capsys):
    assert main(["schedule", *arguments]) == 2
    assert "wanted" in capsys.readouterr().err
