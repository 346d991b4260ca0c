"""Barriers of an MSCCL++ plan: how many thread blocks meet, and what that orders."""

import json

import pytest

from refgf.oracle.schedules import mscclpp
from tests.support.schedule_cases import report, verdict


def judged(first, second):
    """Each block fills and signals one chunk; the first then sums both. Their barriers: counts.

    None stands for a barrier without num_threadblocks.
    """
    gpus = [gpu_of(rank, (first, second)) for rank in (0, 1)]
    top = {"name": "t", "collective": "allreduce", "protocol": "Simple", "inplace": True}
    top |= {"gpus": gpus}
    return verdict(mscclpp.parse("x", json.dumps(top).encode()))


def gpu_of(rank, counts):
    blocks = []
    for tb, own in enumerate(counts):
        here = {"channel_type": "memory", "channel_ids": [0]}
        put = {"name": "put", **here, "src_buff": [{"type": "i", "index": tb, "size": 1}]}
        put["dst_buff"] = [{"buffer_id": 0, "index": tb, "size": 1}]
        nop = {"name": "nop"}
        ops = [put, nop, {"name": "signal", **here}, {"name": "wait", **here}, nop]
        for n in own:
            barrier = {"name": "barrier", "barrier_id": 0}
            ops.append(barrier if n is None else barrier | {"num_threadblocks": n})
        refs = [{"access_channel_type": "memory", "remote_buffer_ids": [0]}]
        channels = [{"channel_type": "memory", "channel_ids": [tb]}]
        blocks.append({"id": tb, "ops": ops, "channels": channels, "remote_buffer_refs": refs})
    both = [{"type": buffer, "index": 0, "size": 2} for buffer in "is"]
    blocks[0]["ops"].append({"name": "re", "src_buff": both, "dst_buff": both[:1]})
    gpu = {"id": rank, "input_chunks": 2, "output_chunks": 2, "scratch_chunks": 2}
    gpu["channels"] = [{"channel_type": "memory", "connected_to": [1 - rank] * 2}]
    gpu["remote_buffers"] = [{"rank": 1 - rank, "type": "s", "access_channel_types": ["memory"]}]
    return gpu | {"threadblocks": blocks}


def test_a_barrier_of_all_its_thread_blocks_orders_them():
    assert judged([2], [2]).kind == "right"
    assert judged([2, 2], [2, 2]).kind == "right"
    assert judged([2, 1], [1, 2]).kind == "right"
    assert judged([], []).kind == "race"


def test_a_barrier_of_one_orders_nothing():
    assert judged([1], [1]).kind == "race"


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ([3], [3], "step 5 (barrier): waits for 3 thread blocks at barrier 0"),
        ([2], [3], "step 5 (barrier): waits for 3 thread blocks at barrier 0"),
        ([2, 2], [2], "step 6 (barrier): waits for 2 thread blocks at barrier 0"),
        ([2], [], "step 5 (barrier): waits for 2 thread blocks at barrier 0"),
        ([2], [1], "step 5 (barrier): waits for 2 thread blocks at barrier 0"),
        ([None], [None], "step 5 (barrier): waits for 0 thread blocks at barrier 0"),
    ],
)
def test_a_barrier_of_other_thread_blocks_is_unmatched(first, second, says):
    found = judged(first, second)
    assert found.kind == "unmatched" and found.found[0].rank == 0
    assert says in str(found.found[0])


def shared(*between):
    """Two thread blocks share a copy of two chunks, then a copy of the first of them."""
    gpu = {"id": 0, "input_chunks": 2, "output_chunks": 2, "scratch_chunks": 2}
    blocks = []
    for tb in (0, 1):
        first, second = (
            {
                "name": "copy",
                "src_buff": [{"type": src, "index": 0, "size": size}],
                "dst_buff": [{"type": dst, "index": 0, "size": size}],
                "tbg_info": {"tb_id": tb, "tbg_size": 2},
            }
            for src, dst, size in (("i", "s", 2), ("s", "o", 1))
        )
        blocks.append({"id": tb, "ops": [first, *between, second]})
    top = {"name": "t", "collective": "custom", "protocol": "Simple", "inplace": False}
    top |= {"gpus": [gpu | {"threadblocks": blocks}]}
    plan = mscclpp.parse("x", json.dumps(top).encode())
    return plan, verdict(plan)


def test_thread_blocks_that_divide_other_chunks_need_a_barrier():
    """Thread block 1 reads half of chunk 0, which thread block 0 wrote, as in a public plan."""
    plan, found = shared({"name": "nop"})
    assert found.kind == "race" and len(found.found) == 1
    says = "tb 1, step 2 (copy): reads chunk 1 of buffer s of rank 0, which rank 0, tb 0, step 0"
    assert says in str(found.found[0])
    text = report(plan, found)
    assert "a signal orders only what its own thread block did before it" in text
    assert "the 2 parts of each: chunk c of the file is 2 c to 2 c + 1" in text
    barrier = {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}
    assert shared(barrier)[1].kind == "no value"
