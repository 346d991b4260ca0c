"""Ranks that submit different things say so, on all ranks, instead of truncating each other's messages or hanging.

    checked(comm, allreduce)    the same Allreduce, which first compares what every rank is about to sum
    agree(comm, what, value)    every rank must hold the same text (a layout, a setting)

What is compared is a hash, so every message has the same length whatever the arrays are: ceil(log2 p) messages, p-1
hashes of 32 bytes sent per rank and call (Bruck's allgather). Only when hashes differ the texts themselves travel. Give
it a communicator of its own, `comm.Dup()`.
"""

import hashlib
import time

import numpy as np

HASH_BYTES = 32
SHOWN = 60  # characters of a text around the first difference


def records(comm, text: str, nbytes: int) -> list[str]:
    """Every rank's text, cut to nbytes, in rank order. Collective; ceil(log2 p) messages, (p-1) nbytes sent."""
    rank, size = comm.Get_rank(), comm.Get_size()
    have = np.zeros((size, nbytes), np.uint8)  # row i: the record of rank + i
    encoded = text.encode()[:nbytes]
    have[0, : len(encoded)] = np.frombuffer(encoded, np.uint8)
    count = 1
    while count < size:
        more = min(count, size - count)
        comm.Sendrecv(have[:more], (rank - count) % size, 0, have[count : count + more], (rank + count) % size, 0)
        count += more
    return [bytes(have[(r - rank) % size]).rstrip(b"\0").decode(errors="replace") for r in range(size)]


def agree(comm, what: str, value: str) -> None:
    """Raise ValueError on every rank unless all hold the same value; the message shows where they begin to differ."""
    if len(set(records(comm, hashlib.sha256(value.encode()).hexdigest(), HASH_BYTES))) == 1:
        return
    longest = max(int(length) for length in records(comm, str(len(value.encode())), HASH_BYTES))
    got = records(comm, value, longest)
    start = max(0, next(i for i in range(longest) if len({text[i : i + 1] for text in got}) > 1) - SHOWN // 2)
    holders = {text: [rank for rank, other in enumerate(got) if other == text] for text in got}
    told = "; ".join(
        f"{'...' * (start > 0)}{text[start : start + SHOWN]!r} on rank {', '.join(map(str, ranks))}"
        for text, ranks in holders.items()
    )
    raise ValueError(
        f"{what} differs between ranks: got {told}; wanted the same on all; next: look at the rank that differs, "
        "and give every rank the same model, settings and number of steps"
    )


class checked:
    """An Allreduce that compares call number, elements and dtype over all ranks before every call.

    `seconds` and `calls` say what the comparisons have cost this rank.
    """

    def __init__(self, comm, allreduce) -> None:
        self._comm, self._allreduce = comm, allreduce
        self.calls, self.seconds = 0, 0.0

    def __call__(self, x) -> None:
        start_s = time.perf_counter()
        self.calls += 1
        agree(self._comm, "allreduce", f"call {self.calls} sums {x.size} elements of {x.dtype}")
        self.seconds += time.perf_counter() - start_s
        self._allreduce(x)
