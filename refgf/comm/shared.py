"""Allreduce through memory that the ranks of one node share: what one has written all can read, and nothing is sent.

A message between two ranks of a node is a copy too, and a call on either side. Here a rank copies a block of its vector
into its own row of a memory that all of them see, sums one slice of all rows in rank order, and copies the other slices'
sums from where their owners have put them. Three blocks are under way, so that there is one barrier for each:

    write   my row     <- block of x            | b0 | b1 | b2 |    |    |
    sum     my result  <- my slice of all rows  |    | b0 | b1 | b2 |    |
    read    block of x <- everybody's results   |    |    | b0 | b1 | b2 |
                                                     ^    ^    ^    ^    barriers

Two rows take turns: what is written now is read after the next barrier, and overwritten only after one more. Of a short
vector every rank sums all of it itself, which needs a single barrier.

An array that `zeros` has made lies in such memory itself, and nothing is copied: after a barrier every rank sums its slice
of all ranks' arrays, writes the sum into all of them, and waits once more. `pool.swap(allreduce.zeros(n))` puts gradients there.

The sums are formed as `direct` forms them, over ranks 0, 1, ..., p-1, so the bits are those of direct.py, with a wire type
too: whatever the size of a block, and on all ranks.

Cost per rank for n elements: no messages; blocks + 1 barriers (1 for a short vector, none for n = 0), blocks =
ceil(bytes / block_bytes); through memory about 5n elements (2n read and written, n read to be summed) where a ring of
messages, copied in and out, takes about 11n. An array of `zeros`: 2 barriers, n read and n written. Shared memory: 2
block_bytes (1 + 1/p) a rank, and those arrays. In CPU memory only.

Source: what MPI libraries do inside a node; the memory is that of MPI 3's shared windows.
"""

import sys

import numpy as np

from refgf.comm.schedule import require_flat
from refgf.comm.slices import length, slices
from refgf.device import is_device
from refgf.half import add, blocks, cast, rounded

MEMORY_BYTES = 8 << 20  # of the blocks of all ranks together: inside a CPU's cache, and below a container's 64 MB
SHORT_BYTES = 64 << 10
PAGE_BYTES = 4096


