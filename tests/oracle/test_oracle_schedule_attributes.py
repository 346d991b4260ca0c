"""What the public parsers of MSCCL and MSCCL++ ask for, and the answer without some of it."""

import json
import xml.etree.ElementTree as ET

import pytest

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import msccl, mscclpp
from refgf.oracle.schedules.own import own_plan
from tests.support.schedule_cases import block, judged_xml, report, step, verdict, xml

ALGO = ("proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace")
REQUIRED = [
    *((".", key) for key in ALGO),
    *(("gpu", key) for key in ("id", "i_chunks", "o_chunks", "s_chunks")),
    *(("gpu/tb", key) for key in ("id", "send", "recv", "chan")),
    *(("gpu/tb/step", key) for key in ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff")),
    *(("gpu/tb/step", key) for key in ("cnt", "depid", "deps", "hasdep")),
]


@pytest.mark.parametrize(("where", "key"), REQUIRED)
def test_an_attribute_that_every_parser_asks_for_is_asked_for(where, key):
    root = xml()
    element = root if where == "." else root.find(where)
    del element.attrib[key]
    with pytest.raises(BadFile) as caught:
        judged_xml(root)
    says = f"x: got <{element.tag}> without {key} in line "
    assert str(caught.value).startswith(says)
    assert "without which MSCCL refuses a file" in str(caught.value)


@pytest.mark.parametrize(
    ("where", "key"),
    [("the file", k) for k in ("name", "collective", "protocol", "inplace", "gpus")]
    + [("a gpu", k) for k in ("id", "input_chunks", "output_chunks", "scratch_chunks")],
)
def test_what_mscclpp_reads_without_asking_is_asked_for(where, key):
    top = json.loads(mscclpp.dump(own_plan("ring", 2, "mscclpp-json", 2)))
    del (top if where == "the file" else top["gpus"][1])[key]
    with pytest.raises(BadFile, match=f"x: got {where} without {key}; wanted .*MSCCL.. refuses"):
        mscclpp.parse("x", json.dumps(top).encode())


def answer(root):
    plan = msccl.parse("x", ET.tostring(root))
    judged = verdict(plan)
    return judged.kind, report(plan, judged)


@pytest.mark.parametrize(("inplace", "way"), [("1", "in place"), ("0", "out of place")])
def test_attributes_that_some_parsers_ask_for_are_named_in_the_answer(inplace, way):
    root = xml()
    assert "refuse" not in answer(root)[1]
    root.set("inplace", inplace)
    del root.attrib["outofplace"], root.attrib["maxBytes"]
    kind, text = answer(root)
    assert kind == ("right" if inplace == "1" else "wrong value")
    says = (
        "no outofplace, maxBytes: MSCCL's executor for NCCL and RCCL refuse this file; MSCCL's own"
    )
    assert says in text and f"it is judged {way}" in text
    del root.attrib["name"]
    assert "no name: MSCCL's own NCCL refuses this file" in answer(root)[1]


def test_a_file_that_no_call_uses_says_so():
    root = xml()
    root.set("inplace", "0")
    root.set("outofplace", "0")
    assert "inplace and outofplace are 0, so that no call uses this file" in answer(root)[1]


def test_any_number_but_zero_says_yes():
    """As a C program reads it."""
    root = xml()
    root.set("inplace", "2")
    assert answer(root)[0] == "right"
    root.set("inplace", "true")
    with pytest.raises(BadFile, match="got 'true' as inplace of <algo>; wanted a whole number"):
        answer(root)


def with_nop(depid, **of_nop):
    """The last send of rank 1 after a nop that waits for the step that the send waits for."""
    root = xml()
    last = step(root, 1, 0, 5)
    nop = {**last.attrib, "type": "nop", "s": "5", "hasdep": "0"} | of_nop
    last.set("s", "6")
    if depid == "-1":
        last.attrib.update(depid="-1", deps="-1")
    block(root, 1, 0).insert(5, ET.Element("step", nop))
    return root


def test_the_step_after_a_nop_waits_too():
    assert judged_xml(with_nop("1")).kind == "right"
    judged = judged_xml(with_nop("-1"))
    assert judged.kind == "unmatched"
    says = "rank 1, tb 0, step 6 (s): follows step 5 (nop), which waits, and waits for no step"
    assert str(judged.found[0]).startswith(says)


def test_a_nop_never_says_that_it_has_ended():
    root = with_nop("1", hasdep="1")
    step(root, 1, 0, 6).set("hasdep", "0")
    step(root, 1, 1, 5).attrib.update(depid="0", deps="5")
    judged = judged_xml(root)
    assert judged.kind == "deadlock"
    assert "waits for step 5 of tb 0, but neither that step nor a later one" in str(judged.found[0])
