"""Schedules as data: round trips, values, orders, times, and wrong files by rank and step."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from refgf.oracle import definitions
from refgf.oracle.__main__ import main
from refgf.oracle.judge.untrusted import BadFile
from refgf.oracle.schedules import chakra, msccl, mscclpp
from refgf.oracle.schedules.command import plan_files, read_plan
from refgf.oracle.schedules.form import Plan, PlanStep, Port, Span, require_size
from refgf.oracle.schedules.layout import layout
from refgf.oracle.schedules.options import ALGORITHMS, FORMATS
from refgf.oracle.schedules.order import Graph
from refgf.oracle.schedules.own import OWN, own_plan
from refgf.oracle.schedules.times import moved
from refgf.oracle.schedules.values import Values
from refgf.oracle.schedules.verdict import as_lines, judge
from refgf.predict.cost import Link, ring_allreduce_s

LINK = Link(1e-5, 1e-9, 1e-10)
SIZES = (1, 2, 3, 4, 5, 6, *(pytest.param(p, marks=pytest.mark.long) for p in range(7, 17)))


def plans(sizes, names=tuple(OWN), forms=FORMATS):
    for p in sizes:
        for name in names:
            if name != "two-level" or p % 2 == 0:
                yield from (own_plan(name, p, form, max(p, 2)) for form in forms)


def back(plan):
    """The plan as its own format's reader sees it."""
    if plan.format == "chakra":
        return chakra.parse("x", chakra.dump(plan))
    module = msccl if plan.format == "msccl-xml" else mscclpp
    return module.parse("x", module.dump(plan))


def verdict(plan, nbytes=1024):
    return judge(plan, LINK, nbytes)


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


def xml(size=4, name="ring"):
    return ET.fromstring(msccl.dump(own_plan(name, size, "msccl-xml", size)))


def block(root, gpu, tb):
    return root.find(f"gpu[@id='{gpu}']/tb[@id='{tb}']")


def step(root, gpu, tb, number):
    return block(root, gpu, tb)[number]


def judged_xml(root):
    return verdict(msccl.parse("x", ET.tostring(root)))


@pytest.mark.parametrize("loop", (8, 2, 0, -1))
def test_another_number_of_chunks_a_loop_is_out_of_range(loop):
    root = xml()
    root.set("nchunksperloop", str(loop))
    judged = judged_xml(root)
    assert judged.kind == "out of range"
    assert str(judged.found[0]).startswith(f"rank 0, nchunksperloop: got {loop}; wanted 4")
    del root.attrib["nchunksperloop"]
    with pytest.raises(BadFile, match="got none as nchunksperloop of <algo>"):
        judged_xml(root)


def test_a_plan_used_both_ways_is_judged_both_ways():
    root = xml()
    root.set("outofplace", "0")
    assert judged_xml(root).kind == "right"
    root.set("outofplace", "1")
    judged = judged_xml(root)
    assert judged.kind == "wrong value" and "out of place: rank 0 ends with" in judged.found[0].text


def in_xml(gpu, tb, number, **changes):
    def change(root):
        step(root, gpu, tb, number).attrib.update(changes)

    return change


def without(gpu, tb, number):
    return lambda root: block(root, gpu, tb).remove(step(root, gpu, tb, number))


def without_last_send(root):
    without(0, 0, 5)(root)
    step(root, 0, 1, 5).attrib.update(depid="-1", deps="-1")


def in_block(gpu, tb, **changes):
    return lambda root: block(root, gpu, tb).attrib.update(changes)


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
    "another channel": (in_block(2, 1, chan="1"), "unmatched", 1, "tb 0, step 0"),
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


def changed(plan, rank, index, **changes):
    ranks = [list(steps) for steps in plan.ranks]
    ranks[rank][index] = replace(ranks[rank][index], **changes)
    return back(replace(plan, ranks=tuple(map(tuple, ranks))))


