"""Coarse-grained sparse communication (CSC): of the pool's chunks only the most important ones travel.

    backward      ... fc8 | fc7 | fc6 | conv5 ...          gradients become ready in the order of the pool
    pool          | 0 | 1 | 2 | 3 | 4 | 5 | 6 |            chunks; chosen at the end of the step before: 1 2 5
    packed            | 1 | 2 | 5 |                        lazy allreduce over these, theta in packed bytes
    then          norms of all chunks and one flag         a second, small allreduce; from it the next choice

What the other chunks would carry is kept (`momentum_correction.py`, `store.py`); which chunks are chosen, and how many in
which step, is in `chunk_choice.py`. A chunk is packed as soon as all gradients that it holds are ready, so lazy
allreduce and a 16-bit wire work as in dense training. All of it, the arithmetic too, is work for the communication thread
while backward goes on: only norms, flag and the delivery of the sums are left to the end. The first step is dense.

A step in which any rank carries an infinity or NaN in any chunk, chosen or not, is not accepted: an infinity that is
kept back would never cross the wire, and poison what is kept for ever. The flag travels with the norms, and until it is
back nothing that outlives the step has been written.

Cost per rank and step: the allreduce of k <= n elements in as many calls as theta says, and one of C + 1 float64 for C
chunks. Memory beyond the gradient pool: what the form keeps, the packed chunks (in a dense step all), a few blocks.
Source: GradientFlow (Sun et al. 2019); choices and their reasons: oracle/SPEC.md, C1 to C14.
"""

import bisect
import contextlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy

from refgf.comm.slices import length
from refgf.device import array_module, to_host
from refgf.engine.blocks import blocks
from refgf.engine.residual import Store
from refgf.exchange.chunk_choice import Density, choose, importance
from refgf.exchange.lazy import LazyAllreduce
from refgf.exchange.precision import LossScale, is_finite

CHUNK_ELEMENTS = 32_768


def at_once(work: Callable, x) -> None:
    work(x)


@dataclass(frozen=True)
class Packed:
    """What travels in one step, laid out like a pool: unit i is flat[offsets[i]:offsets[i + 1]].

    specs    slices of the gradient pool: the chosen chunks, or in a dense step the tensors
    """

    specs: list[slice]
    offsets: list[int]
    flat: numpy.ndarray


