"""Allreduce through memory that the ranks of one node share: what one has written all can read, and nothing is sent.

A message between two ranks of a node is a copy too, and a call on either side. Here a rank copies a piece of its vector
into its own row of a memory that all of them see, sums one slice of all rows in rank order, and copies the other slices'
sums from where their owners have put them. Three pieces are under way, so that there is one barrier for each:

    write   my row      <- piece of x           | b0 | b1 | b2 |    |    |
    sum     my result   <- my slice of all rows |    | b0 | b1 | b2 |    |
    read    piece of x  <- everybody's results  |    |    | b0 | b1 | b2 |
                                                     ^    ^    ^    ^    barriers

Two rows take turns: what is written now is read after the next barrier, and overwritten only after one more. Of a short
vector every rank sums all of it itself, which needs a single barrier; its rows lie elsewhere, close together: where many
ranks share a core each page that is touched costs more than what is done with it.

An array that `zeros` has made lies in such memory itself, and nothing is copied: after a barrier every rank sums its slice
of all ranks' arrays, writes the sum into all of them, and waits once more. `pool.swap(allreduce.zeros(n))` puts gradients
there. With the barrier goes a number that says what this rank sums: ranks that pass different ones are refused.

The sums are formed as `direct` forms them, over ranks 0, 1, ..., p-1, so the bits are those of direct.py, with a wire type
too: whatever the size of a piece, and on all ranks.

Cost per rank for n elements: no messages; pieces + 1 barriers (1 for a short vector), pieces = ceil(bytes / piece_bytes);
through memory about 5n elements (2n read and written, n read to be summed) where a ring of messages, copied in and out,
takes about 11n; of a short vector (p + 3)n. An array of `zeros`: 2 barriers, n read and n written. Shared memory: 2
piece_bytes (1 + 1/p) + 2 short_bytes a rank, and those arrays. In CPU memory only. One call at a time; who waits in one does
not make MPI progress: a message that this rank has begun, and another needs before it calls, may wait for ever.

Source: what MPI libraries do inside a node; the memory is that of MPI 3's shared windows.
"""

import contextvars
import os
import sys
import time

import numpy as np

from refgf.comm.agreement import agree
from refgf.comm.schedule import require_flat
from refgf.comm.slices import length, slices
from refgf.engine.half import add, blocks, cast, rounded

MEMORY_BYTES = 6 << 20  # one piece of every rank together: with two rows and results 14 MiB (p = 8), in many a CPU's cache
SHORT_BYTES = 64 << 10
PAGE_BYTES, LINES_BYTES, FOLDER = 4096, 128, "/dev/shm"  # lines: processors fetch two together
SAID_BITS = 24  # of a barrier's number: one mistake in 17 million is not seen; the other 39 count, for months
MOST_PREPARED = 4096  # lengths of short vectors; 1 KB each
POLLS, NAP_S = 1000, 50e-6  # who waits asks so often, lending its core to others in between, and then sleeps in between
lend_core = getattr(os, "sched_yield", lambda: time.sleep(0))


