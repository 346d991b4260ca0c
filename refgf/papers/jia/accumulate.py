"""Gradient accumulation: a batch that does not fit in memory is processed as micro-batches.

    micro-batch 0    loss / global batch -> backward --+
    micro-batch 1    loss / global batch -> backward --+--> total
    the last one     loss / global batch -> backward --> gradient i + total, announced when final

One rank with K micro-batches forms the sums of K ranks with one each, in rank order: with the
direct allreduce the bits are the same. Batch normalisation uses the statistics of each micro-batch,
as it does on each rank. The running statistics change once a step, by the mean over the
micro-batches that have images, as the mean over K ranks would.

Memory beyond one micro-batch: a gradient pool. Communication per rank: the exchange's, once a step.
Source: oracle/SPEC.md, M7.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from refgf.arguments import checked, require, shown
from refgf.device import array_module
from refgf.exchange.result import UNOBSERVED
from refgf.training.step import Replica


@checked
class RunningStatistics:
    """The mean over the micro-batches of a step of what each makes of the running statistics."""

    def __init__(self, network) -> None:
        require(
            hasattr(network, "running"),
            "RunningStatistics",
            shown(network),
            "a network",
            "ResNet50",
        )
        self.network, self.before = network, [array.copy() for array in network.running]
        self.sums, self.count = [array * 0 for array in network.running], 0

    def add(self) -> None:
        """Add those of the micro-batch just evaluated; restore the network's."""
        self.network.accept()
        for array, before, total in zip(self.network.running, self.before, self.sums):
            total += array
            array[...] = before
        self.count += 1

    def apply(self) -> None:
        """The step is accepted: write the means into the network."""
        for array, total in zip(self.network.running, self.sums if self.count else []):
            array[...] = total / self.count


def accumulated_step(
    model: Replica,
    exchange: Any,
    micro_batches: Iterable,
    global_batch: int,
    rate: float,
    observe: Any = UNOBSERVED,
) -> float:
    """One training step of several micro-batches; returns this rank's share of the loss.

    micro_batches    yields (images (N, H, W, C), labels (N,)), N = 0 included; two are in memory
    global_batch     samples of all micro-batches of all ranks

    The other arguments are those of `train_step`. A step that is not accepted changes nothing.
    Errors: ValueError if there is no micro-batch.
    """
    network, gradients = model.network, model.gradients
    scale = model.loss_scale.scale
    total, statistics, loss = None, RunningStatistics(network), 0.0
    for (images, labels), last in _with_last(micro_batches):
        with observe.span("compute", "FORWARD"):
            loss += network.loss(images, labels, global_batch)
        if len(images):
            statistics.add()
        with observe.span("compute", "BACKWARD"):
            if scale != 1:
                network.logits_gradient *= scale
            ready = _announce_sums(exchange, gradients, total) if last else _ignore
            network.backward(model.announcing(ready))
        if not last:
            if total is None:
                total = array_module(gradients.flat).zeros_like(gradients.flat)
            total += gradients.flat
    result = exchange.finish()
    if result.accepted:
        with observe.span("compute", "UPDATE"):
            model.update(rate, result)
            statistics.apply()
    return float(loss)


def _ignore(index: int) -> None:
    """Only gradients of the last micro-batch are announced."""


def _announce_sums(exchange, gradients, total) -> Callable[[int], None]:
    """Adds the total of the earlier micro-batches to each gradient, and announces it."""

    def ready(index: int) -> None:
        own = gradients.elements(index)
        if total is not None:
            gradients.flat[own] += total[own]
        exchange.ready(index)

    return ready


def _with_last(micro_batches: Iterable) -> Iterator[tuple]:
    """(micro-batch, is it the last one?); reads one ahead."""
    micro_batches = iter(micro_batches)
    micro_batch = next(micro_batches, None)
    if micro_batch is None:
        raise ValueError(
            "accumulated_step: got no micro-batches; wanted at least one, so that every rank takes "
            "part in the exchange; next: yield arrays with N = 0 on a rank without samples"
        )
    for following in micro_batches:
        yield micro_batch, False
        micro_batch = following
    yield micro_batch, True
