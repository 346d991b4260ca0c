"""Threads of a block of an MSCCL++ plan: what a nop joins, and what a port channel does later."""

import json

import pytest

from refgf.oracle.__main__ import main
from refgf.oracle.schedules import mscclpp
from refgf.oracle.schedules.own import own_plan
from refgf.oracle.schedules.verdict import as_lines, judge
from refgf.predict.cost import Link

NOP = {"name": "nop"}
I0, S0 = ({"type": buffer, "index": 0, "size": 1} for buffer in "is")
ADD = {"name": "re", "src_buff": [I0, S0], "dst_buff": [I0], "reduce_op": "sum"}


def judged(*ops, kind="memory"):
    return judge(parsed(*ops, kind=kind), Link(1e-5, 1e-9), 1024).kind


def parsed(*ops, kind="memory"):
    """Two ranks with the same ops, in place."""
    gpus = []
    for rank in (0, 1):
        block = {"id": 0, "ops": ops, "channels": [{"channel_type": kind, "channel_ids": [0]}]}
        block["remote_buffer_refs"] = [{"access_channel_type": kind, "remote_buffer_ids": [0]}]
        gpu = {"id": rank, "input_chunks": 1, "output_chunks": 1, "scratch_chunks": 1}
        gpu["channels"] = [{"channel_type": kind, "connected_to": [1 - rank]}]
        gpu["remote_buffers"] = [{"rank": 1 - rank, "type": "s"}]
        gpus.append(gpu | {"threadblocks": [block]})
    top = {"name": "t", "collective": "allreduce", "protocol": "Simple", "inplace": True}
    top |= {"gpus": gpus}
    return mscclpp.parse("x", json.dumps(top).encode())


def on(name, kind="memory"):
    return {"name": name, "channel_type": kind, "channel_ids": [0]}


def put(name="put", kind="memory"):
    remote = {"buffer_id": 0, "index": 0, "size": 1}
    return {**on(name, kind), "src_buff": [I0], "dst_buff": [remote]}


def test_a_nop_joins_the_threads_before_a_signal_and_after_a_wait():
    assert judged(put(), NOP, on("signal"), on("wait"), NOP, ADD) == "right"
    assert judged(put(), on("signal"), on("wait"), NOP, ADD) == "race"
    assert judged(put(), NOP, on("signal"), on("wait"), ADD) == "race"


@pytest.mark.parametrize("name", ["pws", "pwsf"])
def test_a_put_with_signal_sends_none_on_a_memory_channel(name):
    """Read in MSCCL++'s executor: its memory branch copies and returns."""
    assert judged(put(name), NOP, on("wait"), NOP, ADD) == "unmatched"


def test_a_port_channel_reads_its_source_until_it_is_flushed():
    wait, flush = on("wait", "port"), on("flush", "port") | {"dst_buff": [S0]}
    for name, right in (("pws", "race"), ("pwsf", "right")):
        assert judged(put(name, "port"), wait, NOP, ADD, kind="port") == right
    assert judged(put("pws", "port"), wait, flush, NOP, ADD, kind="port") == "right"
    plain = put("put", "port"), on("signal", "port"), wait
    assert judged(*plain, NOP, ADD, kind="port") == "race"
    assert judged(*plain, flush, NOP, ADD, kind="port") == "right"
    assert judged(*plain, NOP, flush, ADD, kind="port") == "race"


def test_a_flush_waits_for_as_many_channels_as_it_has_destinations():
    """MSCCL++'s own compiler writes none, so its executor waits for nothing."""
    wait, flush = on("wait", "port"), on("flush", "port")
    ops = put("pws", "port"), wait, flush, NOP, ADD
    plan = parsed(*ops, kind="port")
    assert judged(*ops, kind="port") == "race"
    lines = as_lines("x", plan, judge(plan, Link(1e-5, 1e-9), 1024))
    assert any(line.startswith("  flush: MSCCL++'s executor counts its channels") for line in lines)


def test_the_answer_to_a_port_channels_signal_says_that_its_source_was_read():
    answer = on("signal", "port"), on("wait", "port")
    ops = put("pws", "port"), on("wait", "port"), *answer, NOP, ADD
    assert judged(*ops, kind="port") == "right"


def test_a_launch_starts_with_all_inputs_ready_and_the_help_says_so(capsys):
    """A sum that reads the other rank's input before any signal from it."""
    top = json.loads(mscclpp.dump(own_plan("ring", 2, "mscclpp-json", 2)))
    remote = {"buffer_id": 0, "index": 0, "size": 2}
    both = [{"type": buffer, "index": 0, "size": 2} for buffer in "is"]
    get = {**on("get"), "src_buff": [remote], "dst_buff": both[1:]}
    add = {"name": "re", "src_buff": both, "dst_buff": both[:1]}
    for gpu in top["gpus"]:
        gpu["remote_buffers"][0]["type"] = "i"
        gpu["threadblocks"][0]["ops"] = [get, NOP, on("signal"), on("wait"), NOP, add]
    plan = mscclpp.parse("x", json.dumps(top).encode())
    assert judge(plan, Link(1e-5, 1e-9), 1024).kind == "right"
    with pytest.raises(SystemExit):
        main(["schedule", "--help"])
    assert "inputs are ready before any rank starts" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", ["ring", "direct", "tree", "halving-doubling"])
def test_own_plans_need_their_nops(name):
    plan = own_plan(name, 4, "mscclpp-json", 4)
    top = json.loads(mscclpp.dump(plan))
    for gpu in top["gpus"]:
        for block in gpu["threadblocks"]:
            block["ops"] = [op for op in block["ops"] if op != NOP]
    link = Link(1e-5, 1e-9)
    assert judge(plan, link, 1024).kind == "right"
    assert judge(mscclpp.parse("x", json.dumps(top).encode()), link, 1024).kind == "race"
