"""Rounding errors of sums, and of a loss whose gradients were summed in another order."""

import numpy as np

import kit
from kit import images
from refgf.comm.replay import replay
from refgf.device import to_host
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import lazy_allreduce, on_wire, summation_bound

ELEMENTS = 512  # of a replayed vector, or one for each rank if there are more ranks


def loss_after_one_step(run: kit.Run, data, thetas, rate: float = 0.01) -> tuple[float, float]:
    """The next batch's loss after one SGD step: (difference between thetas, its bound).

    Gradients are summed with the ring. Two sums of the same p numbers differ by at most 2 B, where
    B is the summation bound. So two parameters differ by at most

        d = 2 rate B + 4 u (|w| + rate (|sum| + decay |w|))

    where u is the unit roundoff of the update's four operations. To first order, two losses differ
    by at most the sum over the parameters of |gradient| d. The loss is evaluated in float64.
    """
    model = images.model(run, data)
    first, second = images.steps(run, data, 2)
    model.network.loss(*first)
    model.network.backward(lambda i: None)
    everybody = run.gather(model.gradients.flat.copy())
    start = to_host(model.parameters.flat).copy()
    judge = images.network(run, data, dtype=np.float64, dropout=0.0, xp=np)
    parameters, gradients = Pool(judge.tensors, np.float64), Pool(judge.tensors, np.float64)
    judge.bind(parameters.views, gradients.views)
    losses = []
    for theta in thetas:
        total = lazy_allreduce(everybody, [spec.size for spec in judge.tensors], theta)[run.rank]
        model.parameters.flat[:], model.optimizer.velocity[:] = run.array(start), 0
        model.optimizer.step(run.array(total), rate)
        parameters.flat[:] = to_host(model.parameters.flat)
        losses.append(judge.loss(*second))
    judge.backward(lambda i: None)
    magnitude = np.abs(start) + rate * (
        np.abs(total) + model.optimizer.weight_decay * np.abs(start)
    )
    distance = 2 * rate * summation_bound(everybody) + 4 * 2.0**-24 * magnitude
    mine = np.append(losses, (np.abs(gradients.flat) * distance).sum())
    *totals, bound = np.sum(run.plain.allgather(mine), axis=0)
    return float(np.ptp(totals)), float(bound)


def error_of(p: int, module, wire) -> float:
    """Relative error of the sum of p random vectors, replayed in this process."""
    xs = [
        np.random.default_rng([p, r]).standard_normal(max(p, ELEMENTS)).astype(np.float32)
        for r in range(p)
    ]
    exact = np.sum(xs, axis=0, dtype=np.float64)
    got = replay([module.allreduce(r, p, len(exact)) for r in range(p)], xs, wire)[0]
    return rms(got - exact) / rms(exact)


def one_rounding() -> float:
    """Relative error of rounding random numbers to float16 once."""
    x = np.random.default_rng(0).standard_normal(100_000).astype(np.float32)
    return rms(on_wire(x, "float16") - x) / rms(x)


def rms(x) -> float:
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def ring_sum(x, p: int):
    """The sum of p equal vectors on a float16 ring, for one slice: all slices round alike."""
    total = x
    for _ in range(p - 1):
        total = x + on_wire(total, "float16")
    return on_wire(total, "float16")
