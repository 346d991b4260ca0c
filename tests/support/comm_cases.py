"""Data and sizes that the tests of all collectives share."""

import functools
import threading

import numpy as np

from refgf.comm.replay import replay
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


def rounded(x, wire):
    """x as it arrives after a journey in the wire type."""
    with np.errstate(over="ignore"):
        return x.astype(wire or x.dtype).astype(x.dtype)


def tree_sum(xs, wire):
    """The tree: rank r adds rank r+1, then the sums of r+2, r+4, ..., in the wire type."""
    held, distance = list(xs), 1
    while distance < len(xs):
        for r in range(0, len(xs) - distance, 2 * distance):
            held[r] = held[r] + rounded(held[r + distance], wire)
        distance *= 2
    return rounded(held[0], wire)


@functools.lru_cache(maxsize=8)
def sums_of(algorithm, definition, p, n, dtype, wire):
    """definition(xs, wire): one sum, or a list of each rank's; and what each rank has in replay."""
    xs = order_sensitive(p, n, dtype, wire)
    return definition(xs, wire), replay([algorithm(r, p, n) for r in range(p)], xs, wire)


ONE_BY_ONE = threading.Lock()  # ranks on threads share what the first of them computes


def assert_bits_everywhere(comm, algorithm, definition, sizes, dtype, wire):
    """On every rank the bits of the definition and of replay. All sizes use the same scratch."""
    p, rank, allreduce = comm.Get_size(), comm.Get_rank(), collective(comm, algorithm, wire)
    for n in sizes:
        x = order_sensitive(p, n, dtype, wire)[rank]
        allreduce(x)
        with ONE_BY_ONE:
            wanted, replayed = sums_of(algorithm, definition, p, n, dtype, wire)
        wanted = wanted[rank] if isinstance(wanted, list) else wanted
        told = algorithm.__module__, algorithm.__name__, p, n, dtype, wire
        assert same_bits(x, wanted), told
        assert all(same_bits(x, other) for other in replayed), told


def assert_counted_costs(comm, algorithm, cost, wire):
    """Messages and bytes that each rank sends, against cost(rank, p, n) -> (messages, elements)."""
    traced, p, rank = TracedComm(comm), comm.Get_size(), comm.Get_rank()
    for n in sizes_of(p):
        traced.reset()
        collective(traced, algorithm, wire)(np.ones(n, np.float32))
        messages, elements = cost(rank, p, n)
        assert (traced.messages, traced.bytes) == (messages, elements * (2 if wire else 4)), (p, n)
    return traced
