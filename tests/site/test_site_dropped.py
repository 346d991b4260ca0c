"""A reader's schedule file: played as our own ones are, or answered with a sentence."""

import json
import random

import pytest

from refgf.oracle.schedules.form import LARGEST_FILE
from refgf.oracle.schedules.order import Graph
from refgf.oracle.schedules.own import own_plan
from refgf.oracle.schedules.times import schedule_times
from refgf.predict.cost import Link
from refgf.site import dropped, player
from tests.support.damaged import cut, flipped
from tests.support.schedule_files import allgather_xml, asked, other_bits_xml, own_xml

RING = own_xml("ring", 4)


@pytest.mark.parametrize("title", player.ALGORITHMS)
def test_our_own_schedule_as_a_file_is_what_the_player_has(title):
    name, per_node = player.ALGORITHMS[title]
    for size in player.sizes(per_node)[-3:]:
        exported = player.schedule(name, size, per_node)
        del exported["slowest"]  # only for times without Python
        found = asked(own_xml(title, size))
        assert found["plan"] == json.loads(json.dumps(exported))
        assert found["said"][0] == f"mine.xml: right ({size} ranks, allreduce, msccl-xml)"


def test_times_are_those_of_the_model():
    """200 random links and sizes, exactly; each with the messages to which the times belong."""
    rng = random.Random(3)
    for title in ("ring", "direct", "tree", "halving-doubling"):
        plan = asked(own_xml(title, 6), f"{title}.xml")["plan"]
        graph = Graph(own_plan(title, 6, "msccl-xml", plan["elements"]))
        for _ in range(50):
            alpha, rate = 10 ** rng.uniform(-7, -3), 10 ** rng.uniform(-1, 3)
            nbytes = rng.randrange(1, 2**30)
            question = {"name": f"{title}.xml", "alpha": alpha, "rate": rate, "bytes": nbytes}
            times = json.loads(dropped.answer(json.dumps(question)))["times"]
            link = Link(alpha, 8 / (rate * 1e9))
            transfers = schedule_times(graph, nbytes / plan["elements"], link)[1]
            wanted = [(t.source, t.dest, t.chunks, t.start_s, t.end_s) for t in transfers]
            ends = [(m[0], m[1], m[3]) for m in plan["messages"]]
            assert sorted((*m, *time) for m, time in zip(ends, times, strict=True)) == sorted(
                wanted
            )


def test_ranks_that_differ_in_bits_are_played():
    found = asked(other_bits_xml())
    plan, trees = found["plan"], found["plan"]["trees"]
    assert found["said"][0].startswith("mine.xml: right value but ranks differ in bits")
    assert plan["columns"] == ["i0", "o0", "s0", "s1", "s2"]

    def text(tree):
        node = trees[tree]
        return f"({text(node[0])} + {text(node[1])})" if isinstance(node, list) else f"x{node}"

    last = {rank: tree for _, rank, column, tree, _, _ in plan["writes"] if column == 1}
    assert text(last[0]) == text(last[1]) == "(x2 + (x0 + x1))"
    assert text(last[2]) == "(x0 + (x1 + x2))"


def test_another_collective_has_its_own_columns_and_results():
    plan = asked(allgather_xml())["plan"]
    assert plan["columns"] == ["i0", "o0", "o1"]
    assert plan["messages"] == [[0, 1, 0, 1, 1], [1, 0, 0, 1, 1]]
    # step, rank, column, tree, element, is it the result?
    assert sorted(plan["writes"]) == [
        *([0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0]),
        *([1, 0, 1, 0, 0, 1], [1, 0, 2, 1, 0, 1], [1, 1, 1, 0, 0, 1], [1, 1, 2, 1, 0, 1]),
    ]


@pytest.mark.parametrize(
    "content, name, said",
    [
        (RING.replace(b'"rrc"', b'"r"'), "a.xml", "a.xml: wrong value (4 ranks"),
        (RING.replace(b'cnt="1"', b'cnt="9"', 1), "a.xml", "a.xml: steps out of range (4 ranks"),
        (RING.replace(b'coll="allreduce"', b'coll="mine"'), "a.xml", "a.xml: runs to its end; its"),
        (RING[:-90], "a.xml", "a.xml: got what is not well-formed XML"),
        (b"\x00\xff\x13", "a.xml", "a.xml: got what is not well-formed XML"),
        (b"", "a.xml", "a.xml: got what is not well-formed XML"),
        (b"<!DOCTYPE x><algo/>", "a.xml", "a.xml: got a DOCTYPE"),
        (b"{}", "a.json", "a.json: got a name of another kind; wanted .xml (MSCCL); next:"),
        (RING, "a" * 200 + ".xml", "a" * 96 + ".xml: right (4 ranks"),
    ],
)
def test_the_verdict_is_said(content, name, said):
    found = asked(content, name)
    assert found["said"][0].startswith(said)
    assert ("plan" in found) == ("times" in found) == (": right (" in said)


@pytest.mark.parametrize(
    "what, got", [("ranks", 4), ("messages", 24), ("writes", 24), ("chunks of memory", 32)]
)
def test_what_is_right_but_large_is_judged_and_not_played(what, got, monkeypatch):
    monkeypatch.setitem(dropped.LARGEST, what, 3)
    found = asked(RING)
    assert found["said"][0].startswith("mine.xml: right (4 ranks") and "plan" not in found
    assert found["said"][-1] == f"This page does not play it: got {got} {what}; wanted at most 3."


def test_a_file_over_the_limit_is_not_read():
    found = asked(b"", size=LARGEST_FILE + 1)
    assert found["said"] == [
        f"mine.xml: got {LARGEST_FILE + 1} bytes; wanted at most {LARGEST_FILE}"
    ]


def test_damaged_files_get_a_sentence():
    """None makes Python fail: the page would have nothing to say."""
    rng, kinds = random.Random(4), set()
    for i in range(300):
        found = asked((flipped, cut)[i % 2](RING, rng))
        assert all(found["said"]) and len("".join(found["said"])) < 5000
        kinds.add(found["said"][0][:20])
    assert len(kinds) > 3
