"""L1 to L4: lazy allreduce. Tensors lie in one pool in the order in which their gradients are generated."""

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
    calls = lazy_calls(sizes, bytes_per_gradient(xs[0].dtype, wire), theta_bytes)
    allreduce = {"ring": ring_allreduce, "direct": direct_allreduce}[order]
    pieces = [allreduce([x[i:j] for x in xs], wire) for i, j in calls]
    return [np.concatenate([x[:0], *parts]) for x, *parts in zip(xs, *pieces)]
