"""Mistakes in slices, ring and direct."""

import numpy as np

from refgf.oracle.definitions import (
    direct_fold,
    on_wire,
    ring_allreduce,
    ring_states,
    rounded_fold,
    slice_bounds,
)
from refgf.oracle.seeded.mistakes.registry import mistake


def ring_over(xs, wire, ranks, fold=rounded_fold):
    """A ring with other ranks per slice: ranks(s, p) -> list."""
    p, total = len(xs), np.empty_like(xs[0])
    for s, (i, j) in enumerate(slice_bounds(len(xs[0]), p)):
        total[i:j] = fold([xs[r][i:j] for r in ranks(s, p)], wire)
    return [total.copy() for _ in xs]


@mistake("R1", "slice_bounds", "the last slice takes the whole remainder")
def last_slice_longer(n, p):
    return [(s * (n // p), (s + 1) * (n // p) if s < p - 1 else n) for s in range(p)]


@mistake("R1", "slice_bounds", "slices are rounded up, the last ones are short or empty")
def slices_rounded_up(n, p):
    each = -(-n // p)
    return [(min(s * each, n), min((s + 1) * each, n)) for s in range(p)]


@mistake("R1", "ring_allreduce", "lost tail: the n mod p last elements are not summed")
def lost_tail(xs, wire=None):
    whole = len(xs[0]) - len(xs[0]) % len(xs)
    sums = ring_allreduce([x[:whole] for x in xs], wire)
    return [np.concatenate([y, x[whole:]]) for x, y in zip(xs, sums)]


@mistake("R2", "ring_allreduce", "the ring runs in the other direction")
def ring_backwards(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s - k) % p for k in range(p)])


@mistake("R2", "ring_allreduce", "slice off by one: slice s starts on rank s+1")
def ring_off_by_one(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s + 1 + k) % p for k in range(p)])


@mistake("R2", "ring_allreduce", "one step short: the last rank of each slice is lost")
def ring_one_step_short(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s + k) % p for k in range(max(1, p - 1))])


@mistake(
    "R2",
    "ring_allreduce",
    "the last step of the reduce-scatter is missing: slice s has rank s-1's term only",
)
def ring_without_last_step(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s - 1) % p])


@mistake("R2", "ring_allreduce", "one rank counted twice")
def ring_one_twice(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s + k) % p for k in range(p)] + [s])


@mistake("R2", "ring_allreduce", "summed in rank order")
def ring_in_rank_order(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: list(range(p)))


@mistake("R2", "ring_allreduce", "divided by p")
def ring_averaged(xs, wire=None):
    return [x / x.dtype.type(len(xs)) for x in ring_allreduce(xs, wire)]


@mistake("R2", "ring_allreduce", "divided by p twice")
def ring_averaged_twice(xs, wire=None):
    return [x / x.dtype.type(len(xs)) / x.dtype.type(len(xs)) for x in ring_allreduce(xs, wire)]


@mistake("R2", "ring_allreduce", "divided by p times p")
def ring_divided_by_square(xs, wire=None):
    return [x / x.dtype.type(len(xs) ** 2) for x in ring_allreduce(xs, wire)]


@mistake("R2", "ring_allreduce", "summed in float64 and rounded at the end")
def ring_in_float64(xs, wire=None):
    with np.errstate(over="ignore", invalid="ignore"):
        sums = ring_allreduce([x.astype(np.float64) for x in xs], wire)
        return [x.astype(xs[0].dtype) for x in sums]


@mistake("R2", "ring_allreduce", "summed in float16")
def ring_in_float16(xs, wire=None):
    if wire == "float16":  # the same bits as `own_rounded`, which is then the likelier mistake
        return ring_allreduce(xs, wire)
    sums = ring_allreduce([on_wire(x, "float16") for x in xs], "float16")
    return [on_wire(x, wire) for x in sums]


