"""A batch that memory cannot hold: the gradients of its parts are added up, then exchanged and used once.

    part 0    loss / global batch -> backward --+
    part 1    loss / global batch -> backward --+--> total
    last      loss / global batch -> backward --> total + gradient i, announced as soon as it is final

One rank with K parts forms the sums of K ranks with one part each, in rank order: with the direct allreduce the bits are
the same. Batch normalisation sees each part by itself, as each rank does, and its running statistics move once a step,
by the mean over the parts that have images, as the mean over K ranks would. Memory beyond one part: a gradient pool.
Communication per rank: what the exchange costs, once a step. Source: oracle/SPEC.md, M7.
"""

from collections.abc import Iterable

from refgf.device import array_module
from refgf.exchange.result import UNOBSERVED


class RunningStatistics:
    """What the running statistics of a network become when a step has parts: the mean over what each part makes of them."""

    def __init__(self, network) -> None:
        self.network, self.before = network, [array.copy() for array in network.running]
        self.sums, self.parts = [array * 0 for array in network.running], 0

    def add(self) -> None:
        """Take the statistics of the part that has just gone forward; the running ones stay as they were."""
        self.network.accept()
        for array, before, total in zip(self.network.running, self.before, self.sums):
            total += array
            array[...] = before
        self.parts += 1

    def keep(self) -> None:
        for array, total in zip(self.network.running, self.sums if self.parts else []):
            array[...] = total / self.parts


def accumulated_step(
    model, exchange, parts: Iterable, global_batch: int, rate: float, observe=UNOBSERVED
) -> float:
    """One training step of several parts; returns this rank's share of the loss.

    parts            yields (images (N, H, W, C), labels (N,)); two at a time are held, N = 0 is allowed
    global_batch     samples of all parts of all ranks
    model, exchange, rate: as in `step.train_step`. A step that is not accepted changes nothing.
    """
    network, gradients = model.network, model.gradients
    scale = model.loss_scale.scale
    total, statistics, loss = None, RunningStatistics(network), 0.0
    for (images, labels), last in _with_end(parts):  # one part is read ahead
        with observe.span("compute", "FORWARD"):
            loss += network.loss(images, labels, global_batch)
        if len(images):
            statistics.add()
        with observe.span("compute", "BACKWARD"):
            if scale != 1:
                network.logits_gradient *= scale
            network.backward(model.announcing(_last_part(exchange, gradients, total) if last else _ignore))
        if not last:
            total = array_module(gradients.flat).zeros_like(gradients.flat) if total is None else total
            total += gradients.flat
    result = exchange.finish()
    if result.accepted:
        with observe.span("compute", "UPDATE"):
            model.update(rate, result)
            statistics.keep()
    return float(loss)


def _ignore(index: int) -> None:
    """A gradient of a part that is not the last is announced to nobody."""


def _last_part(exchange, gradients, total):
    """Adds what the parts before have summed up to a gradient that is final, and announces it."""

    def ready(index: int) -> None:
        own = slice(*gradients.offsets[index : index + 2])
        if total is not None:
            gradients.flat[own] += total[own]
        exchange.ready(index)

    return ready


def _with_end(parts: Iterable):
    """Each part with: is it the last one? -> (part, bool)"""
    parts = iter(parts)
    part = next(parts, None)
    if part is None:
        raise ValueError(
            "accumulated step: got no parts; wanted at least one, empty (N = 0) if this rank has no samples, so that every "
            "rank takes part in the exchange; next: yield arrays with N = 0"
        )
    for following in parts:
        yield part, False
        part = following
    yield part, True
