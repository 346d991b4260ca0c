"""Allreduce through memory that the ranks of one node share: what one has written all can read, and nothing is sent.

A message between two ranks of a node is a copy too, and a call on either side. Here a rank copies a piece of its vector
into its own row of a memory that all of them see, sums one slice of all rows in rank order, and copies the other slices'
sums from where their owners have put them. Three pieces are under way, so that there is one barrier for each:

    write   my row      <- piece of x           | b0 | b1 | b2 |    |    |
    sum     my result   <- my slice of all rows |    | b0 | b1 | b2 |    |
    read    piece of x  <- everybody's results  |    |    | b0 | b1 | b2 |
                                                     ^    ^    ^    ^    barriers

Two rows take turns: what is written now is read after the next barrier, and overwritten only after one more. Of a short
vector every rank sums all of it itself, which needs a single barrier.

An array that `zeros` has made lies in such memory itself, and nothing is copied: after a barrier every rank sums its slice
of all ranks' arrays, writes the sum into all of them, and waits once more. `pool.swap(allreduce.zeros(n))` puts gradients
there. With the barrier goes a number that says what this rank sums: ranks that pass different ones are refused.

The sums are formed as `direct` forms them, over ranks 0, 1, ..., p-1, so the bits are those of direct.py, with a wire type
too: whatever the size of a piece, and on all ranks.

Cost per rank for n elements: no messages; pieces + 1 barriers (1 for a short vector), pieces = ceil(bytes / piece_bytes);
through memory about 5n elements (2n read and written, n read to be summed) where a ring of messages, copied in and out,
takes about 11n; of a short vector (p + 3)n. An array of `zeros`: 2 barriers, n read and n written. Shared memory: 2
piece_bytes (1 + 1/p) a rank, and those arrays. In CPU memory only. One call at a time; who waits in one does not make MPI
progress: a message that this rank has begun, and another needs before it calls, may wait for ever.

Source: what MPI libraries do inside a node; the memory is that of MPI 3's shared windows.
"""

import os
import sys
import time

import numpy as np

from refgf.comm.agreement import agree
from refgf.comm.schedule import require_flat
from refgf.comm.slices import length, slices
from refgf.device import is_device
from refgf.half import add, blocks, cast, rounded

MEMORY_BYTES = 6 << 20  # one piece of every rank together: with two rows and results 14 MiB (p = 8), in many a CPU's cache
SHORT_BYTES = 64 << 10
PAGE_BYTES, FOLDER = 4096, "/dev/shm"
SAID_BITS = 24  # of a barrier's number: one mistake in 17 million is not seen; the other 39 count, for months
POLLS, NAP_S = 1000, 50e-6  # who waits asks so often, lending its core to others in between, and then sleeps in between
lend_core = getattr(os, "sched_yield", lambda: time.sleep(0))


