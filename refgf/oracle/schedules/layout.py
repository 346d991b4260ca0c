"""Where a collective's inputs lie, which buffers are one memory, and which result is wanted.

    collective        input of rank r    wanted as output of rank r           in place
    allreduce         C chunks           chunk c of all ranks, summed         o = i
    reduce_scatter    p k chunks         chunk r k + c of all ranks, summed   o[c] = i[r k + c]
    allgather         k chunks           chunk c of rank q at q k + c         i[c] = o[r k + c]
    alltoall          p k chunks         chunk r k + c of rank q at q k + c   o = i

A file in place may leave the size of the buffer out that it does not name.
"""

from dataclasses import dataclass

from refgf.oracle.schedules.form import BUFFERS, Finding, Plan, Span

KNOWN = ("allreduce", "reducescatter", "allgather", "alltoall")


@dataclass(frozen=True)
class Layout:
    """collective: one of KNOWN, or "" if no value can be judged. total: chunks of the vector."""

    collective: str
    ranks: int
    total: int
    share: int  # k
    inplace: bool
    sizes: tuple[tuple[int, int, int], ...]

    def size(self, rank: int, buffer: str) -> int:
        """Chunks of a buffer, in place also of one that the file gives no size."""
        size = self.sizes[rank][BUFFERS.index(buffer)]
        if size or buffer == "s" or not self.inplace or not self.collective:
            return size
        short = {"reducescatter": "o", "allgather": "i"}.get(self.collective)
        return self.share if buffer == short else self.total

    def cell(self, rank: int, buffer: str, chunk: int) -> tuple[int, str, int]:
        """The memory of a chunk; two names of one memory give the same cell."""
        if not self.inplace or buffer == "s":
            return rank, buffer, chunk
        if self.collective == "allgather" and buffer == "i":
            return rank, "o", rank * self.share + chunk
        if self.collective == "reducescatter" and buffer == "o":
            return rank, "i", rank * self.share + chunk
        return rank, "o" if self.collective == "allgather" else "i", chunk

    def cells(self, span: Span) -> list[tuple[int, str, int]]:
        chunks = range(span.start, span.start + span.count)
        return [self.cell(span.rank, span.buffer, chunk) for chunk in chunks]

    def inputs(self) -> dict[tuple[int, str, int], tuple[int, int]]:
        """{cell: (rank, chunk)} of everything that a rank contributes."""
        count = self.share if self.collective == "allgather" else self.total
        return {
            self.cell(rank, "i", chunk): (rank, chunk)
            for rank in range(self.ranks)
            for chunk in range(count if self.collective else 0)
        }

    def wanted(self, rank: int) -> list[tuple[tuple[int, str, int], int, int]]:
        """(cell, chunk, ranks that are summed there, as bits) of each output."""
        everyone, k = (1 << self.ranks) - 1, self.share
        if self.collective == "allreduce":
            return [(self.cell(rank, "o", c), c, everyone) for c in range(self.total)]
        if self.collective == "reducescatter":
            return [(self.cell(rank, "o", c), rank * k + c, everyone) for c in range(k)]
        if not self.collective:
            return []
        first = rank * k if self.collective == "alltoall" else 0
        return [
            (self.cell(rank, "o", q * k + c), first + c, 1 << q)
            for q in range(self.ranks)
            for c in range(k)
        ]


def known_name(plan: Plan) -> str:
    """The collective as KNOWN writes it: reduce_scatter is reducescatter."""
    return plan.collective.replace("_", "").lower()


def layout(plan: Plan) -> tuple[Layout, list[Finding]]:
    """The layout of rank 0, and what other ranks have that does not fit it."""
    p, name = len(plan.ranks), known_name(plan)
    sizes = [(i, o) for i, o, _ in plan.sizes]
    short = {"reducescatter": 1, "allgather": 0}.get(name)
    if short is None:
        totals = [max(pair) for pair in sizes]
    else:
        totals = [pair[1 - short] or p * pair[short] for pair in sizes]
    known = name in KNOWN and min(totals) > 0
    total = max(totals)
    found = []
    for rank, other in enumerate(totals):
        if known and other != totals[0]:
            text = f"got a vector of {other} chunks; wanted {totals[0]}, as on rank 0"
            found.append(Finding("out of range", rank, "buffers", text))
    if known and name != "allreduce" and total % p:
        text = f"got a vector of {total} chunks; wanted a multiple of the {p} ranks"
        found.append(Finding("out of range", 0, "buffers", text))
    return Layout(name if known else "", p, total, total // p, plan.inplace, plan.sizes), found


def outside(plan: Plan, where: Layout) -> list[Finding]:
    """Chunks, ranks and steps that do not exist."""
    found = list(plan.found)
    for rank, index, step in plan.steps():
        wrong = [text for span in (*step.reads, *step.writes) if (text := beyond(span, where))]
        for port in (*step.receives, *step.sends):
            if not 0 <= port.peer < where.ranks or port.peer == rank:
                wrong.append(f"got rank {port.peer} as its peer; wanted another of {where.ranks}")
        for other, number in step.after:
            if not (0 <= other < where.ranks and 0 <= number < len(plan.ranks[other])):
                wrong.append("it waits for a step that does not exist")
            elif (other, number) == (rank, index):
                wrong.append("it waits for itself")
        found += [Finding("out of range", rank, plan.place(step), text) for text in wrong]
    return found


def beyond(span: Span, where: Layout) -> str:
    """What is wrong with a span; empty if nothing is."""
    if not 0 <= span.rank < where.ranks:
        return f"got memory of rank {span.rank}; wanted one of {where.ranks} ranks"
    if span.count < 1:
        return f"got {span.count} chunks of buffer {span.buffer}; wanted at least 1"
    size = where.size(span.rank, span.buffer)
    if span.start < 0 or span.start + span.count > size:
        got = f"{span.count} chunks of buffer {span.buffer} from {span.start} on"
        return f"got {got}; wanted them within its {size} chunks"
    return ""
