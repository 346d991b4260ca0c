"""Mistakes in exact sums, bounds, lazy allreduce and merged gradients."""

import numpy as np

from refgf.oracle.definitions import (
    allreduce_calls,
    direct_fold,
    lazy_allreduce,
    lazy_rest,
    merged_calls,
)
from refgf.oracle.seeded.mistakes.registry import mistake
from refgf.oracle.seeded.mistakes.sums import ring_over


@mistake("S1", "exact_sum", "summed in float64, term by term")
def sum_in_float64(xs):
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sum(np.asarray(xs, np.float64), axis=0)


@mistake("S2", "summation_bound", "a bound without the roundings of the wire")
def bound_without_wire(xs, wire=None):
    u, p = np.finfo(xs[0].dtype).eps / 2, len(xs)
    return (p - 1) * u / (1 - (p - 1) * u) * np.abs(np.asarray(xs, np.float64)).sum(axis=0)


@mistake("L1", "lazy_calls", "fires at theta, not above it")
def fires_at_theta(sizes, itemsize, theta_bytes):
    calls, start, stop = [], 0, 0
    for size in sizes:
        stop += size
        if (stop - start) * itemsize >= theta_bytes and stop > start:
            calls.append((start, stop))
            start = stop
    return calls + lazy_rest(start, stop)


@mistake("L1", "lazy_calls", "the tensor that passes theta is left for the next call")
def leaves_the_last(sizes, itemsize, theta_bytes):
    calls, start, stop = [], 0, 0
    for size in sizes:
        if stop > start and (stop + size - start) * itemsize > theta_bytes:
            calls.append((start, stop))
            start = stop
        stop += size
    return calls + lazy_rest(start, stop)


@mistake("L1", "lazy_calls", "sent tensors are sent again: every call begins with the first tensor")
def sent_again(sizes, itemsize, theta_bytes):
    calls, stop = [], 0
    for size in sizes:
        stop += size
        if stop * itemsize > theta_bytes:
            calls.append((0, stop))
    return calls + lazy_rest(0, stop)


@mistake("L3", "bytes_per_gradient", "theta counts the bytes of the array, not of the wire")
def bytes_of_the_array(dtype, wire=None):
    return np.dtype(dtype).itemsize


@mistake("L4", "lazy_allreduce", "sliced as one large allreduce")
def one_allreduce(xs, sizes, theta_bytes, wire=None, order="ring"):
    if order == "ring":
        return ring_over(xs, wire, lambda s, p: [(s + k) % p for k in range(p)])
    return [direct_fold(xs, wire) for _ in xs]


@mistake("L4", "lazy_allreduce", "the elements after the last call are not summed")
def tail_not_summed(xs, sizes, theta_bytes, wire=None, order="ring"):
    done = one_allreduce(xs, sizes, theta_bytes, wire, order)
    return [np.concatenate([y[: len(x) // 2], x[len(x) // 2 :]]) for x, y in zip(xs, done)]


@mistake("L4", "lazy_allreduce", "divided by p")
def lazy_averaged(xs, sizes, theta_bytes, wire=None, order="ring"):
    return [x / x.dtype.type(len(xs)) for x in lazy_allreduce(xs, sizes, theta_bytes, wire, order)]


@mistake("L4", "lazy_allreduce", "divided by p twice")
def lazy_averaged_twice(xs, sizes, theta_bytes, wire=None, order="ring"):
    return [x / x.dtype.type(len(xs)) for x in lazy_averaged(xs, sizes, theta_bytes, wire, order)]


@mistake(
    "L5",
    "merged_calls",
    "a group is sent before its last gradient is ready; that one joins the next group",
)
def one_gradient_early(sizes, counts):
    early = [counts[0] - 1, *counts[1:], 1]
    return merged_calls(sizes, early)


@mistake("L5", "merged_calls", "the groups are ignored: every tensor by itself")
def groups_ignored(sizes, counts):
    return merged_calls(sizes, [1] * len(sizes))


@mistake("L5", "merged_calls", "no group is ever full: one call at the end")
def never_full(sizes, counts):
    return merged_calls(sizes, [len(sizes)])


@mistake("L5", "merged_allreduce", "the last group is not summed")
def last_group_lost(xs, sizes, counts, wire=None, order="ring"):
    calls = merged_calls(sizes, counts)
    sums, start = allreduce_calls(xs, calls, wire, order), calls[-1][0]
    return [np.concatenate([y[:start], x[start:]]) for x, y in zip(xs, sums)]
