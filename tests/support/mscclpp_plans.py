"""MSCCL++ plans by hand: ops, and files of the thread blocks that run them."""

import json

NOP = {"name": "nop"}


def at(buffer, index=0, size=1):
    """A buffer of this rank: a letter; of another rank: the number of its remote buffer."""
    where = {"type": buffer} if isinstance(buffer, str) else {"buffer_id": buffer}
    return where | {"index": index, "size": size}


def on(name, ids=(0,), kind="memory", **more):
    """An op with channels."""
    return {"name": name, "channel_type": kind, "channel_ids": list(ids), **more}


def op(name, src, dst, **more):
    return {"name": name, "src_buff": src, "dst_buff": dst, **more}


def plan(*ranks, kind="memory", sizes=(1, 1, 1), remote="s", **top):
    """A file. ranks: of each rank its thread blocks, and of each of these its ops.

    Each thread block has channels of its own to all other ranks, in order, and refers to all remote
    buffers: the first of `remote` of each other rank, then the second.
    sizes: chunks of input, output and scratch memory.
    """
    gpus = []
    for rank, blocks in enumerate(ranks):
        others = [other for other in range(len(ranks)) if other != rank]
        held = [
            {"rank": r, "type": b, "access_channel_types": [kind]} for b in remote for r in others
        ]
        refs = [{"access_channel_type": kind, "remote_buffer_ids": [*range(len(held))]}]
        gpu = {"id": rank, "remote_buffers": held, "threadblocks": []}
        gpu |= {f"{of}_chunks": n for of, n in zip(("input", "output", "scratch"), sizes)}
        gpu["channels"] = [{"channel_type": kind, "connected_to": others * len(blocks)}]
        for tb, ops in enumerate(blocks):
            ids = [*range(tb * len(others), (tb + 1) * len(others))]
            block = {"id": tb, "ops": list(ops), "remote_buffer_refs": refs}
            block["channels"] = [{"channel_type": kind, "channel_ids": ids}]
            gpu["threadblocks"].append(block)
        gpus.append(gpu)
    usual = {"name": "t", "collective": "allreduce", "protocol": "Simple", "inplace": True}
    return json.loads(json.dumps(usual | top | {"gpus": gpus}))  # of its own, to change


def switched(parts):
    """An allreduce of two ranks by a switch, in place; thread blocks share its chunk by `parts`."""
    multi = {"switch_channel_id": 0, "index": 0, "size": 1}
    group = {"size": 2, "ranks": [0, 1]}
    switch = {"channel_type": "switch", "buffer_type": "i", "rank_groups": [group]}
    gpus = []
    for rank in (0, 1):
        both = {"channel_type": "memory", "channel_ids": [0]}
        release = {"name": "sem_release", "semaphore_ids": [0, 1]}
        meeting = {"name": "barrier", "barrier_id": 0, "num_threadblocks": 1 + len(parts)}
        ops = [on("signal"), on("wait"), NOP, release]
        ops += [on("wait")] if rank else [meeting, on("signal")]
        blocks = [{"id": 0, "ops": ops, "channels": [both]}]
        for block, part in enumerate(parts if rank == 0 else ()):
            sums = op("glres", [multi], [multi], channel_type="switch")
            sums |= {"tbg_info": {"tb_id": part, "tbg_size": 2}}
            inner = [{"name": "sem_acquire", "semaphore_ids": [block]}, NOP, sums]
            pipeline = {"name": "pipeline", "iter_context": {"unit_size": 8}, "ops": inner}
            own = [{"channel_type": "switch", "channel_ids": [0]}]
            blocks.append({"id": block + 1, "ops": [pipeline, meeting], "channels": own})
        memory = {"channel_type": "memory", "connected_to": [1 - rank]}
        gpu = {"id": rank, "input_chunks": 1, "output_chunks": 0, "scratch_chunks": 0}
        gpu |= {"threadblocks": blocks, "channels": [memory, switch]}
        gpus.append(gpu | {"semaphores": [{"init_value": 0}, {"init_value": 0}]})
    top = {"name": "t", "collective": "allreduce", "protocol": "LL", "inplace": True}
    return json.loads(json.dumps(top | {"gpus": gpus}))
