"""What CSC keeps back, and the arithmetic on it: block by block, and many short chunks at a time.

    carry       gradients as they become ready: their place takes what must be kept; norms of all chunks
    pack        chosen chunks that have been carried, into the packed buffer
    keep        the step is accepted: what was carried becomes what is kept, and the pool moves to another buffer
    deliver     the sums, unscaled, from the packed buffer to the gradient pool
    settle      what `keep` left to do. Part of the next step's carry, so that each number crosses memory once a step:
                w, u, v and g are read, g and v written

With Numba, and on a GPU, carry and settle are one pass (`fused.py`), but for the dense step of `dgc`, which is rare, and the
other forms.

Weight decay: with momentum before the exchange (`dgc`) each rank adds its share of decay * w to the gradient, as the
exchange sums; else it is added to the sums, once for each step since the chunk was last sent.
"""

import bisect
import itertools
from collections.abc import Iterator

import numpy

from refgf.comm.slices import chunks, length
from refgf.device import array_module
from refgf.engine.blocks import block_elements, blocks, without_decay
from refgf.engine.fused import carry, compiled, pack
from refgf.engine.packing import Group, groups, packed_positions
from refgf.exchange.chunk_choice import add_norms, add_sums
from refgf.exchange.momentum_correction import MomentumBefore, correction

NOTHING = -0.0  # x + (-0.0) is x for every x, also for -0.0


class Store:
    """State and arithmetic of one rank. pool: gradients (n,), multiplied by a loss scale; parameters (n,)."""

    def __init__(self, pool, parameters, chunk: int, form: str, momentum: float, weight_decay: float, size: int) -> None:
        n, xp = pool.flat.size, array_module(pool.flat)
        self.pool, self.parameters, self.chunk = pool, parameters, chunk
        self.chunks, self.chunks_at_a_time = chunks(n, chunk), max(1, block_elements(pool.flat) // chunk)
        self.correction = correction(form, pool.flat, momentum)
        self.before = isinstance(self.correction, MomentumBefore)
        loops = {loop: compiled(loop, pool.flat) for loop in (carry, pack)} if self.before else {}
        self._loops = loops if all(loops.values()) else {}
        self.decay, self.share = weight_decay, weight_decay / size if self.before else 0.0
        self.norms = xp.zeros(len(self.chunks), numpy.float64)
        self._undecayed = without_decay(pool.specs) if weight_decay else None
        self._scratch = xp.empty(min(n, block_elements(pool.flat)), pool.flat.dtype)
        self._settled, self._sent, self._dense = n, [], False  # of the last accepted step: elements settled, what was sent

    def carry(self, index: int, scale: float, packed=None) -> None:
        """Gradient number `index` becomes what must be kept, unscaled; norms are added up. One gradient after the other.

        packed (n,), if given, takes what it would carry, multiplied by the scale.
        """
        decays = bool(self.share) and self.pool.specs[index].decay
        for block in self._from_chunk_to_chunk(*self.pool.offsets[index : index + 2]):
            g, scratch = self.pool.flat[block], self._scratch[: length(block)]
            if self._loops and packed is None:
                self._carry_in_one_pass(block, scale, decays, scratch)
                add_sums(self.norms, scratch, block.start, self.chunk)
                continue
            out = scratch if packed is None else packed[block]
            if scale != 1:
                g *= 1 / scale
            if decays:
                g += array_module(g).multiply(self.parameters[block], self.share, out=scratch)
            self.settle(block.stop)
            self.correction.carry(block, g, scratch)
            self.correction.travels(lambda x, block=block: x[block], g, out)
            add_norms(self.norms, out, block.start, self.chunk, scratch)
            if packed is not None and scale != 1:
                out *= scale

    def pack(self, numbers: list[int], scale: float, packed) -> None:
        """What the chunks of these numbers carry, multiplied by the scale, into `packed`, as long as they are."""
        if self._loops:
            g = self.pool.flat
            self._loops[pack](self.correction.v, g, numpy.array(numbers), self.chunk, g.dtype.type(scale), packed)
            return
        for group in self._groups(numbers):
            out = packed[group.packed]
            self.correction.travels(group.take, group.take(self.pool.flat), out)
            if scale != 1:
                out *= scale

    def keep(self, sent: list[slice], dense: bool) -> None:
        """sent: which slices of the pool (ascending) were sent."""
        self.correction.keep(self.pool)
        self._settled, self._sent, self._dense = 0, sent, dense

    def settle(self, stop: int) -> None:
        """What is kept of elements up to `stop` becomes what C3 says."""
        for block in blocks(self.pool.flat, self._settled, stop):
            self.correction.age(block)
            for part in self._sent_in(block):
                self.correction.forget(part, self._dense)
            self._settled = block.stop

    def _sent_in(self, block: slice) -> Iterator[slice]:
        """What was sent of a block in the last accepted step."""
        first = bisect.bisect_right(self._sent, block.start, key=lambda part: part.stop)
        for part in itertools.takewhile(lambda part: part.start < block.stop, self._sent[first:]):
            yield slice(max(part.start, block.start), min(part.stop, block.stop))

    def _carry_in_one_pass(self, block: slice, scale: float, decays: bool, magnitude) -> None:
        """Carry and settle a block; magnitude <- |what would travel|."""
        kept, g, w = self.correction, self.pool.flat, self.parameters
        factors = [g.dtype.type(factor) for factor in (1 / scale, self.share, kept.momentum)]
        for part, ages in self._parts(block):
            out = magnitude[part.start - block.start : part.stop - block.start]
            self._loops[carry](g[part], kept.u[part], kept.v[part], w[part], out, *factors, decays, ages)

    def _parts(self, block: slice) -> Iterator[tuple[slice, bool]]:
        """A block in parts, and whether what is kept of them still has to age; what was sent is forgotten here."""
        if self._settled != block.start:
            self.settle(block.stop)
            yield block, False
            return
        start, self._settled = block.start, block.stop
        for part in self._sent_in(block):
            self.correction.forget(part, self._dense)
            yield from [(slice(start, part.start), True), (part, False)]
            start = part.stop
        yield slice(start, block.stop), True

    def deliver(self, chosen: list[int] | None, packed, scale: float, gap) -> None:
        """The sums of the chosen chunks into the gradient pool. gap (C,): steps since each chunk was last sent."""
        numbers = list(range(len(self.chunks))) if chosen is None else chosen
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

    def _from_chunk_to_chunk(self, start: int, stop: int) -> Iterator[slice]:
        """Blocks; all but the first begin with a chunk, so that norms are sums over rows."""
        first = min(stop, start + -start % self.chunk)
        yield from blocks(self.pool.flat, start, first)
        yield from blocks(self.pool.flat, first, stop)

    def _leave_out(self, decays, positions) -> None:
        """No decay at these positions: biases and normalisation."""
        if len(positions):
            decays[array_module(decays).asarray(positions)] = NOTHING

    def _undecayed_in(self, group: Group, numbers: list[int]):
        """Where in what the group takes there is no decay."""
        own = numbers[group.units.start : group.units.stop]
        first, last = numpy.searchsorted(self._undecayed, (own[0] * self.chunk, (own[-1] + 1) * self.chunk))
        return packed_positions(self._undecayed[first:last], own, self.chunk) if last > first else ()

    def _groups(self, numbers) -> list[Group]:
        return groups(numbers, self.pool.flat.size, self.chunk, block_elements(self.pool.flat))
