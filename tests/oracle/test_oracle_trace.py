"""Trace checks: matched messages, no deadlock with blocking sends, counts, order and places."""

from dataclasses import replace

import pytest

from refgf.comm import direct, ring
from refgf.oracle.__main__ import main
from refgf.oracle.definitions import slice_bounds
from refgf.oracle.judge.trace import TraceEvent, check_trace, write_trace
from tests.support.own import traced


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


def changed(change, algorithm=ring.allreduce, p=4, n=100):
    """The events of a right trace, each as `change` makes it; None leaves one out."""
    return [e for e in map(change, traced(algorithm, p, n)) if e]


def adds_again(e):
    return replace(e, operation="add") if e.operation == "copy" else e


def never_adds(e):
    return replace(e, operation="copy") if e.operation == "add" else e


def always_slice_0(e):
    return replace(e, offset=0)


def another_place(e):
    wrong = (e.rank, e.step, e.operation) == (1, 0, "add")
    return replace(e, offset=75) if wrong else e


def two_sends_exchanged(e):
    """Rank 2 sends what it has only after the step, and its right side takes it so."""
    swap = {1: 2, 2: 1}
    return replace(e, step=swap[e.step]) if e.step in swap else e


def all_in_one_step(e):
    return replace(e, step=0)


def one_finish_lost(e):
    return None if (e.rank, e.operation) == (3, "finish") else e


def finishes_another_slice(e):
    return replace(e, offset=0) if e.operation == "finish" else e


def finishes_first(e):
    return replace(e, step=0) if e.operation == "finish" else e


RING = {
    adds_again: "rank 0, step 4: add from rank 3, elements 0..24; wanted copy, elements 0..24 (R5)",
    never_adds: "rank 0, step 0: copy from rank 3, elements 75..99; wanted add, elements 75..99",
    always_slice_0: "rank 0, step 0: add from rank 3, elements 0..24; wanted add, elements 75..99",
    another_place: "rank 1, step 0: add from rank 0, elements 75..99; wanted add, elements 0..24",
    two_sends_exchanged: "rank 0, step 1: send to rank 1, elements 50..74; wanted send, elements",
    all_in_one_step: "rank 0, step 0: send of elements 75..99 before its add from rank 3 in step 0",
    one_finish_lost: "rank 3: got no finish; wanted it, elements 0..24 (R5)",
    finishes_another_slice: "rank 0, step 3: finish, elements 0..24; wanted finish, elements",
    finishes_first: "rank 0, step 0: finish of elements 25..49 before its add from rank 3",
}


@pytest.mark.parametrize("change", RING, ids=lambda f: f.__name__)
def test_a_trace_that_is_no_ring_is_told(change):
    assert RING[change] in check_trace(changed(change), 4, 100, "ring", "float32")[0]


def no_fold(e):
    return None if e.operation == "fold" else e


def adds_what_comes(e):
    return replace(e, operation="add") if e.operation == "keep" else e


def folds_first(e):
    return replace(e, step=0) if e.operation == "fold" else e


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (no_fold, "rank 0: got no fold; wanted it, elements 0..24 (D1, D2)"),
        (adds_what_comes, "rank 0, step 0: add from rank 3, elements 0..24; wanted keep, elements"),
        (folds_first, "rank 0, step 0: fold of elements 0..24 before its keep from rank 1 in"),
        (
            always_slice_0,
            "rank 0, step 0: send to rank 1, elements 0..24; wanted send, elements 25",
        ),
    ],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_a_trace_that_is_no_direct_allreduce_is_told(change, told):
    events = changed(change, direct.allreduce)
    assert told in check_trace(events, 4, 100, "direct", "float32")[0]


def test_a_trace_may_send_and_receive_in_steps_of_their_own():
    """Even ranks send first, odd ones receive first; another order of the peers is as right."""

    def apart(e):
        first = (e.operation == "send") == (e.rank % 2 == 0)
        return replace(e, step=2 * e.step + (not first))

    for algorithm, name in ((ring.allreduce, "ring"), (direct.allreduce, "direct")):
        for n in (2, 100):
            events = changed(apart, algorithm, n=n)
            problems = check_trace(events, 4, n, name, "float32")
            assert [p for p in problems if not p.startswith("deadlock")] == [], problems


def test_the_command_says_what_was_compared(tmp_path, capsys):
    def said(events, *options):
        write_trace(tmp_path / "t.jsonl", events)
        code = main(["verify", "--trace", str(tmp_path / "t.jsonl"), *options])
        return code, "".join(capsys.readouterr())

    options = "--ranks", "4", "--size", "100", "--algorithm", "ring", "--dtype", "float32"
    code, out = said(changed(lambda e: e), *options)
    assert code == 0 and "24 messages in float32" in out and "compared with R2, R5, R6" in out
    assert "finish" not in out and "not compared: the values" in out
    code, out = said(changed(adds_again), *options)
    assert code == 1 and "right" not in out
    code, out = said([e for e in changed(lambda e: e) if e.operation != "finish"], *options)
    assert code == 0 and "not compared: the rounding of the finished slice" in out
    code, out = said(changed(adds_again))
    assert code == 0 and "not compared: operations, places, messages and elements; next: --a" in out
    code, out = said(changed(lambda e: e), "--algorithm", "ring")
    assert code == 2 and "--algorithm ring without --size" in out
    code, out = said([])
    assert code == 2 and "without events" in out