def flush(x, wire):
    """Numbers below the smallest normal one of the wire type, or of their own type, become 0."""
    smallest = 2.0**-14 if wire == "float16" else np.finfo(x.dtype).tiny
    return np.where(np.abs(x) < smallest, np.copysign(np.zeros_like(x), x), x)


@mistake("R2", "ring_allreduce", "denormal numbers are flushed to zero")
def ring_flushes(xs, wire=None):
    return [flush(x, wire) for x in ring_allreduce([flush(x, wire) for x in xs], wire)]


@mistake("R2", "ring_allreduce", "the accumulator starts at +0")
def ring_from_zero(xs, wire=None):
    with np.errstate(over="ignore", invalid="ignore"):
        return [x + x.dtype.type(0) for x in ring_allreduce(xs, wire)]


@mistake("R3", "rounded_fold", "only the inputs and the result are rounded to the wire type")
def rounds_as_direct(terms, wire=None):
    return direct_fold(terms, wire)


@mistake("R3", "rounded_fold", "a rank rounds its own numbers too before it adds them")
def own_rounded(terms, wire=None):
    return rounded_fold([on_wire(term, wire) for term in terms], wire)


@mistake("R3", "rounded_fold", "sums are sent unrounded, only the result is rounded")
def rounds_result_only(terms, wire=None):
    return on_wire(rounded_fold(terms), wire)


@mistake("R3", "rounded_fold", "the finished sum is not rounded")
def result_not_rounded(terms, wire=None):
    if len(terms) == 1:
        return terms[0].copy()
    return terms[-1] + on_wire(rounded_fold(terms[:-1], wire), wire)


@mistake("R4", "ring_allreduce", "the owner keeps its finished slice unrounded")
def owner_differs(xs, wire=None):
    p, results = len(xs), ring_allreduce(xs, wire)
    for s, (i, j) in enumerate(slice_bounds(len(xs[0]), p)):
        terms = [xs[(s + k) % p][i:j] for k in range(p)]
        results[(s - 1) % p][i:j] = result_not_rounded(terms, wire)
    return results


@mistake("R4", "ring_allreduce", "the allgather stops one step early: rank r misses slice r+2")
def allgather_short(xs, wire=None):
    p, results = len(xs), ring_allreduce(xs, wire)
    if p > 1:
        partial = ring_states(xs, wire)[-2]
        results = [x.copy() for x in partial]
    return results


@mistake("R4", "agree", "compared with ==: NaN differs from itself, -0 equals +0")
def agree_by_equality(results):
    return all(bool((result == results[0]).all()) for result in results)


@mistake("R4", "same_bits", "compared byte by byte: payloads of NaN count")
def same_bytes(a, b):
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


@mistake("R5", "ring_states", "the whole tensor goes round the ring")
def whole_tensor(xs, wire=None):
    p, held, sent = len(xs), [x.copy() for x in xs], [x.copy() for x in xs]
    states = []
    for _ in range(p - 1):
        sent = [on_wire(sent[(r - 1) % p], wire) for r in range(p)]
        with np.errstate(over="ignore", invalid="ignore"):
            held = [a + b for a, b in zip(held, sent)]
        states.append([x.copy() for x in held])
    return [*states, held, *states] if p > 1 else [held]


@mistake("R5", "ring_states", "reduce-scatter sends slice r+1 first")
def states_off_by_one(xs, wire=None):
    states = ring_states([xs[-1], *xs[:-1]], wire)
    return [[*state[1:], state[0]] for state in states]


@mistake("R6", "ring_traffic", "the whole tensor goes round the ring: p-1 messages of n elements")
def traffic_whole(n, p, rank):
    return (p - 1, (p - 1) * n)