class SharedMemory:
    """An `Allreduce` for ranks that share memory. Collective, as `zeros` is, and `close`, which gives the memory back."""

    def __init__(self, comm, wire=None, piece_bytes: int | None = None, short_bytes: int = SHORT_BYTES) -> None:
        self.rank, self.size, self.wire = comm.Get_rank(), comm.Get_size(), wire and np.dtype(wire)
        self._memory = Memory(_node(comm))
        try:
            agree(self._memory.node, "SharedMemory", f"wire {wire}, piece_bytes {piece_bytes}, short_bytes {short_bytes}")
            self.piece_bytes = (MEMORY_BYTES // self.size if piece_bytes is None else piece_bytes) // 8 * 8
            self.short_bytes = min(short_bytes, self.piece_bytes)
            if self.piece_bytes < 8:
                raise ValueError(f"SharedMemory on rank {self.rank}: got pieces of {piece_bytes} bytes; wanted 8 or more")
            row, result = _whole(self.piece_bytes), _whole(-(-self.piece_bytes // self.size) + 8)
            parts = self._memory.allocate(2 * (row + result))  # (p, bytes), as what it is cut into
            self._short_rows = self._memory.allocate(2 * _whole(max(1, self.short_bytes))).reshape(2, -1)
        except ValueError:
            self._memory.free()
            raise
        self._rows = [parts[:, i * row : (i + 1) * row] for i in range(2)]
        self._results = [parts[:, 2 * row + i * result :][:, :result] for i in range(2)]
        self._typed, self._prepared, self._lent, self._turn, self._said, self._busy = {}, {}, [], 0, 0, False
        self._quiet = contextvars.copy_context()  # too large becomes inf, too small 0; np.errstate costs more
        self._quiet.run(np.seterr, all="ignore")

    def __call__(self, x) -> None:
        require_flat(x, "SharedMemory", self.rank)
        if not isinstance(x, np.ndarray):
            raise ValueError(f"SharedMemory on rank {self.rank}: got an array on a GPU; wanted one of NumPy; "
                             "next: use ring.allreduce")  # fmt: skip
        if self._busy:
            self._require_open()
        self._busy = True
        if prepared := self._prepared.get((x.size, x.dtype)):
            self._quiet.run(self._short, x, *prepared[self._turn])
        else:
            self._quiet.run(self._unprepared, x, self.wire or x.dtype)
        self._busy = False

    def zeros(self, n: int, dtype=np.float32) -> np.ndarray:
        """Zeros (n,) in shared memory, to be summed without copies; the same n and dtype on all ranks.

        In one call all ranks pass the same part of it. It goes with `close`: who reads it then ends with SIGSEGV.
        """
        self._require_open()
        nbytes = n * np.dtype(dtype).itemsize
        agree(self._memory.node, "SharedMemory.zeros", f"{n} of {np.dtype(dtype)}")
        self._lent.append(self._memory.allocate(_whole(nbytes))[:, :nbytes])
        return self._lent[-1][self.rank].view(dtype)

    def close(self) -> None:
        self._rows, self._results, self._short_rows, self._typed, self._prepared, self._lent = None, None, None, {}, {}, []
        self._busy = True  # for good
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

    def _unprepared(self, x, wire) -> None:
        """A long vector, or a short one that is the first of its length: a few microseconds' work is kept for the others."""
        if x.dtype not in self._typed:
            self._typed[x.dtype] = [[memory.view(wire) for memory in both] for both in (self._rows, self._results)]
        short = x.size * wire.itemsize <= self.short_bytes
        place = () if short or wire != x.dtype else self._place(x)
        self._said = hash((x.nbytes, x.dtype.num, place))
        if short:  # rows (p, n) on as few pages as there can be, each in cache lines of its own
            stride = _whole(x.size * wire.itemsize, LINES_BYTES)
            both = [memory[: self.size * stride].reshape(self.size, stride).view(wire) for memory in self._short_rows]
            prepared = [(self._said, rows[:, : x.size], rows[self.rank, : x.size]) for rows in both]
            if len(self._prepared) < MOST_PREPARED:
                self._prepared[x.size, x.dtype] = prepared
            self._short(x, *prepared[self._turn])
        elif place:
            self._in_place(x, *place)
        else:
            self._long(x, *self._typed[x.dtype])

    def _short(self, x, said, rows, mine) -> None:
        self._said = said
        cast(x, mine)
        self.barrier()
        add_up(rows, x)
        if mine.dtype != x.dtype:
            rounded(x, mine.dtype, out=x)
        self._turn = 1 - self._turn  # who is slow may still read

    def _long(self, x, rows, results) -> None:
        elements = self.piece_bytes // rows[0].itemsize
        pieces = [x[start : start + elements] for start in range(0, x.size, elements)]
        parts = [slices(piece.size, self.size) for piece in pieces]
        for b in range(len(pieces) + 2):
            turn = b % 2
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
        add_up(rows[:, own], total)
        if total is not result:
            cast(total, result)

    def _place(self, x) -> tuple:
        """(which array that `zeros` has made x is part of, from which byte on), or ()."""
        for number, parts in enumerate(self._lent):
            start = _address(x) - _address(parts[self.rank])
            if 0 <= start <= parts[self.rank].nbytes - x.nbytes:
                return number, start
        return ()

    def _in_place(self, x, number: int, start: int) -> None:
        everybody = self._lent[number][:, start : start + x.nbytes].view(x.dtype)  # (p, n)
        own = everybody[:, slices(x.size, self.size)[self.rank]]
        self.barrier()
        for block in blocks(own[0]):
            total = np.empty(length(block), x.dtype)
            add_up(own[:, block], total)
            own[:, block] = total
        self.barrier()


class Memory:
    """What the ranks of a node share, and a barrier in it.

    A barrier is a number that each rank counts up in this memory, and looks at the others' until they are as far: where
    ranks share cores that takes less than half of the time of MPI's own. `Sync` keeps what was written and read before the
    number before it. The number's lower bits are what the rank says; it has two places, in turn, as who is slow may still
    look at the last one. Threads share their memory anyway, and have a barrier that notices when all of them wait.
    """

    def __init__(self, node) -> None:
        self.node, self.windows = node, []
        self._threads = not type(node).__module__.startswith("mpi4py")
        if not self._threads:
            counts = [memoryview(row[:16]).cast("q") for row in self.allocate(LINES_BYTES)]
            self.count, self.own, self.others = 0, counts[node.rank], counts[node.rank + 1 :] + counts[: node.rank]
            self.windows[0].Lock_all()

    def allocate(self, nbytes: int) -> np.ndarray:
        """Zeros (p, nbytes) that all ranks see, of bytes: a row for each. Collective."""
        size, rank = self.node.Get_size(), self.node.Get_rank()
        if self._threads:
            return self.node.bcast(None if rank else np.zeros((size, nbytes), np.uint8))
        self._require_room(nbytes * size)
        window = sys.modules["mpi4py.MPI"].Win.Allocate_shared(0 if rank else nbytes * size, 1, comm=self.node)
        self.windows.append(window)
        rows = np.frombuffer(window.Shared_query(0)[0], np.uint8).reshape(size, nbytes)
        rows[rank] = 0  # by its own rank: near to its processor (not so short rows)
        self.node.Barrier()
        return rows

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


def add_up(terms, total) -> None:
    """total <- (((t0 + t1) + t2) + ...), (p, n) -> (n,), each term widened to the type of the total."""
    if terms.dtype == total.dtype and total.size != 1:  # NumPy adds up single numbers in another order
        np.add.reduce(terms, axis=0, out=total, initial=-0.0)  # which changes nothing, where 0.0 makes -0.0 a 0.0
        return
    cast(terms[0], total)
    for term in terms[1:]:
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


def _whole(nbytes: int, unit: int = PAGE_BYTES) -> int:
    """Up to whole pages, or pairs of lines: rows of different ranks never share a cache line."""
    return -(-nbytes // unit) * unit
