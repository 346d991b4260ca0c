"""MSCCL++ execution plans (JSON): one-sided puts, and signals that say that they are complete.

    {"name", "collective", "protocol", "inplace", "gpus": [{"id", "input_chunks", "output_chunks",
      "scratch_chunks", "semaphores": [{"init_value"}],
      "channels": [{"channel_type", "connected_to": [rank, ...]}, {"channel_type": "switch",
                   "buffer_type", "rank_groups": [{"ranks": [rank, ...]}]}],
      "remote_buffers": [{"rank", "type", "access_channel_types"}],
      "threadblocks": [{"id", "channels": [{"channel_type", "channel_ids"}],
        "remote_buffer_refs": [{"access_channel_type", "remote_buffer_ids"}],
        "ops": [{"name", "src_buff", "dst_buff", "channel_ids", "channel_type", "tbg_info"}]}]}]}

    put pws pwsf get copy     dst = src, for each pair; on port channels pws and pwsf then signal.
                              The executor exchanges the two indices of a get
    re res rre rres           the sum of all src, from left to right, into every dst
    glres gstore gstorepkt    pairs on a switch channel: reading it gives the sum of its ranks'
                              memory, writing it writes the memory of all of them
    signal wait               order memory accesses; rlxsignal and rlxwait only order the steps
    ppkt cpkt rppkt upkt      copies of packets, which carry flags: a reader of a packet waits for
                              the step that writes it
    repkt recpkt respkt recspkt       the sum of the packets src[1:], then src[0], into every dst
    barrier                   the k-th barrier of each thread block with one barrier_id: they wait
                              until num_threadblocks of them have come; 1 waits for no other one
    sem_release sem_acquire   the k-th acquire in the file, after init_value free ones, waits for
                              the k-th release of that semaphore
    pipeline                  its ops, for one part of the data after the other
    nop                       joins the threads of its block (mscclpp_threads.py)
    flush                     waits until the puts and signals of its port channels are done. The
                              executor counts these by dst_buff: without it a flush does not wait

The i-th channel from rank a to rank b is the i-th from b to a. With "tbg_info" an op moves the part
tb_id of tbg_size of its chunks. Chunks are then divided so that each part is a whole number, and
messages name the smaller chunks.

What is not judged: a switch adds in an order of its own, and here in the order of its ranks; of a
pipeline only one part is followed, so that parts which reuse memory are not compared. Two ops that
move data follow each other in a thread block, with or without a nop between them. Only one launch
is judged, in which the inputs of all ranks are ready before any rank starts: in a real one a rank
that reads another's memory before any signal may read it too early, and a second launch may
overwrite scratch memory that the first still reads. Source:
MSCCL++'s documentation and its public executor (read, not copied).
"""

import json
from typing import Any

from refgf.oracle.foreign.untrusted import BadFile, parse_json
from refgf.oracle.schedules.form import Plan, PlanStep
from refgf.oracle.schedules.mscclpp_fields import count, item, listed, parts_of_a_chunk
from refgf.oracle.schedules.mscclpp_forms import OPS
from refgf.oracle.schedules.mscclpp_rank import SIZES, Reader
from refgf.oracle.schedules.mscclpp_waits import PACKET_READERS, PACKET_WRITERS, packets_in_order

REQUIRED = ("name", "collective", "protocol", "inplace", "gpus")


def parse(path: str, data: bytes) -> Plan:
    """The plan of a file's bytes. Raises BadFile."""
    top = item(path, parse_json(path, data), dict, "the file")
    gpus = [item(path, gpu, dict, "a gpu") for gpu in listed(path, top, "gpus")]
    refuse_older(path, gpus)
    require_keys(path, top, gpus)
    ids = [count(path, gpu, "id") for gpu in gpus]
    if ids != list(range(len(gpus))):
        raise BadFile(
            f"{path}: got gpus {ids[:8]}; wanted 0, 1, ... in order: MSCCL++ reads rank r's gpu at "
            "place r and refuses another id there"
        )
    parts = parts_of_a_chunk(path, gpus)
    sizes = tuple(tuple(parts * count(path, gpu, key) for key in SIZES) for gpu in gpus)
    readers = [Reader(path, rank, gpu, parts) for rank, gpu in enumerate(gpus)]
    name, collective = (str(top[key])[:200] for key in ("name", "collective"))
    require_protocol(path, top, readers)
    ranks = packets_in_order(path, [reader.steps for reader in readers])
    inplace = item(path, top["inplace"], bool, "inplace")
    found = tuple(finding for reader in readers for finding in reader.found)
    steps = tuple(map(tuple, ranks))
    notes = plan_notes(readers, parts)
    return Plan("mscclpp-json", name, collective, inplace, sizes, steps, found, notes=notes)


