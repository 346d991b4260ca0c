"""What lessons 03 to 07 share: the stack with its parts switched on one by one, its steps timed, its training watched.

    with flow.new(run, data, overlap=True, density=10) as stack: ...     a GradientFlow around a fresh AlexNet
    timing = flow.time_steps(run, stack, batches)
    rows = flow.learn(run, stack, train, held_out, epochs)
"""

import math
import time

import numpy as np

import kit
from kit import images
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.comm.slices import chunks
from refgf.oracle.definitions import csc_payload_bytes
from refgf.predict.cost import Link
from refgf.predict.fit import fit_line
from refgf.training.data import batches, steps_per_epoch
from refgf.training.gradientflow import GradientFlow
from refgf.training.step import train_step

CHUNKS = 1904  # of the full AlexNet; smaller networks get as many, or a tenth of them would be another algorithm


def new(run: kit.Run, data, seed: int = images.SEED, chunk: int | None = None, **parts) -> GradientFlow:
    """GradientFlow with some of its parts; chunks as long as it takes to have about as many as the full AlexNet."""
    net = images.network(run, data, seed)
    n = sum(spec.size for spec in net.tensors)
    parts = {"weight_decay": images.WEIGHT_DECAY, "seed": seed} | parts
    return GradientFlow(run.comm, net, chunk=chunk or chunk_elements(n), **parts)


def chunk_elements(n: int) -> int:
    """A chunk so long that n gradients have about CHUNKS of them."""
    return max(1, n // CHUNKS)


def csc_bytes(n: int, p: int, percent: float) -> float:
    """Bytes that a rank sends under CSC: packed chunks by the ring, norms and flag directly (nearly the same formula)."""
    chunk = chunk_elements(n)
    count = number_of_chunks(n, chunk)
    chosen = list(range(max(1, math.ceil(count * percent / 100))))
    return 2 * (p - 1) / p * (csc_payload_bytes(chosen, n, chunk) + 8 * (count + 1))


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
    """(Timing of a step without any exchange, when each gradient is ready), optimiser included."""
    with new(run, data) as stack:
        clock = Alone(stack)
        mine, ready = [], []
        for batch in some_batches:
            run.plain.Barrier()
            start_s, clock.ready_s = time.perf_counter(), []
            clock.step(*batch)
            mine.append(time.perf_counter() - start_s)
            ready.append([t - start_s for t in clock.ready_s])
    ready_s = np.max(run.plain.allgather(np.median(ready[2:], axis=0)), axis=0)
    return run.slowest(mine[2:]), ready_s.tolist()


class Alone:
    """An exchange that sums nothing: a step without communication. Notes when each gradient was ready."""

    def __init__(self, stack: GradientFlow) -> None:
        self.model, self.ready_s = stack.model, []

    def step(self, images_, labels, global_batch) -> None:
        train_step(self.model, self, images_, labels, global_batch, rate=0.0)

    def ready(self, i: int) -> None:
        self.ready_s.append(time.perf_counter())

    def finish(self) -> bool:
        return True


def fit_allreduce(run: kit.Run, elements: list[int], wire=None, repeats: int = 7):
    """T(m) = a + b m of ring allreduces of these sizes, m in bytes on the wire. -> Fit"""
    itemsize, points = np.dtype(wire or np.float32).itemsize, []
    for n in sorted(set(elements)):
        x, allreduce = np.zeros(n, np.float32), collective(run.comm, ring.allreduce, wire)
        points.append((itemsize * n, run.time(lambda x=x, a=allreduce: a(x), repeats).median_s))
    return fit_line(points if run.size > 1 else [(1, 1e-9), (10**9, 1e-9)])


def ring_line_and_link(run: kit.Run, n: int):
    """(T(m) of a ring allreduce of float32, the alpha and beta of a link that would explain it)."""
    line, steps = fit_allreduce(run, [256, n // 8, n], repeats=run.quick(2, 5)).line, 2 * (run.size - 1)
    return line, Link(line.a_s / steps, line.b_s_per_byte * run.size / steps) if steps else Link(0.0, 0.0)


def learn(run: kit.Run, stack: GradientFlow, train, held_out, epochs: int, say: bool = True, seed: int = images.SEED):
    """Train for some epochs at `images.rate`; loss, accuracy and seconds (without evaluation) of each."""
    rows, trained_s = [], 0.0
    each = steps_per_epoch(train.size, run.options.batch * run.size)
    for epoch in range(epochs):
        start_s = time.perf_counter()
        mine = [
            stack.step(*batch, rate=images.rate(run, epoch * each + number, each, epochs))
            for number, batch in enumerate(batches(train, run.options.batch * run.size, epoch, seed, run.rank, run.size))
        ]
        loss = float(np.mean(np.sum(run.plain.allgather(mine), axis=0)))
        trained_s += time.perf_counter() - start_s
        right, samples = stack.evaluate(held_out)
        rows.append({"loss": loss, "accuracy": right / samples if samples else None, "seconds": trained_s})
        if say:
            told = f"{100 * right / samples:5.1f} % of {samples} held-out images right" if samples else "no images held out"
            run.say(f"epoch {epoch + 1:2d}: loss {loss:.4f}, {told}")
    same = stack.require_same_parameters()
    if say:
        run.say(f"{trained_s:.1f} s of training; all ranks hold the same parameters: {same[:16]}...")
    return rows
