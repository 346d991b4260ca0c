"""R1 to R4: allreduce over p ranks, one flat array of n elements per rank, around a ring.

xs      list of p arrays (n,), all of one type; xs[r] is the contribution of rank r
result  list of p arrays (n,): what each rank holds afterwards

Order of summation for p = 3        ring                     direct
slice 0                             (x0 + x1) + x2           (x0 + x1) + x2
slice 1                             (x1 + x2) + x0           (x0 + x1) + x2
slice 2                             (x2 + x0) + x1           (x0 + x1) + x2

ring_steps.py has the steps and messages, and the other exercises of lesson 01; plain_sums.py has
the cases of ring and direct.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import (
    RANK_ELEMENT,
    Outputs,
    allreduce,
    bounds_of,
    same_bits,
    select,
    vectors,
)
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.exercise import Arguments, Exercise
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

Arrays = list[np.ndarray]  # one per rank

# ---- R1: slices ----


def slice_bounds(n: int, p: int) -> list[tuple[int, int]]:
    """R1: n elements are divided into p slices; the first n mod p have one element more.

    Source: chosen: works for every p and n.

    -> [(start, stop)] * p
    """
    lengths = [n // p + (s < n % p) for s in range(p)]
    return [(stop - length, stop) for length, stop in zip(lengths, accumulate(lengths))]


R1 = Statement("R1", slice_bounds)
SLICES = JudgedFunction(
    slice_bounds,
    "R1",
    {"bounds": ("slice", "start, stop")},
    run=bounds_of("slice_bounds", "n", "p"),
)
SLICES.fresh(lambda d: {"n": d.n, "p": d.p})


@SLICES.golden
def slices() -> Cases:
    for n, p in ((0, 3), (2, 5), (7, 7), (13, 4), (62378344, 512)):
        yield SLICES.case(f"slices-n{n}-p{p}", shape_says(p, n), n=n, p=p)


def shape_says(p: int, n: int) -> str:
    if p == 1:
        return "one rank: nothing is sent"
    if n == 0:
        return "no elements: empty messages"
    if n < p:
        return f"n = {n} below p = {p}: some slices are empty"
    return f"n = {n}, p = {p}: " + ("slices of different length" if n % p else "equal slices")


DIVIDES, ANY, FEW = "p divides n", "p does not divide n", "fewer elements than ranks, one rank"


def few(random: np.random.Generator) -> list[Arguments]:
    drawn = int(random.integers(20)), int(random.integers(20, 60))
    return [(0, 3), (2, 5), (9, 1), (0, 1), drawn]


SLICES_01 = Exercise("01.1", slice_bounds, "slices")
SLICES_01.part(DIVIDES, 1, lambda random: [(p * k, p) for p, k in random.integers(1, 9, (4, 2))])
SLICES_01.part(
    ANY, 1, lambda random: [(7, 3), (5, 2), (20, 7), (int(random.integers(50)) * 3 + 1, 3)]
)
SLICES_01.part(FEW, 1, few)


@SLICES_01.mistake("your last elements are lost when p does not divide n")
def equal_slices(n, p):
    return [(i * (n // p), (i + 1) * (n // p)) for i in range(p)]


@R1.mistake("the last slice takes the whole remainder")
@SLICES_01.mistake("your last slice takes the whole rest")
def last_slice_longer(n, p):
    return [(s * (n // p), (s + 1) * (n // p) if s < p - 1 else n) for s in range(p)]


@R1.mistake("slices are rounded up, the last ones are short or empty")
def slices_rounded_up(n, p):
    each = -(-n // p)
    return [(min(s * each, n), min((s + 1) * each, n)) for s in range(p)]


# ---- R2: the order ----


def ring_allreduce(xs: Arrays, wire: str | None = None) -> Arrays:
    """R2: slice s is a left fold over ranks s, s+1, ..., s+p-1 (mod p), in the type of the arrays.

    Source: the ring (Patarasuk & Yuan 2009), which GradientFlow uses; which rank begins a slice:
    chosen.

    -> p arrays with the same bits
    """
    p, total = len(xs), np.empty_like(xs[0])
    for s, (i, j) in enumerate(slice_bounds(len(xs[0]), p)):
        total[i:j] = rounded_fold([xs[(s + k) % p][i:j] for k in range(p)], wire)
    return [total.copy() for _ in xs]


def run_ring(module: Any, case: Case) -> Outputs:
    """The module may have `ring_states` too: all ranks' arrays after each step."""
    result = allreduce("ring_allreduce", "wire")(module, case)
    states = getattr(module, "ring_states", None)
    if states and "state.x" in case.tensors:
        steps = states(vectors(case), **select(case, "wire"))
        result["state.x"] = np.stack([np.stack(xs) for xs in steps])
    return result


R2 = Statement("R2", ring_allreduce)
RING = JudgedFunction(
    ring_allreduce, "R1 R2 R3 R4", RANK_ELEMENT, "x", run=run_ring, also=("ring_states",)
)


@R1.mistake("lost tail: the n mod p last elements are not summed", ring_allreduce)
def lost_tail(xs, wire=None):
    whole = len(xs[0]) - len(xs[0]) % len(xs)
    sums = ring_allreduce([x[:whole] for x in xs], wire)
    return [np.concatenate([y, x[whole:]]) for x, y in zip(xs, sums)]


def ring_over(
    xs: Arrays, wire: str | None, ranks: Callable[..., Any], fold: Callable[..., Any] | None = None
) -> Arrays:
    """A ring with other ranks per slice: ranks(s, p) -> list."""
    p, total = len(xs), np.empty_like(xs[0])
    for s, (i, j) in enumerate(slice_bounds(len(xs[0]), p)):
        total[i:j] = (fold or rounded_fold)([xs[r][i:j] for r in ranks(s, p)], wire)
    return [total.copy() for _ in xs]


