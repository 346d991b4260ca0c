"""What lessons 03 to 07 share: the stack with its parts switched on one by one, its steps timed, its training watched.

    with flow.new(run, data, overlap=True, density=10) as stack: ...     a GradientFlow around a fresh AlexNet
    timing = flow.time_steps(run, stack, batches)
    rows = flow.learn(run, stack, train, held_out, epochs)
"""

import math
import time

import numpy as np

import kit
from kit import alone, images
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.comm.slices import chunks
from refgf.oracle.definitions import csc_payload_bytes
from refgf.predict.cost import Link
from refgf.predict.fit import fit_line
from refgf.machine.checkpoint import CheckpointNotWritten, Checkpoints
from refgf.training.data import batches, steps_per_epoch
from refgf.training.gradientflow import GradientFlow

SHORT_BYTES, SHORT_REPEATS = 1 << 16, 5
CHUNKS = 1904  # of the full AlexNet; smaller networks get as many, or a tenth of them would be another algorithm


def new(run: kit.Run, data, seed: int = images.SEED, chunk: int | None = None, **parts) -> GradientFlow:
    """GradientFlow with some of its parts; chunks as long as it takes to have about as many as the full AlexNet."""
    net = images.network(run, data, seed)
    chunk = chunk_of(run, sum(spec.size for spec in net.tensors)) if chunk is None else chunk
    return GradientFlow(run.comm, net, chunk=chunk, **{"weight_decay": images.WEIGHT_DECAY, "seed": seed} | parts)


def chunk_of(run: kit.Run, n: int) -> int:
    """Elements of a chunk: as --chunk says, in a lesson that has it."""
    asked = getattr(run.options, "chunk", None)
    return chunk_elements(n) if asked is None else asked