def at(plan, rank, op, number=0):
    """Index of the number-th step of this kind."""
    return [i for i, s in enumerate(plan.ranks[rank]) if s.op == op][number]


RELAXED = {"signal": "rlxsignal", "wait": "rlxwait"}


@pytest.mark.parametrize("op", RELAXED)
def test_relaxed_signals_order_no_memory(op):
    plan = own_plan("ring", 3, "mscclpp-json", 3)
    text = mscclpp.dump(plan).decode().replace(f'"{op}"', f'"{RELAXED[op]}"')
    judged = verdict(mscclpp.parse("x", text.encode()))
    assert judged.kind == "race" and judged.found[0].place.startswith("tb 0, step")


def test_wrong_plans_are_named_with_rank_and_step():
    """Another slot, a signal before its put, a sum that is a copy."""
    plan = own_plan("ring", 3, "mscclpp-json", 3)
    put = plan.ranks[1][0]
    slot = replace(put.writes[0], start=3)
    judged = verdict(changed(plan, 1, 0, writes=(slot,)))
    assert judged.kind in ("race", "wrong value")
    early = list(plan.ranks[1])
    early[0], early[2] = replace(early[2], number=0, after=()), replace(early[0], number=2)
    ranks = (plan.ranks[0], tuple(early), plan.ranks[2])
    judged = verdict(back(replace(plan, ranks=ranks)))
    assert judged.kind == "race" and "rank 1, tb 0, step 2 (put)" in str(judged.found)
    index = at(plan, 2, "re")
    own = plan.ranks[2][index]
    judged = verdict(changed(plan, 2, index, op="copy", reads=own.reads[1:]))
    assert judged.kind == "wrong value"
    assert str(judged.found[0]).startswith(f"rank 2, tb 0, step {own.number} (copy)")


REFUSED_OPS = {  # what replaces what in the JSON of a ring
    "a maximum": ('"reduce_op": "sum"', '"reduce_op": "max"', "the reduce_op 'max' of re on gpu 0"),
    "a longer source": ('"size": 1', '"size": 2', "sizes 1 and 2 in one put on gpu 0"),
    "no channel": ('"channel_ids": [0]', '"channel_ids": []', "channel_ids to ranks [] for a put"),
    "another's channel": (
        *('"channel_ids": [0]', '"channel_ids": [1]'),
        "channel_ids to ranks [2] for a put on gpu 0; wanted a channel to each of ranks [1]",
    ),
    "a channel not there": ('"channel_ids": [0]', '"channel_ids": [99]', "channel_ids 99 on gpu 0"),
}


@pytest.mark.parametrize("name", REFUSED_OPS)
def test_fields_of_a_plan_that_contradict_each_other_are_refused(name):
    old, new, says = REFUSED_OPS[name]
    text = json.dumps(json.loads(mscclpp.dump(own_plan("ring", 3, "mscclpp-json", 3))))
    assert old in text
    with pytest.raises(BadFile, match=re.escape(says)):
        mscclpp.parse("x", text.replace(old, new, 1).encode())


def test_an_empty_trace_and_a_huge_count_say_what_is_wrong():
    with pytest.raises(BadFile, match="rank 1: got an empty file"):
        chakra.parse("x", [chakra.dump(own_plan("ring", 2, "chakra", 2))[0], b""])
    root = xml()
    in_xml(0, 0, 0, cnt="1000000000000")(root)
    with pytest.raises(BadFile, match=f"wanted a whole number up to {1 << 31}"):
        judged_xml(root)


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


def report(plan, judged):
    return "\n".join(as_lines("x", plan, judged))


