"""Allreduce through memory that the ranks of one node share; nothing is sent.

    with SharedMemory(comm) as allreduce:
        x = allreduce.zeros(n)          an array in shared memory, summed without copies
        allreduce(x)

A message between two ranks of a node is a copy too, with a call on either side. Here a rank copies
a segment of its vector into its own row of the shared memory, sums one slice of all rows in rank
order, and copies the other slices' sums from their owners. Three segments are in flight, with one
barrier for all three phases:

    write   my row       <- segment of x         | s0 | s1 | s2 |    |    |
    sum     my result    <- my slice of all rows |    | s0 | s1 | s2 |    |
    read    segment of x <- all ranks' results   |    |    | s0 | s1 | s2 |
                                                      ^    ^    ^    ^    barriers

Two rows are used in turn: what is written now is read after the next barrier, and overwritten only
after one more. A short vector is summed completely by every rank, which needs a single barrier. Its
rows are elsewhere, close together, because if many ranks share a core, every page that is touched
costs more than the arithmetic on it.

An array of `zeros` is in shared memory itself, so nothing is copied: after a barrier every rank
sums its slice of all ranks' arrays, writes the sum into all of them, and waits once more.
Each barrier compares what the ranks submit; ranks that submit different arrays raise an error.

The order of summation is that of `direct`, ranks 0, 1, ..., p-1, so the bits are those of
`direct.py` on all ranks, with a wire type too, for every length of a segment.

Cost per rank for n elements: no messages; segments + 1 barriers (1 for a short vector), where
segments = ceil(bytes / segment_bytes). About 5n elements cross memory (2n read and written, n read
to be summed), and (p + 3)n for a short vector; a ring of messages, copied in and out, moves about
11n. An array of `zeros`: 2 barriers, n elements read and n written. Shared memory per rank:
2 segment_bytes (1 + 1/p) + 2 short_bytes, and the arrays of `zeros`. CPU memory only.

Calls must not overlap. A waiting rank makes no MPI progress, so a peer that still needs one of its
pending messages deadlocks.

Source: what MPI libraries do inside a node.
"""

import contextvars

import numpy as np
from numpy.typing import DTypeLike

from refgf.comm.agreement import agree
from refgf.comm.arguments import Comm, rank_and_size, require_flat, wire_type
from refgf.comm.slices import length, slices
from refgf.engine.half import add, cache_blocks, cast, rounded
from refgf.engine.node_memory import LINES_BYTES, NodeMemory, whole

MEMORY_BYTES = (
    6 << 20
)  # a segment of every rank; with rows and results 14 MiB fit many CPUs' caches
SHORT_BYTES = 64 << 10
MOST_PREPARED = 4096  # lengths of short vectors; 1 KB each


