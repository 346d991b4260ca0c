"""Coarse-grained sparse communication (CSC): only the most important chunks of the pool are sent.

    backward   ... fc8 | fc7 | fc6 | conv5 ...     gradients become ready in the order of the pool
    pool       | 0 | 1 | 2 | 3 | 4 | 5 | 6 |       chosen at the end of the step before: 1 2 5
    packed         | 1 | 2 | 5 |                   lazy allreduce of these, theta in packed bytes
    then       norms of all chunks and one flag    a small allreduce; the next choice follows

A chunk is packed as soon as all its gradients are ready, so lazy allreduce, overlap and a 16-bit
wire work as in dense training. The residual of the other chunks is in `momentum_correction.py`, the
choice in `chunk_choice.py`. The first accepted step is dense.

A step in which any rank has an infinity or NaN in any chunk, chosen or not, is not accepted. In a
chunk that is not sent it would never reach the other ranks, but stay in the residual for ever. The
flag is sent with the norms. Until its sum is back, nothing that outlives the step is written.

Cost per rank and step: the allreduce of k <= n elements in as many calls as theta says, and one of
C + 1 float64 for C chunks. Memory beyond the gradient pool: the residual and the packed chunks.
Source: GradientFlow (Sun et al. 2019); choices and their reasons: oracle/SPEC.md, C1 to C14.
"""

import bisect
import itertools

import numpy as np

from refgf import ops
from refgf.comm.slices import chunks, length
from refgf.device import Allreduce, Array, array_module, to_host
from refgf.exchange.chunk_choice import as_density, choose, importance
from refgf.exchange.dense import Transport
from refgf.exchange.lazy import Call, LazyAllreduce, require_all, require_next
from refgf.exchange.momentum_correction import CSCSettings, Residual
from refgf.exchange.pool import Packed, Pool
from refgf.exchange.precision import LossScale
from refgf.exchange.result import StepResult


class TopChunks:
    """The naive form, at the end of backward: CSC with form `none`, chunk by chunk."""

    def __init__(self, pool: Pool, allreduce: Allreduce, chunk: int, percent: float) -> None:
        self.pool, self.allreduce, self.percent = pool, allreduce, percent
        self.chunks = chunks(pool.flat.size, chunk)
        self.residual = np.zeros_like(pool.flat)  # (n,) the sum of what was not sent
        self.chosen = list(range(len(self.chunks)))

    def ready(self, index: int) -> None:
        """Gradient number `index` is final. Nothing happens before the last one."""

    def finish(self) -> StepResult:
        """Send the chosen chunks, keep the others, choose the next ones."""
        self.residual += self.pool.flat
        norms = np.array([np.abs(self.residual[c]).mean(dtype=np.float64) for c in self.chunks])
        self.allreduce(norms)
        sent = [self.chunks[number] for number in self.chosen]
        for c in sent:
            self.pool.flat[c], self.residual[c] = self.residual[c], 0
            self.allreduce(self.pool.flat[c])
        self.chosen = choose(norms, self.percent)
        return StepResult(sent=sent)


