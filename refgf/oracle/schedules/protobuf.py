"""The wire format of Protocol Buffers, as its public documentation describes it.

A message is a list of fields. Each begins with a varint, 8 * field number + wire type:

    0  a varint: 7 bits a byte, lowest first, the top bit says that more follow
    1  8 bytes      2  a varint n, then n bytes: a string, a message, packed numbers      5  4 bytes
"""

from collections.abc import Iterator

from refgf.oracle.foreign.untrusted import BadFile

Field = tuple[int, int | bytes]
LENGTHS = {1: 8, 5: 4}


def varint(path: str, data: bytes, at: int) -> tuple[int, int]:
    """(value, position behind it)."""
    value = 0
    for k in range(10):
        if at + k >= len(data):
            raise BadFile(f"{path}: ends at byte {at + k}, within a number; wanted a whole message")
        byte = data[at + k]
        value |= (byte & 127) << 7 * k
        if byte < 128:
            return value & (1 << 64) - 1, at + k + 1
    raise BadFile(f"{path}: got a number of more than 10 bytes at byte {at}; wanted a varint")


def block(path: str, data: bytes, at: int, length: int) -> tuple[bytes, int]:
    """(length bytes, position behind them)."""
    if length > len(data) - at:
        got = f"{length} bytes at byte {at} of {len(data)}"
        raise BadFile(f"{path}: got {got}; wanted them within the message")
    return data[at : at + length], at + length


def fields(path: str, data: bytes) -> Iterator[Field]:
    """(field number, value) in the order of the message."""
    at = 0
    while at < len(data):
        key, at = varint(path, data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(path, data, at)
        elif kind == 2:
            length, at = varint(path, data, at)
            value, at = block(path, data, at, length)
        elif kind in LENGTHS:
            value, at = block(path, data, at, LENGTHS[kind])
        else:
            raise BadFile(f"{path}: got wire type {kind} at byte {at}; wanted 0, 1, 2 or 5")
        yield number, value


def delimited(path: str, data: bytes) -> Iterator[bytes]:
    """The messages of a file in which each follows its length."""
    at = 0
    while at < len(data):
        length, at = varint(path, data, at)
        message, at = block(path, data, at, length)
        yield message


def number_bytes(value: int) -> bytes:
    """A varint; negative numbers as in int64."""
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def field_bytes(number: int, value: int | bytes | str) -> bytes:
    """One field: a varint or bytes."""
    if isinstance(value, int):
        return number_bytes(number << 3) + number_bytes(value)
    raw = value.encode() if isinstance(value, str) else value
    return number_bytes(number << 3 | 2) + number_bytes(len(raw)) + raw


def message_bytes(parts: list[bytes]) -> bytes:
    """A message that follows its length."""
    whole = b"".join(parts)
    return number_bytes(len(whole)) + whole
