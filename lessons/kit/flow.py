"""GradientFlow around a fresh network, timed and trained: for lessons 03 to 07 and later ones.

with flow.new(run, data, overlap=True, csc=flow.csc(run, data, 10.0)) as stack: ...
timing = flow.time_steps(run, stack, batches)
rows = flow.learn(run, stack, train, held_out, epochs)
"""

import math
from functools import partial

import numpy as np

import kit
from kit import call_times, images, step_times
from kit.rejected import noted
from refgf.comm.ring import ring_allreduce
from refgf.comm.slices import chunks
from refgf.engine.residual import FusedResidual
from refgf.exchange.chunk_choice import Density
from refgf.exchange.momentum_correction import CSCSettings
from refgf.machine.checkpoint import CheckpointNotWritten, Checkpoints
from refgf.oracle.definitions import csc_payload_bytes
from refgf.training.data import batches, steps_per_epoch
from refgf.training.gradientflow import GradientFlow

MODEL = ("momentum", "weight_decay", "half_weights", "loss_scale")
CHUNKS = 1904  # of the full AlexNet; with 32,768 elements a small network would have about ten


def new(run: kit.Run, data, seed: int = images.SEED, **arguments) -> GradientFlow:
    """GradientFlow around a new model. arguments: of `GradientFlow` and of `images.model`."""
    model = {name: arguments.pop(name) for name in MODEL if name in arguments}
    return GradientFlow(run.comm, images.model(run, data, seed, **model), **arguments)


def csc(run: kit.Run, data, density: float | Density, form: str = "dgc", **settings):
    """CSCSettings. The default chunk gives as many chunks as the full AlexNet has."""
    settings.setdefault("chunk", chunk_of(run, images.parameter_count(run, data)))
    return CSCSettings(density, form, **settings, residual=FusedResidual)


def chunk_of(run: kit.Run, n: int) -> int:
    """Elements of a chunk: --chunk in a lesson that has this option, else the default."""
    given = getattr(run.options, "chunk", None)
    return chunk_elements(n) if given is None else given


def chunk_elements(n: int) -> int:
    """The default: n gradients have about CHUNKS chunks."""
    return max(1, n // CHUNKS)


def csc_bytes(n: int, p: int, percent: float) -> float:
    """Bytes that a rank sends with CSC: the ring's formula, nearly exact for norms and flag."""
    chunk = chunk_elements(n)
    chosen = list(range(max(1, math.ceil(number_of_chunks(n, chunk) * percent / 100))))
    return 2 * (p - 1) / p * csc_payload_bytes(chosen, n, chunk)


def number_of_chunks(n: int, chunk: int) -> int:
    return len(chunks(n, chunk))


def time_steps(run: kit.Run, stack: GradientFlow, steps, rate: float = 0.0):
    """The Timing of training steps without the first two: one is dense, one allocates buffers.

    steps: the batches of `images.steps`
    """
    step = partial(stack.step, rate=rate)
    return run.slowest([run.timed(step, *batch) for batch in steps][2:])


def without_exchange(run: kit.Run, data, steps):
    """(Timing of a step without any exchange, when each gradient is ready): see step_times.py."""
    return step_times.without_exchange(run, images.model(run, data), steps, skip=2)


def fit_allreduce(run: kit.Run, elements: list[int], wire=None, repeats: int = 7):
    """T(m) = a + b m of ring allreduces of these sizes, m in bytes on the wire. -> Fit"""
    times = call_times.measure(run, ring_allreduce(run.comm, wire=wire), elements, repeats)
    return call_times.fit(run, times, np.dtype(wire or np.float32).itemsize)


def learn(
    run: kit.Run,
    stack: GradientFlow,
    train,
    held_out,
    epochs: int,
    seed: int = images.SEED,
    checkpoints: Checkpoints | None = None,
    only_last: bool = False,
):
    """Train at `images.rate`. Loss, accuracy and seconds (without evaluation) of each epoch.

    checkpoints: write one after each epoch, and continue after the newest if there is one
    only_last: evaluate after the last epoch only; the accuracy of the others is None
    """
    settings = {
        "epochs": epochs,
        "batch": run.options.batch,
        "rate": run.options.rate,
        "seed": seed,
        "images": train.size,
    }
    rows = epochs_so_far(checkpoints, settings) if checkpoints else []
    trained_s = rows[-1]["seconds"] if rows else 0.0
    steps = steps_per_epoch(train.size, run.options.batch * run.size)
    for epoch in range(len(rows), epochs):
        start_s = run.clock()
        mine = [
            stack.step(*batch, rate=images.rate(run, epoch * steps + number, steps, epochs))
            for number, batch in enumerate(
                batches(train, run.options.batch * run.size, epoch, seed, run.rank, run.size)
            )
        ]
        loss = float(np.mean(np.sum(run.plain.allgather(mine), axis=0)))
        trained_s += run.clock() - start_s
        skipped = only_last and epoch + 1 < epochs
        right, samples = (0, 0) if skipped else stack.evaluate(held_out)
        rows.append(
            {"loss": loss, "accuracy": right / samples if samples else None, "seconds": trained_s}
        )
        if checkpoints:
            save(run, checkpoints, {"settings": settings, "rows": rows})
    noted(stack.require_same_parameters)
    return rows


def require_folder(run: kit.Run) -> None:
    """Refuse --resume without a folder, and an earlier run's folder without it. Collective."""
    folder, resume = run.options.checkpoints, run.options.resume
    if folder is None and resume:
        raise ValueError(
            "--resume: got no folder; wanted that of an earlier run; "
            "next: --checkpoints DIR --resume"
        )
    if folder and run.plain.bcast(not resume and any(folder.glob("*/step-*"))):
        raise ValueError(
            f"--checkpoints: got {folder}, which an earlier run has left; "
            "wanted a folder of this run's own; next: --resume to continue that run, "
            "or another folder"
        )


def save(run: kit.Run, checkpoints: Checkpoints, position: dict) -> None:
    """Save a checkpoint. A full disk is only a warning: the earlier checkpoints are still there."""
    try:
        checkpoints.save(position)
    except CheckpointNotWritten as error:
        run.say(f"warning: {error}; the training continues")


def epochs_so_far(checkpoints: Checkpoints, settings: dict) -> list[dict]:
    """Restore the newest checkpoint, if there is one. The rows of the epochs before it."""
    position = checkpoints.resume() or {"settings": settings, "rows": []}
    if position.get("settings") != settings:
        raise ValueError(
            f"--resume: got a run of {position.get('settings')}; wanted {settings}; "
            "next: the arguments of that run, or another folder"
        )
    return position["rows"]
