"""Lesson 03's exchange against the definition: calls and bits, for each theta."""

from itertools import product

import numpy as np

import kit
from kit.replay import sizes_of
from refgf.comm import direct, ring
from refgf.device import to_host
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import direct_allreduce, lazy_allreduce, lazy_calls, same_bits
from refgf.papers.scaling.workloads import resnet50

THETAS = 0, 2**10, 2**14, float("inf")
ALGORITHMS = (ring.allreduce, "ring"), (direct.allreduce, "direct")


def check(run: kit.Run, new_exchange) -> None:
    """ResNet-50's last layers in small. Raises AssertionError at the first difference."""
    run.section("The oracle")
    pool = Pool(sizes_of(resnet50(), 256)[:24], np.float32, run.xp.zeros)
    sizes = [spec.shape[0] for spec in pool.specs]
    xs = [
        np.random.default_rng(rank).standard_normal(pool.flat.size).astype(np.float32)
        for rank in range(run.size)
    ]
    exactly = 4 * sizes[0]  # the bytes of the first gradient: not greater than theta, so it waits
    for theta, (algorithm, order) in product((*THETAS, exactly), ALGORITHMS):
        pool.flat[:] = run.array(xs[run.rank])
        exchange = new_exchange(run, pool, theta, False, algorithm, check=True)
        for i in range(len(sizes)):
            exchange.ready(i)
        exchange.finish()
        calls = [(call.start, call.stop) for call in exchange.lazy.calls]
        got = to_host(pool.flat)
        wanted = lazy_allreduce(xs, sizes, theta, order=order)[run.rank]
        where = f"lazy {order} allreduce on rank {run.rank}, theta {theta}"
        require_calls(where, calls, lazy_calls(sizes, 4, theta))
        if not same_bits(got, wanted):
            raise AssertionError(f"{where}: got other bits; wanted the definition's")
        if order == "direct" and not same_bits(got, direct_allreduce(xs)[run.rank]):
            raise AssertionError(f"{where}: got bits that depend on theta; wanted the same")
    run.say("theta: bytes that may wait. ring: lesson 01's allreduce. direct: adds in rank order.")
    run.say(
        f"{len(THETAS) + 1} values of theta, each with ring and with direct: calls and bits are as"
    )
    run.say("defined. The bits of direct do not depend on theta.")


def require_calls(where: str, calls: list, wanted: list) -> None:
    """AssertionError with the number of calls and of their elements, if these are not as wanted."""
    if calls != wanted:
        got, want = (
            f"{len(found)} calls of {sum(stop - start for start, stop in found)} elements, "
            f"the first {found[:1]}"
            for found in (calls, wanted)
        )
        raise AssertionError(f"{where}: got {got}; wanted {want}, (start, stop) in the pool")
