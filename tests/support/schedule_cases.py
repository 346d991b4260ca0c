"""Plans to be judged: the algorithms here, changed ones, and hand-written XML."""

import xml.etree.ElementTree as ET
from dataclasses import replace

from refgf.oracle.schedules import chakra, msccl, mscclpp
from refgf.oracle.schedules.options import FORMATS
from refgf.oracle.schedules.own import OWN, own_plan
from refgf.oracle.schedules.verdict import as_lines, judge
from refgf.predict.cost import Link

LINK = Link(1e-5, 1e-9, 1e-10)


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


def xml(size=4, name="ring"):
    return ET.fromstring(msccl.dump(own_plan(name, size, "msccl-xml", size)))


def block(root, gpu, tb):
    return root.find(f"gpu[@id='{gpu}']/tb[@id='{tb}']")


def step(root, gpu, tb, number):
    return block(root, gpu, tb)[number]


def in_xml(gpu, tb, number, **changes):
    def change(root):
        step(root, gpu, tb, number).attrib.update(changes)

    return change


def without(gpu, tb, number):
    return lambda root: block(root, gpu, tb).remove(step(root, gpu, tb, number))


def changed(plan, rank, index, **changes):
    ranks = [list(steps) for steps in plan.ranks]
    ranks[rank][index] = replace(ranks[rank][index], **changes)
    return back(replace(plan, ranks=tuple(map(tuple, ranks))))


def at(plan, rank, op, number=0):
    """Index of the number-th step of this kind."""
    return [i for i, s in enumerate(plan.ranks[rank]) if s.op == op][number]


def report(plan, judged):
    return "\n".join(as_lines("x", plan, judged))


def program(*given, **more):
    return msccl.parse("x", program_xml(*given, **more))


def program_xml(blocks, inplace=1, coll="allreduce", sizes=(2, 2, 2)):
    """XML from {(gpu, tb): (send, recv, [(type, src, dst), ...])}; src and dst like "i0"."""
    gpus = sorted({gpu for gpu, _ in blocks})
    loop = f'nchunksperloop="{max(sizes[:2])}" proto="Simple" nchannels="1"'
    lines = [f'<algo name="t" ngpus="{len(gpus)}" coll="{coll}" inplace="{inplace}" {loop}>']
    for gpu in gpus:
        names = zip(("i_chunks", "o_chunks", "s_chunks"), sizes)
        lines.append(f'<gpu id="{gpu}" ' + " ".join(f'{k}="{v}"' for k, v in names) + ">")
        for (other, tb), (send, recv, steps) in blocks.items():
            if other == gpu:
                lines.append(f'<tb id="{tb}" send="{send}" recv="{recv}" chan="0">')
                for s, (kind, src, dst) in enumerate(steps):
                    where = f'srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}"'
                    where += f' dstoff="{dst[1:]}" cnt="1" depid="-1" deps="-1" hasdep="0"'
                    lines.append(f'<step s="{s}" type="{kind}" {where}/>')
                lines.append("</tb>")
        lines.append("</gpu>")
    return "".join([*lines, "</algo>"]).encode()
