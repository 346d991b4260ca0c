"""Lesson 06: what a single gradient does to its weight under each form of momentum correction.

    rows = follow(momentum=0.9, every=10, steps=400)

The gradient is 1 in step 1 and 0 afterwards. Its chunk is sent in every tenth step. The residual
and the optimiser are the ones that train, with one number in the pool.
"""

from dataclasses import dataclass

import numpy as np

from kit.replay import Size
from refgf.exchange.momentum_correction import BEFORE, FORMS, CSCSettings, Residual
from refgf.exchange.pool import Pool
from refgf.training.sgd import MomentumSGD

ONE = [Size("w", (1,))]


@dataclass(frozen=True)
class Moved:
    """How far the weight has moved, divided by the learning rate.

    first    right after the chunk is sent for the first time
    in_all   in the end
    half_by  the step in which half of `in_all` is reached
    """

    form: str
    first: float
    in_all: float
    half_by: int


def follow(momentum: float, every: int, steps: int) -> list[Moved]:
    """One row for dense training, and one for each form."""
    rows = []
    for form in ("dense", *FORMS):
        moved = np.cumsum(changes(form, momentum, every, steps))  # (steps,)
        half_by = 1 + int(np.argmax(moved >= moved[-1] / 2))
        rows.append(Moved(form, float(moved[every - 1]), float(moved[-1]), half_by))
    return rows


def changes(form: str, momentum: float, every: int, steps: int) -> np.ndarray:
    """By how much each step moves the weight, divided by the learning rate. -> (steps,)"""
    pool, weight = Pool(ONE), Pool(ONE)
    optimizer, residual = MomentumSGD(ONE, weight.flat, momentum), None
    if form != "dense":
        optimizer, momentum, _ = optimizer.split(form in BEFORE)
        settings = CSCSettings(form=form, chunk=1)
        residual = Residual(pool, weight.flat, settings, momentum, 0.0, size=1)
    weights = [0.0]
    for step in range(1, steps + 1):
        pool.flat[:] = step == 1
        if residual is None:
            optimizer.step(pool.flat, 1.0)
        else:
            sent = [0] if step % every == 0 else []
            optimizer.step(pool.flat, 1.0, accept(residual, sent))
        weights.append(float(weight.flat[0]))
    return -np.diff(weights)


def accept(residual: Residual, sent: list[int]) -> list[slice]:
    """One accepted step of the residual, in which the chunks `sent` are sent. -> their slices"""
    packed = np.zeros(len(sent), np.float32)
    residual.accumulate(0, 1.0)
    residual.pack(sent, 1.0, packed)
    chunks = [residual.chunks[number] for number in sent]
    residual.update(chunks, dense=False)
    residual.unpack(sent, packed, 1.0, np.ones(1))
    return chunks


def show(run, momentum: float = 0.9, steps: int = 1000) -> list[Moved]:
    """The rows for a chunk that is sent as often as the density says, and their table."""
    every = max(1, round(100 / run.options.density))
    rows = follow(momentum, every, steps)
    run.section(f"One gradient of 1; momentum {momentum:g}, sent every {every} steps")
    run.table(
        ["form", "the weight has moved when first sent", "in all", "half of it by step"],
        [[row.form, f"{row.first:.2f}", f"{row.in_all:.2f}", row.half_by] for row in rows],
    )
    return rows
