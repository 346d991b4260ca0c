"""Lesson 06's step against the definition: weights, residuals and choices of every form."""

import numpy as np

import kit
from kit.oracle import agreed, require_bits
from kit.rejected import reject
from kit.replay import Size
from refgf.device import to_host
from refgf.engine.residual import FusedResidual
from refgf.exchange.momentum_correction import FORMS, CSCSettings
from refgf.exchange.pool import Pool
from refgf.oracle import definitions
from refgf.oracle.definitions import csc_run, percent_of_step
from refgf.oracle.judge.profiles import is_near
from refgf.training.sgd import MomentumSGD
from refgf.training.step import Replica

SIZES, CHUNK, PERCENT, THETA_BYTES = (30, 200, 0, 165), 16, 20, 100
RATE, MOMENTUM, DECAY = 0.1, 0.9, 0.01


def check(run: kit.Run, new_exchange, step) -> None:
    """A small pool over a few steps. Raises AssertionError at the first difference.

    new_exchange: (run, model, settings, theta) -> CSC; step: (exchange, model, gradients, rate)
    """
    run.section("The oracle")
    gs = gradients(run.size, steps=run.quick(4, 8))
    for form in FORMS:
        model, lists, weights = small_model(run), [], []
        settings = CSCSettings(PERCENT, form, CHUNK, residual=FusedResidual)
        exchange = new_exchange(run, model, settings, THETA_BYTES)
        for mine in gs:
            lists.append(exchange.chosen)
            step(exchange, model, run.array(mine[run.rank]), RATE)
            weights.append(to_host(model.parameters.flat).copy())
        kept = {name: to_host(x) for name, x in exchange.residual.current_state().items()}
        require(run.rank, form, gs, lists, (weights, kept))
    agreed(
        run,
        f"{', '.join(FORMS)}:",
        f"the bits of the definition over {len(gs)} steps, with float16, lazy allreduce and",
        "weight decay",
    )


def small_model(run: kit.Run) -> Replica:
    """A replica without a network, with random weights that are the same on all ranks."""
    tensors = [Size(f"t{i}", (n,), decay=True) for i, n in enumerate(SIZES)]
    parameters, gradients = (Pool(tensors, np.float32, run.xp.zeros) for _ in range(2))
    parameters.flat[:] = run.array(random_vector(9))
    optimizer = MomentumSGD(tensors, parameters.flat, MOMENTUM, DECAY)
    return Replica(None, parameters, gradients, optimizer)


def gradients(size: int, steps: int) -> list[list[np.ndarray]]:
    """The gradients (n,) of each rank in each step; their sums depend on the order.

    The last chunk is shorter and its gradients are larger: only a norm that is divided by the
    chunk's length chooses it at once.
    """
    larger = np.ones(sum(SIZES), np.float32)
    larger[-(sum(SIZES) % CHUNK) :] = 1.4
    return [[larger * random_vector([t, r]) for r in range(size)] for t in range(steps)]


def random_vector(seed) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(sum(SIZES)).astype(np.float32)


def require(rank: int, form: str, gs: list, lists: list, got: tuple[list, dict]) -> None:
    """AssertionError unless each step's weights and the last residual have the defined bits.

    So must the lists be: those of the most important chunks, but for the rounding of norms.
    gs: as `gradients` returns them. lists: chosen chunks of each step. got: (weights, residual)
    """
    wire = {"wire": "float16", "order": "ring", "theta_bytes": THETA_BYTES}
    settings = definitions.CSCRunSettings(SIZES, CHUNK, form, RATE, MOMENTUM, DECAY, **wire)
    percents = [percent_of_step(t, 1, (), PERCENT) for t in range(len(gs) + 1)]
    wanted = csc_run(random_vector(9), gs, settings, percents, lists)
    place = f"CSC on rank {rank}, {form}"
    share = 1 - 2 * len(gs[0]) * CHUNK * 2.0**-53  # see is_near
    for t, (percent, dense) in enumerate(percents[:-1]):
        norms = None if dense else wanted[t - 1]["importance"]
        best = None if dense else definitions.choose(norms, percent)
        if lists[t] != best and (
            None in (lists[t], best) or not is_near(lists[t], norms, percent, share)
        ):
            reject(f"{place}, step {t}: got chunks {lists[t]}; wanted {best}")
    for t, report in enumerate(wanted):
        require_bits(f"{place}, weights of step {t}", got[0][t], report["w"][rank])
    for name, defined in wanted[-1]["kept"][rank].items():
        require_bits(f"{place}, residual {name}", got[1][name], defined)
