"""Ops of an MSCCL++ plan: the buffers and channels that each takes, and how many fit.

Read in MSCCL++'s public executor; none of these plans has run on a GPU here.
"""

import json
import re

import pytest

from refgf.oracle.__main__ import main
from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import mscclpp
from tests.support.schedule_cases import report, verdict

NOP = {"name": "nop"}


def at(buffer, index=0, size=1):
    """A buffer of this rank: a letter; of another rank: the number of its remote buffer."""
    where = {"type": buffer} if isinstance(buffer, str) else {"buffer_id": buffer}
    return where | {"index": index, "size": size}


def op(name, src, dst, **more):
    return {"name": name, "src_buff": src, "dst_buff": dst, **more}


def on(ids, kind="memory"):
    return {"channel_ids": ids, "channel_type": kind}


def parsed(ops, kind="memory", room=2, collective="custom"):
    """Rank 0 of three runs the ops. Its channels and buffers: 0 to rank 1, 1 to rank 2.

    Remote buffer 0: rank 1's scratch; 1: rank 2's scratch; 2: rank 1's input.
    """
    held = [(1, "s"), (2, "s"), (1, "i")]
    buffers = [{"rank": r, "type": b, "access_channel_types": [kind]} for r, b in held]
    block = {"id": 0, "ops": ops, "channels": [{"channel_type": kind, "channel_ids": [0, 1]}]}
    block["remote_buffer_refs"] = [{"access_channel_type": kind, "remote_buffer_ids": [0, 1, 2]}]
    sizes = {f"{name}_chunks": room for name in ("input", "output", "scratch")}
    gpus = [{"id": rank, **sizes} for rank in range(3)]
    gpus[0] |= {"threadblocks": [block], "remote_buffers": buffers}
    gpus[0]["channels"] = [{"channel_type": kind, "connected_to": [1, 2]}]
    top = {"name": "t", "collective": collective, "protocol": "LL", "inplace": True}
    return mscclpp.parse("x", json.dumps(top | {"gpus": gpus}).encode())


I, S = at("i"), at("s")
FIRST, SECOND, INPUT = at(0), at(1), at(2)
RIGHT = [
    op("put", [I, I], [FIRST, SECOND]),
    op("get", [FIRST, SECOND], [I, I], **on([0, 1])),
    op("get", [FIRST], [I]),
    op("copy", [I], [S]),
    op("re", [I, S, at("i", 1)], [I]),
    op("res", [I, S], [I, FIRST, SECOND]),
    op("rre", [I, FIRST, SECOND], [I]),
    op("rres", [I, INPUT], [I, FIRST]),
    op("ppkt", [I, I], [FIRST, SECOND]),
    op("rppkt", [S], [FIRST, SECOND]),
    op("cpkt", [I], [S]),
    op("upkt", [S], [I]),
    op("repkt", [I, S], [I]),
    op("respkt", [I, S], [I, FIRST]),
    op("recpkt", [I, S], [I, at("s", 1)]),
    op("recspkt", [I, S], [I, at("s", 1), FIRST]),
]


@pytest.mark.parametrize("given", RIGHT, ids=lambda each: each["name"])
def test_each_op_with_the_buffers_that_it_takes(given):
    assert verdict(parsed([{"channel_type": "memory", **given}])).kind == "no value"


