"""Data and sizes that the tests of all collectives share."""

import numpy as np

from refgf.comm.schedule import collective
from refgf.machine.trace import TracedComm

WIRES = [
    ("float16", None),
    ("float32", None),
    ("float64", None),
    ("float32", "float16"),
    ("float64", "float32"),
]


def sizes_of(p, longest=10_007):
    """Empty, one element, fewer elements than ranks, one more and less, primes."""
    return sorted({0, 1, p - 1, p, p + 1, 7, 1000, longest})


def order_sensitive(p, n, dtype, wire=None):
    """One array per rank, whose float sum depends on the order: large, small, opposite elements.

    With a wire type they are large for that one: its sums depend on the order, and it rounds.
    """
    random = np.random.default_rng(p * 1_000_003 + n)
    large = {"float16": 2.0**11, "float32": 2.0**24, "float64": 2.0**53}[
        str(np.dtype(wire or dtype))
    ]
    family = np.array([large, 1.0, -large, 0.5, -1.0, 3.0, -0.0])
    return [random.choice(family, n).astype(dtype) for _ in range(p)]


def same_bits(a, b):
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


def assert_counted_costs(comm, algorithm, cost, wire):
    """Messages and bytes that each rank sends, against cost(rank, p, n) -> (messages, elements)."""
    traced, p, rank = TracedComm(comm), comm.Get_size(), comm.Get_rank()
    for n in sizes_of(p):
        traced.reset()
        collective(traced, algorithm, wire)(np.ones(n, np.float32))
        messages, elements = cost(rank, p, n)
        assert (traced.messages, traced.bytes) == (messages, elements * (2 if wire else 4)), (p, n)
    return traced
