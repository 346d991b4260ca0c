"""What is said of plans of MSCCL: our ring with one thing in another way, and plans by hand.

python -m pytest tests/approval/test_approved_xml.py --snapshot-update
"""

import xml.etree.ElementTree as ET

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import msccl
from tests.approval.test_approved import approved  # noqa: F401  a fixture
from tests.support.schedule_cases import (
    block,
    in_xml,
    program_xml,
    report,
    step,
    verdict,
    without,
    xml,
)

# In the ring of 4 ranks: thread block 0 sends, thread block 1 receives.


def without_last_send(root):
    without(0, 0, 5)(root)
    step(root, 0, 1, 5).attrib.update(depid="-1", deps="-1")


def in_block(gpu, tb, **changes):
    return lambda root: block(root, gpu, tb).attrib.update(changes)


def at_top(**changes):
    return lambda root: root.attrib.update(changes)


def channels(count, chan):
    def change(root):
        root.set("nchannels", str(count))
        for tb in root.iter("tb"):
            tb.set("chan", str(chan))

    return change


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


def leaving_out(where, *keys):
    """Some attributes of the file, or of its first gpu, thread block or step."""

    def change(root):
        element = root if where == "." else root.find(where)
        for key in keys:
            del element.attrib[key]

    return change


def both(*changes):
    return lambda root: [change(root) for change in changes]


def with_nop(depid, **of_nop):
    """The last send of rank 1 after a nop that waits for the step that the send waits for."""

    def change(root):
        last = step(root, 1, 0, 5)
        nop = {**last.attrib, "type": "nop", "s": "5", "hasdep": "0"} | of_nop
        last.set("s", "6")
        if depid == "-1":
            last.attrib.update(depid="-1", deps="-1")
        block(root, 1, 0).insert(5, ET.Element("step", nop))

    return change


def waits_for_a_nop(root):
    with_nop("1", hasdep="1")(root)
    step(root, 1, 0, 6).set("hasdep", "0")
    step(root, 1, 1, 5).attrib.update(depid="0", deps="5")


OUT, NO_LIMITS = at_top(inplace="0"), leaving_out(".", "outofplace", "maxBytes")
CHANGED = {
    "copies where it should add": in_xml(2, 1, 1, type="r"),
    "adds where it should copy": in_xml(1, 1, 3, type="rrc"),
    "sends another chunk": in_xml(0, 0, 1, srcoff="2"),
    "stores in another chunk": in_xml(3, 1, 5, dstoff="3"),
    "a chunk beyond the buffer": in_xml(0, 0, 2, srcoff="9"),
    "a chunk before the buffer": in_xml(1, 0, 2, srcoff="-1"),
    "no chunk": in_xml(1, 0, 3, cnt="0"),
    "no flag": in_xml(1, 0, 3, hasdep="2"),
    "a huge count": in_xml(0, 0, 0, cnt="1000000000000"),
    "scratch that is not there": in_xml(2, 1, 4, dstbuf="s"),
    "two chunks for one": in_xml(2, 0, 1, srcoff="0", cnt="2"),
    "a send is missing": without_last_send,
    "a receive is missing": without(2, 1, 5),
    "another channel": another_channel,
    "a rank that is not there": in_block(1, 0, send="7"),
    "a message to itself": in_block(1, 0, send="1"),
    "another thread block": in_xml(3, 0, 1, depid="8"),
    "a step too far": in_xml(3, 0, 1, deps="17"),
    "sends too early": in_xml(1, 0, 2, depid="-1", deps="-1"),
    "waits for a later step": in_xml(0, 0, 0, depid="1", deps="5"),
    "all wait for each other": all_first_sends_wait,
    "no step says that it has ended": nothing_published,
    "the last one says it not": in_xml(2, 1, 4, hasdep="0"),
    "a later one says it too": in_xml(2, 1, 1, hasdep="0"),
    **{f"{loop} chunks a loop": at_top(nchunksperloop=loop) for loop in ("8", "2", "0", "-1")},
    **{
        f"channel {chan} of {count}": channels(count, chan)
        for count, chan in ((1, 1), (0, 0), (-1, 0), (1, -1), (2, 1), (2, 0), (2, -1))
    },
    **{f"protocol {name}": at_top(proto=name) for name in ("LL", "LL128", "Simple", "LL256")},
    "in place only": at_top(outofplace="0"),
    "both ways": at_top(outofplace="1"),
    "neither way": at_top(inplace="0", outofplace="0"),
    "in place: 2": at_top(inplace="2"),
    "in place: true": at_top(inplace="true"),
    "what some parsers ask for, in place": both(at_top(inplace="1"), NO_LIMITS),
    "what some parsers ask for, out of place": both(OUT, NO_LIMITS),
    "what they ask for, and a name": both(OUT, NO_LIMITS, leaving_out(".", "name")),
    "a nop that waits": with_nop("1"),
    "a nop that waits for a step that waits for none": with_nop("-1"),
    "a step that waits for a nop": waits_for_a_nop,
}
REQUIRED = {
    ".": ("proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace"),
    "gpu": ("id", "i_chunks", "o_chunks", "s_chunks"),
    "gpu/tb": ("id", "send", "recv", "chan"),
    "gpu/tb/step": ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff")
    + ("cnt", "depid", "deps", "hasdep"),
}
CHANGED |= {
    f"without {key} of {where}": leaving_out(where, key)
    for where, keys in REQUIRED.items()
    for key in keys
}

