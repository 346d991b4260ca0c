"""Schedules that are hostile or damaged: a sentence each, no traceback, no memory."""

import json
import random
import re
import time
import tracemalloc
from dataclasses import replace

import pytest

from refgf.oracle.__main__ import main
from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import chakra
from refgf.oracle.schedules.command import plan_files, read_plan
from refgf.oracle.schedules.form import LARGEST_WORK
from refgf.oracle.schedules.options import FORMATS
from refgf.oracle.schedules.own import OWN, own_plan
from refgf.oracle.schedules.protobuf import field_bytes, message_bytes, number_bytes
from refgf.oracle.schedules.verdict import VERDICTS, as_lines, judge
from refgf.predict.cost import Link
from tests.support.damaged import cut, flipped

LINK = Link(1e-5, 1e-10)
STEP = '<step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="{cnt}"'
STEP += ' depid="-1" deps="-1" hasdep="0"/>'


def xml(inside="", ngpus="1", head=""):
    gpu = f'<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">{inside}</gpu>'
    attributes = f'name="a" nchunksperloop="1" ngpus="{ngpus}" coll="allreduce" inplace="1"'
    attributes += ' proto="LL" nchannels="1"'
    return f"{head}<algo {attributes}>{gpu}</algo>"


def tb(inside, **other):
    more = "".join(f' {key}="{value}"' for key, value in other.items())
    return f'<tb id="0" send="-1" recv="-1" chan="0"{more}>{inside}</tb>'


