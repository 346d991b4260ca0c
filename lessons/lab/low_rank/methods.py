"""Lesson 17: what is compared, as exchanges for GradientFlow, and the bytes that each sends."""

from functools import partial

from kit import flow
from refgf.comm.gather import allgather
from refgf.comm.ring import ring_allreduce
from refgf.oracle.spec.powersgd.lesson_17 import sent_bytes
from refgf.papers.mstopk.topk import TopK, keep_count
from refgf.papers.powersgd.low_rank import factor_elements
from refgf.papers.powersgd.powersgd import PowerSGD
from refgf.papers.signsgd.signsgd import SignSGD

DENSE, RANK_1, RANK_4 = "dense", "PowerSGD, rank 1", "PowerSGD, rank 4"
SIGNS, TOPK, CSC, VOTE = "signs", "top-k 1 %", "CSC 10 %", "majority vote"
DROPPED = ", no error"
TRAINED = (DENSE, RANK_1, RANK_1 + DROPPED, RANK_4, CSC, VOTE, SIGNS, TOPK, TOPK + DROPPED)
SUMMED = (DENSE, RANK_1, RANK_4, CSC, VOTE)
GATHERED = (SIGNS, TOPK)
TOPK_PERCENT, CSC_PERCENT = 1.0, 10.0


class WithoutError:
    """Top-k that drops what it does not send."""

    def __init__(self, topk: TopK) -> None:
        self.topk = topk

    def __call__(self, x) -> None:
        self.topk(x)
        self.topk.feedback.residual[...] = 0


def exchange_of(name: str, shapes: list, n: int, vote):
    """(comm, wire) -> an Allreduce or a Compressor. Not of CSC, which GradientFlow makes itself."""
    kind, feedback = name.removesuffix(DROPPED), not name.endswith(DROPPED)
    if kind.startswith("PowerSGD"):
        return partial(PowerSGD, shapes=shapes, rank=int(kind[-1]), feedback=feedback)
    if kind == TOPK:

        def topk(comm, wire=None):
            made = TopK(n, TOPK_PERCENT, allgather(comm))
            return made if feedback else WithoutError(made)

        return topk
    return {DENSE: ring_allreduce, SIGNS: SignSGD, VOTE: vote}[kind]


def predicted_bytes(name: str, shapes: list, n: int, p: int) -> float:
    """By formula: what one of p ranks sends in a step; of a ring the mean over ranks."""
    kind = name.removesuffix(DROPPED)
    if kind == CSC:
        return flow.csc_bytes(n, p, CSC_PERCENT)
    sent = n
    if kind.startswith("PowerSGD"):
        sent = sum(sum(factor_elements(shape, int(kind[-1]))) for shape in shapes)
    if kind == TOPK:
        sent = keep_count(n, TOPK_PERCENT)
    words = {DENSE: "floats", SIGNS: "signs", VOTE: "votes", TOPK: "pairs"}
    return sent_bytes(words.get(kind, "floats"), sent, p)
