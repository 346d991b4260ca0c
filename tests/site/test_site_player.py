"""What the player shows is what the algorithms do: sums, messages, and times for any link."""

import json
import random
from pathlib import Path

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

ROOT = Path(__file__).resolve().parents[2]
SIZES = [(title, size) for title, (_, k) in player.ALGORITHMS.items() for size in player.sizes(k)]
SOME = random.Random(1).sample(SIZES, 16)


def exported(title, size):
    name, per_node = player.ALGORITHMS[title]
    return json.loads(json.dumps(player.schedule(name, size, per_node)))


def arrivals(plan, alpha, element_s):
    """As static/player.js does it."""
    slowest = zip(plan["messages"], plan["slowest"], strict=True)
    return [message[4] * alpha + elements * element_s for message, elements in slowest]


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
    assert plan["columns"][:n] == [str(element) for element in range(n)]  # then scratch memory
    held = {(w[1], w[2]): w[3:] for w in plan["writes"] if w[2] < n}  # the last ones
    assert len(held) == size * n
    for (rank, element), (number, *said) in held.items():
        assert said == [element, 1]  # its element, and it is the result
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
        shown = sorted(arrivals(plan, alpha, chunk * beta))
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
    shown = max(arrivals(plan, 1e-5, 4e-9))
    assert shown == pytest.approx(ring_allreduce_s(8, 8, 4, link), rel=1e-12)


def test_direct_buffers_before_it_adds():
    plan = exported("direct", 4)
    assert plan["columns"] == ["0", "1", "2", "3", "s0", "s1", "s2", "s3"]
    buffered = [w for w in plan["writes"] if w[2] >= 4 and isinstance(plan["trees"][w[3]], int)]
    assert len(buffered) == 4 * 3 and not any(result for *_, result in buffered)
    assert max(step for step, *_ in buffered) <= 3
    assert {step for step, *_, result in plan["writes"] if result} == {3, 4, 5, 6}


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
    names = [name for name, _ in player.data_files(ROOT)]
    offered = player.settings(ROOT)["algorithms"]
    files = [f"player/{each['file']}" for each in offered.values()]
    assert names == ["player/settings.js", *files, "player/modules.js"]
    assert {name for name, _ in player.ALGORITHMS.values()} == set(OWN)
