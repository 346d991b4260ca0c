"""D1 to D4: allreduce over p ranks in rank order. xs, results and an example: as in ring.py."""

import numpy as np

from refgf.oracle.spec.calls import RANK_ELEMENT, TRAFFIC, allreduce, traffic_of
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import R3, Arrays, flushed, ring_over, rounded_fold, slice_bounds
from refgf.oracle.spec.ring_steps import traffic_cases
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- D1: the order ----


def direct_allreduce(xs: Arrays, wire: str | None = None) -> Arrays:
    """D1: every element is a left fold over ranks 0, 1, ..., p-1.

    Source: chosen: reproducible sums.

    -> p arrays, the same bits
    """
    total = direct_fold(xs, wire)
    return [total.copy() for _ in xs]


D1 = Statement("D1", direct_allreduce)
DIRECT = JudgedFunction(
    direct_allreduce,
    "D1 D2 D3",
    RANK_ELEMENT,
    "x",
    run=allreduce("direct_allreduce", "wire"),
)
D1.given("summed in reversed rank order: rank p-1 first", xs=lambda xs: xs[::-1])


@D1.mistake("summed in the order of the ring")
def direct_as_ring(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s + k) % p for k in range(p)], direct_fold)


@D1.mistake("divided by p")
def direct_averaged(xs, wire=None):
    return [direct_fold(xs, wire) / x.dtype.type(len(xs)) for x in xs]


@D1.mistake("divided by p twice")
def direct_averaged_twice(xs, wire=None):
    return [x / x.dtype.type(len(xs)) for x in direct_averaged(xs, wire)]


@D1.mistake("denormal numbers are flushed to zero")
def direct_flushes(xs, wire=None):
    return [flushed(direct_fold([flushed(x, wire) for x in xs], wire), wire) for _ in xs]


@D1.mistake("the last rank is left out")
def direct_without_last(xs, wire=None):
    return [direct_fold(xs[: max(1, len(xs) - 1)], wire) for _ in xs]


# ---- D2: roundings ----


def direct_fold(terms: Arrays, wire: str | None = None) -> np.ndarray:
    """D2: with a wire type, each of the p inputs is rounded to it once (the owner's own too, which
    is not sent) and the finished sum once.

    Source: chosen: the error does not grow with p, and the bits do not depend on which rank owns an
    element.
    """
    total = on_wire(terms[0], wire)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for term in terms[1:]:
            total = total + on_wire(term, wire)
    return on_wire(total, wire)


D2 = Statement("D2", direct_fold)
R3.mistake("only the inputs and the result are rounded to the wire type")(direct_fold)


@D2.mistake("rounded at every hop, as the ring does")
def direct_hops(terms, wire=None):
    return rounded_fold(terms, wire)


@D2.mistake("the inputs are not rounded")
def direct_inputs_unrounded(terms, wire=None):
    return on_wire(direct_fold(terms), wire)


@D2.mistake("only rank 0's input is rounded, not those of ranks 1 to p-1")
def direct_other_inputs_unrounded(terms, wire=None):
    return on_wire(direct_fold([on_wire(terms[0], wire), *terms[1:]]), wire)


@D2.mistake("the input of rank 0, where the sum begins, is not rounded")
def direct_first_input_unrounded(terms, wire=None):
    return on_wire(direct_fold([terms[0], *(on_wire(term, wire) for term in terms[1:])]), wire)


@D2.mistake("the result is not rounded")
def direct_result_unrounded(terms, wire=None):
    return direct_fold([on_wire(term, wire) for term in terms])


@D2.mistake("the owner keeps its own finished slice unrounded", direct_allreduce)
def direct_owner_differs(xs, wire=None):
    results = [direct_fold(xs, wire) for _ in xs]
    for s, (i, j) in enumerate(slice_bounds(len(xs[0]), len(xs))):
        results[s][i:j] = direct_result_unrounded([x[i:j] for x in xs], wire)
    return results


# ---- D3: calls ----


def direct_in_calls(xs: Arrays, cuts: list[int], wire: str | None = None) -> Arrays:
    """D3: dividing the elements into several calls does not change the bits.

    Source: follows from D1, D2.

    cuts: increasing positions. The statement is that this equals direct_allreduce(xs, wire) for
    all cuts. -> p arrays
    """
    edges = [0, *cuts, len(xs[0])]
    calls = [direct_allreduce([x[i:j] for x in xs], wire) for i, j in zip(edges, edges[1:])]
    return [np.concatenate(sums) for sums in zip(*calls)]


D3 = Statement("D3", direct_in_calls)


@D3.mistake("the owner adds its own slice first: bits depend on the cut", direct_allreduce)
def direct_owner_first(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [s, *(r for r in range(p) if r != s)], direct_fold)


@D3.mistake("the owner's own slice is not rounded: bits depend on the cut", direct_allreduce)
def direct_own_unrounded(xs, wire=None):
    p, total = len(xs), np.empty_like(xs[0])
    for s, (i, j) in enumerate(slice_bounds(len(xs[0]), p)):
        terms = [xs[r][i:j] if r == s else on_wire(xs[r][i:j], wire) for r in range(p)]
        total[i:j] = on_wire(direct_fold(terms), wire)
    return [total.copy() for _ in xs]


# ---- D4: what each rank sends ----


def direct_traffic(n: int, p: int, rank: int) -> tuple[int, int]:
    """D4: rank r sends 2(p-1) messages and n + (p-2) len(slice r) elements; nothing for p = 1.

    Source: reduce-scatter and allgather, pairwise.

    A rank sends each other rank's slice to its owner, then its finished slice to all others. Empty
    slices are sent too. -> (messages, elements)
    """
    if p == 1:
        return 0, 0
    start, stop = slice_bounds(n, p)[rank]
    return 2 * (p - 1), n + (p - 2) * (stop - start)


D4 = Statement("D4", direct_traffic)
SENDS = JudgedFunction(direct_traffic, "D4", TRAFFIC, run=traffic_of("direct_traffic"))
SENDS.fresh(lambda d: {"n": d.n, "p": d.p})


@SENDS.golden
def sends() -> Cases:
    yield from traffic_cases(SENDS)


@D4.mistake("each rank sends everything to all others")
def direct_traffic_all(n, p, rank):
    return p - 1, (p - 1) * n
