"""Trace checks: matched messages, no deadlock with blocking sends, counts."""

import pytest
from own import traced

from refgf.comm import direct, ring, tree
from refgf.oracle.definitions import slice_bounds
from refgf.oracle.judge.trace import TraceEvent, check_trace, read_trace, write_trace
from refgf.papers.jia import doubling


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("n", [0, 3, 17])
def test_the_projects_own_schedules_are_right(p, n, tmp_path):
    for name, algorithm in (
        ("ring", ring.allreduce),
        ("direct", direct.allreduce),
        (None, tree.allreduce),
        (None, doubling.halving_doubling),
        (None, doubling.recursive_doubling),
    ):
        events = traced(algorithm, p, n)
        assert check_trace(events, p, n, name) == []
        write_trace(tmp_path / "t.jsonl", events)
        assert read_trace(tmp_path / "t.jsonl") == events


def hand_made(*rows):
    return [
        TraceEvent(rank, step, operation, peer, 0, count, "float32")
        for rank, step, operation, peer, count in rows
    ]


def test_sends_that_wait_for_each_other_are_a_deadlock():
    separate = hand_made(
        (0, 0, "send", 1, 3), (1, 0, "send", 0, 3), (0, 1, "copy", 1, 3), (1, 1, "copy", 0, 3)
    )
    together = hand_made(
        (0, 0, "send", 1, 3), (1, 0, "send", 0, 3), (0, 0, "copy", 1, 3), (1, 0, "copy", 0, 3)
    )
    assert "rank 0 at step 0 waits to send to rank 1" in check_trace(separate, 2, 3)[0]
    assert check_trace(together, 2, 3) == []


def test_a_ring_in_which_all_receive_first_is_a_deadlock():
    events = hand_made(
        *((r, 0, "add", (r - 1) % 3, 1) for r in range(3)),
        *((r, 1, "send", (r + 1) % 3, 1) for r in range(3)),
    )
    assert check_trace(events, 3, 1)[0].startswith("deadlock")


def test_a_chain_in_which_one_rank_receives_first_is_none():
    events = hand_made(
        (0, 0, "send", 1, 1), (1, 0, "add", 0, 1), (1, 1, "send", 2, 1), (2, 0, "add", 1, 1)
    )
    assert check_trace(events, 3, 1) == []


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([(0, 0, "send", 1, 3)], "receives none"),
        ([(1, 0, "add", 0, 3)], "which never sends"),
        ([(0, 0, "send", 1, 3), (1, 0, "add", 0, 2)], "expects 2"),
        ([(0, 0, "send", 2, 3)], "there are ranks 0 to 1"),
        ([(0, 0, "send", 0, 3)], "there are ranks 0 to 1"),
        ([(0, 0, "send", 1, 8)], "elements 0..7 of 7"),
    ],
)
def test_mistakes_are_told(rows, told):
    assert told in check_trace(hand_made(*rows), 2, 7)[0]


def test_another_type_on_the_wire_is_told():
    events = traced(ring.allreduce, 3, 7, "float64")
    assert check_trace(events, 3, 7, "ring") == check_trace(events, 3, 7, "ring", "float64") == []
    assert (
        check_trace(events, 3, 7, "ring", "float16")[0]
        == "rank 0, step 0: sends float64, wanted float16"
    )


def test_the_whole_tensor_round_the_ring_is_told_by_its_bytes():
    p, n = 3, 7
    events = [
        TraceEvent(r, t, *what, 0, n, "float32")
        for r in range(p)
        for t in range(p - 1)
        for what in (("send", (r + 1) % p), ("add", (r - 1) % p))
    ]
    assert check_trace(events, p, n) == []
    start, stop = slice_bounds(n, p)[1]
    wanted = 2 * n - (stop - start) - 2
    assert (
        check_trace(events, p, n, "ring")[0]
        == f"rank 0: sent 2 messages, 14 elements; wanted 4, {wanted}"
    )
