"""How far apart two losses may be when gradients were summed in another order."""

import numpy as np

import images
import kit
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import lazy_allreduce, summation_bound


def loss_after_one_step(run: kit.Run, data, thetas, rate: float = 0.01) -> tuple[float, float]:
    """(difference between thetas, its bound) of the next batch's loss after one step of SGD with the ring's sums.

    Two sums of the same p numbers differ by at most 2 B, B the summation bound; so two parameters differ by at most
    d = 2 rate B + 4 u (|w| + rate (|sum| + decay |w|)), u the unit roundoff of the update's four operations; and two
    losses, to first order, by the sum over the parameters of |gradient| d. The loss is evaluated in float64.
    """
    model = images.model(run, data)
    first, second = images.steps(run, data, 2)
    model.network.loss(*first)
    model.network.backward(lambda i: None)
    everybody = run.gather(model.gradients.flat.copy())
    start = model.parameters.flat.copy()
    judge = images.network(run, data, dtype=np.float64, dropout=0.0)
    parameters, gradients = Pool(judge.tensors, np.float64), Pool(judge.tensors, np.float64)
    judge.bind(parameters.views, gradients.views)
    losses = []
    for theta in thetas:
        total = lazy_allreduce(everybody, [spec.size for spec in judge.tensors], theta)[run.rank]
        model.parameters.flat[:], model.optimizer.velocity[:] = start, 0
        model.optimizer.step(total, rate)
        parameters.flat[:] = model.parameters.flat
        losses.append(judge.loss(*second))
    judge.backward(lambda i: None)
    magnitude = np.abs(start) + rate * (np.abs(total) + model.optimizer.weight_decay * np.abs(start))
    distance = 2 * rate * summation_bound(everybody) + 4 * 2.0**-24 * magnitude
    mine = np.append(losses, (np.abs(gradients.flat) * distance).sum())
    *totals, bound = np.sum(run.plain.allgather(mine), axis=0)
    return float(np.ptp(totals)), float(bound)
