"""bfloat16 on the wire. NumPy has no such type, so a number travels as the upper half of its float32, 16 bits.

    bfloat16_bits(x), bfloat16_values(bits)     rounded to nearest, ties to even; back again, exactly
    Bfloat16Comm(comm)                          what is sent through it is rounded, and takes 2 bytes a number
    ring_among(comm, ranks, wire)               an `Allreduce` among some of the ranks; wire "bfloat16" or None

Wider range and fewer digits than float16: right for parameters, which need no loss scale that way. float64 goes by way
of float32. A schedule knows nothing of it: every message is rounded when it leaves, and `ring_among` rounds the result
once more, as `finish` does for NumPy's types, so all ranks end with the same bits. Cost per call: that of the ring
among g ranks, 2(g-1) messages, at half the bytes; some 13 bytes of temporaries for each number of a message, and of the
vector's blocks that are rounded at the end.
"""

import functools
from collections.abc import Sequence

import numpy as np

from refgf.comm import ring
from refgf.comm.schedule import Allreduce, among, execute, require_flat
from refgf.device import array_module, synchronize
from refgf.engine.half import blocks


def bfloat16_bits(x):
    """float32 or float64 (n,) -> uint16 (n,); a NaN stays one."""
    xp = array_module(x)
    with np.errstate(over="ignore", invalid="ignore"):
        x = xp.ascontiguousarray(x, np.float32)
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & np.uint32(1))) >> 16
    return xp.where(xp.isnan(x), bits >> 16 | np.uint32(0x40), rounded).astype(np.uint16)


def bfloat16_values(bits):
    """uint16 (n,) -> float32 (n,), exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


class Bfloat16Comm:
    """Wraps a communicator: Send, Recv and Sendrecv of float arrays carry bfloat16."""

    def __init__(self, comm) -> None:
        self._comm, self.host_only = comm, getattr(comm, "host_only", False)

    def Get_rank(self) -> int:
        return self._comm.Get_rank()

    def Get_size(self) -> int:
        return self._comm.Get_size()

    def Send(self, buf, dest: int, tag: int = 0) -> None:
        self._comm.Send(_at_hand(bfloat16_bits(buf)), dest, tag)

    def Recv(self, buf, source: int, tag: int = 0) -> None:
        bits = _at_hand(array_module(buf).empty(buf.size, np.uint16))
        self._comm.Recv(bits, source, tag)
        buf[...] = bfloat16_values(bits)

    def Sendrecv(self, sendbuf, dest, sendtag=0, recvbuf=None, source=None, recvtag=0) -> None:
        bits, sent = array_module(recvbuf).empty(recvbuf.size, np.uint16), bfloat16_bits(sendbuf)
        self._comm.Sendrecv(_at_hand(sent), dest, sendtag, bits, source, recvtag)
        recvbuf[...] = bfloat16_values(bits)


def _at_hand(bits):
    """bits, once a GPU has done all that is queued for it: MPI knows no streams."""
    synchronize(bits)
    return bits


def ring_among(comm, ranks: Sequence[int], wire: str | None = None) -> Allreduce:
    """A ring over `ranks` (this one among them, listed alike on all of them); groups without a common rank may go at once."""
    rank, size, scratch = comm.Get_rank(), len(ranks), {}
    if wire not in (None, "bfloat16"):
        raise ValueError(f"ring_among on rank {rank}: got wire {wire!r}; wanted None or 'bfloat16'")
    if rank not in ranks:
        raise ValueError(f"ring_among on rank {rank}: got ranks {list(ranks)}; wanted this one among them")
    place, carrier = list(ranks).index(rank), Bfloat16Comm(comm) if wire else comm
    schedule = functools.lru_cache(maxsize=64)(lambda n: among(ranks, ring.allreduce(place, size, n)))

    def allreduce(x) -> None:
        require_flat(x, "ring_among", rank)
        if wire and x.dtype.itemsize < 4:
            raise ValueError(f"ring_among on rank {rank}: got {x.dtype}; wanted float32 or float64 for bfloat16 on the wire")
        execute(carrier, schedule(x.size), x, scratch=scratch)
        for block in blocks(x) if wire else ():
            x[block] = bfloat16_values(bfloat16_bits(x[block]))

    return allreduce
