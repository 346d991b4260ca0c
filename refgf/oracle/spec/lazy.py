"""L1 to L5: lazy allreduce and merged gradients.

Tensors lie in one pool, in the order in which backward generates their gradients.
"""

import numpy as np

from refgf.oracle.spec.ring import Arrays, direct_allreduce, ring_allreduce
from refgf.oracle.spec.statement import Statement

WIRE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
Calls = list[tuple[int, int]]  # (start, stop) of each call, in elements of the pool


def lazy_calls(sizes: list[int], itemsize: int, theta_bytes: float) -> Calls:
    """L1: one call sums all waiting tensors once their bytes on the wire are greater than theta.

    sizes: elements of each tensor in the order of generation. With exactly theta bytes the tensors
    go on waiting. theta = 0 sends each tensor by itself, infinity all of them in one call.
    """
    calls, start, stop = [], 0, 0
    for size in sizes:
        stop += size
        if (stop - start) * itemsize > theta_bytes:
            calls.append((start, stop))
            start = stop
    return calls + lazy_rest(start, stop)


def lazy_rest(start: int, stop: int) -> Calls:
    """L2: after the last gradient one call sums the rest; if no tensor waits there is no call. A
    tensor without elements does not wait.

    Source: necessary; not in the text at hand.
    """
    return [(start, stop)] if stop > start else []


L2 = Statement("L2", lazy_rest)


@L2.mistake("last bucket forgotten")
def never_flushed(start, stop):
    return []


@L2.mistake("an empty call at the end if no tensor waits")
def always_flushed(start, stop):
    return [(start, stop)]


def bytes_per_gradient(dtype: str, wire: str | None = None) -> int:
    """L3: theta counts bytes on the wire: 2 a gradient for a 16-bit wire type."""
    return WIRE_BYTES[wire or str(dtype)]


def lazy_allreduce(
    xs: Arrays,
    sizes: list[int],
    theta_bytes: float,
    wire: str | None = None,
    order: str = "ring",
) -> Arrays:
    """L4: each call is an allreduce by itself, with its own slices. p arrays -> p arrays"""
    itemsize = bytes_per_gradient(xs[0].dtype, wire)
    return allreduce_calls(xs, lazy_calls(sizes, itemsize, theta_bytes), wire, order)


def allreduce_calls(xs: Arrays, calls: Calls, wire: str | None, order: str) -> Arrays:
    """L4: the allreduces of a step, one after the other."""
    allreduce = {"ring": ring_allreduce, "direct": direct_allreduce}[order]
    sums = [allreduce([x[i:j] for x in xs], wire) for i, j in calls]
    return [np.concatenate([x[:0], *own]) for x, *own in zip(xs, *sums)]


@L2.mistake("last bucket forgotten: the tensors that wait at the end stay local", lazy_allreduce)
def rest_stays_local(xs, sizes, theta_bytes, wire=None, order="ring"):
    itemsize = bytes_per_gradient(xs[0].dtype, wire)
    calls, start = lazy_calls(sizes, itemsize, theta_bytes), len(xs[0])
    if calls and (start - calls[-1][0]) * itemsize <= theta_bytes:
        start = calls.pop()[0]
    sums = allreduce_calls([x[:start] for x in xs], calls, wire, order)
    return [np.concatenate([y, x[start:]]) for x, y in zip(xs, sums)]


def merged_calls(sizes: list[int], counts: list[int]) -> Calls:
    """L5: the first call sums counts[0] tensors, the second the next counts[1], and so on.

    A group without elements is no call.
    """
    offsets = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    ends = [sum(counts[:i]) for i in range(len(counts) + 1)]
    return [(offsets[i], offsets[j]) for i, j in zip(ends, ends[1:]) if offsets[j] > offsets[i]]


def merged_allreduce(
    xs: Arrays,
    sizes: list[int],
    counts: list[int],
    wire: str | None = None,
    order: str = "ring",
) -> Arrays:
    """L5: groups fixed before the step take the place of theta. p arrays (n,) -> p arrays (n,)"""
    return allreduce_calls(xs, merged_calls(sizes, counts), wire, order)
