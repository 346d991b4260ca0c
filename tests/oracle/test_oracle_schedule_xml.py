"""MSCCL XML: what plans become, and the command. What is said of wrong ones: tests/approval."""

import xml.etree.ElementTree as ET
from dataclasses import replace

from refgf.oracle.__main__ import main
from refgf.oracle.schedules import msccl
from refgf.oracle.schedules.command import read_plan
from refgf.oracle.schedules.form import Plan, PlanStep, Port, Span
from refgf.oracle.schedules.times import moved
from tests.support.schedule_cases import (
    in_xml,
    program,
    verdict,
    xml,
)


def test_a_later_step_of_the_thread_block_says_it_too():
    """MSCCL's flag counts steps, so the send waits for one step more."""
    root = xml()
    in_xml(2, 1, 1, hasdep="0")(root)
    plan = msccl.parse("x", ET.tostring(root))
    sends = [step for step in plan.ranks[2] if (step.lane, step.number) == (0, 2)]
    assert [plan.ranks[2][i].number for _, i in sends[0].after] == [1, 2]
    assert verdict(plan).kind == "deadlock"  # the ring sends chunk 1 only once chunk 2 is there


def test_fused_steps_of_msccl():
    """rrs sends on without storing, rrcs stores too, rcs sends on what it copies."""
    plan = program(
        {
            (0, 0): (1, 2, [("s", "i0", "i0"), ("rcs", "i0", "i0")]),
            (1, 0): (2, 0, [("rrs", "i0", "i0"), ("rcs", "i0", "i0")]),
            (2, 0): (0, 1, [("rrcs", "i0", "i0"), ("r", "i0", "s0")]),
        },
        sizes=(1, 1, 1),
    )
    judged = verdict(plan)
    assert judged.kind == "right" and judged.orders == {"((x0 + x1) + x2)": 1}
    assert [messages for messages, _ in judged.traffic] == [2, 2, 1]
    steps = [(rank, step) for rank, own in enumerate(plan.ranks) for step in own]
    sent = [what for rank, step in steps for *_, what in moved(rank, step)]
    assert sent == ["i[0:1]"] * 5, "a drawing names the chunk that rcs sends on, too"


def test_ranks_that_add_in_their_own_order_differ_in_bits():
    """Everyone sends to everyone and adds what comes to its own: right, but not the same."""
    blocks = {}
    for r in range(3):
        for t in (1, 2):
            to = (r + t) % 3
            blocks[r, t] = (to, -1, [("s", "i0", "i0")])
        senders = [(r - t) % 3 for t in (1, 2)]
        for t, sender in enumerate(senders):
            blocks[r, 3 + t] = (-1, sender, [("r", "s0", f"s{t}")])
        sums = [("cpy", "i0", "o0"), ("re", "s0", "o0"), ("re", "s1", "o0")]
        blocks[r, 5] = (-1, -1, sums)
    plan = program(blocks, inplace=0, sizes=(1, 1, 2))
    ordered = []
    for steps in plan.ranks:
        own = list(steps)
        rank = plan.ranks.index(steps)
        own[5] = replace(own[5], after=(*own[5].after, (rank, 2), (rank, 3)))
        ordered.append(tuple(own))
    assert verdict(plan).kind == "race"
    judged = verdict(replace(plan, ranks=tuple(ordered)))
    assert judged.kind == "other bits"
    assert str(judged.found[0]).startswith("rank 1, tb 5, step 2 (re): leaves (x2 + (x0 + x1))")
    assert "rank 0 ends with (x1 + (x0 + x2))" in str(judged.found[0])


def test_memory_that_no_step_has_written():
    reads = PlanStep(0, 0, "cpy", (Span(0, "s", 0, 1),), (Span(0, "i", 0, 1),))
    plan = Plan("msccl-xml", "t", "allreduce", True, ((1, 1, 1),), ((reads,),))
    judged = verdict(plan)
    assert judged.kind == "wrong value" and "no step has written" in str(judged.found[0])


def test_unequal_vectors_and_peers():
    step = PlanStep(0, 0, "s", (Span(0, "i", 0, 1),), sends=(Port(1, 0),), chunks=1)
    plan = Plan("msccl-xml", "t", "allreduce", True, ((2, 2, 0), (3, 3, 0)), ((step,), ()))
    judged = verdict(plan)
    assert judged.kind == "out of range" and judged.found[0].rank == 1


def test_exit_codes(tmp_path, capsys):
    root = xml()
    in_xml(2, 1, 1, type="r")(root)
    (tmp_path / "wrong.xml").write_bytes(ET.tostring(root))
    (tmp_path / "bad.xml").write_text("<algo")
    assert main(["schedule", str(tmp_path / "bad.xml")]) == 2
    assert main(["schedule", str(tmp_path / "bad.xml"), str(tmp_path / "wrong.xml")]) == 1
    assert "overwrites the contribution of rank 2" in capsys.readouterr().out
    assert read_plan(str(tmp_path / "wrong.xml")).name == "refgf ring"
