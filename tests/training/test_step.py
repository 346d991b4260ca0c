"""One step: what is announced, accepted and updated; that ranks are compared."""

import numpy as np
import pytest
from tests.support.tiny import BATCH, SPECS, N, Prescribed, samples

from refgf.comm.direct import direct_allreduce
from refgf.exchange.lazy import EagerAllreduce
from refgf.exchange.precision import LossScale
from refgf.exchange.result import StepResult
from refgf.machine import threads
from refgf.training.sgd import PlainSGD
from refgf.training.step import replica, require_same_parameters, train_step


class Recorder:
    """An exchange that sums nothing."""

    def __init__(self, result):
        self.result, self.announced = result, []

    def ready(self, index):
        self.announced.append(index)

    def finish(self):
        return self.result


def one_step(result, **settings):
    model, exchange = replica(Prescribed(initial=np.ones(N)), **settings), Recorder(result)
    before = model.parameters.flat.copy()
    train_step(model, exchange, samples(0), None, BATCH, 0.5)
    assert exchange.announced == list(range(len(SPECS)))
    return model, before


def test_an_accepted_step_moves_everything_by_the_gradient():
    model, before = one_step(StepResult())
    gradient = (samples(0).sum(axis=0) / BATCH).astype(np.float32)
    assert (model.parameters.flat == before - np.float32(0.5) * gradient).all()
    assert model.network.accepted == 1


def test_only_what_was_sent_moves():
    model, before = one_step(StepResult(True, [slice(3, 9), slice(9, 10)], [1, 1]))
    moved = model.parameters.flat != before
    assert moved[3:10].any() and not moved[:3].any() and not moved[10:].any()


def test_a_refused_step_changes_nothing():
    model, before = one_step(StepResult(False))
    assert (model.parameters.flat == before).all() and model.network.accepted == 0
    assert not model.optimizer.velocity.any()


def test_backward_is_multiplied_by_the_loss_scale():
    plain, _ = one_step(StepResult(False))
    scaled, _ = one_step(StepResult(False), loss_scale=LossScale(8.0))
    assert (scaled.gradients.flat == 8 * plain.gradients.flat).all()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_simplest_exchange_trains_p_ranks_as_one(size):
    """Eager, direct: the shares of all ranks are the whole batch."""

    def body(comm):
        model = replica(Prescribed(initial=np.ones(N)))
        exchange = EagerAllreduce(model.gradients, direct_allreduce(comm))
        for step in range(3):
            share = samples(step)[comm.Get_rank() :: comm.Get_size()]
            train_step(model, exchange, share, None, BATCH, 0.125)
        return require_same_parameters(comm, model.parameters.flat)

    assert set(threads.run(size, body)) == set(threads.run(1, body))


@pytest.mark.parametrize("batch, rate", [(0, 0.5), (-6, 0.5), ("6", 0.5), (6, "fast"), (6, np.nan)])
def test_a_wrong_batch_or_rate_is_refused_before_anything_is_sent(batch, rate):
    """By train_step: a network or an optimiser need not look at it."""
    exchange = Recorder(StepResult())
    model = replica(Prescribed())
    model.optimizer = PlainSGD(model.parameters.flat)
    wrong = f"(global_batch|rate): got {(batch if rate == 0.5 else rate)!r}"
    with pytest.raises(ValueError, match=f"train_step: {wrong}; wanted a finite number .*; next"):
        train_step(model, exchange, samples(0), None, batch, rate)
    assert not exchange.announced


def test_ranks_that_differ_are_reported():
    with pytest.raises(ValueError, match="hash of the parameters differs between ranks"):
        threads.run(3, lambda comm: require_same_parameters(comm, np.full(4, comm.rank == 2)))
