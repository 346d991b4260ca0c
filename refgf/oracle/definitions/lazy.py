"""L1 to L5: lazy allreduce, merged gradients. Tensors lie in one pool in the order in which their gradients are generated."""

import numpy as np

from refgf.oracle.definitions.ring import direct_allreduce, ring_allreduce

WIRE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def lazy_calls(sizes, itemsize, theta_bytes):
    """L1: a call over all waiting tensors when their bytes on the wire are greater than theta, the rest at the end.

    sizes: elements of each tensor in the order of generation.  -> [(start, stop)] in elements of the pool
    Exactly theta bytes keep waiting. theta = 0 sends each tensor by itself, infinity all of them in one call.
    """
    calls, start, stop = [], 0, 0
    for size in sizes:
        stop += size
        if (stop - start) * itemsize > theta_bytes:
            calls.append((start, stop))
            start = stop
    return calls + lazy_rest(start, stop)


def lazy_rest(start, stop):
    """L2: after the last gradient whatever waits is sent; when nothing waits nothing is."""
    return [(start, stop)] if stop > start else []


def bytes_per_gradient(dtype, wire=None):
    """L3: theta counts bytes as they travel: 2 a gradient for a 16-bit wire type, else the size of the arrays' type."""
    return WIRE_BYTES[wire or str(dtype)]


def lazy_allreduce(xs, sizes, theta_bytes, wire=None, order="ring"):
    """L4: each call is an allreduce of its own, with its own slices. p arrays (n,) -> p arrays (n,)"""
    return one_by_one(xs, lazy_calls(sizes, bytes_per_gradient(xs[0].dtype, wire), theta_bytes), wire, order)


def one_by_one(xs, calls, wire, order):
    """L4: the allreduces of a step, one after the other."""
    allreduce = {"ring": ring_allreduce, "direct": direct_allreduce}[order]
    pieces = [allreduce([x[i:j] for x in xs], wire) for i, j in calls]
    return [np.concatenate([x[:0], *parts]) for x, *parts in zip(xs, *pieces)]


def merged_calls(sizes, counts):
    """L5: counts[0] tensors go in the first call, the next counts[1] in the second, ...; none for no elements."""
    offsets = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
    ends = [sum(counts[:i]) for i in range(len(counts) + 1)]
    return [(offsets[i], offsets[j]) for i, j in zip(ends, ends[1:]) if offsets[j] > offsets[i]]


def merged_allreduce(xs, sizes, counts, wire=None, order="ring"):
    """L5: groups that were fixed before take the place of theta. p arrays (n,) -> p arrays (n,)"""
    return one_by_one(xs, merged_calls(sizes, counts), wire, order)
