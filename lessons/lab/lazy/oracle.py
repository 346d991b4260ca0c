"""Lesson 03's exchange against the definition: calls and bits, for each theta."""

from itertools import product

import numpy as np

import kit
from kit.oracle import agreed, exchanged, require_bits, vectors
from kit.rejected import reject
from kit.replay import sizes_of
from refgf.comm import direct, ring
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import direct_allreduce, lazy_allreduce, lazy_calls
from refgf.papers.scaling.workloads import resnet50

THETAS = 0, 2**10, 2**14, float("inf")
ALGORITHMS = (ring.allreduce, "ring"), (direct.allreduce, "direct")


def check(run: kit.Run, new_exchange) -> None:
    """ResNet-50's last layers in small. Raises AssertionError at the first difference."""
    run.section("The oracle")
    pool = Pool(sizes_of(resnet50(), 256)[:24], np.float32, run.xp.zeros)
    sizes = [spec.shape[0] for spec in pool.specs]
    xs = vectors(run, pool.flat.size)
    exactly = 4 * sizes[0]  # the bytes of the first gradient: not greater than theta, so it waits
    for theta, (algorithm, order) in product((*THETAS, exactly), ALGORITHMS):
        exchange = new_exchange(run, pool, theta, False, algorithm, check=True)
        got = exchanged(run, pool, exchange, xs[run.rank])
        calls = [(call.start, call.stop) for call in exchange.lazy.calls]
        where = f"lazy {order} allreduce on rank {run.rank}, theta {theta}"
        require_calls(where, calls, lazy_calls(sizes, 4, theta))
        require_bits(where, got, lazy_allreduce(xs, sizes, theta, order=order)[run.rank])
        if order == "direct":
            require_bits(where, got, direct_allreduce(xs)[run.rank], "for every theta")
    agreed(
        run,
        "theta: bytes that may wait. ring: lesson 01's allreduce. direct: adds in rank order.",
        f"{len(THETAS) + 1} values of theta, each with ring and with direct: calls and bits are as",
        "defined. The bits of direct do not depend on theta.",
    )


def require_calls(where: str, calls: list, wanted: list) -> None:
    """AssertionError with the number of calls and of their elements, if these are not as wanted."""
    if calls != wanted:
        got, want = (
            f"{len(found)} calls of {sum(stop - start for start, stop in found)} elements, "
            f"the first {found[:1]}"
            for found in (calls, wanted)
        )
        reject(f"{where}: got {got}; wanted {want}, (start, stop) in the pool")
