"""MSCCL XML: wrong files by rank and step, fused steps, other collectives."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from refgf.oracle.__main__ import main
from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import msccl
from refgf.oracle.schedules.command import read_plan
from refgf.oracle.schedules.form import Plan, PlanStep, Port, Span
from refgf.oracle.schedules.own import own_plan
from refgf.oracle.schedules.times import moved
from tests.support.schedule_cases import (
    block,
    in_xml,
    judged_xml,
    program,
    report,
    step,
    verdict,
    without,
    xml,
)


@pytest.mark.parametrize("loop", (8, 2, 0, -1))
def test_another_number_of_chunks_a_loop_is_out_of_range(loop):
    root = xml()
    root.set("nchunksperloop", str(loop))
    judged = judged_xml(root)
    assert judged.kind == "out of range"
    assert str(judged.found[0]).startswith(f"rank 0, nchunksperloop: got {loop}; wanted 4")


@pytest.mark.parametrize(("channels", "chan"), [(1, 1), (0, 0), (-1, 0), (1, -1)])
def test_a_channel_that_is_not_connected_is_out_of_range(channels, chan):
    root = xml()
    root.set("nchannels", str(channels))
    for gpu in range(4):
        for tb in root.findall(f"gpu[@id='{gpu}']/tb"):
            tb.set("chan", str(chan))
    judged = judged_xml(root)
    assert judged.kind == "out of range"
    wanted = f"rank 0, tb 0: got chan {chan}; wanted one below nchannels, which is {channels}"
    assert str(judged.found[0]) == wanted
    root.set("nchannels", "2")
    assert judged_xml(root).kind == ("right" if chan >= 0 else "out of range")


def test_an_unknown_protocol_is_refused():
    root = xml()
    for protocol in ("LL", "LL128", "Simple"):
        root.set("proto", protocol)
        assert judged_xml(root).kind == "right"
    root.set("proto", "LL256")
    with pytest.raises(BadFile, match="got 'LL256' as proto of <algo>; wanted one of Simple, LL"):
        judged_xml(root)


def test_a_plan_used_both_ways_is_judged_both_ways():
    root = xml()
    root.set("outofplace", "0")
    assert judged_xml(root).kind == "right"
    root.set("outofplace", "1")
    judged = judged_xml(root)
    assert judged.kind == "wrong value" and "out of place: rank 0 ends with" in judged.found[0].text


def without_last_send(root):
    without(0, 0, 5)(root)
    step(root, 0, 1, 5).attrib.update(depid="-1", deps="-1")


def in_block(gpu, tb, **changes):
    return lambda root: block(root, gpu, tb).attrib.update(changes)


def another_channel(root):
    root.set("nchannels", "2")
    in_block(2, 1, chan="1")(root)


def all_first_sends_wait(root):
    for gpu in range(4):
        step(root, gpu, 0, 0).attrib.update(depid="1", deps="0")
        step(root, gpu, 1, 0).attrib.update(depid="-1", deps="-1")


def nothing_published(root):
    for each in root.iter("step"):
        each.attrib["hasdep"] = "0"


# In the ring of 4 ranks: thread block 0 sends, thread block 1 receives.
WRONG_XML = {
    "copies where it should add": (in_xml(2, 1, 1, type="r"), "wrong value", 2, "tb 1, step 1"),
    "adds where it should copy": (in_xml(1, 1, 3, type="rrc"), "wrong value", 1, "tb 1, step 3"),
    "sends another chunk": (in_xml(0, 0, 1, srcoff="2"), "wrong value", 1, "tb 1, step 1"),
    "stores in another chunk": (in_xml(3, 1, 5, dstoff="3"), "wrong value", 3, "tb 1, step"),
    "a chunk beyond the buffer": (in_xml(0, 0, 2, srcoff="9"), "out of range", 0, "tb 0, step 2"),
    "a chunk before the buffer": (in_xml(1, 0, 2, srcoff="-1"), "out of range", 1, "tb 0, step 2"),
    "no chunk": (in_xml(1, 0, 3, cnt="0"), "out of range", 1, "tb 0, step 3"),
    "scratch that is not there": (in_xml(2, 1, 4, dstbuf="s"), "out of range", 2, "tb 1, step 4"),
    "two chunks for one": (in_xml(2, 0, 1, srcoff="0", cnt="2"), "unmatched", 2, "tb 0, step 1"),
    "a send is missing": (without_last_send, "unmatched", 1, "tb 1, step 5"),
    "a receive is missing": (without(2, 1, 5), "unmatched", 1, "tb 0, step 5"),
    "another channel": (another_channel, "unmatched", 1, "tb 0, step 0"),
    "a rank that is not there": (in_block(1, 0, send="7"), "out of range", 1, "tb 0, step 0"),
    "a message to itself": (in_block(1, 0, send="1"), "out of range", 1, "tb 0, step 0"),
    "another thread block": (in_xml(3, 0, 1, depid="8"), "out of range", 3, "tb 0, step 1"),
    "a step too far": (in_xml(3, 0, 1, deps="17"), "out of range", 3, "tb 0, step 1"),
    "sends too early": (in_xml(1, 0, 2, depid="-1", deps="-1"), "race", 1, "tb 0, step 2"),
    "waits for a later step": (in_xml(0, 0, 0, depid="1", deps="5"), "deadlock", 0, "tb"),
    "all wait for each other": (all_first_sends_wait, "deadlock", 0, "tb"),
    "no step says that it has ended": (nothing_published, "deadlock", 3, "tb 0, step 1"),
    "the last one says it not": (in_xml(2, 1, 4, hasdep="0"), "deadlock", 2, "tb 0, step 5"),
}


@pytest.mark.parametrize("name", WRONG_XML)
def test_wrong_xml_is_named_with_rank_and_step(name):
    change, kind, rank, place = WRONG_XML[name]
    root = xml()
    change(root)
    judged = judged_xml(root)
    assert judged.kind == kind, judged.found
    assert any(f.rank == rank and place in str(f) for f in judged.found), judged.found


def test_no_chunk_and_no_flag():
    root = xml()
    in_xml(1, 0, 3, cnt="0")(root)
    assert "got 0 chunks of buffer i; wanted at least 1" in str(judged_xml(root).found[0])
    in_xml(1, 0, 3, cnt="1", hasdep="2")(root)
    with pytest.raises(BadFile, match="got 2 as hasdep of <step>; wanted 0 or 1"):
        judged_xml(root)


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


def test_two_ranks_that_exchange_and_add_hold_the_same_bits():
    """a + b and b + a are one tree."""
    both = {r: [("s", "i0", "i0"), ("rrc", "i0", "i0")] for r in (0, 1)}
    plan = program({(r, 0): (1 - r, 1 - r, both[r]) for r in both}, sizes=(1, 0, 0))
    assert verdict(plan).kind == "right"


OTHERS = {
    "allgather": {
        (r, 0): (1 - r, 1 - r, [("s", f"o{r}", "o0"), ("r", "o0", f"o{1 - r}")]) for r in (0, 1)
    },
    "reduce_scatter": {
        (r, 0): (1 - r, 1 - r, [("s", f"i{1 - r}", "i0"), ("rrc", f"i{r}", f"i{r}")])
        for r in (0, 1)
    },
    "alltoall": {
        (r, 0): (1 - r, 1 - r, [("s", f"i{1 - r}", "i0"), ("r", "i0", f"i{1 - r}")]) for r in (0, 1)
    },
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_collectives_in_place(name):
    sizes = {"allgather": (0, 2, 0)}.get(name, (2, 0, 0))
    assert verdict(program(OTHERS[name], coll=name, sizes=sizes)).kind == "right"
    spoilt = {
        k: (s, r, [steps[0], (steps[1][0], "i0", "s0")])
        for k, (s, r, steps) in OTHERS[name].items()
    }
    kind = verdict(program(spoilt, coll=name, sizes=(*sizes[:2], 1))).kind
    assert kind == "wrong value"


def test_a_collective_without_a_known_result_has_no_value():
    plan = program(
        {(r, 0): (1 - r, 1 - r, [("s", "i0", "i0"), ("r", "i0", "s0")]) for r in (0, 1)},
        coll="custom",
    )
    judged = verdict(plan)
    assert judged.kind == "no value"
    assert "wanted one of these collectives, to know it: allreduce" in report(plan, judged)
    known = own_plan("ring", 2, "msccl-xml", 2)
    assert "wanted" not in report(known, verdict(known))


@pytest.mark.parametrize("inplace", (0, 1))
def test_an_input_that_is_overwritten_out_of_place_is_remarked(inplace):
    steps = [("s", "i0", "i0"), ("rrc", "i0", "i0"), ("cpy", "i0", "o0")]
    steps = steps[: 2 + (not inplace)]
    plan = program({(r, 0): (1 - r, 1 - r, steps) for r in (0, 1)}, inplace, sizes=(1, 1, 0))
    judged = verdict(plan)
    assert judged.kind == "right"
    assert ("out of place it overwrites its input" in report(plan, judged)) == (not inplace)


def test_two_thread_blocks_on_one_channel_race():
    """Their messages may change places."""
    sends = {(0, tb): (1, -1, [("s", f"i{tb}", "i0")]) for tb in (0, 1)}
    plan = program(
        {**sends, (1, 0): (-1, 0, [("r", "i0", "s0"), ("r", "i0", "s1")])}, coll="custom"
    )
    judged = verdict(plan)
    assert judged.kind == "race" and "on the channel of" in str(judged.found[0])


@pytest.mark.parametrize("inplace", (0, 1))
def test_a_race_of_input_and_output_says_that_they_are_one_memory(inplace):
    """Each rank sends its input with one thread block and stores what comes with another one."""
    sends = {(r, 0): (1 - r, -1, [("s", "i0", "o0")]) for r in (0, 1)}
    stores = {(r, 1): (-1, 1 - r, [("r", "i0", "o0")]) for r in (0, 1)}
    plan = program({**sends, **stores}, inplace, coll="custom")
    judged = verdict(plan)
    assert judged.kind == ("race" if inplace else "no value")
    assert ("input and output are one memory" in report(plan, judged)) == bool(inplace)


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
    WRONG_XML["copies where it should add"][0](root)
    (tmp_path / "wrong.xml").write_bytes(ET.tostring(root))
    (tmp_path / "bad.xml").write_text("<algo")
    assert main(["schedule", str(tmp_path / "bad.xml")]) == 2
    assert main(["schedule", str(tmp_path / "bad.xml"), str(tmp_path / "wrong.xml")]) == 1
    assert "overwrites the contribution of rank 2" in capsys.readouterr().out
    assert read_plan(str(tmp_path / "wrong.xml")).name == "refgf ring"