class CSC:
    """An exchange that sends the chosen chunks of a pool.

    residual    a `Residual`; it holds the pool
    transport   a `Transport`; its worker does all but the end of a step, which needs every rank's
                verdict first; there norms and packed sums are checked, and not by its checker
    sum_norms   sums a float64 array over all ranks, in place
    loss_scale  a `LossScale`

    After an accepted step the chunks sent hold sums, unscaled; the rest of the pool is undefined.
    `calls`: the allreduce calls of the last step, in packed elements
    `chosen`: the chunks of the next step, None if it is dense
    `gap` (C,): steps since each chunk was last sent
    """

    def __init__(
        self,
        settings: CSCSettings,
        residual: Residual,
        transport: Transport,
        sum_norms: Allreduce,
        loss_scale: LossScale,
    ) -> None:
        self.settings, self.residual, self.pool = settings, residual, residual.pool
        self.density = as_density(settings.density)
        self.transport, self.sum_norms, self.loss_scale = transport, sum_norms, loss_scale
        self.chunks, self.steps = residual.chunks, 0
        self.calls, self.communication_s = list[Call](), 0.0
        self.chosen: list[int] | None = None
        self.importance: np.ndarray | None = None  # (C,)
        self.gap = np.ones(len(self.chunks), np.int64)
        self._packed = Packed([], [0], self.pool.flat[:0])
        self._gradient = self._unit = 0  # next gradient to be announced, next unit to be packed

    def ready(self, index: int) -> None:
        """Gradient number `index` is final."""
        require_next(index, self._gradient, len(self.pool.specs), "CSC")
        if index == 0:
            self._begin()
        self._gradient += 1
        self.transport.worker.run(lambda _: self._accumulate(index), self.pool.flat)

    def finish(self) -> StepResult:
        """Send what still waits, sum the norms; if all ranks accept, update the residual."""
        require_all(self._gradient, len(self.pool.specs), "CSC")
        span, worker = self.transport.observe.span, self.transport.worker
        worker.run(lambda _: self._lazy.finish(), self.pool.flat)
        with span("compute", "WAIT_FOR_DATA"):
            self.communication_s, self.calls = worker.wait(), self._lazy.calls
        accepted, norms = self._agree()
        result = StepResult(False)
        if accepted:
            numbers = list(range(len(self.chunks))) if self.chosen is None else self.chosen
            sent = [self.chunks[number] for number in numbers]
            with span("compute", "CSC_UPDATE"):
                self.residual.update(sent, dense=self.chosen is None)  # first: it reads the pool
                self.residual.unpack(numbers, self._packed.flat, self.loss_scale.scale, self.gap)
            result = StepResult(True, sent, self.gap[numbers].tolist())
            self._choose(norms, numbers)
        self.loss_scale.update(accepted)
        self.steps += 1
        self._gradient = 0
        return result

    def _begin(self) -> None:
        """Lay out what is sent in this step."""
        if self.chosen is None:  # a dense step: the tensors
            units = [self.pool.elements(index) for index in range(len(self.pool.specs))]
        else:
            units = [self.chunks[number] for number in self.chosen]
        flat, packed, how = self.pool.flat, self._packed, self.transport
        packed.specs, packed.offsets = units, [0, *itertools.accumulate(map(length, units))]
        if packed.flat.size != packed.offsets[-1]:
            packed.flat = flat[:0]  # free the old memory first
            packed.flat = array_module(flat).empty(packed.offsets[-1], flat.dtype)
        self._lazy = LazyAllreduce(packed, how.allreduce, how.grouping, how.wire)
        self.residual.norms[:] = 0
        self._unit, self._fits = 0, True

    def _accumulate(self, index: int) -> None:
        """Prepare the gradient, pack the chosen chunks that end in it, send what is enough."""
        packed, scale, chosen = self._packed, self.loss_scale.scale, self.chosen
        span = self.transport.observe.span
        with span("communication", "CSC_NORMS"), np.errstate(over="ignore", invalid="ignore"):
            self.residual.accumulate(index, scale, packed.flat if chosen is None else None)
        end, first = self.pool.offsets[index + 1], self._unit
        self._unit = bisect.bisect_right(packed.specs, end, key=lambda unit: unit.stop)
        out = packed.flat[packed.offsets[first] : packed.offsets[self._unit]]
        if chosen is not None:
            with span("communication", "MEMCPY_IN_FUSION_BUFFER"), np.errstate(over="ignore"):
                self.residual.pack(chosen[first : self._unit], scale, out)
        if self.transport.wire is not None and out.size:  # a ring sends most only within sums
            with span("communication", "CSC_NORMS"), np.errstate(over="ignore"):
                ends = array_module(out).stack([out.min(), out.max()]).astype(self.transport.wire)
                self._fits &= (abs(ends) < np.inf).all()
        for unit in range(first, self._unit):
            self._lazy.ready(unit)

    def _agree(self) -> tuple[bool, np.ndarray]:
        """One allreduce of norms and a flag: (do all ranks accept the step?, sums of the norms)."""
        norms = to_host(self.residual.norms)
        finite = self._fits and np.isfinite(norms).all() and ops.unscale(self._packed.flat, 1)
        message = np.zeros(len(norms) + 1)
        if finite:
            message[:-1] = self._norms_after(norms) if self.settings.after else norms
        message[-1] = not finite
        with self.transport.observe.span("compute", "CSC_AGREE"):
            self.sum_norms(message)
        return bool(message[-1] == 0), message[:-1]

    def _norms_after(self, norms: np.ndarray) -> np.ndarray:
        """Norms of what is kept once the step is accepted: nothing of what was sent."""
        kept = norms * float(self.pool.flat.dtype.type(self.residual.factor))
        kept[slice(None) if self.chosen is None else self.chosen] = 0
        return kept

    def _choose(self, norms: Array, sent: list[int]) -> None:
        """The chunks of the next step, from the norms of this one."""
        self.gap += 1
        self.gap[sent] = 1
        self.importance = importance(norms, self.pool.flat.size, self.settings.chunk)
        percent, dense = self.density.at(self.steps + 1)
        self.chosen = None if dense else choose(self.importance, percent)