class SharedMemory:
    """An `Allreduce` for ranks that share memory, and a context manager that frees the memory.

    Collective, as are `zeros` and `close`.
    """

    def __init__(
        self,
        comm: Comm,
        wire=None,
        segment_bytes: int | None = None,
        short_bytes: int = SHORT_BYTES,
    ) -> None:
        self.rank, self.size = rank_and_size(comm, "SharedMemory")
        self.wire = wire_type(wire, "SharedMemory", self.rank)
        self._memory = NodeMemory(comm)
        try:
            settings = f"wire {wire}, segment_bytes {segment_bytes}, short_bytes {short_bytes}"
            agree(self._memory.node, "SharedMemory", settings)
            given = MEMORY_BYTES // self.size if segment_bytes is None else segment_bytes
            self.segment_bytes = given // 8 * 8
            self.short_bytes = min(short_bytes, self.segment_bytes)
            if self.segment_bytes < 8:
                raise ValueError(
                    f"SharedMemory on rank {self.rank}: got segments of {segment_bytes} bytes; "
                    "wanted 8 or more; next: leave segment_bytes out"
                )
            self._allocate()
        except ValueError:
            self._memory.free()
            raise
        self._typed = {}  # dtype -> (rows, results) in the wire type
        self._prepared = {}  # (n, dtype) -> both turns' (message, rows, own row) of a short vector
        self._arrays = []  # (p, bytes): those of `zeros`
        self._turn, self._message, self._busy = 0, 0, False
        self._quiet = contextvars.copy_context()  # ignores overflow; np.errstate is slower
        self._quiet.run(np.seterr, all="ignore")

    def _allocate(self) -> None:
        row = whole(self.segment_bytes)
        result = whole(-(-self.segment_bytes // self.size) + 8)
        memory = self._memory.allocate(2 * (row + result))  # (p, bytes), like all its parts
        self._rows = [memory[:, i * row : (i + 1) * row] for i in range(2)]
        self._results = [memory[:, 2 * row + i * result :][:, :result] for i in range(2)]
        short = self._memory.allocate(2 * whole(max(1, self.short_bytes)))
        self._short_rows = short.reshape(2, -1)

    def __call__(self, x) -> None:
        """Sum x (n,) over all ranks, in place."""
        require_flat(x, "SharedMemory", self.rank)
        if not isinstance(x, np.ndarray):
            raise ValueError(
                f"SharedMemory on rank {self.rank}: got an array on a GPU; wanted one of NumPy; "
                "next: use ring_allreduce"
            )
        if self._busy:
            self._require_open()
        self._busy = True
        if prepared := self._prepared.get((x.size, x.dtype)):
            self._quiet.run(self._short, x, *prepared[self._turn])
        else:
            self._quiet.run(self._unprepared, x, self.wire or x.dtype)
        self._busy = False

    def zeros(self, n: int, dtype: DTypeLike = np.float32) -> np.ndarray:
        """Zeros (n,) in shared memory, which are summed without copies. n and dtype agree.

        In one call all ranks pass the same slice of it. After `close` reading it is a SIGSEGV.
        """
        self._require_open()
        nbytes = n * np.dtype(dtype).itemsize
        agree(self._memory.node, "SharedMemory.zeros", f"{n} of {np.dtype(dtype)}")
        self._arrays.append(self._memory.allocate(whole(nbytes))[:, :nbytes])
        return self._arrays[-1][self.rank].view(dtype)

    def close(self) -> None:
        """Free the memory. A second call does nothing."""
        self._rows = self._results = self._short_rows = None
        self._typed, self._prepared, self._arrays = {}, {}, []
        self._busy = True  # refuses every later call
        self._memory.free()

    def __enter__(self) -> "SharedMemory":
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if kind is None:  # after an error other ranks may not close, and would be waited for
            self.close()

    def barrier(self) -> None:
        """Wait for all ranks; ValueError on all of them if they submitted different arrays."""
        if not self._memory.barrier(self._message):
            self._busy = False  # all ranks stop here
            raise ValueError(
                f"SharedMemory on rank {self.rank}: got another array than other ranks; wanted the "
                "same length and type, and the same slice of a `zeros` array; "
                "next: print x.shape and x.dtype on all ranks"
            )

    def _require_open(self) -> None:
        if self._rows is None:
            raise ValueError(
                f"SharedMemory on rank {self.rank}: got a call after close(); wanted none; "
                "next: make a new one"
            )
        if self._busy:
            raise ValueError(
                f"SharedMemory on rank {self.rank}: got a call while another is in flight or was "
                "interrupted, so ranks may be at different barriers; wanted one at a time; "
                "next: close() on all ranks, and make a new one"
            )

    def _unprepared(self, x, wire) -> None:
        """A long vector, or a short one of a new length, whose views are prepared and stored."""
        if x.dtype not in self._typed:
            pairs = self._rows, self._results
            self._typed[x.dtype] = [[memory.view(wire) for memory in pair] for pair in pairs]
        short = x.size * wire.itemsize <= self.short_bytes
        place = () if short or wire != x.dtype else self._place(x)
        self._message = hash((x.nbytes, x.dtype.num, place))
        if short:  # rows (p, n) on few pages, each in cache lines of its own
            stride = whole(x.size * wire.itemsize, LINES_BYTES)
            prepared = []
            for memory in self._short_rows:
                rows = memory[: self.size * stride].reshape(self.size, stride).view(wire)
                rows = rows[:, : x.size]
                prepared.append((self._message, rows, rows[self.rank]))
            if len(self._prepared) < MOST_PREPARED:
                self._prepared[x.size, x.dtype] = prepared
            self._short(x, *prepared[self._turn])
        elif place:
            self._in_place(x, *place)
        else:
            self._long(x, *self._typed[x.dtype])

    def _short(self, x, message, rows, mine) -> None:
        self._message = message
        cast(x, mine)
        self.barrier()
        add_up(rows, x)
        if mine.dtype != x.dtype:
            rounded(x, mine.dtype, out=x)
        self._turn = 1 - self._turn  # a slow rank may still read these rows

    def _long(self, x, rows, results) -> None:
        elements = self.segment_bytes // rows[0].itemsize
        segments = [x[start : start + elements] for start in range(0, x.size, elements)]
        parts = [slices(segment.size, self.size) for segment in segments]
        for s in range(len(segments) + 2):
            turn = s % 2
            if s < len(segments):
                cast(segments[s], rows[turn][self.rank][: segments[s].size])
            if 1 <= s <= len(segments):
                own = parts[s - 1][self.rank]
                self._sum(segments[s - 1], own, rows[1 - turn], results[1 - turn])
            if s >= 2:
                for part, result in zip(parts[s - 2], results[turn], strict=True):
                    cast(result[: length(part)], segments[s - 2][part])
            if s <= len(segments):
                self.barrier()

    def _sum(self, segment, own, rows, results) -> None:
        """My result <- the sum of my slice of all rows, formed in the segment for a wire type."""
        result = results[self.rank][: length(own)]
        total = result if result.dtype == segment.dtype else segment[own]
        add_up(rows[:, own], total)
        if total is not result:
            cast(total, result)

    def _place(self, x) -> tuple:
        """(number of the `zeros` array that x is a slice of, its first byte), or ()."""
        for number, rows in enumerate(self._arrays):
            start = _address(x) - _address(rows[self.rank])
            if 0 <= start <= rows[self.rank].nbytes - x.nbytes:
                return number, start
        return ()

    def _in_place(self, x, number: int, start: int) -> None:
        arrays = self._arrays[number][:, start : start + x.nbytes].view(x.dtype)  # (p, n)
        own = arrays[:, slices(x.size, self.size)[self.rank]]
        self.barrier()
        for block in cache_blocks(own[0]):
            total = np.empty(length(block), x.dtype)
            add_up(own[:, block], total)
            own[:, block] = total
        self.barrier()


def add_up(terms: list[np.ndarray], total: np.ndarray) -> None:
    """total <- ((t0 + t1) + t2) + ..., (p, n) -> (n,), each term widened to the total's type."""
    # NumPy adds single elements in another order
    if terms.dtype == total.dtype and total.size != 1:
        # -0.0 changes nothing, whereas 0.0 would turn -0.0 into 0.0
        np.add.reduce(terms, axis=0, out=total, initial=-0.0)
        return
    cast(terms[0], total)
    for term in terms[1:]:
        add(term, total)


def _address(x) -> int:
    return x.__array_interface__["data"][0]
