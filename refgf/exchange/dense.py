"""The exchange that sends every gradient.

backward -> ready(i) -> grouped (lazy.py) -> summed over ranks -> checked, unscaled -> StepResult
"""

from dataclasses import dataclass

from numpy.typing import DTypeLike

from refgf import ops
from refgf.device import Allreduce, Array
from refgf.exchange.interfaces import Grouping
from refgf.exchange.lazy import ONE_CALL, Call, LazyAllreduce
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.pool import Pool
from refgf.exchange.precision import LossScale
from refgf.exchange.result import UNOBSERVED, StepResult, Unobserved


@dataclass(frozen=True)
class Transport:
    """How gradients are sent: `LazyAllreduce`'s arguments, and the threads that do the work.

    allreduce  sums a flat array over all ranks, in place
    grouping   a `Theta`, or another `Grouping`
    wire       type of a number on the wire; None: as in the pool
    worker     an `AtOnce`, or the `CommunicationThread` that sums while backward computes
    checker    an `AtOnce`, or a second thread that checks one group's sums while the next is summed
    observe    an observer of spans
    """

    allreduce: Allreduce
    grouping: Grouping = ONE_CALL
    wire: DTypeLike | None = None
    worker: AtOnce | CommunicationThread = AtOnce()
    checker: AtOnce | CommunicationThread = AtOnce()
    observe: Unobserved = UNOBSERVED


class DenseExchange:
    """All gradients are sent; their sums are checked and unscaled.

    pool        gradients (n,), multiplied by the loss scale
    loss_scale  a `LossScale`

    Where every rank holds the same sums (ring, direct), every rank reaches the same verdict without
    another message: an infinity or NaN that any rank contributes stays one.
    """

    def __init__(self, pool: Pool, transport: Transport, loss_scale: LossScale) -> None:
        self.transport, self.loss_scale = transport, loss_scale
        self.lazy = LazyAllreduce(pool, self._send, transport.grouping, transport.wire)
        self.calls, self.communication_s, self._finite = list[Call](), 0.0, True

    def ready(self, index: int) -> None:
        """Gradient number `index` is final."""
        self.lazy.ready(index)

    def finish(self) -> StepResult:
        """Send what still waits; returns when all sums are in the pool."""
        with self.transport.observe.span("compute", "WAIT_FOR_DATA"):
            self.lazy.finish()
            self.communication_s = self.transport.worker.wait()
            self.transport.checker.wait()
        self.calls, accepted, self._finite = self.lazy.calls, self._finite, True
        self.loss_scale.update(accepted)
        return StepResult(accepted)

    def _send(self, x: Array) -> None:
        self.transport.worker.run(self._sum, x)

    def _sum(self, x: Array) -> None:
        self.transport.allreduce(x)
        self.transport.checker.run(self._check, x)

    def _check(self, x: Array) -> None:
        finite = ops.unscale(x, 1 / self.loss_scale.scale)  # exact, unless it underflows
        self._finite = self._finite and finite
