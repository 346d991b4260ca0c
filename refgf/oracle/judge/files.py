"""Reading and writing .safetensors, without trusting what is read.

    8 bytes   length of the header, unsigned, little-endian
    header    JSON: {"name": {"dtype": "F32", "shape": [3, 7], "data_offsets": [0, 84]}, ...}
    rest      the numbers, little-endian, one tensor after the other, no gaps

A file is read once and its tensors are views of those bytes, so that memory is bounded by the size of the file,
whatever its header claims; nothing is executed. bfloat16 arrives as uint16, with its logical type named.
"""

import json
import math
import os
import re
import stat
import struct

import numpy as np

DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "U16": "<u2",
    "U8": "|u1",
}
NAMES = {
    "<f8": "F64",
    "<f4": "F32",
    "<f2": "F16",
    "<i8": "I64",
    "<i4": "I32",
    "<u2": "U16",
    "|u1": "U8",
}
LARGEST_FILE, LARGEST_HEADER = 1 << 31, 1 << 20
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class BadFile(ValueError):
    """A file that is not what it claims to be. The message names the file and what is wrong."""


def read_bytes(path, limit=LARGEST_FILE):
    """The bytes of a regular file of at most `limit` bytes. Pipes and devices, which may never end, are refused."""
    path = os.fspath(path)
    try:
        with open(
            path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BadFile(f"{path}: not a regular file")
            if status.st_size > limit:
                raise BadFile(f"{path}: got {status.st_size} bytes; wanted at most {limit}")
            return file.read(status.st_size)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror or error}") from None


def parse_json(path, text):
    """JSON of an untrusted file: no key twice, no NaN, no nesting that exhausts the stack."""

    def once(pairs):
        if len(dict(pairs)) != len(pairs):
            raise BadFile(f"{path}: a key appears twice in its JSON")
        return dict(pairs)

    def refuse(constant):
        raise BadFile(f"{path}: {constant} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        raise BadFile(f"{path}: not valid JSON ({type(error).__name__})") from None
    except ValueError as error:  # a number of thousands of digits
        raise BadFile(f"{path}: {error}") from None


def read_json(path):
    """A JSON object from a file of at most LARGEST_HEADER bytes. -> dict"""
    content = parse_json(path, read_bytes(path, LARGEST_HEADER))
    if not isinstance(content, dict):
        raise BadFile(
            f"{path}: got {type(content).__name__} at the top of its JSON; wanted an object"
        )
    return content


def read_tensors(path):
    """-> {name: read-only array}, {name: logical type such as "bfloat16"}. Raises BadFile."""
    data = read_bytes(path)
    if len(data) < 8:
        raise BadFile(f"{path}: got {len(data)} bytes; a safetensors file has at least 8")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(LARGEST_HEADER, len(data) - 8):
        raise BadFile(
            f"{path}: its header claims {length} bytes; {min(LARGEST_HEADER, len(data) - 8)} are possible"
        )
    header = parse_json(path, data[8 : 8 + length])
    if not isinstance(header, dict):
        raise BadFile(f"{path}: its header is not an object")
    header.pop("__metadata__", None)
    arrays, types, position = {}, {}, 0
    entries = [(name, *_entry(path, name, entry)) for name, entry in header.items()]
    for name, code, shape, start, stop in sorted(entries, key=lambda entry: entry[3:]):
        if start != position or stop > len(data) - 8 - length:
            raise BadFile(
                f"{path}: tensor {name!r} lies at {start}..{stop} of the data; wanted from {position}, and "
                f"the file, of {len(data)} bytes, has {len(data) - 8 - length} of data"
            )
        flat = np.frombuffer(data, DTYPES[code], math.prod(shape), offset=8 + length + start)
        arrays[name], types[name], position = flat.reshape(shape), logical_type(code), stop
    if position != len(data) - 8 - length:
        raise BadFile(f"{path}: {len(data) - 8 - length - position} bytes belong to no tensor")
    return arrays, types


def _entry(path, name, entry):
    """Check one tensor's entry of the header. -> (dtype code, shape, start, stop)"""
    if not PLAIN_NAME.fullmatch(name):
        raise BadFile(
            f"{path}: a tensor's name {name[:40]!r} has other characters than letters, digits, dot, -, _"
        )
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise BadFile(f"{path}: tensor {name!r}: wanted exactly dtype, shape and data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        raise BadFile(
            f"{path}: tensor {name!r}: got dtype {str(code)[:20]!r}; wanted one of {', '.join(DTYPES)}"
        )
    if not _counts(shape) or len(shape) > 8 or math.prod(c for c in shape if c) > LARGEST_FILE:
        raise BadFile(
            f"{path}: tensor {name!r}: its shape is not a list of at most 8 counts, or not a possible one"
        )
    if not _counts(offsets) or len(offsets) != 2:
        raise BadFile(f"{path}: tensor {name!r}: its data_offsets are not two counts")
    nbytes = math.prod(shape) * np.dtype(DTYPES[code]).itemsize
    if offsets[1] - offsets[0] != nbytes:
        raise BadFile(
            f"{path}: tensor {name!r} of shape {shape} takes {nbytes} bytes, not {offsets[1] - offsets[0]}"
        )
    return code, shape, *offsets


def _counts(values):
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 1 << 62 for v in values)


def logical_type(code):
    """The type that a safetensors dtype stands for: "BF16" -> "bfloat16"."""
    return "bfloat16" if code == "BF16" else np.dtype(DTYPES[code]).name


def write_tensors(path, arrays, bfloat16=()):
    """Write {name: array}; uint16 arrays named in `bfloat16` are bfloat16 bits."""
    header, position = {}, 0
    arrays = {
        name: np.asarray(a, np.asarray(a).dtype.newbyteorder("<"), order="C")
        for name, a in arrays.items()
    }
    for name, a in arrays.items():
        code = "BF16" if name in bfloat16 else NAMES[a.dtype.str]
        header[name] = {
            "dtype": code,
            "shape": list(a.shape),
            "data_offsets": [position, position + a.nbytes],
        }
        position += a.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of 8
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for a in arrays.values():
            file.write(a.tobytes())
