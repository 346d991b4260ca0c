"""Lesson 12: the exchanges that are compared, each in two forms.

messages   make(comm, case, x) -> send()       sends what the exchange sends; chosen before
whole      make(comm, case) -> exchange(x)     residual, choice, packing, messages, sums
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType

import numpy as np

from kit import flow, placement
from lab.topk.choice import chunk_norms
from refgf.comm import direct, gather, ring
from refgf.comm.schedule import collective
from refgf.comm.slices import chunks, length
from refgf.device import to_host
from refgf.exchange.chunk_choice import choose, importance
from refgf.papers.mstopk.topk import TopK, keep_count, mstopk


@dataclass(frozen=True)
class Case:
    """n gradients, a density in percent, the ranks of each node, and the library of arrays."""

    n: int
    percent: float
    nodes: list[list[int]]
    xp: ModuleType = np

    @property
    def k(self) -> int:
        return keep_count(self.n, self.percent)

    @property
    def slice_k(self) -> int:
        """Elements that the owner of the longest slice of a node chooses."""
        return keep_count(-(-self.n // len(self.nodes[0])), self.percent)

    @property
    def chunks(self) -> list[slice]:
        return chunks(self.n, flow.chunk_elements(self.n))

    @property
    def packed(self) -> int:
        """Elements of the chosen chunks."""
        count = max(1, math.ceil(len(self.chunks) * self.percent / 100))
        return min(self.n, count * length(self.chunks[0]))


# ---- messages ----


def dense_messages(comm, case: Case, x) -> Callable:
    return partial(collective(comm, ring.allreduce), x)


def csc_messages(comm, case: Case, x) -> Callable:
    sum_chunks, sum_norms = ring.ring_allreduce(comm), direct.direct_allreduce(comm)
    norms = np.zeros(len(case.chunks) + 1)  # and the flag

    def send():
        sum_chunks(x[: case.packed])
        sum_norms(norms)

    return send


def topk_messages(comm, case: Case, x) -> Callable:
    rows, indices = gather.allgather(comm), case.xp.arange(case.k, dtype=np.int32)
    return lambda: (rows(x[: case.k]), rows(indices))


def hitopk_messages(comm, case: Case, x) -> Callable:
    node = next(node for node in case.nodes if comm.Get_rank() in node)
    owners = [other[node.index(comm.Get_rank())] for other in case.nodes]
    reduce, spread = gather.reduce_scatter(comm, node), gather.allgather_slices(comm, node)
    rows = gather.allgather(comm, owners)

    def send():
        k = keep_count(length(reduce(x)), case.percent)
        rows(x[:k])
        rows(case.xp.arange(k, dtype=np.int32))
        spread(x)

    return send


# ---- whole exchanges ----


class ChunkExchange:
    """CSC for one array, without momentum: norms, choice, a ring with the packed chunks."""

    def __init__(self, comm, case: Case) -> None:
        self.case, self.chunks = case, case.chunks
        self.residual, self.scratch = case.xp.zeros((2, case.n), np.float32)
        self.norms = case.xp.zeros(len(self.chunks))
        self.sum_chunks, self.sum_norms = ring.ring_allreduce(comm), direct.direct_allreduce(comm)

    def __call__(self, x) -> None:
        self.residual += x
        chunk = length(self.chunks[0])
        chunk_norms(self.norms, self.residual, chunk, self.scratch)
        norms = to_host(self.norms)
        self.sum_norms(norms)
        chosen = choose(importance(norms, x.size, chunk), self.case.percent)
        packed = self.case.xp.concatenate([self.residual[self.chunks[number]] for number in chosen])
        self.sum_chunks(packed)
        x[:], at = 0, 0
        for part in (self.chunks[number] for number in chosen):
            x[part] = packed[at : at + length(part)]
            self.residual[part] = 0
            at += length(part)


def dense(comm, case: Case) -> Callable:
    return collective(comm, ring.allreduce)


def topk(comm, case: Case) -> Callable:
    return TopK(case.n, case.percent, gather.allgather(comm), mstopk, xp=case.xp)


def hitopk(comm, case: Case) -> Callable:
    return placement.hitopk(comm, case.nodes, case.n, case.percent, mstopk)


KINDS = {
    "dense ring": (dense_messages, {"": dense}),
    "CSC": (csc_messages, {"": ChunkExchange}),
    "top-k": (topk_messages, {"MSTopK": topk}),
    "HiTopKComm": (hitopk_messages, {"MSTopK": hitopk}),
}
