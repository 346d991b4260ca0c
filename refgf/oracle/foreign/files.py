"""Reading and writing .safetensors, without trusting what is read.

    8 bytes   length of the header, unsigned, little-endian
    header    JSON: {"name": {"dtype": "F32", "shape": [3, 7], "data_offsets": [0, 84]}, ...}
    rest      the numbers, little-endian, one tensor after the other, no gaps

A file is read once, and its tensors are views of those bytes. So memory is bounded by the size of
the file, whatever its header claims, and nothing is executed. bfloat16 arrives as uint16, with its
logical type named.
"""

import json
import math
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from refgf.oracle.foreign.untrusted import LARGEST_FILE, BadFile, parse_json, read_bytes

DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
NAMES = {code: name for name, code in DTYPES.items() if name != "BF16"}
LARGEST_HEADER = 1 << 20  # bytes
LARGEST_COUNT = 1 << 62
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def read_json(path: Path | str) -> dict:
    """A JSON object from a file of at most LARGEST_HEADER bytes."""
    content = parse_json(path, read_bytes(path, LARGEST_HEADER))
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise BadFile(f"{path}: got {kind} at the top of its JSON; wanted an object")
    return content


def read_tensors(path: Path | str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """-> {name: read-only array}, {name: logical type such as "bfloat16"}. Raises BadFile."""
    return parse_tensors(path, read_bytes(path))


def parse_tensors(path: Path | str, data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The same of bytes that came from `path`, or from whatever place it names."""
    if len(data) < 8:
        raise BadFile(f"{path}: got {len(data)} bytes; wanted at least 8, as of a safetensors file")
    (length,) = struct.unpack("<Q", data[:8])
    largest = min(LARGEST_HEADER, len(data) - 8)
    if length > largest:
        raise BadFile(f"{path}: got a header of {length} bytes; wanted at most {largest}")
    header = parse_json(path, data[8 : 8 + length])
    if not isinstance(header, dict):
        raise BadFile(f"{path}: got a header that is {type(header).__name__}; wanted an object")
    header.pop("__metadata__", None)
    arrays, types, position, size = {}, {}, 0, len(data) - 8 - length
    entries = [(name, *_entry(path, name, entry)) for name, entry in header.items()]
    for name, code, shape, start, stop in sorted(entries, key=lambda entry: entry[3:]):
        if start != position or stop > size:
            raise BadFile(
                f"{path}: got tensor {name!r} at bytes {start}..{stop} of the data; wanted it "
                f"from {position} on and within {size}"
            )
        flat = np.frombuffer(data, DTYPES[code], math.prod(shape), offset=8 + length + start)
        arrays[name], types[name], position = flat.reshape(shape), logical_type(code), stop
    if position != size:
        raise BadFile(f"{path}: got {size - position} bytes that belong to no tensor; wanted none")
    return arrays, types


def _entry(path: Path | str, name: str, entry: Any) -> tuple[str, list[int], int, int]:
    """Check one tensor's entry of the header. -> (dtype code, shape, start, stop)"""
    if not PLAIN_NAME.fullmatch(name):
        raise BadFile(
            f"{path}: got tensor name {name[:40]!r}; wanted letters, digits, dot, - and _ only"
        )
    what = f"{path}: tensor {name!r}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise BadFile(f"{what}: wanted exactly dtype, shape and data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in DTYPES:
        wanted = ", ".join(DTYPES)
        raise BadFile(f"{what}: got dtype {str(code)[:20]!r}; wanted one of {wanted}")
    if not _counts(shape) or len(shape) > 8 or math.prod(c for c in shape if c) > LARGEST_FILE:
        raise BadFile(f"{what}: wanted a shape of at most 8 counts, of a possible size")
    if not _counts(offsets) or len(offsets) != 2:
        raise BadFile(f"{what}: wanted data_offsets of two counts")
    nbytes = math.prod(shape) * np.dtype(DTYPES[code]).itemsize
    if offsets[1] - offsets[0] != nbytes:
        raise BadFile(
            f"{what}: got {offsets[1] - offsets[0]} bytes; wanted {nbytes} for shape {shape}"
        )
    return code, shape, *offsets


def _counts(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(v) is int and 0 <= v < LARGEST_COUNT for v in values
    )


def logical_type(code: str) -> str:
    """The type that a safetensors dtype stands for: "BF16" -> "bfloat16"."""
    return "bfloat16" if code == "BF16" else np.dtype(DTYPES[code]).name


def write_tensors(
    path: Path | str, arrays: dict[str, np.ndarray], bfloat16: Iterable[str] = ()
) -> None:
    """Write {name: array}; uint16 arrays named in `bfloat16` are bfloat16 bits."""
    Path(path).write_bytes(tensor_bytes(arrays, bfloat16))


def tensor_bytes(arrays: dict[str, np.ndarray], bfloat16: Iterable[str] = ()) -> bytes:
    """The contents of a .safetensors file. KeyError for a type that it does not know."""
    header, position = {}, 0
    arrays = {name: little_endian(a) for name, a in arrays.items()}
    for name, a in arrays.items():
        code, stop = "BF16" if name in bfloat16 else NAMES[a.dtype.str], position + a.nbytes
        header[name] = {"dtype": code, "shape": list(a.shape), "data_offsets": [position, stop]}
        position = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of 8
    parts = [struct.pack("<Q", len(text)), text, *(a.tobytes() for a in arrays.values())]
    return b"".join(parts)


def little_endian(array: Any) -> np.ndarray:
    array = np.asarray(array)
    return np.asarray(array, array.dtype.newbyteorder("<"), order="C")
