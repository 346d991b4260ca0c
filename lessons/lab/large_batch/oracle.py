"""Lesson 11 against the definition: LARS with serial and parallel norms, and accumulation."""

import functools

import numpy as np

import kit
from kit.oracle import agreed, require_bits
from lab.large_batch import lars_norms, training
from refgf.comm.direct import direct_allreduce
from refgf.device import to_host
from refgf.oracle.definitions import LARSSettings, lars_step
from refgf.papers.jia.lars import LARS, SHARES, squared_norms
from refgf.training.gradientflow import GradientFlow
from refgf.training.step import replica

RATE, TRUST, DECAY = 0.3, 0.01, 5e-4
IMAGES, STEPS = 5, 2  # per rank; of the accumulation


def check(run: kit.Run, data, large_step) -> None:
    """Raises AssertionError at the first difference. large_step: the lesson's."""
    run.section("The oracle")
    check_lars(run, data)
    check_accumulation(run, data, large_step)


def check_lars(run: kit.Run, data) -> None:
    """A LARS step has the bits of the definition, whichever ranks form the norms."""
    tensors = training.network(run, data, 1).tensors
    n, rng = sum(spec.size for spec in tensors), np.random.default_rng(1)
    # Small multiples of 1/16: squares and their sums are exact in any order.
    w, g = (rng.integers(-64, 65, (2, n)) / 16).astype(np.float32)
    sizes, decayed = tuple(t.size for t in tensors), tuple(t.decay for t in tensors)
    settings = LARSSettings(sizes, RATE, 0.9, TRUST, DECAY, decayed)
    wanted, _ = lars_step(w, np.zeros_like(w), g, settings)
    for by in (None, *SHARES):
        run.comm.reset()
        norms = squared_norms if by is None else lars_norms.parallel(run, by)
        optimizer = LARS(tensors, run.array(w.copy()), TRUST, weight_decay=DECAY, norms=norms)
        optimizer.step(run.array(g), RATE)
        where = f"LARS step on rank {run.rank}, norms by {by}"
        require_bits(where, optimizer.parameters, wanted)
        lars_norms.require_traffic(run, 0 if by is None else 2 * sum(t.decay for t in tensors))
    agreed(
        run,
        "LARS step with serial norms, by slices and by layers: the bits of the definition;",
        "parallel norms take one allreduce of 2L numbers",
    )


def check_accumulation(run: kit.Run, data, large_step) -> None:
    """One rank with p micro-batches has the bits of p ranks with one each."""
    ranks, batch = run.size, IMAGES * run.size
    lars = functools.partial(LARS, trust=TRUST, weight_decay=0.0)
    models = [replica(training.network(run, data, 1, 0.0), lars, seed=1) for _ in range(2)]
    with GradientFlow(run.comm, models[0], allreduce=direct_allreduce) as together:
        for step in range(STEPS):
            first = batch * step + IMAGES * np.arange(ranks)
            micro_batches = [data.load(np.arange(at, at + IMAGES)) for at in first]
            together.step(*micro_batches[run.rank], batch, 0.1)
            large_step(models[1], micro_batches, batch, 0.1)
        bits = [to_host(model.parameters.flat) for model in models]
    where = f"gradient accumulation on rank {run.rank}"
    require_bits(where, bits[1], bits[0], f"those of {ranks} ranks with {IMAGES} images each")
    agreed(
        run,
        f"{ranks} ranks with {IMAGES} images each, direct allreduce: the bits of one rank that",
        f"accumulates {ranks} micro-batches",
    )