def program(blocks, inplace=1, coll="allreduce", sizes=(2, 2, 2)):
    """XML from {(gpu, tb): (send, recv, [(type, src, dst), ...])}; src and dst like "i0"."""
    gpus = sorted({gpu for gpu, _ in blocks})
    loop = f'nchunksperloop="{max(sizes[:2])}"'
    lines = [f'<algo name="t" ngpus="{len(gpus)}" coll="{coll}" inplace="{inplace}" {loop}>']
    for gpu in gpus:
        names = zip(("i_chunks", "o_chunks", "s_chunks"), sizes)
        lines.append(f'<gpu id="{gpu}" ' + " ".join(f'{k}="{v}"' for k, v in names) + ">")
        for (other, tb), (send, recv, steps) in blocks.items():
            if other == gpu:
                lines.append(f'<tb id="{tb}" send="{send}" recv="{recv}" chan="0">')
                for s, (kind, src, dst) in enumerate(steps):
                    where = f'srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}"'
                    where += f' dstoff="{dst[1:]}" cnt="1" depid="-1" deps="-1"'
                    lines.append(f'<step s="{s}" type="{kind}" {where}/>')
                lines.append("</tb>")
        lines.append("</gpu>")
    return msccl.parse("x", "".join([*lines, "</algo>"]).encode())


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


def test_the_prediction_names_the_cost_models_numbers():
    plan = own_plan("ring", 2, "msccl-xml", 2)
    numbers = " us with alpha 10 us, beta 1 ns/byte, gamma 0.1 ns/byte"
    assert report(plan, verdict(plan)).endswith(numbers)


def test_two_thread_blocks_on_one_channel_race():
    """Their messages may change places."""
    sends = {(0, tb): (1, -1, [("s", f"i{tb}", "i0")]) for tb in (0, 1)}
    plan = program(
        {**sends, (1, 0): (-1, 0, [("r", "i0", "s0"), ("r", "i0", "s1")])}, coll="custom"
    )
    judged = verdict(plan)
    assert judged.kind == "race" and "on the channel of" in str(judged.found[0])


def json_plan(op, *, dst, src, remote="s"):
    """Two ranks; rank 0 writes or reads rank 1's memory with one op."""
    kind = "port" if op == "pws" else "memory"
    local = {"channels": [{"channel_type": kind, "channel_ids": [0]}]}
    refs = [{"access_channel_type": kind, "remote_buffer_ids": [0]}]
    common = {"input_chunks": 1, "output_chunks": 1, "scratch_chunks": 1}
    gpus = []
    for rank in (0, 1):
        ops = (
            [
                {
                    "name": op,
                    "src_buff": src,
                    "dst_buff": dst,
                    "channel_type": kind,
                    "channel_ids": [0],
                }
            ]
            if rank == 0
            else []
        )
        if op == "pws" and rank == 1:
            ops = [{"name": "wait", "channel_type": kind, "channel_ids": [0]}]
        gpus.append(
            {
                "id": rank,
                **common,
                "threadblocks": [{"id": 0, "ops": ops, **local, "remote_buffer_refs": refs}],
                "channels": [{"channel_type": kind, "connected_to": [1 - rank]}],
                "remote_buffers": [{"rank": 1 - rank, "type": remote}],
            }
        )
    return {"name": "t", "collective": "custom", "inplace": True, "gpus": gpus}


I0, REMOTE = {"type": "i", "index": 0, "size": 1}, {"buffer_id": 0, "index": 0, "size": 1}


@pytest.mark.parametrize(
    ("op", "src", "dst", "traffic"),
    [
        ("put", [I0], [REMOTE], [1, 0]),
        ("pws", [I0], [REMOTE], [1, 0]),
        ("get", [REMOTE], [I0], [0, 1]),
        ("rre", [I0, REMOTE], [I0], [0, 1]),
        ("res", [I0, I0], [I0, REMOTE], [1, 0]),
        ("rres", [I0, REMOTE], [I0, REMOTE], [1, 1]),
    ],
)
def test_one_sided_operations(op, src, dst, traffic):
    plan = mscclpp.parse("x", json.dumps(json_plan(op, src=src, dst=dst, remote="i")).encode())
    judged = verdict(plan)
    assert judged.kind == "no value", judged.found
    assert [messages for messages, _ in judged.traffic] == traffic


