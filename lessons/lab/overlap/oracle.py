"""Lesson 04's exchange against the definition: the same bits with and without a thread."""

import numpy as np

import kit
from refgf.device import to_host
from refgf.exchange.pool import Pool
from refgf.nn.layers import TensorSpec
from refgf.oracle.definitions import lazy_allreduce, same_bits
from refgf.papers.scaling.workloads import alexnet

THETA = 2**14  # bytes


def check(run: kit.Run, new_exchange) -> None:
    """new_exchange: (comm, pool, theta, overlap) -> exchange. AssertionError if bits differ."""
    run.section("The oracle")
    specs = [TensorSpec(t.name, t.shape, False) for t in alexnet(width=1 / 16).tensors]
    pool = Pool(specs, np.float32, run.xp.zeros)
    own = np.random.default_rng(run.rank).standard_normal(pool.flat.size).astype(np.float32)
    xs = run.gather(own)
    wanted = lazy_allreduce(xs, [spec.size for spec in specs], THETA, "float16")[run.rank]
    for overlap in (False, True):
        pool.flat[:] = run.array(own)
        exchange = new_exchange(run.comm, pool, THETA, overlap)
        for i in range(len(specs)):
            exchange.ready(i)
        exchange.finish()
        if not same_bits(to_host(pool.flat), wanted):
            raise AssertionError(
                f"lazy allreduce on rank {run.rank}, overlap {overlap}: got other bits; "
                "wanted those of the definition"
            )
    run.say(f"{len(specs)} gradients, with the thread and without it: the definition's bits.")
