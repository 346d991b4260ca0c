"""What CSC keeps back, and the arithmetic on it: block by block, and many short chunks at a time.

    carry       the whole pool, where it lies: the gradient's place takes what must be kept; norms of all chunks
    pack        chosen chunks as they become ready, into the packed buffer; the pool stays as it is
    keep        the step is accepted: what was carried becomes what is kept, what was sent is forgotten
    deliver     the sums, unscaled, from the packed buffer to the gradient pool

Weight decay: with momentum before the exchange (`dgc`) each rank adds its share of decay * w to the gradient, as the
exchange sums; else it is added to the sums, once for each step since the chunk was last sent.
"""

import numpy

from refgf.comm.slices import chunks
from refgf.device import array_module
from refgf.exchange.blocks import between, block_elements, blocks, without_decay
from refgf.exchange.chunk_choice import add_norms
from refgf.exchange.momentum_correction import MomentumBefore, correction
from refgf.exchange.packing import Group, groups, packed_positions

NOTHING = -0.0  # x + (-0.0) is x for every x, also for -0.0


class Store:
    """State and arithmetic of one rank. pool: gradients (n,), multiplied by a loss scale; parameters (n,)."""

    def __init__(self, pool, parameters, chunk: int, form: str, momentum: float, weight_decay: float, size: int) -> None:
        n, xp = pool.flat.size, array_module(pool.flat)
        self.flat, self.parameters, self.chunk = pool.flat, parameters, chunk
        self.chunks, self.chunks_at_a_time = chunks(n, chunk), max(1, block_elements(pool.flat) // chunk)
        self.correction = correction(form, pool.flat, momentum)
        self.before = isinstance(self.correction, MomentumBefore)
        self.decay, self.share = weight_decay, weight_decay / size if self.before else 0.0
        self.norms = xp.zeros(len(self.chunks), numpy.float64)
        self._undecayed = without_decay(pool.specs) if weight_decay else None
        self._scratch, self._carried = (xp.empty(min(n, block_elements(pool.flat)), pool.flat.dtype) for _ in range(2))

    def carry(self, part: slice, scale: float, packed=None) -> None:
        """Elements of the pool become what must be kept, unscaled; norms are added up.

        packed, if given, takes what they would carry, multiplied by the scale; it is as long as the part.
        """
        for block in blocks(self.flat, part.start, part.stop):
            g = self.flat[block]
            first = block.start - part.start
            out = self._carried[: g.size] if packed is None else packed[first : first + g.size]
            scratch = self._scratch[: g.size]
            if self.share:
                scratch = array_module(g).multiply(self.parameters[block], self.share, out=scratch)
                self._leave_out(scratch, between(self._undecayed, block.start, block.stop))
            self._localise(g, scale, scratch)
            self.correction.carry(lambda x, block=block: x[block], g, out)
            add_norms(self.norms, out, block.start, self.chunk, self._scratch)
            if packed is not None and scale != 1:
                out *= scale

    def pack(self, numbers: list[int], scale: float, packed) -> None:
        """What the chunks of these numbers carry, multiplied by the scale, into `packed`, as long as they are."""
        for group in self._groups(numbers):
            g, out = group.take(self.flat), packed[group.packed]
            if self.share:
                decays = group.take(self.parameters)
                decays *= self.share
                self._leave_out(decays, self._undecayed_in(group, numbers))
            self._localise(g, scale, decays if self.share else None)
            self.correction.carry(group.take, g, out)
            if scale != 1:
                out *= scale

    def keep(self, chosen: list[int] | None) -> None:
        """chosen: what was sent; None: everything, in a dense step."""
        for block in blocks(self.flat, 0, self.flat.size):
            self.correction.keep(block, self.flat[block])
            if chosen is None:
                self.correction.forget(lambda x, value, block=block: x.__setitem__(block, value), dense=True)
        for group in self._groups(chosen or []):
            self.correction.forget(group.put, dense=False)

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
            group.put(self.flat, total)

    def _localise(self, g, scale: float, decays) -> None:
        """g <- this rank's gradient: unscaled, with its share of the weight decay."""
        if scale != 1:
            g *= 1 / scale
        if self.share:
            g += decays

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
        return groups(numbers, self.flat.size, self.chunk, block_elements(self.flat))