@mistake("R6", "ring_traffic", "2(p-1) messages of n // p elements: the tail is lost")
def traffic_without_tail(n, p, rank):
    return 2 * (p - 1), 2 * (p - 1) * (n // p)


@mistake("R6", "ring_traffic", "empty messages are left out")
def traffic_without_empty(n, p, rank):
    lengths = [stop - start for start, stop in slice_bounds(n, p)]
    sent = [lengths[(rank - t) % p] for t in range(p - 1)]
    sent += [lengths[(rank + 1 - t) % p] for t in range(p - 1)]
    return sum(length > 0 for length in sent), sum(sent)


@mistake("D1", "direct_allreduce", "summed in the order of the ring")
def direct_as_ring(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [(s + k) % p for k in range(p)], direct_fold)


@mistake("D1", "direct_allreduce", "summed in reversed rank order: rank p-1 first")
def direct_backwards(xs, wire=None):
    return [direct_fold(xs[::-1], wire) for _ in xs]


@mistake("D1", "direct_allreduce", "divided by p")
def direct_averaged(xs, wire=None):
    return [direct_fold(xs, wire) / x.dtype.type(len(xs)) for x in xs]


@mistake("D1", "direct_allreduce", "divided by p twice")
def direct_averaged_twice(xs, wire=None):
    return [x / x.dtype.type(len(xs)) for x in direct_averaged(xs, wire)]


@mistake("D1", "direct_allreduce", "denormal numbers are flushed to zero")
def direct_flushes(xs, wire=None):
    return [flush(direct_fold([flush(x, wire) for x in xs], wire), wire) for _ in xs]


@mistake("D2", "direct_fold", "rounded at every hop, as the ring does")
def direct_hops(terms, wire=None):
    return rounded_fold(terms, wire)


@mistake("D2", "direct_fold", "the inputs are not rounded")
def direct_inputs_unrounded(terms, wire=None):
    return on_wire(direct_fold(terms), wire)


@mistake("D2", "direct_fold", "only rank 0's input is rounded, not those of ranks 1 to p-1")
def direct_other_inputs_unrounded(terms, wire=None):
    return on_wire(direct_fold([on_wire(terms[0], wire), *terms[1:]]), wire)


@mistake("D2", "direct_fold", "the input of rank 0, where the sum begins, is not rounded")
def direct_first_input_unrounded(terms, wire=None):
    return on_wire(direct_fold([terms[0], *(on_wire(term, wire) for term in terms[1:])]), wire)


@mistake("D2", "direct_fold", "the result is not rounded")
def direct_result_unrounded(terms, wire=None):
    return direct_fold([on_wire(term, wire) for term in terms])


@mistake("D2", "direct_allreduce", "the owner keeps its own finished slice unrounded")
def direct_owner_differs(xs, wire=None):
    results = [direct_fold(xs, wire) for _ in xs]
    for s, (i, j) in enumerate(slice_bounds(len(xs[0]), len(xs))):
        results[s][i:j] = direct_result_unrounded([x[i:j] for x in xs], wire)
    return results


@mistake("D1", "direct_allreduce", "the last rank is left out")
def direct_without_last(xs, wire=None):
    return [direct_fold(xs[: max(1, len(xs) - 1)], wire) for _ in xs]


@mistake("D3", "direct_allreduce", "the owner adds its own slice first: bits depend on the cut")
def direct_owner_first(xs, wire=None):
    return ring_over(xs, wire, lambda s, p: [s, *(r for r in range(p) if r != s)], direct_fold)


@mistake("D3", "direct_allreduce", "the owner's own slice is not rounded: bits depend on the cut")
def direct_own_unrounded(xs, wire=None):
    p, total = len(xs), np.empty_like(xs[0])
    for s, (i, j) in enumerate(slice_bounds(len(xs[0]), p)):
        terms = [xs[r][i:j] if r == s else on_wire(xs[r][i:j], wire) for r in range(p)]
        total[i:j] = on_wire(direct_fold(terms), wire)
    return [total.copy() for _ in xs]


@mistake("D4", "direct_traffic", "each rank sends everything to all others")
def direct_traffic_all(n, p, rank):
    return p - 1, (p - 1) * n
