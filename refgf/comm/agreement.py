"""Ranks that submit different things raise an error on all ranks instead of hanging.

    CheckedAllreduce(comm, allreduce)    the same Allreduce, which first compares all calls
    agree(comm, what, value)             every rank must hold the same text (a layout, a setting)

Hashes are compared, so every message has the same length. Cost per rank and call: ceil(log2 p)
messages, p-1 hashes of 32 bytes sent (Bruck's allgather). The texts themselves are sent only when
the hashes differ. Give it a communicator of its own, `comm.Dup()`.
"""

import functools
import hashlib
import time
import types
from typing import Any

import numpy as np

from refgf.comm.arguments import Comm
from refgf.device import Allreduce, Array

HASH_BYTES = 32
NAMED = types.FunctionType, types.BuiltinFunctionType, type
SHOWN = 60  # characters of a text around the first difference


def records(comm: Comm, text: str, nbytes: int) -> list[str]:
    """Every rank's text, cut to nbytes, in rank order. Collective.

    Cost per rank: ceil(log2 p) messages, (p-1) nbytes sent.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    have = np.zeros((size, nbytes), np.uint8)  # row i: the record of rank + i
    encoded = text.encode()[:nbytes]
    have[0, : len(encoded)] = np.frombuffer(encoded, np.uint8)
    count = 1
    while count < size:
        more = min(count, size - count)
        left, right = (rank - count) % size, (rank + count) % size
        comm.Sendrecv(have[:more], left, 0, have[count : count + more], right, 0)
        count += more
    rows = [bytes(have[(r - rank) % size]).rstrip(b"\0") for r in range(size)]
    return [row.decode(errors="replace") for row in rows]


def agree(comm: Comm, what: str, value: str) -> None:
    """Raise ValueError on every rank unless all hold the same value. Collective.

    The message shows where the values begin to differ.
    """
    if len(set(records(comm, hashlib.sha256(value.encode()).hexdigest(), HASH_BYTES))) == 1:
        return
    lengths = records(comm, str(len(value.encode())), HASH_BYTES)
    longest = max(map(int, lengths))
    got = records(comm, value, longest)
    first = next(i for i in range(longest) if len({text[i : i + 1] for text in got}) > 1)
    start = max(0, first - SHOWN // 2)
    holders = {text: [rank for rank, other in enumerate(got) if other == text] for text in got}
    values = "; ".join(
        f"{'...' * (start > 0)}{text[start : start + SHOWN]!r} on rank {', '.join(map(str, ranks))}"
        for text, ranks in holders.items()
    )
    raise ValueError(
        f"{what} differs between ranks: got {values}; wanted the same on all; next: look at the "
        "rank that differs, and give every rank the same model, settings and number of steps"
    )


def function_name(value: Any) -> str:
    """module.name of a function, with the arguments of a `functools.partial`; the same on any rank.

    Of an object only the class: its repr may hold an address.
    """
    if isinstance(value, functools.partial):
        arguments = [*value.args, *(item for pair in value.keywords.items() for item in pair)]
        return f"{function_name(value.func)}({', '.join(map(function_name, arguments))})"
    if isinstance(value, str | int | float | None):
        return repr(value)
    holder = value if isinstance(value, NAMED) else type(value)
    return f"{holder.__module__}.{holder.__qualname__}"


class CheckedAllreduce:
    """An Allreduce that compares call number, elements and dtype over all ranks before each call.

    `calls` counts the comparisons, and `seconds` is the time that they took on this rank.
    """

    def __init__(self, comm: Comm, allreduce: Allreduce) -> None:
        self._comm, self._allreduce = comm, allreduce
        self.calls, self.seconds = 0, 0.0

    def __call__(self, x: Array) -> None:
        start_s = time.perf_counter()
        self.calls += 1
        agree(self._comm, "allreduce", f"call {self.calls} sums {x.size} elements of {x.dtype}")
        self.seconds += time.perf_counter() - start_s
        self._allreduce(x)