class SharedMemory:
    """An `Allreduce` for ranks that share memory. Collective, as `zeros` is, and `close`, which gives the memory back."""

    def __init__(self, comm, wire=None, piece_bytes: int | None = None, short_bytes: int = SHORT_BYTES) -> None:
        self.rank, self.size, self.wire = comm.Get_rank(), comm.Get_size(), wire
        self._memory = Memory(_node(comm))
        try:
            agree(self._memory.node, "SharedMemory", f"wire {wire}, piece_bytes {piece_bytes}, short_bytes {short_bytes}")
            self.piece_bytes = (MEMORY_BYTES // self.size if piece_bytes is None else piece_bytes) // 8 * 8
            self.short_bytes = min(short_bytes, self.piece_bytes)
            if self.piece_bytes < 8:
                raise ValueError(f"SharedMemory on rank {self.rank}: got pieces of {piece_bytes} bytes; wanted 8 or more")
            row, result = _whole(self.piece_bytes), _whole(-(-self.piece_bytes // self.size) + 8)
            parts = self._memory.allocate(2 * (row + result))
        except ValueError:
            self._memory.free()
            raise
        self._rows = [[part[i * row : (i + 1) * row] for part in parts] for i in range(2)]
        self._results = [[part[2 * row + i * result :][:result] for part in parts] for i in range(2)]
        self._typed, self._lent, self._turn, self._said, self._busy = {}, [], 0, 0, False

    def __call__(self, x) -> None:
        require_flat(x, "SharedMemory", self.rank)
        if is_device(x):
            raise ValueError(f"SharedMemory on rank {self.rank}: got an array on a GPU; wanted one of NumPy; "
                             "next: use ring.allreduce")  # fmt: skip
        self._require_open()
        wire = np.dtype(self.wire or x.dtype)
        if wire not in self._typed:
            self._typed[wire] = [[_as(wire, parts) for parts in both] for both in (self._rows, self._results)]
        rows, results = self._typed[wire]
        short = x.size * wire.itemsize <= self.short_bytes
        place = self._place(x) if wire == x.dtype and not short else None
        self._said, self._busy = hash((x.nbytes, x.dtype.num, *(place or ()))), True
        with np.errstate(over="ignore", invalid="ignore"):  # a number too large for the wire type travels as inf
            if short:
                self._short(x, rows[self._turn])
            elif place:
                self._in_place(x, *place)
            else:
                self._long(x, rows, results)
        self._busy = False

    def zeros(self, n: int, dtype=np.float32) -> np.ndarray:
        """Zeros (n,) in shared memory, to be summed without copies; the same n and dtype on all ranks.

        In one call all ranks pass the same part of it. It goes with `close`: who reads it then ends with SIGSEGV.
        """
        self._require_open()
        nbytes = n * np.dtype(dtype).itemsize
        agree(self._memory.node, "SharedMemory.zeros", f"{n} of {np.dtype(dtype)}")
        self._lent.append([part[:nbytes] for part in self._memory.allocate(_whole(nbytes))])
        return self._lent[-1][self.rank].view(dtype)

    def close(self) -> None:
        self._rows, self._results, self._typed, self._lent = None, None, {}, []
        self._memory.free()

    def barrier(self) -> None:
        if not self._memory.barrier(self._said):
            self._busy = False  # all ranks stop here
            raise ValueError(
                f"SharedMemory on rank {self.rank}: got another array than other ranks; wanted the same length and type, and "
                "the same part of a `zeros` array; next: print x.shape and x.dtype on all ranks"
            )

    def _require_open(self) -> None:
        if self._rows is None:
            raise ValueError(f"SharedMemory on rank {self.rank}: got a call after close(); wanted none; next: make a new one")
        if self._busy:
            raise ValueError(
                f"SharedMemory on rank {self.rank}: got a call while another is under way or was interrupted: ranks "
                "may meet at different places; wanted one at a time; next: close() on all ranks, and make a new one"
            )

    def _short(self, x, rows) -> None:
        n = x.size
        cast(x, rows[self.rank][:n])
        self.barrier()
        add_up([row[:n] for row in rows], x)
        if rows[0].dtype != x.dtype:
            rounded(x, rows[0].dtype, out=x)
        self._turn = 1 - self._turn  # who is slow may still read

    def _long(self, x, rows, results) -> None:
        elements = self.piece_bytes // rows[0][0].itemsize
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
                self.barrier()

    def _sum(self, piece, own, rows, results) -> None:
        """My result <- the sum over all rows of my slice; formed in the piece where the wire type is too short for it."""
        result = results[self.rank][: length(own)]
        total = result if result.dtype == piece.dtype else piece[own]
        add_up([row[own] for row in rows], total)
        if total is not result:
            cast(total, result)

    def _place(self, x) -> tuple[int, int] | None:
        """(which array that `zeros` has made x is part of, from which byte on), if it is."""
        for number, parts in enumerate(self._lent):
            start = _address(x) - _address(parts[self.rank])
            if 0 <= start <= parts[self.rank].nbytes - x.nbytes:
                return number, start
        return None

    def _in_place(self, x, number: int, start: int) -> None:
        everybody = [part[start : start + x.nbytes].view(x.dtype) for part in self._lent[number]]
        own = slices(everybody[0].size, self.size)[self.rank]
        parts = [x[own] for x in everybody]
        self.barrier()
        for block in blocks(parts[0]):
            total = np.empty(length(block), parts[0].dtype)
            add_up([part[block] for part in parts], total)
            for part in parts:
                part[block] = total
        self.barrier()


class Memory:
    """What the ranks of a node share, and a barrier in it.

    A barrier is a number that each rank counts up in this memory, and looks at the others' until they are as far: where
    ranks share cores that takes a fifth of the time of MPI's own. `Sync` keeps what was written and read before the number
    before it. The number's lower bits are what the rank says; it has two places, in turn, as who is slow may still look at
    the last one. Threads share their memory anyway, and have a barrier that notices when all of them wait.
    """

    def __init__(self, node) -> None:
        self.node, self.windows = node, []
        self._threads = not type(node).__module__.startswith("mpi4py")
        if not self._threads:
            counts = [memoryview(part[:16]).cast("q") for part in self.allocate(PAGE_BYTES)]
            self.count, self.own, self.others = 0, counts[node.rank], counts[node.rank + 1 :] + counts[: node.rank]
            self.windows[0].Lock_all()

    def allocate(self, nbytes: int) -> list[np.ndarray]:
        """One array of bytes for each rank, zeros, that all ranks see. Collective."""
        if self._threads:
            return self.node.allgather(np.zeros(nbytes, np.uint8))
        self._require_room(nbytes * self.node.size)
        window = sys.modules["mpi4py.MPI"].Win.Allocate_shared(nbytes, 1, comm=self.node)
        self.windows.append(window)
        parts = [np.frombuffer(window.Shared_query(rank)[0], np.uint8) for rank in range(self.node.size)]
        parts[self.node.rank][:] = 0
        self.node.Barrier()
        return parts

    def _require_room(self, nbytes: int) -> None:
        """MPI takes this memory from /dev/shm, and a full one ends a process by SIGBUS, without a word."""
        if not os.path.isdir(FOLDER):
            return
        status = os.statvfs(FOLDER)
        free = self.node.bcast(status.f_bavail * status.f_frsize)  # all ranks on the same side of the limit
        if nbytes > free:
            raise ValueError(
                f"SharedMemory on rank {self.node.rank}: got {nbytes} bytes for the ranks of this node; wanted at most what "
                f"{FOLDER} has free, {free}; next: docker run --shm-size=<more>, or use ring.allreduce"
            )

    def barrier(self, said: int = 0) -> bool:
        """Wait for all ranks. Have all of them said the same?"""
        if self._threads:
            return len(set(self.node.allgather(said))) == 1
        self.count += 1
        slot, least = self.count % 2, self.count << SAID_BITS
        mine, agreed = least | said % (1 << SAID_BITS), True
        self.windows[0].Sync()
        self.own[slot] = mine
        for other in self.others:
            polls = 0
            while (theirs := other[slot]) < least:
                polls += 1
                lend_core() if polls < POLLS else time.sleep(NAP_S)
            agreed = agreed and theirs == mine
        self.windows[0].Sync()
        return agreed

    def free(self) -> None:
        if self.windows:
            self.windows[0].Unlock_all()
        while self.windows:
            self.windows.pop().Free()
        if self.node:
            self.node.Free()
        self.node = None


def add_up(terms: list, total) -> None:
    """total <- (((t0 + t1) + t2) + ...), each term widened to the type of the total."""
    first, *rest = terms
    if rest and first.dtype == total.dtype:
        np.add(first, rest.pop(0), out=total)
    else:
        cast(first, total)
    for term in rest:
        add(term, total)


def share_memory(comm) -> bool:
    """Can all ranks see the same memory? Collective."""
    if not hasattr(comm, "Split_type"):
        return False
    node = _split(comm)
    here = node.Get_size()
    node.Free()
    return here == comm.Get_size()


def _node(comm):
    """A communicator of these ranks that has shared memory; ValueError where they do not share a node."""
    if not share_memory(comm):
        raise ValueError(
            f"SharedMemory on rank {comm.Get_rank()}: got a {type(comm).__name__} of {comm.Get_size()} ranks that do not share "
            "memory; wanted one of MPI, its ranks on one node; next: use hierarchical.py between nodes, or the ring"
        )
    return _split(comm)


def _split(comm):
    mpi = sys.modules.get("mpi4py.MPI")
    return comm.Split_type(mpi.COMM_TYPE_SHARED if mpi else 0)


def _address(x) -> int:
    return x.__array_interface__["data"][0]


def _as(dtype, parts: list) -> list:
    return [part.view(dtype) for part in parts]


def _whole(nbytes: int) -> int:
    """Up to whole pages: rows of different ranks, or types, never share a cache line."""
    return -(-nbytes // PAGE_BYTES) * PAGE_BYTES