class SharedMemory:
    """An `Allreduce` for ranks that share memory. Collective, as `close` is, which gives the memory back."""

    def __init__(self, comm, wire=None, block_bytes: int | None = None, short_bytes: int = SHORT_BYTES) -> None:
        self.rank, self.size, self.wire = comm.Get_rank(), comm.Get_size(), wire
        self.block_bytes = MEMORY_BYTES // self.size if block_bytes is None else block_bytes
        self.short_bytes = min(short_bytes, self.block_bytes)
        if self.block_bytes < 8:
            raise ValueError(f"SharedMemory on rank {self.rank}: got blocks of {self.block_bytes} bytes; wanted 8 or more")
        self.node = _node(comm)
        row, result = _whole(self.block_bytes), _whole(-(-self.block_bytes // self.size) + 8)
        self._windows, self._lent = [], []
        memory = self._allocate(2 * (row + result))
        self._rows = [[part[i * row : (i + 1) * row] for part in memory] for i in range(2)]
        self._results = [[part[2 * row + i * result :][:result] for part in memory] for i in range(2)]
        self._typed, self._turn = {}, 0

    def __call__(self, x) -> None:
        require_flat(x, "SharedMemory", self.rank)
        if is_device(x):
            raise ValueError(f"SharedMemory on rank {self.rank}: got an array on a GPU; wanted one of NumPy; "
                             "next: use ring.allreduce")  # fmt: skip
        wire = np.dtype(self.wire or x.dtype)
        if x.nbytes > self.short_bytes and wire == x.dtype and (everybody := self._everybody(x)):
            self._in_place(everybody)
            return
        if wire not in self._typed:
            self._typed[wire] = [[_as(wire, parts) for parts in both] for both in (self._rows, self._results)]
        rows, results = self._typed[wire]
        with np.errstate(over="ignore", invalid="ignore"):  # a number too large for the wire type travels as inf
            if x.size * wire.itemsize <= self.short_bytes:
                self._short(x, rows[self._turn])
            else:
                self._long(x, rows, results)

    def zeros(self, n: int, dtype=np.float32) -> np.ndarray:
        """Zeros (n,) in shared memory, to be summed without copies; the same n and dtype on all ranks. Collective."""
        nbytes = n * np.dtype(dtype).itemsize
        self._lent.append([part[:nbytes] for part in self._allocate(_whole(nbytes))])
        return self._lent[-1][self.rank].view(dtype)

    def close(self) -> None:
        """Afterwards neither this nor an array that `zeros` has made can be used."""
        self._rows, self._results, self._typed, self._lent = None, None, {}, []
        while self._windows:
            self._windows.pop().Free()

    def _allocate(self, nbytes: int) -> list:
        """One array of bytes for each rank, zeros, which all ranks see. Threads share their memory anyway."""
        if not type(self.node).__module__.startswith("mpi4py"):
            return self.node.allgather(np.zeros(nbytes, np.uint8))
        window = sys.modules["mpi4py.MPI"].Win.Allocate_shared(nbytes, 1, comm=self.node)
        self._windows.append(window)
        memory = [np.frombuffer(window.Shared_query(rank)[0], np.uint8) for rank in range(self.size)]
        memory[self.rank][:] = 0
        return memory

    def _everybody(self, x) -> list | None:
        """All ranks' arrays in x's place, if x is part of one that `zeros` has made."""
        address = x.ctypes.data
        for memory in self._lent:
            start = address - memory[self.rank].ctypes.data
            if 0 <= start <= memory[self.rank].nbytes - x.nbytes:
                return [part[start : start + x.nbytes].view(x.dtype) for part in memory]
        return None

    def _in_place(self, everybody: list) -> None:
        own = slices(everybody[0].size, self.size)[self.rank]
        parts = [x[own] for x in everybody]
        self.node.Barrier()
        for block in blocks(parts[0]):
            total = np.empty(length(block), parts[0].dtype)
            with np.errstate(over="ignore", invalid="ignore"):
                add_up([part[block] for part in parts], total)
            for part in parts:
                part[block] = total
        self.node.Barrier()

    def _short(self, x, rows) -> None:
        if x.size == 0:
            return
        n = x.size
        cast(x, rows[self.rank][:n])
        self.node.Barrier()
        add_up([row[:n] for row in rows], x)
        if rows[0].dtype != x.dtype:
            rounded(x, rows[0].dtype, out=x)
        self._turn = 1 - self._turn  # who is slow may still read

    def _long(self, x, rows, results) -> None:
        elements = self.block_bytes // rows[0][0].itemsize
        pieces = [x[start : start + elements] for start in range(0, x.size, elements)]
        parts = [slices(piece.size, self.size) for piece in pieces]
        for b in range(len(pieces) + 2):
            turn = (self._turn + b) % 2
            if b < len(pieces):
                cast(pieces[b], rows[turn][self.rank][: pieces[b].size])
            if 1 <= b <= len(pieces):
                self._sum(pieces[b - 1], parts[b - 1][self.rank], rows[1 - turn], results[1 - turn])
            if b >= 2:
                for part, result in zip(parts[b - 2], results[turn], strict=True):
                    cast(result[: length(part)], pieces[b - 2][part])
            if b <= len(pieces):
                self.node.Barrier()

    def _sum(self, block, own, rows, results) -> None:
        """My result <- the sum over all rows of my slice; formed in the block where the wire type is too short for it."""
        result = results[self.rank][: length(own)]
        total = result if result.dtype == block.dtype else block[own]
        add_up([row[own] for row in rows], total)
        if total is not result:
            cast(total, result)


def add_up(terms: list, total) -> None:
    """total <- (((t0 + t1) + t2) + ...), each term widened to the type of the total."""
    cast(terms[0], total)
    for term in terms[1:]:
        add(term, total)


def share_memory(comm) -> bool:
    """Can all ranks see the same memory? Collective."""
    return hasattr(comm, "Split_type") and _split(comm).Get_size() == comm.Get_size()


def _node(comm):
    """A communicator of these ranks that has shared memory; ValueError where they do not share a node."""
    wanted = "wanted a communicator of MPI whose ranks are on one node; next: use hierarchical.py between nodes, or the ring"
    if not hasattr(comm, "Split_type"):
        raise ValueError(f"SharedMemory on rank {comm.Get_rank()}: got a {type(comm).__name__}; {wanted}")
    node = _split(comm)
    if node.Get_size() != comm.Get_size():
        here, all_ranks = node.Get_size(), comm.Get_size()
        raise ValueError(f"SharedMemory on rank {comm.Get_rank()}: got {all_ranks} ranks, {here} of them here; {wanted}")
    return node


def _split(comm):
    mpi = sys.modules.get("mpi4py.MPI")
    return comm.Split_type(mpi.COMM_TYPE_SHARED if mpi else 0)


def _as(dtype, parts: list) -> list:
    return [part.view(dtype) for part in parts]


def _whole(nbytes: int) -> int:
    """Up to whole pages: rows of different ranks, or types, never share a cache line."""
    return -(-nbytes // PAGE_BYTES) * PAGE_BYTES
