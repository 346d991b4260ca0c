"""Lesson 01's sums against the definition: values, bits, messages and bytes."""

import numpy as np

import kit
from kit.oracle import agreed, require_bits, vectors
from kit.rejected import reject
from refgf.comm import direct
from refgf.comm.replay import replay
from refgf.device import to_host
from refgf.engine.shared import SharedMemory
from refgf.oracle.definitions import (
    exact_sum,
    ring_allreduce,
    ring_traffic,
    same_bits,
    slice_bounds,
    summation_bound,
)


def sizes(p: int) -> list[int]:
    """Elements of the vectors: many, slices of two lengths, empty slices."""
    return [1000, p + 1, p - 1, 1, 0]


def check(run: kit.Run, allreduce) -> None:
    """Raise ValueError at the first difference; the message says what the definition wants."""
    p, rank = run.size, run.rank
    run.section("The oracle")
    for n in sizes(p):
        xs = vectors(run, n, n)
        x = run.array(xs[rank].copy())
        run.comm.reset()
        allreduce(x)
        where = f"ring allreduce of {n} elements on rank {rank} of {p}"
        require_sum(where, to_host(x), xs)
        messages, elements = ring_traffic(n, p, rank)
        sent, wanted = (run.comm.messages, run.comm.bytes), (messages, x.itemsize * elements)
        if sent != wanted:
            reject(
                f"{where}: got the right sum, but sent (messages, bytes) {sent}; wanted {wanted}; "
                "next: compare the steps (-v) with the drawing in refgf/comm/ring.py",
                ValueError,
            )
    agreed(
        run,
        "For n = 0, 1, p-1, p+1 and 1000 the bits are as defined.",
        f"Rank r sends 2(p-1) = {2 * (p - 1)} messages.",
        "They hold 2n - |slice r+1| - |slice r+2| elements.",
    )


def require_sum(where: str, x: np.ndarray, xs: list[np.ndarray]) -> None:
    """The sum of xs, and each slice added in the ring's order."""
    error = np.abs(x.astype(np.float64) - exact_sum(xs))
    far, p = ~(error <= summation_bound(xs)), len(xs)
    wanted = ring_allreduce(xs)[0]
    for s, (start, stop) in enumerate(slice_bounds(x.size, p)):
        mine = slice(start, stop)
        right = "the right sum, but added in another order (other bits)"
        got = "no sum" if far[mine].any() else right
        if far[mine].any() or not same_bits(x[mine], wanted[mine]):
            return reject(
                f"{where}: got {got} in slice {s}; wanted {order(s, p)}, added from left to "
                "right; next: compare the steps (-v) with the drawing in refgf/comm/ring.py",
                ValueError,
            )


def order(s: int, p: int) -> str:
    """The ring's order of summation of slice s: x1 + x2 + ... + x0."""
    terms = [f"x{(s + k) % p}" for k in range(p)]
    return " + ".join(terms if p < 6 else [*terms[:3], "...", terms[-1]])


def check_shared_memory(run: kit.Run, allreduce: SharedMemory) -> None:
    """Through shared memory the bits are those of `direct`."""
    for n in (0, 1, run.size + 1, 100_000):
        xs = vectors(run, n, n)
        x = xs[run.rank].copy()
        allreduce(x)
        steps = [direct.allreduce(r, run.size, n) for r in range(run.size)]
        where = f"shared-memory allreduce of {n} elements on rank {run.rank}"
        require_bits(where, x, replay(steps, xs)[run.rank], "direct's")
