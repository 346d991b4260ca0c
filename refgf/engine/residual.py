"""CSC's residual in few passes over memory, block by block; the bits of `exchange.momentum_correction.Residual`.

    accumulate   reads w, u, v, g; writes the next u and v, so each element crosses memory once per step
    keep         the step is accepted: u and the next u change places, nothing is copied
    settle       bookkeeping deferred by `keep` and fused into the next `accumulate`: v <- v + u, sent chunks cleared

With Numba, and on a GPU, `accumulate` and `settle` are one loop (`fused.py`), except in the rare dense step and for the forms
`history` and `none`. Short chunks are packed many at a time (`packing.py`). Memory: one array (n,) more than `Residual`.
"""

import bisect
import itertools
from collections.abc import Iterator

import numpy as np

from refgf.comm.slices import length
from refgf.device import array_module
from refgf.engine.blocks import block_elements, blocks, without_decay
from refgf.engine.fused import accumulate, compiled, pack
from refgf.engine.packing import Group, groups, packed_positions
from refgf.exchange.chunk_choice import add_norms
from refgf.exchange.momentum_correction import Residual
from refgf.training.sgd import joined

NOTHING = -0.0  # x + (-0.0) is x for every x, also for -0.0


class FusedResidual(Residual):
    """See `Residual`. Arrays of `state` change places at each accepted step; read them by `settled`."""

    def __init__(self, pool, parameters, settings, momentum: float, decay: float, size: int) -> None:
        super().__init__(pool, parameters, settings, momentum, decay, size)
        xp, n = array_module(pool.flat), pool.flat.size
        self._first = "u" if self.before else "h"
        self._next = xp.zeros_like(pool.flat)  # the next u or h
        loops = {loop: compiled(loop, pool.flat) for loop in (accumulate, pack)} if self.before else {}
        self._loops = loops if all(loops.values()) else {}
        self._undecayed = without_decay(pool.specs) if decay else None
        self._scratch = xp.empty(min(n, self._longest_block()), pool.flat.dtype)
        self._settled, self._sent, self._dense = n, [], False  # of the last accepted step

    def accumulate(self, index: int, scale: float, out=None) -> None:
        decays = bool(self.share) and self.pool.specs[index].decay
        for block in self._from_chunk_to_chunk(self.pool.elements(index)):
            g, scratch = self.pool.flat[block], self._scratch[: length(block)]
            if self._loops and out is None:
                self._in_one_pass(block, scale, decays, scratch)
                add_norms(self.norms, scratch, block.start, self.chunk)
                continue
            if scale != 1:
                g *= 1 / scale
            if decays:
                g += array_module(g).multiply(self.parameters[block], self.share, out=scratch)
            self._settle(block.stop)
            sent = scratch if out is None else out[block]
            self._to_next(block, g, sent)
            magnitude = array_module(sent).absolute(sent, out=scratch)
            add_norms(self.norms, magnitude, block.start, self.chunk)
            if out is not None and scale != 1:
                sent *= scale

    def pack(self, numbers: list[int], scale: float, out) -> None:
        if self._loops:
            own, v = self._next, self.state["v"]
            self._loops[pack](v, own, np.array(numbers), self.chunk, own.dtype.type(scale), out)
            return
        for group in self._groups(numbers):
            sent = out[group.packed]
            sent[...] = group.take(self._next)
            if self.before:
                sent += group.take(self.state["v"])  # addition is commutative: v + (m u + g)
            if scale != 1:
                sent *= scale

    def keep(self, sent: list[slice], dense: bool) -> None:
        self.state[self._first], self._next = self._next, self.state[self._first]
        self._settled, self._sent, self._dense = 0, joined(sent, self.pool.flat.size), dense

    def deliver(self, numbers: list[int], packed, scale: float, gap) -> None:
        for group in self._groups(numbers):
            total = packed[group.packed]
            if scale != 1:
                total *= 1 / scale  # exact: a power of two
            if self.decay and not self.before:
                decays = group.take(self.parameters)
                decays *= group.each(self.decay * gap[numbers], decays)
                self._leave_out(decays, self._undecayed_in(group, numbers))
                total += decays
            group.put(self.pool.flat, total)

    def settled(self) -> dict:
        self._settle(self.pool.flat.size)
        return self.state

    def _to_next(self, block: slice, g, sent) -> None:
        """The next u (or h) of a block, and what it would send into `sent`."""
        xp, own = array_module(g), self._next[block]
        if self.before:
            xp.multiply(self.state["u"][block], self.momentum, out=own)
            own += g
            xp.add(self.state["v"][block], own, out=sent)
        else:
            xp.add(g, self.state["h"][block], out=own)
            sent[...] = own

    def _settle(self, stop: int) -> None:
        """Finish the last accepted step for elements up to `stop`."""
        for block in blocks(self.pool.flat, self._settled, stop):
            if self.before:
                self.state["v"][block] += self.state["u"][block]
            elif self.factor != 1:
                self.state["h"][block] *= self.factor
            for part in self._sent_in(block):
                self._clear(part)
            self._settled = block.stop

    def _clear(self, part: slice) -> None:
        """What was sent in the last accepted step leaves the residual."""
        for name in self.cleared(self._dense):
            self.state[name][part] = 0

    def _sent_in(self, block: slice) -> Iterator[slice]:
        """What was sent of a block in the last accepted step."""
        first = bisect.bisect_right(self._sent, block.start, key=lambda part: part.stop)
        for part in itertools.takewhile(lambda part: part.start < block.stop, self._sent[first:]):
            yield slice(max(part.start, block.start), min(part.stop, block.stop))

    def _in_one_pass(self, block: slice, scale: float, decays: bool, magnitude) -> None:
        """Accumulate and settle a block; magnitude <- |what it would send|."""
        g, w, u, v = self.pool.flat, self.parameters, self.state["u"], self.state["v"]
        factors = tuple(map(g.dtype.type, (1 / scale, self.share, self.momentum)))
        for part, ages in self._parts(block):
            out = magnitude[part.start - block.start : part.stop - block.start]
            arrays = [x[part] for x in (g, u, v, w, self._next)]
            self._loops[accumulate](*arrays, out, factors, (decays, ages))

    def _parts(self, block: slice) -> Iterator[tuple[slice, bool]]:
        """A block in parts, and whether v of each has still to age; what was sent is cleared here."""
        if self._settled != block.start:
            self._settle(block.stop)
            yield block, False
            return
        start, self._settled = block.start, block.stop
        for part in self._sent_in(block):
            self._clear(part)
            yield from [(slice(start, part.start), True), (part, False)]
            start = part.stop
        yield slice(start, block.stop), True

    def _from_chunk_to_chunk(self, elements: slice) -> Iterator[slice]:
        """Blocks; all but the first begin with a chunk, so that norms are sums over rows."""
        first = min(elements.stop, elements.start + -elements.start % self.chunk)
        for start, stop in ((elements.start, first), (first, elements.stop)):
            yield from blocks(self.pool.flat, start, stop)

    def _leave_out(self, decays, positions) -> None:
        """No decay at these positions: biases and normalisation."""
        if len(positions):
            decays[array_module(decays).asarray(positions)] = NOTHING

    def _undecayed_in(self, group: Group, numbers: list[int]):
        """Where in what the group takes there is no decay."""
        own = numbers[group.units.start : group.units.stop]
        edges = own[0] * self.chunk, (own[-1] + 1) * self.chunk
        first, last = np.searchsorted(self._undecayed, edges)
        return packed_positions(self._undecayed[first:last], own, self.chunk) if last > first else ()

    def _groups(self, numbers) -> list[Group]:
        return groups(numbers, self.pool.flat.size, self.chunk, self._longest_block())

    def _longest_block(self) -> int:
        return block_elements(self.pool.flat)
