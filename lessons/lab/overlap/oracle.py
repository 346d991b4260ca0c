"""Lesson 04's exchange against the definition: the same bits with and without a thread."""

import numpy as np

import kit
from kit.oracle import agreed, exchanged, require_bits, vectors
from refgf.exchange.pool import Pool
from refgf.nn.layers import TensorSpec
from refgf.oracle.definitions import lazy_allreduce
from refgf.papers.scaling.workloads import alexnet

THETA = 2**14  # bytes


def check(run: kit.Run, new_exchange) -> None:
    """new_exchange: (comm, pool, theta, overlap) -> exchange. AssertionError if bits differ."""
    run.section("The oracle")
    specs = [TensorSpec(t.name, t.shape, False) for t in alexnet(width=1 / 16).tensors]
    pool = Pool(specs, np.float32, run.xp.zeros)
    xs = vectors(run, pool.flat.size)
    wanted = lazy_allreduce(xs, [spec.size for spec in specs], THETA, "float16")[run.rank]
    for overlap in (False, True):
        exchange = new_exchange(run.comm, pool, THETA, overlap)
        where = f"lazy allreduce on rank {run.rank}, overlap {overlap}"
        require_bits(where, exchanged(run, pool, exchange, xs[run.rank]), wanted)
    agreed(run, f"{len(specs)} gradients, with the thread and without it: the definition's bits.")
