"""Lazy allreduce: which calls, in which order, and the same sums whatever theta is."""

from collections import namedtuple

import numpy as np
import pytest

from refgf.exchange.lazy import EagerAllreduce, LazyAllreduce, Theta
from refgf.exchange.pool import Pool

Spec = namedtuple("Spec", "name shape")
SIZES = [3, 0, 10, 1, 1, 40, 7]


def pool_of(sizes, dtype=np.float32):
    return Pool([Spec(f"t{i}", (n,)) for i, n in enumerate(sizes)], dtype)


def step(lazy, sizes):
    for i in range(len(sizes)):
        lazy.ready(i)
    lazy.finish()
    return [(call.start, call.stop) for call in lazy.calls]


def test_the_naive_form_makes_the_calls_of_theta_0():
    def calls(kind, *settings):
        seen = []
        exchange = kind(pool_of(SIZES), lambda x: seen.append(x.size), *settings)
        for i in range(len(SIZES)):
            exchange.ready(i)
        assert exchange.finish().accepted
        return [n for n in seen if n]

    assert calls(EagerAllreduce) == calls(LazyAllreduce, Theta(0)) == [n for n in SIZES if n]
    assert calls(EagerAllreduce) != calls(LazyAllreduce, Theta(4))


@pytest.mark.parametrize("theta", [-1, float("nan"), "much", None])
def test_theta_must_be_a_number_of_bytes(theta):
    with pytest.raises(ValueError, match="got theta = "):
        Theta(theta)


def test_gradients_out_of_order_or_missing_are_refused():
    lazy = LazyAllreduce(pool_of([1, 1]), lambda x: None, Theta(0))
    with pytest.raises(ValueError, match="gradient 1 is ready; wanted 0"):
        lazy.ready(1)
    lazy.ready(0)
    with pytest.raises(ValueError, match="finished after 1 of 2"):
        lazy.finish()
    lazy.ready(1)
    with pytest.raises(ValueError, match="gradient 2 is ready"):
        lazy.ready(2)
