"""CSC against its naive form; the whole of it against the definition is in tests/training."""

from collections import namedtuple

import numpy as np
import pytest

from refgf.comm.direct import direct_allreduce
from refgf.exchange.csc import CSC, TopChunks
from refgf.exchange.dense import Transport
from refgf.exchange.momentum_correction import CSCSettings, Residual
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale
from refgf.machine import threads

Spec = namedtuple("Spec", "name shape decay")
SIZES = [3, 0, 20, 1, 40, 17]
CHUNK, PERCENT, STEPS = 8, 30, 6


def pool_of():
    return Pool([Spec(f"t{i}", (n,), True) for i, n in enumerate(SIZES)])


def naive(comm):
    return TopChunks(pool_of(), direct_allreduce(comm), CHUNK, PERCENT)


def real(comm, form="none"):
    pool, settings = pool_of(), CSCSettings(PERCENT, form, CHUNK)
    residual = Residual(pool, np.zeros_like(pool.flat), settings, 0.5, 0.0, comm.Get_size())
    transport = Transport(direct_allreduce(comm))
    return CSC(settings, residual, transport, direct_allreduce(comm), LossScale())


def sent(comm, make):
    """What each step's sums are, zeros where nothing was sent: (STEPS, n)."""
    exchange, rng, found = make(comm), np.random.default_rng(comm.Get_rank()), []
    for _ in range(STEPS):
        flat = exchange.pool.flat
        flat[...] = rng.standard_normal(flat.size)
        for index in range(len(SIZES)):
            exchange.ready(index)
        result = exchange.finish()
        sums = np.zeros_like(flat)
        for part in result.sent:
            sums[part] = flat[part]
        found.append(sums)
    return np.stack(found).tobytes()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_naive_form_sends_the_same(size):
    """Bit for bit: `direct` adds in rank order, whatever the slices of a call are."""
    assert threads.run(size, sent, naive) == threads.run(size, sent, real)


def test_gradients_out_of_order_or_missing_are_refused():
    def body(comm):
        exchange = real(comm)
        with pytest.raises(ValueError, match="CSC: gradient 1 is ready; wanted 0 of 6"):
            exchange.ready(1)
        exchange.ready(0)
        with pytest.raises(ValueError, match="CSC: finished after 1 of 6"):
            exchange.finish()

    threads.run(1, body)
