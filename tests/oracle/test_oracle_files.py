"""The safetensors reader: equal to the safetensors package on good files, else a clear error."""

import contextlib
import copy
import json
import os
import random
import struct
import tracemalloc

import numpy as np
import pytest

from refgf.oracle import definitions
from refgf.oracle.definitions import same_bits
from refgf.oracle.foreign.files import LARGEST_HEADER, read_json, read_tensors, write_tensors
from refgf.oracle.foreign.untrusted import BadFile, parse_json
from refgf.oracle.judge.cases import load_case, load_folder, save_by_letter, save_folder
from refgf.oracle.judge.implementations import Files, PythonModule
from refgf.oracle.judge.trace import check_trace, read_trace
from refgf.oracle.judge.verify import verify_case
from refgf.oracle.spec.statement import FUNCTIONS
from tests.support.damaged import cut, flipped
from tests.support.golden import golden_case, golden_file

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "empty": np.zeros((3, 0, 2)),
    "half": np.array([1.5, -0.0, np.inf], np.float16),
    "scalar": np.array(7, np.int64),
    "bytes": np.array([1, 2, 3], np.uint8),
}


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_round_trip(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, {**ARRAYS, "b": np.array([0x3F80], np.uint16)}, ["b"])
    arrays, types = read_tensors(path)
    assert all(same_bits(arrays[name], a) for name, a in ARRAYS.items())
    assert types["b"] == "bfloat16" and types["a"] == "float32"


