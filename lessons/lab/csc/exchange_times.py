"""Lesson 06: the time of an exchange without computing, for networks of any size.

    rows = compare(run, tensors, kinds, line, repeats)    kinds: {name: CSCSettings, None for dense}

Own work is the same exchange on a communicator without a network: choosing, packing, norms, casts.
"""

from functools import partial

import numpy as np

import kit
from kit.replay import replay_backward
from refgf.engine.residual import FusedResidual
from refgf.exchange.lazy import Theta
from refgf.exchange.momentum_correction import CSCSettings
from refgf.exchange.pool import Pool
from refgf.machine.accelerator import InstantComm
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import Replica

THETA, SERIES = Theta(2**20), 5  # exchanges in a row are timed together


def kinds_of(n: int, density: float, chunk_elements: list[int]) -> dict:
    """{name: CSCSettings}: the dense exchange, and one with each length of a chunk."""
    kinds = {"dense": None}
    for chunk in chunk_elements:
        name = f"{density:g} %, {-(-n // chunk):,} chunks"
        kinds[name] = CSCSettings(density, chunk=chunk, residual=FusedResidual)
    return kinds


def compare(run: kit.Run, tensors, kinds: dict, line, repeats: int) -> list[dict]:
    """One row for each kind: the exchange in float16, measured and predicted.

    line: T(bytes) of an allreduce
    """
    rows = []
    for name, settings in kinds.items():
        own, _ = exchange(run, InstantComm(run.rank, run.size), tensors, settings, repeats)
        timing, stack = exchange(run, run.comm, tensors, settings, repeats)
        chosen = sum(2 * (call.stop - call.start) for call in stack.calls)
        norms = 8 * (len(stack.csc.chunks) + 1) if settings else 0
        messages_s = sum(line(2 * (call.stop - call.start)) for call in stack.calls)
        messages_s += line(norms) if norms else 0.0
        rows.append(
            {
                "name": name,
                "chosen_bytes": chosen,
                "norms_bytes": norms,
                "timing": timing,
                "own": own,
                "messages_s": messages_s,
                "predicted_s": messages_s + own.median_s,
            }
        )
    return rows


def exchange(run: kit.Run, comm, tensors, settings, repeats: int):
    """(Timing of an exchange of gradients that are all ready, its GradientFlow).

    The gradients are zeros. Others would grow, because each exchange sums those of the last one.
    """
    parameters, gradients = (Pool(tensors, np.float32, run.xp.zeros) for _ in range(2))
    model = Replica(None, parameters, gradients, MomentumSGD(tensors, parameters.flat))
    how = {"wire": np.float16, "grouping": THETA, "csc": settings}
    with GradientFlow(comm, model, **how) as stack:
        if isinstance(comm, InstantComm):
            keep_own_norms(stack)
        work = partial(replay_backward, stack, [0.0] * len(tensors))
        timing = run.time(lambda: [work() for _ in range(SERIES)], repeats).divided(SERIES)
        require_accepted(stack)
        return timing, stack


def keep_own_norms(stack: GradientFlow) -> None:
    """Choose from this rank's norms. Without a network their sum, and the flag, are not defined."""
    if stack.csc:
        stack.csc.sum_norms = lambda message: None


def require_accepted(stack: GradientFlow) -> None:
    """A step that is not accepted is another one: nothing is kept, chosen or updated."""
    if not stack.result.accepted:
        raise AssertionError("CSC: got a step that is not accepted; wanted finite gradients")


def show(run: kit.Run, rows: list[dict]) -> None:
    """The table, in the emulated cluster's time where there is one."""
    factor = run.regime.dilation
    head = ["", "chosen", "norms", "exchange", "predicted", "messages", "own work"]
    table = [
        [
            row["name"],
            kit.number_of_bytes(row["chosen_bytes"]),
            kit.number_of_bytes(row["norms_bytes"]),
            row["timing"].divided(factor),
            *(kit.seconds(row[key] / factor) for key in ("predicted_s", "messages_s")),
            kit.seconds(row["own"].median_s / factor),
        ]
        for row in rows
    ]
    run.table(head, table)
    pairs = [(row["predicted_s"], row["timing"].median_s) for row in rows]
    run.say(kit.errors_in_words(pairs))
