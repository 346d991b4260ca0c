"""MSCCL++ plans: signals, one-sided operations, switches, semaphores, refused fields."""

import json
import re
from dataclasses import replace

import pytest

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import mscclpp
from refgf.oracle.schedules.own import own_plan
from tests.support.schedule_cases import at, back, changed, verdict

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
    "a thread block at another's place": (
        *('"threadblocks": [{"id": 0', '"threadblocks": [{"id": 5'),
        "got thread block 5 at place 0 on gpu 0; wanted 0, 1, ... in order",
    ),
    "a buffer for other channels": (
        *('"access_channel_types": ["memory"]', '"access_channel_types": ["port"]'),
        "a memory channel in put on gpu 0; wanted one of its buffer's access_channel_types",
    ),
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


def test_ranks_in_another_order_are_refused():
    top = json.loads(mscclpp.dump(own_plan("ring", 3, "mscclpp-json", 3)))
    top["gpus"].reverse()
    with pytest.raises(BadFile, match=r"got gpus \[2, 1, 0\]; wanted 0, 1, ... in order"):
        mscclpp.parse("x", json.dumps(top).encode())


def test_a_put_on_a_memory_channel_may_name_no_channel():
    """As in a public plan of MSCCL++'s tests; on a port channel it may not."""
    top = json_plan("put", src=[I0], dst=[REMOTE])
    del top["gpus"][0]["threadblocks"][0]["ops"][0]["channel_ids"]
    assert kind_of(top) == "no value"
    other = json.loads(json.dumps(top).replace('"memory"', '"port"'))
    with pytest.raises(BadFile, match=r"channel_ids to ranks \[\] for a put"):
        kind_of(other)


def test_packets_need_the_protocol_ll_or_shared_scratch_memory():
    top = json_plan("ppkt", src=[I0], dst=[REMOTE])
    with pytest.raises(BadFile, match="got ppkt on gpu 0 with protocol 'Simple'; wanted LL"):
        kind_of(top | {"protocol": "Simple"})
    assert kind_of(top | {"protocol": "LL"}) == "no value"
    assert kind_of(top | {"protocol": "Simple", "reuse_resources": True}) == "no value"
    assert kind_of(json_plan("put", src=[I0], dst=[REMOTE]) | {"protocol": "Simple"}) == "no value"


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
    top = {"name": "t", "collective": "custom", "protocol": "LL", "inplace": True}
    return top | {"gpus": gpus}


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
        meeting = {"name": "barrier", "barrier_id": 0, "num_threadblocks": 1 + len(parts)}
        ops += [{"name": "wait", **both}] if rank else [meeting, {"name": "signal", **both}]
        blocks = [{"id": 0, "ops": ops, "channels": [both]}]
        for block, part in enumerate(parts if rank == 0 else ()):
            sums = {"name": "glres", "src_buff": [multi], "dst_buff": [multi]}
            sums |= {"channel_type": "switch", "tbg_info": {"tb_id": part, "tbg_size": 2}}
            inner = [{"name": "sem_acquire", "semaphore_ids": [block]}, {"name": "nop"}, sums]
            pipeline = {"name": "pipeline", "iter_context": {"unit_size": 8}, "ops": inner}
            own = [{"channel_type": "switch", "channel_ids": [0]}]
            blocks.append({"id": block + 1, "ops": [pipeline, meeting], "channels": own})
        memory = {"channel_type": "memory", "connected_to": [1 - rank]}
        gpu = {"id": rank, "input_chunks": 1, "output_chunks": 0, "scratch_chunks": 0}
        gpu |= {"threadblocks": blocks, "channels": [memory, switch]}
        gpus.append(gpu | {"semaphores": [{"init_value": 0}, {"init_value": 0}]})
    top = {"name": "t", "collective": "allreduce", "protocol": "LL", "inplace": True}
    return top | {"gpus": gpus}


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
    assert "rank 0, tb 2, step 0 (sem_acquire): waits for semaphore 1" in str(judged.found[0])
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
        both = {"channel_type": "memory", "channel_ids": [0]}
        own = [{"channel_type": "switch", "channel_ids": [0]}, both]
        ops = [store, {"name": "nop"}, {"name": "signal", **both}, {"name": "wait", **both}]
        gpu["threadblocks"] = [{"id": 0, "ops": ops, "channels": own}]
    assert kind_of(top) == "right"
    nop = ops.pop(1)
    assert kind_of(top) == "race"  # the signal overtakes the store, and rank 0 ends without it
    ops.insert(1, nop)
    top["gpus"][1]["threadblocks"][0]["ops"][0]["dst_buff"][0]["index"] = 0
    assert kind_of(top) != "right"


