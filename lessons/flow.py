"""What lessons 04 to 07 share: the stack with its parts switched on one by one, its steps timed, its training watched.

    with flow.new(run, data, overlap=True, density=10) as stack: ...     a GradientFlow around a fresh AlexNet
    timing = flow.time_steps(run, stack, batches)
    rows = flow.learn(run, stack, train, held_out, epochs)
"""

import time

import numpy as np

import images
import kit
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.comm.slices import chunks
from refgf.nn.alexnet import AlexNet
from refgf.predict.fit import fit_line
from refgf.training.data import batches
from refgf.training.gradientflow import GradientFlow
from refgf.training.step import train_step

CHUNKS = 1904  # of the full AlexNet; smaller networks get as many, or a tenth of them would be another algorithm


def network(run: kit.Run, data, seed: int = images.SEED) -> AlexNet:
    """AlexNet of the lesson's width, with dropout masks of its own on each rank."""
    net = AlexNet(data.num_classes, data.image_size, width=run.options.width, channels=data.channels)
    net.dropout_rng = np.random.default_rng([seed, run.rank])
    return net


def new(run: kit.Run, data, seed: int = images.SEED, chunk: int | None = None, **parts) -> GradientFlow:
    """GradientFlow with some of its parts; chunks as long as it takes to have about as many as the full AlexNet."""
    net = network(run, data, seed)
    n = sum(spec.size for spec in net.tensors)
    parts = {"weight_decay": images.WEIGHT_DECAY, "seed": seed} | parts
    return GradientFlow(run.comm, net, chunk=chunk or chunk_elements(n), **parts)


def chunk_elements(n: int) -> int:
    """A chunk so long that n gradients have about CHUNKS of them."""
    return max(1, n // CHUNKS)


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


def learn(run: kit.Run, stack: GradientFlow, train, held_out, epochs: int, say: bool = True, seed: int = images.SEED):
    """Train for some epochs; loss, accuracy and seconds of each. The rate rises over the first two epochs."""
    rows, start_s = [], time.perf_counter()
    for epoch in range(epochs):
        rate = run.options.rate * min(1, (epoch + 1) / images.WARMUP_EPOCHS)
        mine = [
            stack.step(*batch, rate=rate)
            for batch in batches(train, run.options.batch * run.size, epoch, seed, run.rank, run.size)
        ]
        loss = float(np.mean(np.sum(run.plain.allgather(mine), axis=0)))
        seconds = time.perf_counter() - start_s
        right, samples = stack.evaluate(held_out)
        start_s += time.perf_counter() - start_s - seconds  # evaluation does not count
        rows.append({"loss": loss, "accuracy": right / samples if samples else None, "seconds": seconds})
        if say:
            run.say(f"epoch {epoch + 1:2d}: loss {loss:.4f}, {100 * right / max(1, samples):5.1f} % of {samples} right")
    stack.require_same_parameters()
    return rows
