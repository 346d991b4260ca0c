"""Training with a compressor on gradients that a test prescribes."""

from functools import partial

import numpy as np

from refgf.comm.slices import slices
from refgf.machine import threads
from refgf.papers.powersgd.powersgd import PowerSGD
from tests.support.stacks import new_flow
from tests.support.tiny import BATCH, SHAPES, N, Prescribed, samples

TINY = [shape for _, shape, _ in SHAPES]


def power_sgd(shapes=TINY, rank=2, **settings):
    return partial(PowerSGD, shapes=shapes, rank=rank, **settings)


def on(size, compressor, steps, bad=None, loss_scale=None, **parts):
    """[(bits of parameters, of each state) on each rank]; step `bad` has an infinity on rank 0."""
    initial = np.random.default_rng(1).standard_normal(N).astype(np.float32)

    def body(comm):
        settings = dict(allreduce=compressor, momentum=0.5) | parts
        if loss_scale:
            settings["loss_scale"] = loss_scale()
        with new_flow(comm, Prescribed(initial=initial), **settings) as flow:
            for step in steps:
                g = samples(step)[slices(BATCH, size)[comm.Get_rank()]]
                if step == bad and comm.Get_rank() == 0:
                    g = np.where(np.arange(N) == 7, np.inf, g)
                flow.step(g, None, BATCH, rate=0.1)
                assert flow.result.accepted == (step != bad)
            flow.require_same_parameters()
            state = flow.compressed.compressor.state.values()
            return flow.model.parameters.flat.tobytes(), *(array.tobytes() for array in state)

    return threads.run(size, body)