class CSC:
    """An exchange: `ready(i)` for each gradient in the pool's order, then `finish()`.

    pool             gradients (n,), multiplied by the loss scale; used as scratch
    parameters       (n,) what the optimiser updates; read for weight decay
    allreduce        sums a flat array over all ranks, in place, now or later; wait() returns when all is summed
    allreduce_norms  the same for a short float64 array, at once
    later            later(work, x) calls work(x) now or in the communication thread, one after the other; then allreduce
                     sums now
    size             number of ranks
    density          how many percent of the chunks, in which step
    form             momentum correction, one of `momentum_correction.FORMS`
    momentum, weight_decay    of the whole training. With `dgc` both happen here and the optimiser has neither; with
                     `history` and `none` the optimiser has the momentum, and decay happens here, after the exchange,
                     once for each step since a chunk was last sent
    after            importance of what is kept instead of what would travel

    After `finish` returned True the slices `sent` of the pool hold the sums, unscaled, and the rest of it is undefined;
    False: the step is not accepted, on any rank. `sent_chunks` are the same slices chunk by chunk, and `waited` says how
    many steps after the last time each of them was sent. `chosen` lists the chunks of the next step, None for all.
    """

    def __init__(self, pool, parameters, allreduce: Callable, allreduce_norms: Callable, size: int, density: Density, *,
                 threshold_bytes: float = math.inf, wire_itemsize: int | None = None, later: Callable = at_once,
                 wait: Callable = lambda: None, loss_scale: LossScale | None = None, chunk: int = CHUNK_ELEMENTS,
                 form: str = "dgc", momentum: float = 0.9, weight_decay: float = 0.0, after: bool = False,
                 span: Callable = contextlib.nullcontext, span_later: Callable = contextlib.nullcontext) -> None:  # fmt: skip
        if chunk < 1 or pool.flat.size < 1:
            got = f"chunks of {chunk} in {pool.flat.size} gradients"
            raise ValueError(f"CSC: got {got}; wanted at least 1 of each; next: chunk=32768")
        self.pool, self.density, self.chunk, self.after = pool, density, chunk, after
        self.allreduce, self.allreduce_norms, self.later, self.wait = allreduce, allreduce_norms, later, wait
        self.span, self.span_later = span, span_later
        self.threshold_bytes, self.itemsize = threshold_bytes, wire_itemsize or pool.flat.dtype.itemsize
        self.loss_scale = loss_scale or LossScale()
        self.store = Store(pool, parameters, chunk, form, momentum, weight_decay, size)
        self.correction, self.chunks = self.store.correction, self.store.chunks
        self.chosen, self.sent, self.sent_chunks, self.waited, self.importance = None, [], [], [], None
        self.gap = numpy.ones(len(self.chunks), numpy.int64)  # steps since each chunk was last sent
        self.steps = 0
        self._buffer = pool.flat[:0]
        self._lazy, self._gradient, self._unit = None, 0, 0  # next gradient to be announced, next unit to be packed

    @property
    def kept(self) -> dict:
        """What is kept back, by name: part of a checkpoint. Not while a step is under way; a step takes other arrays."""
        self.store.settle(self.pool.flat.size)
        return self.correction.kept

    @property
    def calls(self) -> list:
        """The allreduces of this step, in packed elements, `after` which unit."""
        return self._lazy.calls if self._lazy else []

    def ready(self, index: int) -> None:
        """Gradient number `index` is final: its chunks are carried, chosen ones packed, and sent if there is enough."""
        if index != self._gradient or index >= len(self.pool.specs):
            raise ValueError(
                f"CSC: gradient {index} is ready; wanted {self._gradient} of {len(self.pool.specs)}; "
                "next: announce gradients in the order of the pool, once a step, and call finish() after the last"
            )
        if index == 0:
            self._begin()
        self._gradient += 1
        self.later(lambda _: self._carry(index), self.pool.flat)

    def finish(self) -> bool:
        """Send what still waits, sum the norms, and return whether all ranks accept the step."""
        if self._gradient != len(self.pool.specs):
            raise ValueError(
                f"CSC: finished after {self._gradient} of {len(self.pool.specs)} gradients; "
                "next: announce every gradient, also those of a rank without samples"
            )
        self.later(lambda _: self._lazy.finish(), self.pool.flat)
        with self.span("WAIT_FOR_DATA"):
            self.wait()
        accepted, norms = self._agree()
        if accepted:
            with self.span("CSC_KEEP"):
                self.store.keep(self.sent, dense=self.chosen is None)
                self.store.deliver(self.chosen, self._lazy.pool.flat, self.loss_scale.scale, self.gap)
            self._choose(norms)
        self.loss_scale.update(accepted)
        self.steps += 1
        self._gradient = 0
        return accepted

    def _begin(self) -> None:
        """Lay out what travels in this step."""
        dense, edges = self.chosen is None, itertools.pairwise(self.pool.offsets)
        units = [slice(*edge) for edge in edges] if dense else [self.chunks[c] for c in self.chosen]
        capacity = self.pool.flat.size if dense else len(units) * self.chunk
        if self._buffer.size != capacity:
            self._buffer = None  # free the old one first
            self._buffer = array_module(self.pool.flat).empty(capacity, self.pool.flat.dtype)
        offsets = [0, *itertools.accumulate(map(length, units))]
        packed = Packed(units, offsets, self._buffer[: offsets[-1]])
        self._lazy = LazyAllreduce(packed, self.allreduce, self.threshold_bytes, self.itemsize)
        self.sent, self._unit = joined(units), 0
        self.store.norms[:] = 0

    def _carry(self, index: int) -> None:
        """Carry gradient number `index`, pack the chosen chunks that end in it, some at a time, and announce what is packed."""
        packed, scale, dense = self._lazy.pool, self.loss_scale.scale, self.chosen is None
        with self.span_later("CSC_NORMS"), numpy.errstate(over="ignore", invalid="ignore"):
            self.store.carry(index, scale, packed.flat if dense else None)
        ready = bisect.bisect_right(packed.specs, self.pool.offsets[index + 1], key=lambda unit: unit.stop)
        while self._unit < ready:
            first, self._unit = self._unit, min(ready, self._unit + self.store.chunks_at_a_time)
            if not dense:
                with self.span_later("MEMCPY_IN_FUSION_BUFFER"), numpy.errstate(over="ignore", invalid="ignore"):
                    out = packed.flat[packed.offsets[first] : packed.offsets[self._unit]]
                    self.store.pack(self.chosen[first : self._unit], scale, out)
            for unit in range(first, self._unit):
                self._lazy.ready(unit)

    def _agree(self) -> tuple[bool, numpy.ndarray]:
        """One allreduce of all norms and a flag: (does every rank accept the step?, norms summed over ranks)."""
        norms, total = to_host(self.store.norms), self._lazy.pool.flat
        finite = numpy.isfinite(norms).all() and all(is_finite(total[b]) for b in blocks(total, 0, total.size))
        message = numpy.zeros(len(norms) + 1)
        if finite:
            message[:-1] = self._kept_norms(norms) if self.after else norms
        message[-1] = not finite
        with self.span("CSC_AGREE"):
            self.allreduce_norms(message)
        return bool(message[-1] == 0), message[:-1]

    def _kept_norms(self, norms):
        """Norms of what is kept once the step is accepted: nothing of what was sent."""
        kept = norms * float(self.pool.flat.dtype.type(self.correction.factor))
        kept[slice(None) if self.chosen is None else self.chosen] = 0
        return kept

    def _choose(self, norms) -> None:
        """The chunks of the next step, from the norms of this one."""
        sent = range(len(self.chunks)) if self.chosen is None else self.chosen
        self.sent_chunks, self.waited = [self.chunks[c] for c in sent], self.gap[sent].tolist()
        self.gap += 1
        self.gap[sent] = 1
        self.importance = importance(norms, self.pool.flat.size, self.chunk)
        percent, dense = self.density.at(self.steps + 1)
        self.chosen = None if dense else choose(self.importance, percent)


def joined(parts: list[slice]) -> list[slice]:
    """Ascending slices with neighbours joined, empty ones left out."""
    runs = []
    for part in parts:
        if runs and runs[-1].stop == part.start:
            runs[-1] = slice(runs[-1].start, part.stop)
        elif part.stop > part.start:
            runs.append(part)
    return runs