BOMB = "<!DOCTYPE a [" + "".join(
    f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' if i else '<!ENTITY e1 "ha">' for i in range(20)
)
BAD_XML = {
    "nothing": "",
    "not XML": "<<<",
    "a bomb of entities": xml("&e20;", head=BOMB + "]>"),
    "an external entity": xml("&x;", head='<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
    "a DOCTYPE alone": xml(head="<!DOCTYPE a>"),
    "deep nesting": "<algo>" * 100_000,
    "another element": "<svg/>",
    "huge number of ranks": xml(ngpus="999999999"),
    "ranks of 10,000 digits": xml(ngpus="9" * 10_000),
    "no number of ranks": xml().replace("ngpus", "gpus"),
    "no rank": re.sub("<gpu.*</gpu>", "", xml(ngpus="0")),
    "a rank twice": re.sub("(<gpu.*</gpu>)", r"\1\1", xml()),
    "a thread block without id": xml("<tb/>"),
    "another type": xml(tb(STEP.format(cnt=1).replace("cpy", "jump"))),
    "another buffer": xml(tb(STEP.format(cnt=1).replace('"i"', '"x"'))),
    "a huge count": xml(tb(STEP.format(cnt=2**31))),
    "a larger count": xml(tb(STEP.format(cnt=10**30))),
    "steps out of order": xml(tb(STEP.format(cnt=1).replace('s="0"', 's="3"', 1))),
    "another encoding": '<?xml version="1.0" encoding="no-such"?>' + xml() + "",
    "a buffer of petabytes": xml().replace('i_chunks="1"', 'i_chunks="2000000000"'),
}
TOP = {"name": "a", "collective": "allreduce", "protocol": "LL", "inplace": True}
GPU = {"id": 0, "input_chunks": 1, "output_chunks": 1, "scratch_chunks": 0}


def plan(*ops, **gpu):
    block = {"id": 0, "ops": list(ops), "channels": [], "remote_buffer_refs": []}
    gpus = [{**GPU, "threadblocks": [block], **gpu}]
    return json.dumps({**TOP, "gpus": gpus})


SPAN = {"type": "i", "index": 0, "size": 1}
BAD_JSON = {
    "nothing": "",
    "a list": "[]",
    "deep nesting": "[" * 100_000,
    "a key twice": '{"gpus": [], "gpus": []}',
    "no rank": json.dumps({**TOP, "gpus": []}),
    "a rank that is text": json.dumps({**TOP, "gpus": ["a"]}),
    "a rank twice": json.dumps({**TOP, "gpus": [GPU, GPU]}),
    "in place by a word": plan().replace('"inplace": true', '"inplace": "yes"'),
    "names of an older version": plan().replace("input_chunks", "inputChunks"),
    "a channel of an older version": plan(channels=[{"type": "memory", "connected_to": [1]}]),
    "huge buffers": plan(input_chunks=10**9),
    "a negative buffer": plan(input_chunks=-1),
    "a number of 10,000 digits": plan().replace(
        '"input_chunks": 1', '"input_chunks": ' + "9" * 9999
    ),
    "another operation": plan({"name": "format"}),
    "an operation that is a list": plan({"name": ["put"]}),
    "a pipeline": plan({"name": "pipeline", "ops": [{"name": "pipeline", "ops": []}]}),
    "a channel that is not there": plan(
        {"name": "signal", "channel_type": "memory", "channel_ids": [0]}
    ),
    "a huge count": plan(
        {
            "name": "copy",
            "src_buff": [{**SPAN, "size": 10**9}],
            "dst_buff": [{**SPAN, "size": 10**9}],
        }
    ),
    "a buffer that is not there": plan(
        {"name": "copy", "src_buff": [{"buffer_id": 3, "index": 0, "size": 1}], "dst_buff": [SPAN]}
    ),
    "no source": plan({"name": "put", "dst_buff": [SPAN]}),
    "semaphores that are a number": plan({"name": "nop", "semaphore_ids": 7}),
    "channels that are a number": plan({"name": "nop", "channel_ids": 7}),
    "channels of a block that are numbers": plan(
        threadblocks=[{"id": 0, "ops": [], "channels": [7]}]
    ),
    "a span that is a number": plan({"name": "copy", "src_buff": [1], "dst_buff": [SPAN]}),
}
META = message_bytes([field_bytes(1, "0.0.4")])


def node(*parts):
    return META + message_bytes(list(parts))


def attribute(name, value):
    kind = 9 if isinstance(value, int) else 29
    return field_bytes(10, field_bytes(1, name) + field_bytes(kind, value))


SEND = field_bytes(3, 5)
BAD_TRACES = {
    "noise": b"\xff" * 100,
    "ends in a number": b"\x80",
    "a message of 2^63 bytes": number_bytes(1 << 63),
    "a field of 2^40 bytes": node(number_bytes(10 << 3 | 2) + number_bytes(1 << 40)),
    "a group": node(number_bytes(1 << 3 | 3)),
    "wire type 7": node(number_bytes(1 << 3 | 7)),
    "a node twice": node(field_bytes(1, 1)) + message_bytes([field_bytes(1, 1)]),
    "an id that is text": node(field_bytes(1, "one")),
    "a send without a peer": node(SEND),
    "a peer that is text": node(SEND, attribute("comm_dst", "one")),
    "a peer of 2^62": node(SEND, attribute("comm_dst", 1 << 62)),
    "a size of 2^62": node(SEND, attribute("comm_dst", 1), attribute("comm_size", 1 << 62)),
    "an attribute that is a number": node(field_bytes(10, 7)),
    "memory of another kind": node(attribute("reads", "0:x:0:1")),
    "memory that is a number": node(attribute("reads", 3)),
    "another number of ranks": message_bytes(
        [field_bytes(2, field_bytes(1, "ranks") + field_bytes(9, 3))]
    ),
}
BAD = [
    *((".xml", name, text.encode()) for name, text in BAD_XML.items()),
    *((".json", name, text.encode()) for name, text in BAD_JSON.items()),
    *((".0.et", name, data) for name, data in BAD_TRACES.items()),
]


@pytest.mark.parametrize(("ending", "name", "data"), BAD, ids=[f"{e} {n}" for e, n, _ in BAD])
def test_hostile_files_end_with_a_sentence_and_without_memory(ending, name, data, tmp_path, capsys):
    path = tmp_path / f"bad{ending}"
    path.write_bytes(data)
    tracemalloc.start()
    code = main(["schedule", str(path)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    out = capsys.readouterr().out
    assert code in (1, 2) and "bad" in out and len(out) < 500
    words = ("wanted", "limit") if ending == ".xml" else ("wanted", "not valid", "limit")
    assert any(word in out for word in words)
    assert peak < 8_000_000 + 60 * len(data)  # what else this process may be doing


def test_the_bad_files_are_bad_for_the_reason_that_they_name(tmp_path):
    """A file without the wrong piece is read."""
    for ending, text in ((".xml", xml(tb(STEP.format(cnt=1)))), (".json", plan({"name": "nop"}))):
        (tmp_path / f"a{ending}").write_text(text)
        assert len(read_plan(str(tmp_path / f"a{ending}")).ranks) == 1
    peer = node(SEND, attribute("comm_dst", 1), attribute("comm_size", 8))
    (tmp_path / "a.0.et").write_bytes(peer)
    assert read_plan(str(tmp_path / "a.0.et")).ranks[0][0].chunks == 8


def test_much_work_in_a_small_file_is_refused(tmp_path):
    steps = "".join(
        STEP.format(cnt=60_000).replace('s="0"', f's="{i}"', 1)
        for i in range(LARGEST_WORK // 60_000)
    )
    text = xml(tb(steps)).replace('_chunks="1"', '_chunks="65000"')
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(BadFile, match="chunks in all steps"):
        read_plan(str(tmp_path / "a.xml"))


@pytest.mark.parametrize("name", ["a.txt", "a", "a.et", "a.x.et", "a.00000.et", "\0.xml", "é.XML"])
def test_names_of_another_kind(name, capsys):
    assert main(["schedule", name]) == 2
    out = capsys.readouterr()
    assert out.out or out.err


def test_a_trace_that_is_missing_is_named(tmp_path, capsys):
    for rank, data in enumerate(chakra.dump(own_plan("ring", 5, "chakra", 5))):
        (tmp_path / f"t.{rank}.et").write_bytes(data)
    (tmp_path / "t.2.et").unlink()
    for file in ("t.0.et", "t.4.et"):
        assert main(["schedule", str(tmp_path / file)]) == 2
        said = "".join(capsys.readouterr())
        assert "t.2.et is missing: got the trace of rank 4; wanted those of all ranks" in said


def test_what_is_not_a_file(tmp_path, capsys):
    (tmp_path / "folder.xml").mkdir()
    (tmp_path / "link.json").symlink_to("/dev/zero")
    files = [str(tmp_path / name) for name in ("folder.xml", "link.json", "missing.3.et")]
    assert main(["schedule", *files]) == 2
    assert len(capsys.readouterr().out.splitlines()) == 3


def damaged(data, rng):
    """One of the ways in which files break."""
    kind = rng.randrange(6)
    if kind < 2:
        return (flipped, cut)[kind](data, rng)
    data = bytearray(data)
    if kind == 2:
        for _ in range(rng.choice((1, 2, 5))):
            data[rng.randrange(len(data))] = rng.choice(b'0123456789"[]{}<>,:-/ iosr\xff\0')
    elif kind == 3:
        start = rng.randrange(len(data))
        del data[start : start + rng.randrange(1, 60)]
    elif kind == 4:  # what is still a number
        digits = [place for place, byte in enumerate(data) if byte in b"0123456789"]
        data[rng.choice(digits or [0])] = rng.choice(b"0123456789")
    else:
        at = rng.randrange(len(data))
        start = rng.randrange(len(data))
        data[at:at] = data[start : start + rng.randrange(1, 60)] + rng.randbytes(rng.randrange(3))
    return bytes(data)


@pytest.mark.parametrize("form", FORMATS)
def test_damaged_files_get_a_verdict_or_a_sentence(form, tmp_path):
    rng, names = random.Random(60), ("ring", "direct", "halving-doubling")
    originals = [plan_files(own_plan(name, 3, form, 3), "a") for name in names]
    kinds = set()
    for i in range(60):
        files = dict(originals[i % len(originals)])
        name = rng.choice(sorted(files))
        files[name] = damaged(files[name], rng)
        for other, data in files.items():
            (tmp_path / other).write_bytes(data)
        tracemalloc.start()
        try:
            plan = read_plan(str(tmp_path / next(iter(files))))
            judged = judge(plan, LINK, 1024)
            assert judged.kind in VERDICTS and as_lines("a", plan, judged)
            kinds.add(judged.kind)
        except BadFile as error:
            assert "a." in str(error) and len(str(error)) < 1000
            kinds.add("refused")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20_000_000, i
    assert "refused" in kinds and len(kinds) > 2


def spoilt(plan, rng):
    """One step waits for nothing, or for a later one; or reads, writes or sends elsewhere."""
    rank = rng.randrange(len(plan.ranks))
    steps = list(plan.ranks[rank])
    i = rng.randrange(len(steps))
    old, kind = steps[i], rng.randrange(5)
    spans = old.reads or old.writes
    moved = tuple(replace(span, start=span.start + 1) for span in spans)
    sends = tuple(replace(port, peer=(port.peer + 1) % len(plan.ranks)) for port in old.sends)
    later = ((rank, len(steps) - 1),)
    changes = {"after": ()}, {"after": later}, {"reads": moved}, {"writes": moved}, {"sends": sends}
    steps[i] = replace(old, **changes[kind])
    return replace(plan, ranks=(*plan.ranks[:rank], tuple(steps), *plan.ranks[rank + 1 :]))


@pytest.mark.long
def test_fifty_files_of_sixteen_ranks_in_three_minutes(tmp_path, capsys):
    """Every second one has a step that is not its algorithm's."""
    files, rng = [], random.Random(3)
    for i in range(50):
        plan = own_plan(sorted(OWN)[i % len(OWN)], 16, FORMATS[i % 3], 64)
        written = plan_files(spoilt(plan, rng) if i % 2 else plan, f"{i}")
        for file, data in written.items():
            (tmp_path / file).write_bytes(data)
        files.append(str(tmp_path / next(iter(written))))
    start = time.perf_counter()
    assert main(["schedule", *files]) == 1
    assert time.perf_counter() - start < 180
    said = capsys.readouterr().out
    kinds = re.findall(r"^\S+/\d+\.\S+: (.+?) \(16 ranks", said, re.MULTILINE)
    assert len(kinds) == 50 and set(kinds) <= set(VERDICTS.values()) and len(set(kinds)) > 3, said
    assert set(kinds[::2]) == {"right"}