def test_readers_of_packets_wait_for_them_and_barriers_join_thread_blocks():
    s0, o0 = {**I0, "type": "s"}, {**I0, "type": "o"}
    top = json_plan("ppkt", src=[I0], dst=[REMOTE])
    unpack = {"name": "upkt", "src_buff": [s0], "dst_buff": [s0]}
    barrier = {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}
    copy = {"name": "copy", "src_buff": [s0], "dst_buff": [o0]}
    blocks = top["gpus"][1]["threadblocks"]
    blocks[0]["ops"] = [unpack, barrier]
    blocks.append({"id": 1, "ops": [barrier, copy]})
    assert verdict(mscclpp.parse("x", json.dumps(top).encode())).kind == "no value"
    blocks[1]["ops"] = [copy]
    blocks[0]["ops"] = [unpack]
    assert verdict(mscclpp.parse("x", json.dumps(top).encode())).kind == "race"


def shared_by_two(parts):
    """An allreduce of two ranks by a switch, in place; two thread blocks share its chunk."""
    multi = {"switch_channel_id": 0, "index": 0, "size": 1}
    group = {"size": 2, "ranks": [0, 1]}
    switch = {"channel_type": "switch", "buffer_type": "i", "rank_groups": [group]}
    gpus = []
    for rank in (0, 1):
        both = {"channel_type": "memory", "channel_ids": [0]}
        ops = [
            {"name": "signal", **both},
            {"name": "wait", **both},
            {"name": "nop"},
            {"name": "sem_release", "semaphore_ids": [0, 1]},
        ]
        blocks = [{"id": 9, "ops": ops, "channels": [both]}]
        for block, part in enumerate(parts if rank == 0 else ()):
            sums = {"name": "glres", "src_buff": [multi], "dst_buff": [multi]}
            sums |= {"channel_type": "switch", "tbg_info": {"tb_id": part, "tbg_size": 2}}
            inner = [{"name": "sem_acquire", "semaphore_ids": [block]}, {"name": "nop"}, sums]
            pipeline = {"name": "pipeline", "iter_context": {"unit_size": 8}, "ops": inner}
            own = [{"channel_type": "switch", "channel_ids": [0]}]
            blocks.append({"id": block, "ops": [pipeline], "channels": own})
        memory = {"channel_type": "memory", "connected_to": [1 - rank]}
        gpu = {"id": rank, "input_chunks": 1, "threadblocks": blocks, "channels": [memory, switch]}
        gpus.append(gpu | {"semaphores": [{"init_value": 0}, {"init_value": 0}]})
    return {"name": "t", "collective": "allreduce", "inplace": True, "gpus": gpus}


def kind_of(top):
    return verdict(mscclpp.parse("x", json.dumps(top).encode())).kind


def test_switches_semaphores_pipelines_and_groups_of_thread_blocks():
    assert kind_of(shared_by_two((0, 1))) == "right"
    older = json.dumps(shared_by_two((0, 1))).replace("buffer_type", "buff")
    assert kind_of(json.loads(older)) == "right"
    assert kind_of(shared_by_two((0, 0))) != "right"  # one half twice, the other never
    assert kind_of(shared_by_two((0,))) == "wrong value"
    top = shared_by_two((0, 1))
    top["gpus"][0]["channels"][1]["rank_groups"][0]["ranks"] = [0]
    assert kind_of(top) == "wrong value"
    with pytest.raises(BadFile, match="got part 2 of 2 in tbg_info"):
        kind_of(shared_by_two((0, 2)))


def test_an_acquire_waits_for_its_release():
    top = shared_by_two((0, 1))
    released = top["gpus"][0]["threadblocks"][0]["ops"][3]
    released["semaphore_ids"] = [0]
    judged = verdict(mscclpp.parse("x", json.dumps(top).encode()))
    assert judged.kind == "unmatched"
    assert "rank 0, tb 1, step 0 (sem_acquire): waits for semaphore 1" in str(judged.found[0])
    top["gpus"][0]["semaphores"][1]["init_value"] = 1  # free
    assert kind_of(top) == "right"


