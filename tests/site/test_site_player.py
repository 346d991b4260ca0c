"""What the player shows is what the algorithms do: sums, messages, and times for any link."""

import json
import random

import numpy as np
import pytest

from refgf.comm import direct, ring, tree
from refgf.comm.replay import replay
from refgf.oracle.schedules.order import Graph
from refgf.oracle.schedules.own import OWN, own_plan
from refgf.oracle.schedules.times import schedule_times
from refgf.papers.jia import hierarchical
from refgf.predict.cost import Link, ring_allreduce_s
from refgf.site import player

SIZES = [(title, size) for title, (_, k) in player.ALGORITHMS.items() for size in player.sizes(k)]
SOME = random.Random(1).sample(SIZES, 16)


def exported(title, size):
    name, per_node = player.ALGORITHMS[title]
    return json.loads(json.dumps(player.schedule(name, size, per_node)))


def arrival(message, alpha, element_s):
    """As static/player.js does it."""
    return message[4] * alpha + message[5] * element_s


def value(trees, tree, xs, element):
    node = trees[tree]
    if isinstance(node, int):
        return xs[node][element]
    a, b = (value(trees, child, xs, element) for child in node)
    return a + b


@pytest.mark.parametrize("title, size", SOME)
def test_the_trees_have_the_bits_of_the_algorithm(title, size):
    name, per_node = player.ALGORITHMS[title]
    plan, rng = exported(title, size), np.random.default_rng(size)
    n = plan["elements"]
    xs = [rng.normal(size=n).astype(np.float32) for _ in range(size)]
    algorithm = OWN[name](hierarchical.consecutive_nodes(size, per_node))
    wanted = replay([algorithm(rank, size, n) for rank in range(size)], xs)
    held = {(rank, element): tree for _, rank, element, tree in plan["writes"]}  # the last ones
    assert len(held) == size * n
    for (rank, element), number in held.items():
        assert value(plan["trees"], number, xs, element) == wanted[rank][element]


@pytest.mark.parametrize("title, size", SOME)
def test_times_are_those_of_the_model_for_any_link(title, size):
    name, per_node = player.ALGORITHMS[title]
    plan, rng = exported(title, size), random.Random(size)
    graph = Graph(own_plan(name, size, "msccl-xml", plan["elements"], per_node))
    for _ in range(13):  # 16 x 13 > 200 settings
        alpha, beta = 10 ** rng.uniform(-7, -3), 10 ** rng.uniform(-12, -7)
        chunk = 2 ** rng.randrange(10, 31, 2) / plan["elements"]
        seconds, transfers = schedule_times(graph, chunk, Link(alpha, beta))
        shown = sorted(arrival(message, alpha, chunk * beta) for message in plan["messages"])
        assert shown == pytest.approx(sorted(t.end_s for t in transfers), rel=1e-9)
        assert max(shown) == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize("title, size", SOME)
def test_messages_are_those_that_each_rank_sends(title, size):
    plan = exported(title, size)
    for rank, sent in enumerate(plan["sent"]):
        own = [message for message in plan["messages"] if message[0] == rank]
        assert [len(own), sum(message[3] for message in own)] == sent
    steps = {message[4] for message in plan["messages"]}
    assert steps == set(range(1, max(steps) + 1))


def test_a_ring_is_what_the_closed_form_says():
    plan = exported("ring", 8)
    assert plan["sent"] == [[14, 14]] * 8 and plan["elements"] == 8
    link = Link(1e-5, 1e-9)
    shown = max(arrival(message, 1e-5, 4e-9) for message in plan["messages"])
    assert shown == pytest.approx(ring_allreduce_s(8, 8, 4, link), rel=1e-12)


def test_direct_buffers_before_it_adds():
    plan = exported("direct", 4)
    assert len(plan["buffered"]) == 4 * 3
    first = min(step for step, *_ in plan["writes"])
    assert max(step for step, *_ in plan["buffered"]) <= first == 3


def test_messages_are_those_of_the_schedule():
    """Not only their number: who sends what to whom, for three algorithms of the core."""
    for title, algorithm in (("ring", ring), ("direct", direct), ("tree", tree)):
        plan = exported(title, 5)
        wanted = [
            (rank, step.send_to, step.send.start, step.send.stop - step.send.start)
            for rank in range(5)
            for step in algorithm.allreduce(rank, 5, plan["elements"])
            if step.send_to is not None
        ]
        assert sorted(map(tuple, (message[:4] for message in plan["messages"]))) == sorted(wanted)


def test_the_page_gets_every_algorithm():
    names = [name for name, _ in player.data_files()]
    offered = json.loads(player.settings().removeprefix("window.PLAYER=").strip(";\n"))
    assert [each["file"] for each in offered["algorithms"].values()] == names
    assert {name for name, _ in player.ALGORITHMS.values()} == set(OWN)