def exchanged(kind, names):
    """An allgather of two ranks: each copies its chunk, puts it, and does these ops."""
    channel, o0 = {"channel_type": kind, "channel_ids": [0]}, {**I0, "type": "o"}
    gpus = []
    for rank in (0, 1):
        there = {"buffer_id": 0, "index": rank, "size": 1}
        own = {"name": "copy", "src_buff": [I0], "dst_buff": [{**o0, "index": rank}]}
        put = {"name": "put", "src_buff": [I0], "dst_buff": [there], **channel}
        ops = [{"name": name, **(channel if name != "nop" else {})} for name in names]
        refs = [{"access_channel_type": kind, "remote_buffer_ids": [0]}]
        block = {"id": 0, "ops": [own, put, *ops], "channels": [channel]}
        gpu = {"id": rank, "input_chunks": 1, "output_chunks": 2, "scratch_chunks": 0}
        gpu["channels"] = [{"channel_type": kind, "connected_to": [1 - rank]}]
        gpu["remote_buffers"] = [{"rank": 1 - rank, "type": "o", "access_channel_types": [kind]}]
        gpus.append(gpu | {"threadblocks": [block | {"remote_buffer_refs": refs}]})
    top = {"name": "t", "collective": "allgather", "protocol": "Simple", "inplace": False}
    return top | {"gpus": gpus}


@pytest.mark.parametrize(
    "kind, names, wanted",
    [
        ("memory", "nop signal wait", "right"),
        ("memory", "signal wait", "race"),  # other threads' puts, which the signal overtakes
        ("memory", "nop rlxsignal rlxwait", "race"),
        ("memory", "", "race"),
        ("port", "signal wait", "right"),  # a port is a queue
        ("port", "flush", "race"),
    ],
)
def test_a_rank_must_not_end_before_its_result_has_arrived(kind, names, wanted):
    assert kind_of(exchanged(kind, names.split())) == wanted


def test_a_switch_may_write_a_ranks_own_packets_again():
    """Each rank packs its chunk into scratch, and a switch stores these packets at every rank."""
    top = shared_by_two(())
    top |= {"collective": "allgather", "protocol": "LL"}
    for rank, gpu in enumerate(top["gpus"]):
        gpu |= {"input_chunks": 1, "output_chunks": 2, "scratch_chunks": 2}
        gpu["channels"][1]["buffer_type"] = "s"
        own, s = {"type": "s", "index": rank, "size": 1}, {"type": "s", "index": 0, "size": 2}
        pack = {"name": "cpkt", "src_buff": [I0], "dst_buff": [own]}
        store = {"name": "gstorepkt", "src_buff": [own], "channel_type": "switch"}
        store["dst_buff"] = [{"switch_channel_id": 0, "index": rank, "size": 1}]
        unpack = {"name": "upkt", "src_buff": [s], "dst_buff": [s | {"type": "o"}]}
        own = [{"channel_type": "switch", "channel_ids": [0]}]
        blocks = [[pack], [store], [unpack]]  # gstorepkt waits for the packets, as upkt does
        gpu["threadblocks"] = [{"id": i, "ops": b, "channels": own} for i, b in enumerate(blocks)]
    assert kind_of(top) == "right"
    store["dst_buff"][0]["index"] = 0
    with pytest.raises(BadFile, match="packets that are written twice, in scratch chunk 0"):
        kind_of(top)


def test_an_older_version_of_mscclpp_is_named():
    older = json.dumps(shared_by_two((0, 1))).replace("channel_type", "type")
    with pytest.raises(BadFile, match="got a channel with type, as older versions of MSCCL"):
        kind_of(json.loads(older))
    older = json.dumps(shared_by_two((0, 1))).replace("input_chunks", "inputChunks")
    with pytest.raises(BadFile, match="got inputChunks of gpu 0, as older versions of MSCCL"):
        kind_of(json.loads(older))