def test_the_safetensors_package_reads_ours_and_we_read_its(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    write_tensors(tmp_path / "ours.safetensors", ARRAYS)
    theirs = numpy.load_file(tmp_path / "ours.safetensors")
    assert all(same_bits(theirs[name], a) for name, a in ARRAYS.items())
    numpy.save_file(ARRAYS, tmp_path / "theirs.safetensors", metadata={"from": "test"})
    ours, _ = read_tensors(tmp_path / "theirs.safetensors")
    assert all(same_bits(ours[name], a) for name, a in ARRAYS.items())


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
BAD = {
    "nothing": b"",
    "seven bytes": b"\0" * 7,
    "header longer than the file": struct.pack("<Q", 100) + b"{}",
    "header of 2^63 bytes": struct.pack("<Q", 1 << 63) + b"{}",
    "not JSON": file_of(b"{'a': 1}"),
    "not an object": file_of([1, 2]),
    "not UTF-8": file_of(b'{"\xff": 1}'),
    "NaN": file_of(b'{"a": NaN}'),
    "nested a thousand times": file_of(b"[" * 100_000),
    "a number of 10,000 digits": file_of(b'{"a": ' + b"1" * 10_000 + b"}"),
    "a key twice": file_of(b'{"a": 1, "a": 2}'),
    "a name with a slash": file_of({"../a": ENTRY}, b"\0" * 8),
    "an entry without a shape": file_of({"a": {"dtype": "F32", "data_offsets": [0, 8]}}, b"\0" * 8),
    "an unknown dtype": file_of({"a": {**ENTRY, "dtype": "F8"}}, b"\0" * 8),
    "a dtype that is a list": file_of({"a": {**ENTRY, "dtype": ["F32"]}}, b"\0" * 8),
    "a negative shape": file_of({"a": {**ENTRY, "shape": [-2]}}, b"\0" * 8),
    "a shape of floats": file_of({"a": {**ENTRY, "shape": [2.0]}}, b"\0" * 8),
    "a shape of bools": file_of({"a": {**ENTRY, "shape": [True, 2]}}, b"\0" * 8),
    "nine dimensions": file_of({"a": {**ENTRY, "shape": [1] * 8 + [2]}}, b"\0" * 8),
    "a shape of petabytes": file_of({"a": {**ENTRY, "shape": [1 << 50]}}, b"\0" * 8),
    "an empty shape of petabytes": file_of(
        {"a": {**ENTRY, "shape": [0, 1 << 40, 1 << 40], "data_offsets": [0, 0]}}
    ),
    "offsets backwards": file_of({"a": {**ENTRY, "data_offsets": [8, 0]}}, b"\0" * 8),
    "offsets beyond the file": file_of({"a": {**ENTRY, "data_offsets": [8, 16]}}, b"\0" * 8),
    "one offset": file_of({"a": {**ENTRY, "data_offsets": [0]}}, b"\0" * 8),
    "two tensors in one place": file_of({"a": ENTRY, "b": ENTRY}, b"\0" * 8),
    "a gap": file_of({"a": {**ENTRY, "data_offsets": [4, 12]}}, b"\0" * 12),
    "bytes that belong to nothing": file_of({"a": ENTRY}, b"\0" * 9),
    "another shape than bytes": file_of({"a": {**ENTRY, "shape": [3]}}, b"\0" * 8),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_files_are_named(what, tmp_path):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(BAD[what])
    with pytest.raises(BadFile, match="bad.safetensors"):
        read_tensors(path)


@pytest.mark.parametrize("text", [b'{"a": NaN}', b'{"a": 1, "a": 2}'])
def test_what_json_may_not_hold_is_said_once(text):
    with pytest.raises(BadFile) as caught:
        parse_json("bad.json", text)
    said = str(caught.value)
    assert said.count("bad.json") == said.count("wanted") == 1, said


def test_a_file_of_two_tensors_is_fine(tmp_path):
    """The files above are bad for the reason that they name: this one differs only in that."""
    path = tmp_path / "good.safetensors"
    path.write_bytes(file_of({"b": {**ENTRY, "data_offsets": [8, 16]}, "a": ENTRY}, b"\0" * 16))
    assert list(read_tensors(path)[0]) == ["a", "b"]


def test_what_is_not_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "missing", "/dev/zero"):
        with pytest.raises(BadFile):
            read_tensors(path)


def test_memory_stays_within_the_file_whatever_it_claims(tmp_path):
    """A header is at most 1 MiB, its objects at most 60 times that; numbers are not copied."""
    path = tmp_path / "large.safetensors"
    write_tensors(path, {"a": np.zeros(4_000_000, np.float32)})
    for name, data in {"large": None, **BAD}.items():
        if data is not None:
            path.write_bytes(data)
        tracemalloc.start()
        with contextlib.suppress(BadFile):
            read_tensors(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        size = path.stat().st_size
        assert peak < size + 64 * min(size, LARGEST_HEADER) + 100_000, (name, peak, size)


def test_cases_do_not_lead_out_of_their_folder(tmp_path):
    folder = tmp_path / "cases"
    save_folder([FUNCTIONS["relu"].case("one", "a case", x=np.zeros(3))], folder)
    assert len(load_folder(folder)) == 1
    for name in ("../one", "/etc/passwd", "one\0", "", "a/b", "."):
        with pytest.raises(BadFile):
            load_case(folder, name)
    (tmp_path / "outside.json").write_text((folder / "one.json").read_text())
    (folder / "one.json").unlink()
    (folder / "one.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(BadFile, match="leads out"):
        load_folder(folder)


def test_folders_by_letter_are_loaded_but_no_links_to_others(tmp_path):
    x = np.zeros(3)
    named = {"b": ("relu", x), "a": ("exact_sum", [x])}
    cases = [FUNCTIONS[f].case(name, "a case", x=x) for name, (f, x) in named.items()]
    save_by_letter(cases, tmp_path / "cases")
    assert [case.name for case in load_folder(tmp_path / "cases")] == ["b", "a"]  # N, then S
    assert [case.name for case in load_folder(tmp_path / "cases" / "S")] == ["a"]
    save_folder(cases[:1], tmp_path / "outside")
    (tmp_path / "cases" / "T").symlink_to(tmp_path / "outside")
    assert len(load_folder(tmp_path / "cases")) == 2


def test_a_changed_file_is_noticed_by_its_hash(tmp_path):
    save_folder([FUNCTIONS["relu"].case("one", "a case", x=np.zeros(3))], tmp_path)
    text = (tmp_path / "one.json").read_text()
    (tmp_path / "one.json").write_text(text.replace("a case", "A case"))
    with pytest.raises(BadFile, match="sha256"):
        load_folder(tmp_path)


def corrupted(data, rng):
    """One of the ways in which files break."""
    kind = rng.randrange(5)
    if kind < 2:
        return (flipped, cut)[kind](data, rng)
    data = bytearray(data)
    if kind == 2:  # shapes, offsets and names: a digit or a letter of the header is another one
        end = min(len(data), 8 + struct.unpack("<Q", data[:8])[0])
        data[rng.randrange(8, end)] = rng.choice(b'0123456789"[]{},:-.eE/ F')
    elif kind == 3:
        data[:8] = struct.pack(
            "<Q", rng.choice((0, 1, 2**20, 2**31, 2**63, 2**64 - 1, rng.randrange(2**16)))
        )
    else:
        at = rng.randrange(len(data))
        data[at:at] = rng.randbytes(rng.randrange(1, 64))
    return bytes(data)


CORRUPTED = [
    pytest.param(200, id="200"),
    pytest.param(1000, id="1000", marks=pytest.mark.long),
]


@pytest.mark.parametrize("count", CORRUPTED)
def test_corrupted_files_give_a_clear_error_or_a_wrong_result(count, tmp_path):
    """Golden and result files: no crash, no memory beyond the file, no wrong number passes."""
    rng, names = (
        random.Random(1),
        ["ring-p3-n9-float32-sensitive", "csc-dgc", "ring-p4-n9-bfloat16-invariant"],
    )
    cases = {name: golden_case(name) for name in names}
    refused = 0
    for i in range(count):
        name = names[i % len(names)]
        original = golden_file(f"{name}.safetensors").read_bytes()
        broken = corrupted(original, rng)
        (tmp_path / f"{name}.safetensors").write_bytes(broken)
        tracemalloc.start()
        verdict = verify_case(cases[name], Files(tmp_path))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 * len(original) + 8_000_000  # what else this process may be doing
        refused += verdict.status == "fail"
        if verdict.status == "pass":
            good, found = (
                read_tensors(golden_file(f"{name}.safetensors"))[0],
                read_tensors(tmp_path / f"{name}.safetensors")[0],
            )
            assert all(
                same_bits(found[key], a) for key, a in good.items() if key.startswith("out.")
            ), i
    assert refused > count / 2


TEXTS = {  # file: how it is read
    "csc-dgc.json": lambda path: load_case(path.parent, "csc-dgc"),
    "sha256": lambda path: load_folder(path.parent),
    "trace.jsonl": lambda path: check_trace(read_trace(path)),
}


@pytest.mark.parametrize("count", CORRUPTED)
@pytest.mark.parametrize("name", TEXTS)
def test_corrupted_texts_give_a_clear_error(name, count, tmp_path):
    """No traceback, and no memory beyond the file's."""
    rng, refused = random.Random(2), 0
    save_folder([golden_case("csc-dgc")], tmp_path)
    events = (event_line(rank=r, step=s, peer=1 - r) for s in range(3) for r in (0, 1))
    (tmp_path / "trace.jsonl").write_text("\n".join(events))
    original = (tmp_path / name).read_bytes()
    for _ in range(count):
        data = bytearray(original)
        for _ in range(rng.choice((1, 2, 5))):
            data[rng.randrange(len(data))] = rng.choice(b'0123456789"[]{},:-.eE/ abcN\n\xff\0')
        data = cut(data, rng) if rng.random() < 0.3 else data
        (tmp_path / name).write_bytes(data)
        tracemalloc.start()
        try:
            TEXTS[name](tmp_path / name)
        except BadFile as error:
            assert len(str(error)) < 1000
            refused += 1
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8_000_000  # what else this process may be doing
    assert refused > count / 2


@pytest.mark.parametrize("count", CORRUPTED)
def test_cases_with_other_arguments_are_judged_or_refused(count, tmp_path):
    """Foreign cases with right hashes and wrong contents: a clear failure each, no traceback."""
    rng, names = (
        random.Random(3),
        [
            "csc-dgc",
            "csc-values",
            "ring-p3-n9-float32-sensitive",
            "batch-norm",
            "lazy-calls-nothing",
        ],
    )
    cases = [golden_case(name) for name in names]
    values = [None, 0, -1, 3, 2.5, "inf", "x", [], [[]], {}, True, [[1, 2]], "bfloat16", 1e300]
    for i in range(count // 10):
        case = copy.deepcopy(cases[i % len(cases)])
        for key in rng.sample(sorted(case.arguments), min(len(case.arguments), 1 + i % 2)):
            case.arguments[key] = rng.choice(values)
        if i % 3 == 0:
            name = rng.choice(sorted(case.tensors))
            case.tensors[name] = case.tensors[name].reshape(-1)[: rng.randrange(4)]
        save_folder([case], tmp_path)
        for profile in ("bits", "sum"):
            loaded = load_folder(tmp_path)[0]
            with np.errstate(all="ignore"):
                verdict = verify_case(loaded, PythonModule(definitions), profile)
            assert verdict.status in ("pass", "fail") and len(str(verdict.failure)) < 2000


def event_line(**changes):
    """A good line of a trace, with changes."""
    event = {"rank": 0, "step": 0, "operation": "send", "peer": 1, "offset": 0, "count": 1}
    return json.dumps({**event, "dtype": "float32", **changes})


def test_a_good_line_of_a_trace_is_read(tmp_path):
    (tmp_path / "t.jsonl").write_text(event_line() + "\n")
    assert len(read_trace(tmp_path / "t.jsonl")) == 1


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{}",
        "[]",
        "null",
        '{"rank": 0}',
        event_line(rank=-1),
        event_line(operation="jump"),
        event_line(peer=None),
        event_line(operation=["send"]),
        event_line(operation="finish"),
    ],
)
def test_bad_lines_of_a_trace_are_named(line, tmp_path):
    (tmp_path / "t.jsonl").write_text(line + "\n")
    if not line:
        assert read_trace(tmp_path / "t.jsonl") == []
        return
    with pytest.raises(BadFile, match="line 1"):
        read_trace(tmp_path / "t.jsonl")


def test_json_of_a_case_must_be_an_object(tmp_path):
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(BadFile, match="object"):
        read_json(tmp_path / "a.json")