@R2.mistake("the ring runs in the other direction")
def ring_backwards(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s - k) % p for k in range(p)])


@R2.mistake("slice off by one: slice s starts on rank s+1")
def ring_off_by_one(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s + 1 + k) % p for k in range(p)])


@R2.mistake("one step short: the last rank of each slice is lost")
def ring_one_step_short(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s + k) % p for k in range(max(1, p - 1))])


@R2.mistake("the last step of the reduce-scatter is missing: slice s has rank s-1's term only")
def ring_without_last_step(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s - 1) % p])


@R2.mistake("one rank counted twice")
def ring_one_twice(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s + k) % p for k in range(p)] + [s])


@R2.mistake("summed in rank order")
def ring_in_rank_order(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: list(range(p)))


@R2.mistake("divided by p")
def ring_averaged(xs, wire=None):
    return [x / x.dtype.type(len(xs)) for x in ring_allreduce(xs, wire)]


@R2.mistake("divided by p twice")
def ring_averaged_twice(xs, wire=None):
    return [x / x.dtype.type(len(xs)) for x in ring_averaged(xs, wire)]


@R2.mistake("divided by p times p")
def ring_divided_by_square(xs, wire=None):
    return [x / x.dtype.type(len(xs) ** 2) for x in ring_allreduce(xs, wire)]


@R2.mistake("summed in float64 and rounded at the end")
def ring_in_float64(xs, wire=None):
    with np.errstate(over="ignore", invalid="ignore"):
        sums = ring_allreduce([x.astype(np.float64) for x in xs], wire)
        return [x.astype(xs[0].dtype) for x in sums]


@R2.mistake("summed in float16")
def ring_in_float16(xs, wire=None):
    if wire == "float16":  # the same bits as `own_rounded`, which is then the likelier mistake
        return ring_allreduce(xs, wire)
    sums = ring_allreduce([on_wire(x, "float16") for x in xs], "float16")
    return [on_wire(x, wire) for x in sums]


def flushed(x: np.ndarray, wire: str | None) -> np.ndarray:
    """Numbers below the smallest normal one of the wire type, or of their own type, become 0."""
    smallest = 2.0**-14 if wire == "float16" else np.finfo(x.dtype).tiny
    return np.where(np.abs(x) < smallest, np.copysign(np.zeros_like(x), x), x)


@R2.mistake("denormal numbers are flushed to zero")
def ring_flushes(xs, wire=None):
    return [flushed(x, wire) for x in ring_allreduce([flushed(x, wire) for x in xs], wire)]


@R2.mistake("the accumulator starts at +0")
def ring_from_zero(xs, wire=None):
    with np.errstate(over="ignore", invalid="ignore"):
        return [x + x.dtype.type(0) for x in ring_allreduce(xs, wire)]


# ---- R3: roundings ----


def rounded_fold(terms: Arrays, wire: str | None = None) -> np.ndarray:
    """R3: with a wire type, a partial sum is rounded to it before each addition and the finished
    sum once more, on its owner too, and also for p = 1. The numbers that a rank adds to it are not
    rounded. On float16 (bfloat16) values this is float16 (bfloat16) addition, bit for bit, even if
    the sum is formed in float32.

    Source: chosen: all ranks must hold what is sent.
    """
    total = terms[0]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for term in terms[1:]:
            total = term + on_wire(total, wire)
    return on_wire(total, wire)


R3 = Statement("R3", rounded_fold)


@R3.mistake("a rank rounds its own numbers too before it adds them")
def own_rounded(terms, wire=None):
    return rounded_fold([on_wire(term, wire) for term in terms], wire)


@R3.mistake("sums are sent unrounded, only the result is rounded")
def rounds_result_only(terms, wire=None):
    return on_wire(rounded_fold(terms), wire)


@R3.mistake("the finished sum is not rounded")
def result_not_rounded(terms, wire=None):
    if len(terms) == 1:
        return terms[0].copy()
    return terms[-1] + on_wire(rounded_fold(terms[:-1], wire), wire)


# ---- R4: all ranks hold the same ----


def agree(results: Arrays) -> bool:
    """R4: all ranks end with the same bits.

    Source: follows from R2, R3.

    NaN payloads do not count, the sign of zero does.
    """
    return all(same_bits(result, results[0]) for result in results)


R4 = Statement("R4", agree)
AGREE = JudgedFunction(agree, "R4", {"agree": ()}, "x")


@AGREE.golden
def agreements() -> Cases:
    x = np.array([[1.5, np.nan, -0.0], [1.5, np.nan, -0.0], [1.5, np.nan, -0.0]], np.float32)
    x[1].view(np.uint32)[1] ^= 1  # another payload
    why = "NaNs agree whatever their payload"
    yield AGREE.case("agree-nan-payload", why, family="special", x=x)
    x = x.copy()
    x[2, 2] = 0.0
    yield AGREE.case("agree-zero-sign", "+0 and -0 do not agree", family="special", x=x)


@R4.mistake("the owner keeps its finished slice unrounded", ring_allreduce)
def owner_differs(xs, wire=None):
    p, results = len(xs), ring_allreduce(xs, wire)
    for s, (i, j) in enumerate(slice_bounds(len(xs[0]), p)):
        terms = [xs[(s + k) % p][i:j] for k in range(p)]
        results[(s - 1) % p][i:j] = result_not_rounded(terms, wire)
    return results


@R4.mistake("compared with ==: NaN differs from itself, -0 equals +0")
def agree_by_equality(results):
    return all(bool((result == results[0]).all()) for result in results)


@R4.mistake("compared byte by byte: payloads of NaN count", same_bits)
def same_bytes(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()
