"""Steps on a virtual accelerator: stacks that share the pools of one model, and CSC's own work."""

from argparse import Namespace

import numpy as np
import pytest

import kit
from kit import virtual
from refgf.exchange.momentum_correction import CSCSettings
from refgf.exchange.precision import LossScale
from refgf.machine import threads
from tests.support.sizes import long_but

OPTIONS = {"link": None, "like": "v100-56gbit", "quick": True, "full": False}


def on_ranks(function, size: int = 2) -> list:
    options = Namespace(**OPTIONS, threads=size)
    return threads.run(size, lambda comm: function(kit.Run(comm, options)))


@pytest.mark.long
def test_stacks_share_pools_but_neither_pace_nor_loss_scale():
    def shared(run):
        model = virtual.model(run, "alexnet")
        pace, scale = model.network.pace, model.loss_scale
        scaled = {"wire": np.float16, "loss_scale": LossScale(1024.0)}
        with virtual.flow(run, "alexnet", shared=model, **scaled) as stack:
            virtual.time_steps(run, stack, 1)
            assert stack.model.gradients is model.gradients
            assert stack.model.loss_scale.scale == 1024.0
        assert virtual.own_work(run, "alexnet", 1, shared=model) > 0
        assert model.network.pace is pace and model.loss_scale is scale
        return np.isfinite(model.gradients.flat).all() and model.gradients.flat.any()

    assert all(on_ranks(shared))


@pytest.mark.parametrize("warmup", long_but([0, 1], 1))
def test_timed_steps_and_those_before(warmup):
    """CSC's first step is dense, so there is one more before the timed ones."""

    def steps(run):
        model = virtual.model(run, "alexnet", when=virtual.pace(run, "alexnet").dilated(1e-6))

        def taken(csc):
            with virtual.flow(run, "alexnet", shared=model, csc=csc) as stack:
                one, calls = stack.step, []
                stack.step = lambda *batch, rate: calls.append(one(*batch, rate=rate))
                return len(virtual.seconds_of_steps(run, stack, 2, warmup=warmup)), len(calls)

        return [taken(csc) for csc in (None, CSCSettings(10.0, chunk=256))]

    assert on_ranks(steps) == 2 * [[(2, 2 + warmup), (2, 3 + warmup)]]


def test_own_work_of_csc_and_its_part_after_the_last_gradient():
    def works(run):
        model = virtual.model(run, "alexnet")
        csc = CSCSettings(10.0, chunk=256)
        how = {"wire": np.float16, "overlap": True, "csc": csc, "shared": model}
        return virtual.own_work_of_csc(run, "alexnet", count=3, **how)

    for whole_s, after_s in on_ranks(works):
        assert 0 < after_s < whole_s