WRONG = {  # an op, and what the reader says of it
    "a put into its own memory": (op("put", [I], [S]), "dst_buff local-scratch of put"),
    "a put of another's memory": (op("put", [FIRST], [SECOND]), "src_buff remote-scratch of put"),
    "a get of its own memory": (op("get", [S], [I]), "src_buff local-scratch of get"),
    "a get into another's memory": (op("get", [FIRST], [SECOND]), "dst_buff remote-scratch of get"),
    "a copy of two": (op("copy", [I, I], [S, at("s", 1)]), "local local of copy on gpu 0"),
    "a copy into another's memory": (op("copy", [I], [FIRST]), "dst_buff remote-scratch of copy"),
    "a sum into two": (op("re", [I, S], [I, S]), "dst_buff local local-scratch of re"),
    "a sum that reads another rank": (op("re", [I, FIRST], [I]), "src_buff local remote-scratch"),
    "a sum that sends, of others": (op("res", [I, FIRST], [I, FIRST]), "remote-scratch of res"),
    "packets in the input": (
        op("upkt", [I], [I]),
        "src_buff local of upkt on gpu 0; wanted packets",
    ),
    "packets into an input": (op("ppkt", [I], [INPUT]), "dst_buff remote of ppkt on gpu 0; wanted"),
    "packets into the output": (op("cpkt", [I], [at("o")]), "dst_buff local of cpkt"),
    "a sum of the input's packets": (op("repkt", [I, I], [I]), "src_buff local local of repkt"),
    "one source of two puts": (op("put", [I], [FIRST, SECOND]), "got 1 sources for 2 of put"),
    "sources in two buffers": (
        op("put", [I, S], [FIRST, SECOND]),
        "sources in buffers i, s of put",
    ),
    "another's channel for a get": (
        op("get", [FIRST], [I], **on([1])),
        "channel_ids to ranks [2] for a get on gpu 0; wanted a channel to each of ranks [1]",
    ),
    "another's channel for packets": (
        op("ppkt", [I], [FIRST], **on([1])),
        "channel_ids to ranks [2] for a ppkt on gpu 0; wanted a channel to each of ranks [1]",
    ),
    "no such channel": (op("get", [FIRST], [I], **on([7])), "channel_ids 7 on gpu 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_op_with_other_buffers_or_channels_is_refused(name):
    given, says = WRONG[name]
    with pytest.raises(BadFile, match=re.escape(says)):
        parsed([{"channel_type": "memory", **given}])


ON_PORTS = {
    "get": (op("get", [FIRST], [I]), "a port channel in get on gpu 0; wanted a memory channel"),
    "rre": (op("rre", [I, FIRST], [I]), "a port channel in rre on gpu 0; wanted a memory channel"),
    "respkt": (op("respkt", [I, S], [I, FIRST]), "a port channel in respkt on gpu 0; wanted"),
    "no channel": (op("ppkt", [S], [FIRST], **on([], "port")), "to ranks [] for a ppkt on gpu 0"),
    "in another order": (
        op("put", [I, I], [FIRST, SECOND], **on([1, 0], "port")),
        "channel_ids to ranks [2, 1] for a put on gpu 0; wanted a channel to each of ranks [1, 2]",
    ),
    "packets of the input": (
        op("ppkt", [I], [FIRST], **on([0], "port")),
        "src_buff local of ppkt on gpu 0; wanted packets*",
    ),
}


@pytest.mark.parametrize("name", ON_PORTS)
def test_what_a_port_channel_cannot_do_is_refused(name):
    given, says = ON_PORTS[name]
    with pytest.raises(BadFile, match=re.escape(says)):
        parsed([{"channel_type": "port", **given}], "port")


def test_a_flush_needs_a_port_channel():
    with pytest.raises(BadFile, match="a memory channel in flush on gpu 0; wanted a port channel"):
        parsed([{"name": "flush", **on([0])}])
    parsed([{"name": "flush", **on([0], "port")}], "port")


def test_a_get_takes_its_places_from_the_other_side():
    """The executor adds dst_buff's offset to the remote buffer and src_buff's to the local one."""
    plan = parsed([op("get", [at(0, 1)], [at("i", 0)], **on([0]))])
    (step,) = plan.ranks[0]
    assert (step.reads[0].start, step.writes[0].start) == (0, 1)
    assert "get: MSCCL++'s executor takes" in report(plan, verdict(plan))
    same = parsed([op("get", [at(0, 1)], [at("i", 1)], **on([0]))])
    assert "get:" not in report(same, verdict(same))


BARRIER = {"name": "barrier", "num_threadblocks": 1}
ROOM = {  # what fits, what does not, and what is said of it
    "barriers": (
        [BARRIER | {"barrier_id": 15}],
        [BARRIER | {"barrier_id": 16}],
        "rank 0, tb 0, step 0 (barrier): got barrier_id 16; wanted one below 16",
    ),
    "channels of an op": (
        [{"name": "signal", **on([0] * 8)}],
        [NOP, {"name": "signal", **on([0] * 9)}],
        "rank 0, tb 0, step 1 (signal): got 9 channel_ids; wanted at most 8",
    ),
    "sources of an op": (
        [op("re", [I] * 10, [I])],
        [op("re", [I] * 11, [I])],
        "rank 0, tb 0, step 0 (re): got 11 src_buff; wanted at most 10",
    ),
}


@pytest.mark.parametrize("name", ROOM)
def test_more_than_the_executor_has_room_for_is_out_of_range(name):
    fits, beyond, says = ROOM[name]
    assert "out of range" not in {found.kind for found in parsed(fits).found}
    judged = verdict(parsed(beyond))
    assert judged.kind == "out of range"
    assert str(judged.found[0]).startswith(says)


def test_more_channels_than_a_thread_block_has_room_for(tmp_path, capsys):
    """18 ranks that write to each other need 17 channels, so refgf writes no such plan."""
    export = ["schedule", "--export", "direct", "--format", "mscclpp-json", "--output", tmp_path]
    assert main([*map(str, export), "--ranks", "18"]) == 2
    assert "rank 0, tb 0: got 17 memory channels; wanted at most 16" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main([*map(str, export), "--ranks", "17"]) == 0


def test_the_answer_says_that_the_executor_refuses_more_than_64_ops(tmp_path, capsys):
    text = "has 65 ops in tb 0; MSCCL++'s executor takes 64 in a thread block"
    for count, said in ((64, False), (65, True)):
        plan = parsed([NOP] * count)
        assert (text in report(plan, verdict(plan))) == said
    inner = {"name": "pipeline", "ops": [NOP] * 63}
    plan = parsed([inner, NOP])
    assert text in report(plan, verdict(plan))
    export = ["--export", "ring", "--ranks", "16", "--format", "mscclpp-json"]
    assert main(["schedule", *export, "--output", str(tmp_path)]) == 0
    assert "executor takes 64 in a thread block" in capsys.readouterr().out
