"""Lesson 06: a small pool for the oracle, and the comparison with the definition's bits."""

import numpy as np

from kit.replay import Size
from refgf.exchange.pool import Pool
from refgf.oracle import definitions
from refgf.oracle.definitions import csc_run, percent_of_step, same_bits
from refgf.training.sgd import MomentumSGD
from refgf.training.step import Replica

SIZES, CHUNK, PERCENT, THETA_BYTES = (30, 200, 0, 170), 16, 20, 100
RATE, MOMENTUM, DECAY = 0.1, 0.9, 0.01


def model() -> Replica:
    """A replica without a network, with random weights that are the same on all ranks."""
    tensors = [Size(f"t{i}", (n,), decay=True) for i, n in enumerate(SIZES)]
    parameters, gradients = Pool(tensors), Pool(tensors)
    parameters.flat[:] = weights()
    optimizer = MomentumSGD(tensors, parameters.flat, MOMENTUM, DECAY)
    return Replica(None, parameters, gradients, optimizer)


def weights() -> np.ndarray:
    return random_vector(9)


def gradients(size: int, steps: int) -> list[list[np.ndarray]]:
    """The gradients (n,) of each rank in each step; their sums depend on the order."""
    return [[random_vector([t, r]) for r in range(size)] for t in range(steps)]


def random_vector(seed) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(sum(SIZES)).astype(np.float32)


def require(rank: int, form: str, gs: list, lists: list, got: tuple[list, dict]) -> None:
    """AssertionError unless each step's weights and the last residual have the defined bits.

    gs: as `gradients` returns them. lists: chosen chunks of each step. got: (weights, residual)
    """
    wire = {"wire": "float16", "order": "ring", "theta_bytes": THETA_BYTES}
    settings = definitions.CSCRunSettings(SIZES, CHUNK, form, RATE, MOMENTUM, DECAY, **wire)
    percents = [percent_of_step(t, 1, (), PERCENT) for t in range(len(gs) + 1)]
    wanted, place = csc_run(weights(), gs, settings, percents, lists), f"CSC on rank {rank}, {form}"
    for t, report in enumerate(wanted):
        if not same_bits(got[0][t], report["w"][rank]):
            raise AssertionError(f"{place}, step {t}: got weights of other bits than defined")
    for name, defined in wanted[-1]["kept"][rank].items():
        if not same_bits(got[1][name], defined):
            raise AssertionError(f"{place}: got a residual {name} of other bits than defined")