# -- plans by hand


def each_other(*steps, **more):
    """Two ranks with the same steps, each with a word for its own rank and the other's."""
    blocks = {}
    for r in (0, 1):
        mine = [tuple(word.format(r=r, o=1 - r) for word in one) for one in steps]
        blocks[r, 0] = (1 - r, 1 - r, mine)
    return program_xml(blocks, **more)


ADDED = [("s", "i0", "i0"), ("rrc", "i0", "i0")]
OTHERS = {  # collective: buffers, and the steps of each rank
    "allgather": ((0, 2, 1), ("s", "o{r}", "o0"), ("r", "o0", "o{o}")),
    "reduce_scatter": ((2, 0, 1), ("s", "i{o}", "i0"), ("rrc", "i{r}", "i{r}")),
    "alltoall": ((2, 0, 1), ("s", "i{o}", "i0"), ("r", "i0", "i{o}")),
}
TWO_BLOCKS = {(r, 0): (1 - r, -1, [("s", "i0", "o0")]) for r in (0, 1)}
TWO_BLOCKS |= {(r, 1): (-1, 1 - r, [("r", "i0", "o0")]) for r in (0, 1)}
ONE_CHANNEL = {(0, tb): (1, -1, [("s", f"i{tb}", "i0")]) for tb in (0, 1)}
ONE_CHANNEL |= {(1, 0): (-1, 0, [("r", "i0", "s0"), ("r", "i0", "s1")])}
BY_HAND = {
    "a + b and b + a": each_other(*ADDED, sizes=(1, 0, 0)),
    "its input overwritten out of place": each_other(
        *ADDED, ("cpy", "i0", "o0"), inplace=0, sizes=(1, 1, 0)
    ),
    "its input overwritten in place": each_other(*ADDED, sizes=(1, 1, 0)),
    "no known collective": each_other(("s", "i0", "i0"), ("r", "i0", "s0"), coll="custom"),
    "two thread blocks on one channel": program_xml(ONE_CHANNEL, coll="custom"),
    "input and output are one memory": program_xml(TWO_BLOCKS, 1, coll="custom"),
    "input and output are two": program_xml(TWO_BLOCKS, 0, coll="custom"),
}
for coll, (sizes, *steps) in OTHERS.items():
    BY_HAND[coll] = each_other(*steps, coll=coll, sizes=sizes)
    spoilt = steps[0], (steps[1][0], "i0", "s0")
    BY_HAND[f"{coll}, stored elsewhere"] = each_other(*spoilt, coll=coll, sizes=sizes)


def said_of(text):
    try:
        plan = msccl.parse("x", text)
    except BadFile as error:
        return str(error)
    return report(plan, verdict(plan))


def test_changed_rings(approved):  # noqa: F811
    found = []
    for name, change in CHANGED.items():
        root = xml()
        change(root)
        found.append(f"== {name}\n{said_of(ET.tostring(root))}")
    assert "\n".join(found) == approved


def test_plans_by_hand(approved):  # noqa: F811
    found = [f"== {name}\n{said_of(text)}" for name, text in BY_HAND.items()]
    assert "\n".join(found) == approved
