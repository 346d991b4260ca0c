"""bfloat16 on the wire: messages of 2 bytes an element, with the range of float32.

    bfloat16_bits(x), bfloat16_values(bits)     rounded to nearest, ties to even; exactly back
    round_to_bfloat16(x)                        both, in place
    Bfloat16Comm(comm)                          rounds what is sent through it to bfloat16
    ring_on_ranks(comm, ranks, wire)            an `Allreduce` of a group; wire "bfloat16" or None

NumPy has no such type; ml_dtypes adds it. MPI does not know it, so messages are its bits as uint16.
On a GPU the same rounding is written with integers, because CuPy arrays do not take ml_dtypes.

bfloat16 has a wider range and fewer digits than float16, so parameters need no scale. float64 is
rounded to float32 first. Every message is rounded when it is sent, and `ring_on_ranks` rounds the
result once more, as `finish` does for NumPy's types, so all ranks end with the same bits. Cost per
call and rank: that of the ring of g ranks, 2(g-1) messages, at half the bytes of float32.
"""

import functools
from collections.abc import Sequence

import numpy as np
from ml_dtypes import bfloat16

from refgf.arguments import checked
from refgf.comm import ring
from refgf.comm.arguments import Comm, require_flat
from refgf.comm.compose import on_ranks
from refgf.comm.schedule import execute
from refgf.comm.slices import chunks
from refgf.device import Allreduce, Array, array_module, is_device, synchronize

BLOCK_ELEMENTS = 65_536  # a block and its bits stay in the cache


def bfloat16_bits(x: Array) -> Array:
    """float32 or float64 (n,) -> uint16 (n,). A NaN stays a NaN."""
    with np.errstate(over="ignore", invalid="ignore"):
        x = array_module(x).ascontiguousarray(x, np.float32)
        if not is_device(x):
            return x.astype(bfloat16).view(np.uint16)
    xp, bits = array_module(x), x.view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + (bits >> 16 & np.uint32(1))) >> 16
    return xp.where(xp.isnan(x), bits >> 16 | np.uint32(0x40), nearest).astype(np.uint16)


def bfloat16_values(bits: Array) -> Array:
    """uint16 (n,) -> float32 (n,), exact: the bits are the upper half of a float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_to_bfloat16(x: Array) -> None:
    """float (n,), in place: the nearest numbers of bfloat16."""
    for block in chunks(x.size, BLOCK_ELEMENTS):
        x[block] = bfloat16_values(bfloat16_bits(x[block]))


@checked
class Bfloat16Comm:
    """Wraps a communicator: Send, Recv and Sendrecv of float arrays are sent as bfloat16."""

    def __init__(self, comm: Comm) -> None:
        self._comm, self.host_only = comm, getattr(comm, "host_only", False)

    def Get_rank(self) -> int:
        return self._comm.Get_rank()

    def Get_size(self) -> int:
        return self._comm.Get_size()

    def Send(self, buf: Array, dest: int, tag: int = 0) -> None:
        self._comm.Send(_synchronized(bfloat16_bits(buf)), dest, tag)

    def Recv(self, buf: Array, source: int, tag: int = 0) -> None:
        bits = _synchronized(array_module(buf).empty(buf.size, np.uint16))
        self._comm.Recv(bits, source, tag)
        buf[...] = bfloat16_values(bits)

    def Sendrecv(
        self,
        sendbuf: Array,
        dest: int,
        sendtag: int = 0,
        recvbuf: Array | None = None,
        source: int | None = None,
        recvtag: int = 0,
    ) -> None:
        bits = array_module(recvbuf).empty(recvbuf.size, np.uint16)
        sent = _synchronized(bfloat16_bits(sendbuf))
        self._comm.Sendrecv(sent, dest, sendtag, bits, source, recvtag)
        recvbuf[...] = bfloat16_values(bits)


def _synchronized(bits):
    """bits, once a GPU has done everything that is queued for it: MPI does not know streams."""
    synchronize(bits)
    return bits


def ring_on_ranks(comm: Comm, ranks: Sequence[int], wire: str | None = None) -> Allreduce:
    """A ring over `ranks`, which has this rank in it and is the same list on all of them.

    Groups without a common rank may call at the same time.
    """
    rank, size, scratch = comm.Get_rank(), len(ranks), {}
    if wire not in (None, "bfloat16"):
        raise ValueError(
            f"ring_on_ranks on rank {rank}: got wire {wire!r}; wanted None or 'bfloat16'; "
            "next: for NumPy's types use collective(comm, ring.allreduce, wire)"
        )
    if rank not in ranks:
        raise ValueError(
            f"ring_on_ranks on rank {rank}: got ranks {list(ranks)}; wanted this one included; "
            "next: give each rank the group that it is in"
        )
    place, carrier = list(ranks).index(rank), Bfloat16Comm(comm) if wire else comm

    @functools.lru_cache(maxsize=64)
    def schedule(n: int):
        return on_ranks(ranks, ring.allreduce(place, size, n))

    def allreduce(x) -> None:
        require_flat(x, "ring_on_ranks", rank)
        if wire and x.dtype.itemsize < 4:
            raise ValueError(
                f"ring_on_ranks on rank {rank}: got {x.dtype}; wanted float32 or float64 for "
                "bfloat16 on the wire; next: pass x.astype(np.float32), or wire=None"
            )
        execute(carrier, schedule(x.size), x, scratch=scratch)
        if wire:
            round_to_bfloat16(x)

    return allreduce