def chunk_elements(n: int) -> int:
    """A chunk so long that n gradients have about CHUNKS of them."""
    return max(1, n // CHUNKS)


def csc_bytes(n: int, p: int, percent: float) -> float:
    """Bytes that a rank sends under CSC: packed chunks by the ring, norms and flag directly (nearly the same formula)."""
    chunk = chunk_elements(n)
    chosen = list(range(max(1, math.ceil(number_of_chunks(n, chunk) * percent / 100))))
    return 2 * (p - 1) / p * csc_payload_bytes(chosen, n, chunk)


def topk_percent(n: int, p: int, percent: float) -> float:
    """The density at which top-k sends as many bytes as CSC at `percent`, norms included: (p-1) (4 + 4) k."""
    k = csc_bytes(n, p, percent) / (8 * max(1, p - 1))
    return min(100.0, 100 * max(1, k) / n)


def number_of_chunks(n: int, chunk: int) -> int:
    return len(chunks(n, chunk))


def time_steps(run: kit.Run, stack: GradientFlow, some_batches, rate: float = 0.0):
    """The Timing of whole training steps, the first two left out: the first is dense, the second makes new buffers."""
    mine = []
    for batch in some_batches:
        run.plain.Barrier()
        start_s = time.perf_counter()
        stack.step(*batch, rate=rate)
        mine.append(time.perf_counter() - start_s)
    return run.slowest(mine[2:])


def compute_alone(run: kit.Run, data, some_batches):
    """(Timing of a step without any exchange, when each gradient is ready), optimiser included: see alone.py."""
    with new(run, data) as stack:
        return alone.step_alone(run, stack.model, some_batches, skip=2)


def fit_allreduce(run: kit.Run, elements: list[int], wire=None, repeats: int = 7):
    """T(m) = a + b m of ring allreduces of these sizes, m in bytes on the wire. -> Fit

    Short ones are repeated more often: they take little time, and all of a hangs on them.
    """
    itemsize, points = np.dtype(wire or np.float32).itemsize, []
    for n in sorted(set(elements)):
        x, allreduce = np.zeros(n, np.float32), collective(run.comm, ring.allreduce, wire)
        often = repeats * (SHORT_REPEATS if itemsize * n < SHORT_BYTES else 1)
        points.append((itemsize * n, run.time(lambda x=x, a=allreduce: a(x), often).median_s))
    return fit_line(points if run.size > 1 else [(1, 1e-9), (10**9, 1e-9)])


def ring_line_and_link(run: kit.Run, n: int):
    """(T(m) of a ring allreduce of float32, the alpha and beta of a link that would explain it)."""
    line, steps = fit_allreduce(run, [256, n // 8, n], repeats=run.quick(2, 5)).line, 2 * (run.size - 1)
    return line, Link(line.a_s / steps, line.b_s_per_byte * run.size / steps) if steps else Link(0.0, 0.0)


def learn(run: kit.Run, stack: GradientFlow, train, held_out, epochs: int, say: bool = True, seed: int = images.SEED,
          checkpoints: Checkpoints | None = None):  # fmt: skip
    """Train for some epochs at `images.rate`; loss, accuracy and seconds (without evaluation) of each.

    checkpoints: write one after each epoch, and go on after the newest if there is one.
    """
    asked = {"epochs": epochs, "batch": run.options.batch, "rate": run.options.rate, "seed": seed, "images": train.size}
    rows = epochs_so_far(checkpoints, asked) if checkpoints else []
    trained_s = rows[-1]["seconds"] if rows else 0.0
    each = steps_per_epoch(train.size, run.options.batch * run.size)
    for epoch in range(len(rows), epochs):
        start_s = time.perf_counter()
        mine = [
            stack.step(*batch, rate=images.rate(run, epoch * each + number, each, epochs))
            for number, batch in enumerate(batches(train, run.options.batch * run.size, epoch, seed, run.rank, run.size))
        ]
        loss = float(np.mean(np.sum(run.plain.allgather(mine), axis=0)))
        trained_s += time.perf_counter() - start_s
        right, samples = stack.evaluate(held_out)
        rows.append({"loss": loss, "accuracy": right / samples if samples else None, "seconds": trained_s})
        if checkpoints:
            save(run, checkpoints, {"asked": asked, "rows": rows})
        if say:
            told = f"{100 * right / samples:5.1f} % of {samples} held-out images right" if samples else "no images held out"
            run.say(f"epoch {epoch + 1:2d}: loss {loss:.4f}, {told}")
    same = stack.require_same_parameters()
    if say:
        run.say(f"{trained_s:.1f} s of training; all ranks hold the same parameters: {same[:16]}...")
    return rows


def require_folder(run: kit.Run) -> None:
    """Refuse --resume without a folder, and a folder of an earlier run without --resume. Collective."""
    folder, resume = run.options.checkpoints, run.options.resume
    if folder is None and resume:
        raise ValueError("--resume: got no folder; wanted that of an earlier run; next: --checkpoints DIR --resume")
    if folder and run.plain.bcast(not resume and any(folder.glob("*/step-*"))):
        raise ValueError(f"--checkpoints: got {folder}, which an earlier run has left; wanted a folder of this run's own; "
                         "next: --resume to go on with that run, or another folder")  # fmt: skip


def save(run: kit.Run, checkpoints: Checkpoints, position: dict) -> None:
    """A full disk is no reason to end: the checkpoints before are still there, and the next one may fit again."""
    try:
        checkpoints.save(position)
    except CheckpointNotWritten as error:
        run.say(f"warning: {error}; the training goes on")


def epochs_so_far(checkpoints: Checkpoints, asked: dict) -> list[dict]:
    """The rows of the epochs before the newest checkpoint, which is restored; none if there is none."""
    position = checkpoints.resume() or {"asked": asked, "rows": []}
    if position["asked"] != asked:
        raise ValueError(f"--resume: got a run of {position['asked']}; wanted {asked}; "
                         "next: the arguments of that run, or another folder")  # fmt: skip
    return position["rows"]
