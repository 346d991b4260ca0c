"""CSC's residual in few passes over memory; the bits of `exchange.momentum_correction.Residual`.

    accumulate    reads w, u, v, g, writes the next u and v: each element crosses memory once a step
    keep          the step is accepted: u and the next u are exchanged, nothing is copied
    _catch_up     bookkeeping deferred by `update` and fused into the next `accumulate`: v <- v + u,
                  sent chunks are cleared

With Numba, and on a GPU, `accumulate` and `_catch_up` are one loop (`fused.py`), except in the rare
dense step and for the forms `history` and `none`. Short chunks are packed many at a time
(`packing.py`). Memory: one array (n,) more than the state of `Residual`.
"""

import bisect
import itertools
from collections.abc import Iterator

import numpy as np

from refgf.comm.slices import length
from refgf.device import Array, array_module
from refgf.engine.blocks import block_elements, blocks
from refgf.engine.fused import accumulate, compiled, pack
from refgf.engine.packing import Group, groups
from refgf.exchange.chunk_choice import add_norms
from refgf.exchange.momentum_correction import Residual
from refgf.training.sgd import joined


class FusedResidual(Residual):
    """See `Residual`. Each accepted step exchanges arrays of `state`: read `current_state()`."""

    def __init__(
        self, pool, parameters, settings, momentum: float, decay: float, size: int
    ) -> None:
        super().__init__(pool, parameters, settings, momentum, decay, size)
        xp, n = array_module(pool.flat), pool.flat.size
        self._first = "u" if self.before else "h"
        self._next = xp.zeros_like(pool.flat)  # the next u or h
        names = (accumulate, pack) if self.before else ()
        loops = {loop: compiled(loop, pool.flat) for loop in names}
        self._loops = loops if all(loops.values()) else {}
        self._scratch = xp.empty(min(n, block_elements(pool.flat)), pool.flat.dtype)
        # of the last accepted step: elements up to here are done; slices sent; was it dense?
        self._done, self._sent, self._dense = n, [], False

    def accumulate(self, index: int, scale: float, out: Array | None = None) -> None:
        decays = bool(self.decay_share) and self.pool.specs[index].decay
        for block in self._blocks_of_chunks(self.pool.elements(index)):
            g, scratch = self.pool.flat[block], self._scratch[: length(block)]
            if self._loops and out is None:
                self._in_one_pass(block, scale, decays, scratch)
                add_norms(self.norms, scratch, block.start, self.chunk)
                continue
            if scale != 1:
                g *= 1 / scale
            if decays:
                g += array_module(g).multiply(self.parameters[block], self.decay_share, out=scratch)
            self._catch_up(block.stop)
            sent = scratch if out is None else out[block]
            self._to_next(block, g, sent)
            magnitude = array_module(sent).absolute(sent, out=scratch)
            add_norms(self.norms, magnitude, block.start, self.chunk)
            if out is not None and scale != 1:
                sent *= scale

    def pack(self, numbers: list[int], scale: float, out: Array) -> None:
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

    def update(self, sent: list[slice], dense: bool) -> None:
        self.state[self._first], self._next = self._next, self.state[self._first]
        self._done, self._sent, self._dense = 0, joined(sent, self.pool.flat.size), dense

    def unpack(self, numbers: list[int], packed: Array, scale: float, gap: Array) -> None:
        for group in self._groups(numbers):
            total = packed[group.packed]
            if scale != 1:
                total *= 1 / scale  # exact: a power of two
            if self.decay and not self.before:
                decays = group.take(self.parameters)
                decays *= group.repeat(self.decay * gap[numbers], decays)
                decays[~group.take(self._decays)] = -0.0  # x + -0.0 is x
                total += decays
            group.put(self.pool.flat, total)

    def current_state(self) -> dict:
        self._catch_up(self.pool.flat.size)
        return self.state

    def _to_next(self, block: slice, g, sent) -> None:
        """Write the next u (or h) of a block; sent <- what it sends if its chunk is chosen."""
        xp, own = array_module(g), self._next[block]
        if self.before:
            xp.multiply(self.state["u"][block], self.momentum, out=own)
            own += g
            xp.add(self.state["v"][block], own, out=sent)
        else:
            xp.add(g, self.state["h"][block], out=own)
            sent[...] = own

    def _catch_up(self, stop: int) -> None:
        """Finish the last accepted step for elements up to `stop`."""
        for block in blocks(self.pool.flat, self._done, stop):
            if self.before:
                self.state["v"][block] += self.state["u"][block]
            elif self.factor != 1:
                self.state["h"][block] *= self.factor
            for part in self._sent_in(block):
                self._clear(part)
            self._done = block.stop

    def _clear(self, part: slice) -> None:
        """Clear the residual of elements that the last accepted step sent."""
        for name in self.cleared(self._dense):
            self.state[name][part] = 0

    def _sent_in(self, block: slice) -> Iterator[slice]:
        """The slices of a block that the last accepted step sent."""
        first = bisect.bisect_right(self._sent, block.start, key=lambda part: part.stop)
        for part in itertools.takewhile(lambda part: part.start < block.stop, self._sent[first:]):
            yield slice(max(part.start, block.start), min(part.stop, block.stop))

    def _in_one_pass(self, block: slice, scale: float, decays: bool, magnitude) -> None:
        """Accumulate and catch up on a block; magnitude <- |what it sends if chosen|."""
        g, w, u, v = self.pool.flat, self.parameters, self.state["u"], self.state["v"]
        factors = tuple(map(g.dtype.type, (1 / scale, self.decay_share, self.momentum)))
        for part, adds_u in self._divided(block):
            out = magnitude[part.start - block.start : part.stop - block.start]
            arrays = [x[part] for x in (g, u, v, w, self._next)]
            self._loops[accumulate](*arrays, out, factors, (decays, adds_u))

    def _divided(self, block: slice) -> Iterator[tuple[slice, bool]]:
        """Slices of a block, each with: is v <- v + u still to do? Clears the sent ones."""
        if self._done != block.start:
            self._catch_up(block.stop)
            yield block, False
            return
        start, self._done = block.start, block.stop
        for part in self._sent_in(block):
            self._clear(part)
            yield from [(slice(start, part.start), True), (part, False)]
            start = part.stop
        yield slice(start, block.stop), True

    def _blocks_of_chunks(self, elements: slice) -> Iterator[slice]:
        """Blocks; all but the first begin with a chunk, so that norms are sums over rows."""
        first = min(elements.stop, elements.start + -elements.start % self.chunk)
        for start, stop in ((elements.start, first), (first, elements.stop)):
            yield from blocks(self.pool.flat, start, stop)

    def _groups(self, numbers: list[int]) -> list[Group]:
        return groups(numbers, self.pool.flat.size, self.chunk, block_elements(self.pool.flat))
