"""MSCCL XML files for tests of the player, and the question that the page asks about one."""

import base64
import json

from refgf.oracle.schedules import msccl
from refgf.oracle.schedules.own import own_plan
from refgf.site import player
from refgf.site.dropped import answer


def own_xml(title, size):
    """One of our algorithms, as the player has it."""
    name, per_node = player.ALGORITHMS[title]
    chunks = player.elements(name, size, per_node)
    return msccl.dump(own_plan(name, size, "msccl-xml", chunks, per_node))


def xml(collective, sizes, blocks):
    """Not in place. sizes: of i, o, s. blocks: a list for each rank of (send, recv, steps)."""
    shape = f'ngpus="{len(blocks)}" nchunksperloop="{max(sizes[:2])}" nchannels="1" proto="LL"'
    lines = [f'<algo name="x" {shape} coll="{collective}" inplace="0">']
    for rank, of_rank in enumerate(blocks):
        i, o, s = sizes
        lines.append(f'<gpu id="{rank}" i_chunks="{i}" o_chunks="{o}" s_chunks="{s}">')
        for block, (send, recv, steps) in enumerate(of_rank):
            lines += [f'<tb id="{block}" send="{send}" recv="{recv}" chan="0">', *steps, "</tb>"]
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"]).encode()


def step(number, kind, source, dest, waits=(-1, -1)):
    """source, dest: a buffer and a chunk, "i0"; waits: a thread block and its step."""
    return (
        f'<step s="{number}" type="{kind}" srcbuf="{source[0]}" srcoff="{source[1:]}" '
        f'dstbuf="{dest[0]}" dstoff="{dest[1:]}" cnt="1" depid="{waits[0]}" deps="{waits[1]}" '
        'hasdep="1"/>'
    )


def allgather_xml():
    """Two ranks."""
    blocks = []
    for rank in range(2):
        kinds = (("s", rank), ("r", 1 - rank), ("cpy", rank))
        steps = [step(i, kind, "i0", f"o{to}") for i, (kind, to) in enumerate(kinds)]
        blocks.append([(1 - rank, 1 - rank, steps)])
    return xml("allgather", (1, 2, 0), blocks)


def other_bits_xml():
    """Three ranks gather all numbers in scratch memory; rank 2 adds them in another order."""
    blocks = []
    for rank in range(3):
        first, *later = (2, 1, 0) if rank == 2 else (0, 1, 2)
        sums = [step(0, "cpy", "i0", f"s{rank}", (0, 1)), step(1, "cpy", f"s{first}", "o0", (1, 1))]
        sums += [step(2 + i, "re", f"s{other}", "o0") for i, other in enumerate(later)]
        gathered = [
            (other, other, [step(0, "s", "i0", "i0"), step(1, "r", "i0", f"s{other}")])
            for other in range(3)
            if other != rank
        ]
        blocks.append([*gathered, (-1, -1, sums)])
    return xml("allreduce", (1, 1, 3), blocks)


def asked(content, name="mine.xml", size=None):
    """What Python answers when the page asks about a file, with the sliders as they start."""
    question = {"name": name, "size": size or len(content), "alpha": 1e-5, "rate": 10.0}
    question |= {"bytes": 2**20, "content": base64.b64encode(content).decode()}
    return json.loads(answer(json.dumps(question)))