def plan_notes(readers: list[Reader], parts: int) -> tuple[str, ...]:
    """What a reader of the answer has to know."""
    notes = [note for reader in readers for note in reader.notes]
    if parts > 1:
        notes.append(
            f"groups of thread blocks share chunks, so the chunks named here are the {parts} parts "
            f"of each: chunk c of the file is {parts} c to {parts} c + {parts - 1}"
        )
    count, rank, lane = max((reader.longest for reader in readers), default=(0, 0, 0))
    if count > OPS:
        notes.append(
            f"gpu {rank} has {count} ops in tb {lane}; MSCCL++'s executor takes {OPS} in a thread "
            "block and refuses the plan"
        )
    return tuple(dict.fromkeys(notes))


def require_keys(path: str, top: dict, gpus: list[dict]) -> None:
    """MSCCL++ reads these without asking whether they are there."""
    holders = [("the file", top, REQUIRED), *(("a gpu", gpu, ("id", *SIZES)) for gpu in gpus)]
    for what, holder, keys in holders:
        absent = [key for key in keys if key not in holder]
        if absent:
            raise BadFile(
                f"{path}: got {what} without {', '.join(absent)}; wanted {', '.join(keys)}, "
                "without which MSCCL++ refuses a plan"
            )


def require_protocol(path: str, top: dict, readers: list[Reader]) -> None:
    """MSCCL++ makes scratch memory twice as large for packets only if the protocol is LL."""
    if top["protocol"] == "LL" or top.get("reuse_resources") is True:
        return
    for reader in readers:
        packets = [s.op for s in reader.steps if s.op in (*PACKET_READERS, *PACKET_WRITERS)]
        if packets:
            raise BadFile(
                f"{path}: got {packets[0]} on gpu {reader.rank} with protocol "
                f"{str(top['protocol'])[:20]!r}; wanted LL, for which MSCCL++ makes scratch memory "
                "large enough for packets"
            )


def refuse_older(path: str, gpus: list[dict]) -> None:
    """MSCCL++ before its second language wrote other names."""
    for gpu in gpus:
        channels = [item(path, each, dict, "a channel") for each in listed(path, gpu, "channels")]
        older = {"inputChunks", "outputChunks"} & set(gpu)
        if older or any("type" in channel for channel in channels):
            got = (
                f"{min(older)} of gpu {str(gpu.get('id'))[:20]}" if older else "a channel with type"
            )
            raise BadFile(
                f"{path}: got {got}, as older versions of MSCCL++ write; wanted input_chunks and "
                "channel_type; next: compile the plan again with the present MSCCL++"
            )


def dump(plan: Plan) -> bytes:
    """The JSON of a plan of `own.py`: put, signal, wait, re, copy and nop."""
    gpus = []
    for rank, steps in enumerate(plan.ranks):
        peers = sorted({port.peer for step in steps for port in (*step.sends, *step.receives)})
        gpu = {"id": rank, **dict(zip(SIZES, plan.sizes[rank]))}
        blocks = []
        for lane in dict.fromkeys(step.lane for step in steps):
            ops = [op_fields(rank, step, peers) for step in steps if step.lane == lane]
            ids = list(range(len(peers)))
            channels = [{"channel_type": "memory", "channel_ids": ids}]
            refs = [{"access_channel_type": "memory", "remote_buffer_ids": ids}]
            named = {"channels": channels, "remote_buffer_refs": refs}
            blocks.append({"id": lane, "ops": ops, **named})
        gpu["threadblocks"] = blocks
        gpu["channels"] = [{"channel_type": "memory", "connected_to": peers}]
        access = ["memory"]
        gpu["remote_buffers"] = [
            {"rank": peer, "type": "s", "access_channel_types": access} for peer in peers
        ]
        gpu["semaphores"] = []
        gpus.append(gpu)
    top = {"name": plan.name, "collective": plan.collective, "protocol": "Simple"}
    top |= {"inplace": plan.inplace, "reuse_resources": False, "gpus": gpus}
    top |= {"num_threads_per_block": 1024, "use_double_scratch_buffer": False}
    top |= {"buffer_alignment": 16, "min_message_size": 0, "max_message_size": 2**64 - 1}
    return (json.dumps(top, indent=1) + "\n").encode()


def op_fields(rank: int, step: PlanStep, peers: list[int]) -> dict[str, Any]:
    """One step as an op."""
    op = {"name": step.op}
    for key, spans in (("src_buff", step.reads), ("dst_buff", step.writes)):
        entries = []
        for span in spans:
            own = {"type": span.buffer} if span.rank == rank else {}
            remote = {} if span.rank == rank else {"buffer_id": peers.index(span.rank)}
            entries.append({**own, **remote, "index": span.start, "size": span.count})
        if entries:
            op[key] = entries
    ports = (*step.sends, *step.receives)
    if ports or step.op == "put":
        op["channel_ids"] = [peers.index(p.peer) for p in ports]
        op["channel_type"] = "memory"
    if step.op == "put":
        op["channel_ids"] = [peers.index(span.rank) for span in step.writes]
    return op | ({"reduce_op": "sum"} if step.op == "re" else {})