def test_a_release_orders_what_came_before_it():
    """A thread block reads what the switch then overwrites."""
    top = shared_by_two((0, 1))
    gpu = top["gpus"][0]
    gpu["scratch_chunks"] = 1
    read = {"name": "copy", "src_buff": [I0], "dst_buff": [{**I0, "type": "s"}]}
    gpu["threadblocks"][0]["ops"].insert(0, read)
    assert kind_of(top) == "right"
    gpu["semaphores"][1]["init_value"] = 1
    assert kind_of(top) == "race"


def test_a_switch_writes_the_memory_of_all_its_ranks():
    """Two chunks: each rank gives its own to both."""
    top = shared_by_two(())
    top |= {"collective": "allgather"}
    for rank, gpu in enumerate(top["gpus"]):
        gpu |= {"input_chunks": 1, "output_chunks": 2}
        gpu["channels"][1]["buffer_type"] = "o"
        store = {"name": "gstore", "src_buff": [I0], "channel_type": "switch"}
        store["dst_buff"] = [{"switch_channel_id": 0, "index": rank, "size": 1}]
        own = [{"channel_type": "switch", "channel_ids": [0]}]
        gpu["threadblocks"] = [{"id": 0, "ops": [store], "channels": own}]
    assert kind_of(top) == "right"
    top["gpus"][1]["threadblocks"][0]["ops"][0]["dst_buff"][0]["index"] = 0
    assert kind_of(top) != "right"


def test_a_trace_of_another_tool_is_judged_without_its_values():
    """No addresses: messages, order, traffic and time only."""
    plan = own_plan("ring", 3, "chakra", 3)
    bare = tuple(
        tuple(replace(step, reads=(), writes=()) for step in steps) for steps in plan.ranks
    )
    foreign = Plan("chakra", "t", "", False, ((0, 0, 0),) * 3, bare)
    judged = verdict(chakra.parse("x", chakra.dump(foreign)))
    assert judged.kind == "no value" and judged.traffic == [(4, 4)] * 3


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


def test_a_trace_may_hold_messages_of_gigabytes():
    steps = [PlanStep(0, 0, "COMM_SEND_NODE", sends=(Port(1, 0),), chunks=3 << 30)]
    taken = [PlanStep(0, 0, "COMM_RECV_NODE", receives=(Port(0, 0),), chunks=3 << 30)]
    plan = Plan("chakra", "t", "", False, ((0, 0, 0),) * 2, (tuple(steps), tuple(taken)))
    judged = verdict(chakra.parse("x", chakra.dump(plan)))
    assert judged.kind == "no value" and judged.traffic[0] == (1, 3 << 30)


def test_an_older_version_of_mscclpp_is_named():
    older = json.dumps(shared_by_two((0, 1))).replace("channel_type", "type")
    with pytest.raises(BadFile, match="got a channel with type, as older versions of MSCCL"):
        kind_of(json.loads(older))
    older = json.dumps(shared_by_two((0, 1))).replace("input_chunks", "inputChunks")
    with pytest.raises(BadFile, match="got inputChunks of gpu 0, as older versions of MSCCL"):
        kind_of(json.loads(older))


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


def test_exit_codes(tmp_path, capsys):
    root = xml()
    WRONG_XML["copies where it should add"][0](root)
    (tmp_path / "wrong.xml").write_bytes(ET.tostring(root))
    (tmp_path / "bad.xml").write_text("<algo")
    assert main(["schedule", str(tmp_path / "bad.xml")]) == 2
    assert main(["schedule", str(tmp_path / "bad.xml"), str(tmp_path / "wrong.xml")]) == 1
    assert "overwrites the contribution of rank 2" in capsys.readouterr().out
    assert read_plan(str(tmp_path / "wrong.xml")).name == "refgf ring"


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
