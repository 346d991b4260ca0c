"""Lazy allreduce: which calls, in which order, and the same sums whatever theta is."""

from collections import namedtuple

import numpy as np
import pytest

from refgf.comm.direct import direct_allreduce
from refgf.comm.ring import ring_allreduce
from refgf.exchange.lazy import EagerAllreduce, LazyAllreduce, Theta
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import lazy_calls

Spec = namedtuple("Spec", "name shape")
SIZES = [3, 0, 10, 1, 1, 40, 7]
THETAS = [0, 3, 4, 12, 40, 100, 10_000, float("inf")]


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


def test_forgotten_tail_is_caught():
    """The tail bug: 'training converges, the replicas quietly diverge'."""

    class ForgetsTheTail(LazyAllreduce):
        def finish(self):
            self._start = self._next = 0

    assert step(ForgetsTheTail(pool_of(SIZES), lambda x: None, Theta(1000)), SIZES) != lazy_calls(
        SIZES, 4, 1000
    )


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("theta", THETAS)
def test_direct_gives_the_same_bits_for_every_theta(on_ranks, theta, overlapped):
    def body(comm):
        def total(threshold_bytes, thread):
            pool = pool_of(SIZES)
            pool.flat[:] = np.random.default_rng(comm.Get_rank()).standard_normal(pool.flat.size)
            allreduce = direct_allreduce(comm.Dup() if thread else comm)
            worker = CommunicationThread() if thread else AtOnce()

            def run(x):
                worker.run(allreduce, x)

            step(LazyAllreduce(pool, run, Theta(threshold_bytes)), SIZES)
            worker.wait()
            worker.close()
            return pool.flat.tobytes()

        assert total(theta, overlapped) == total(0, False)

    on_ranks(body)


def test_ring_bits_depend_on_theta():
    """The reason why `direct` exists; if this fails, the data above prove nothing."""
    from refgf.machine import threads

    def body(comm, theta):
        pool = pool_of(SIZES)
        pool.flat[:] = np.random.default_rng(comm.rank).standard_normal(pool.flat.size)
        step(LazyAllreduce(pool, ring_allreduce(comm), Theta(theta)), SIZES)
        return pool.flat.tobytes()

    assert threads.run(5, body, 0) != threads.run(5, body, np.inf)


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
