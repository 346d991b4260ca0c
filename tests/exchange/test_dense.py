"""The dense exchange: unscaled sums, and one verdict on all ranks."""

import time
from collections import namedtuple

import numpy as np
import pytest

from refgf.exchange.dense import DenseExchange, Transport
from refgf.exchange.lazy import Theta
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale

Spec = namedtuple("Spec", "name shape")
SIZES = [2, 3, 1]


def exchanged(gradients, worker, checker, theta=0.0, allreduce=lambda x: None):
    """(result, pool, loss scale) of one step with loss scale 16."""
    pool = Pool([Spec(f"t{i}", (n,)) for i, n in enumerate(SIZES)])
    pool.flat[...] = gradients
    scale = LossScale(16.0, dynamic=True)
    transport = Transport(allreduce, Theta(theta), worker=worker, checker=checker)
    exchange = DenseExchange(pool, transport, scale)
    for index in range(len(SIZES)):
        exchange.ready(index)
    result = exchange.finish()
    worker.close()
    checker.close()
    return result, pool.flat, scale


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("theta", [0, 8, np.inf])
def test_sums_are_unscaled(theta, threaded):
    kind = CommunicationThread if threaded else AtOnce
    g = np.array([0.0, -0.0, 1, 65504, 1e-20, 3e38], np.float32)
    result, sums, scale = exchanged(g, kind(), kind(), theta)
    assert result.accepted and result.sent is None and scale.scale == 16
    assert sums.tobytes() == (g / 16).tobytes()


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", range(6))
def test_an_infinity_anywhere_refuses_the_step(where, bad):
    g = np.ones(6, np.float32)
    g[where] = bad
    result, _, scale = exchanged(g, AtOnce(), AtOnce())
    assert not result.accepted and scale.scale == 8 and scale.skipped == 1


def test_finite_numbers_whose_sum_overflows_are_finite():
    """Looking at the sum of the elements would be wrong here."""
    g = np.full(6, 3e38, np.float32)
    with np.errstate(over="ignore"):
        assert np.isinf(g.sum())
    assert exchanged(g, AtOnce(), AtOnce())[0].accepted


def test_a_late_check_is_waited_for():
    class Late(CommunicationThread):
        def run(self, work, x):
            super().run(lambda y: (time.sleep(0.05), work(y)), x)

    g = np.array([1, 1, 1, 1, 1, np.inf], np.float32)
    assert not exchanged(g, CommunicationThread(), Late())[0].accepted
