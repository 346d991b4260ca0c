"""Chakra traces: wrong ones by rank and node, and those of another tool."""

from dataclasses import replace

import pytest

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import chakra
from refgf.oracle.schedules.draw import table
from refgf.oracle.schedules.form import Plan, PlanStep, Port, require_size
from refgf.oracle.schedules.own import own_plan
from refgf.oracle.schedules.verdict import as_lines
from tests.support.schedule_cases import at, changed, verdict


def test_an_empty_trace_says_what_is_wrong():
    with pytest.raises(BadFile, match="rank 1: got an empty file"):
        chakra.parse("x", [chakra.dump(own_plan("ring", 2, "chakra", 2))[0], b""])


def test_wrong_traces_are_named_with_rank_and_node():
    plan = own_plan("ring", 3, "chakra", 3)
    computing = at(plan, 1, "COMP_NODE")
    judged = verdict(changed(plan, 1, computing, after=()))
    assert judged.kind == "race" and f"rank 1, node {computing}" in str(judged.found[0])
    port = replace(plan.ranks[2][0].sends[0], channel=5)
    judged = verdict(changed(plan, 2, 0, sends=(port,)))
    assert judged.kind == "unmatched" and any("rank 2, node " in str(f) for f in judged.found)


def test_a_node_that_waits_for_nothing_that_exists():
    first, *others = chakra.dump(own_plan("ring", 2, "chakra", 2))
    node = chakra.message_bytes([chakra.field_bytes(1, 99), chakra.field_bytes(5, 98)])
    judged = verdict(chakra.parse("x", [first + node, *others]))
    assert judged.kind == "out of range"
    assert "rank 0, node 99 (type 0): waits for node 98" in str(judged.found[0])


def test_a_trace_of_another_tool_is_judged_without_its_values():
    """No addresses: messages, order, traffic and time only."""
    plan = own_plan("ring", 3, "chakra", 3)
    bare = tuple(
        tuple(replace(step, reads=(), writes=()) for step in steps) for steps in plan.ranks
    )
    foreign = Plan("chakra", "t", "", False, ((0, 0, 0),) * 3, bare)
    judged = verdict(chakra.parse("x", chakra.dump(foreign)))
    assert judged.kind == "no value" and judged.traffic == [(4, 4 * chakra.CHUNK_BYTES)] * 3


def test_a_trace_of_another_tool_counts_bytes_and_may_hold_collectives():
    """A megabyte in each message; a library's collective has none that the trace names."""
    plan = own_plan("ring", 4, "chakra", 4)
    bare = tuple(
        tuple(replace(step, reads=(), writes=(), chunks=step.chunks << 18) for step in steps)
        for steps in plan.ranks
    )
    foreign = replace(plan, collective="", inplace=False, sizes=((0, 0, 0),) * 4, ranks=bare)
    node = chakra.message_bytes([chakra.field_bytes(1, 99), chakra.field_bytes(3, 7)])
    files = [data + node for data in chakra.dump(foreign)]
    read = require_size("x", chakra.parse("x", files))
    judged = verdict(read)
    assert judged.kind == "no value" and judged.traffic[0][0] == 6
    lines = "\n".join(as_lines("x", read, judged))
    assert "  4 nodes of type COMM_COLL_NODE only wait" in lines
    assert "in another order, are not found" in lines
    assert "6 messages, 6291456 bytes; predicted" in lines and "chunks" not in lines
    assert "bytes  what" in table(judged.transfers, read.unit)[0]
    port, chunks = bare[0][0].sends[0], bare[0][0].chunks
    assert port and chunks == 1 << 18
    wrong = (replace(bare[0][0], chunks=chunks // 2), *bare[0][1:]), *bare[1:]
    read = chakra.parse("x", chakra.dump(replace(foreign, ranks=wrong)))
    lines = "\n".join(as_lines("x", read, verdict(read)))
    assert "sends 524288 bytes to" in lines and "takes 1048576" in lines, lines


def test_a_trace_may_hold_messages_of_gigabytes():
    steps = [PlanStep(0, 0, "COMM_SEND_NODE", sends=(Port(1, 0),), chunks=3 << 30)]
    taken = [PlanStep(0, 0, "COMM_RECV_NODE", receives=(Port(0, 0),), chunks=3 << 30)]
    plan = Plan("chakra", "t", "", False, ((0, 0, 0),) * 2, (tuple(steps), tuple(taken)))
    judged = verdict(chakra.parse("x", chakra.dump(plan)))
    assert judged.kind == "no value" and judged.traffic[0] == (1, chakra.CHUNK_BYTES * 3 << 30)
