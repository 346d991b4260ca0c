"""One backward pass under CSC: what of a step is on its way.

    add(bucket)   gradients -> a of the residual; chunks that are complete and chosen -> all_reduce
    the last      norms of all chunks and a flag -> all_reduce
    _arrived      the verdict; sums -> DDP's buckets, whose futures then have their results

All chunks of a bucket are sent together. DDP's futures have results only when the whole step has a
verdict, since a bucket that was sent long ago may still be refused with the others.

Memory is what a step costs on a CPU. Elements read + written, for each parameter, without those of
all_reduce and of DDP's copies into its buckets and out of them (2 + 2), which both have:

                  g / p  decay   u    v   norms  pack  finite  bucket  clear  rate
    DDP, SGD              2+1   3+2                                           2+1  =  7 + 4
    all is sent     1+1   2+1   2+1  1+1                 1+0    1+1           2+1  = 10 + 6
    share d is sent 1+1   2+1   2+1  2+1   1+0    d+d    d+0    d+1    0+d    2+1  = 10+3d + 6+2d

This is `dgc` in float32 without a GradScaler. All is sent: in this step, the last and the next one,
so v is zero and nothing is ranked.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from refgf.torch.optimizers import fingerprint
from refgf.torch.pool import Segment, finite, l1_norms, runs, write

Future = torch.futures.Future[Tensor]
REFUSED = 2.0**36  # in the flag; below it the sum of fingerprints, of up to 2 ** 16 ranks


class Backward:
    """The sums of one step, from its first bucket to the verdict.

    flow  a `GradientFlow`: what outlives the step
    """

    def __init__(self, flow: Any) -> None:
        self.flow, self.pool = flow, flow.pool
        device = self.pool.device
        self.numbers = list(range(self.pool.count)) if flow.chosen is None else flow.chosen
        self.sent, self._wanted, self._missing = 0, set(self.numbers), list(self.pool.parts)
        self.next_percent = flow.next_percent()
        self._ranks = len(self.numbers) < self.pool.count or 0 < self.next_percent < 100
        self._norms = torch.zeros(self.pool.count, dtype=torch.float64, device=device)
        self._works: list[tuple[list[int], Tensor, Future]] = []
        # Any: a future, whose set_exception is annotated as if it took a result
        self.buckets: list[tuple[list[Tensor], list[Tensor], Tensor, Any]] = []
        self.scale: Any = 1.0  # as a tensor it is not read on the host, which would wait for it
        if flow.scaler is not None:
            self.scale = flow.scaler.scale(torch.ones((), device=device))
        # the scaler notices a NaN and lowers its scale; without one a zero changes no weight
        self._refused = torch.full((), 0.0 if flow.scaler is None else math.nan, device=device)

    def add(self, bucket: dist.GradBucket) -> Future:
        """A bucket's gradients are final: a future that has it once the step has its verdict."""
        gradients = gradients_of(bucket)
        complete = sorted(self._accumulate(bucket.parameters(), gradients))
        for first, last in runs(complete) if self._ranks else ():
            l1_norms(self.flow.residual.sends[first : last + 1], self._norms[first : last + 1])
        if chosen := [number for number in complete if number in self._wanted]:
            self._send(chosen)
        devices = None if self.pool.device.type == "cpu" else [self.pool.device]
        future: Future = torch.futures.Future(devices=devices)
        self.buckets.append((bucket.parameters(), gradients, bucket.buffer(), future))
        if bucket.is_last():
            self._close()
        return future

    def _accumulate(self, parameters: list[Tensor], gradients: list[Tensor]) -> list[int]:
        """The local gradients go into the residual. Returns the chunks that are now complete."""
        complete, divisor = [], self.flow.size * self.scale
        for parameter, gradient in zip(parameters, gradients):
            index = self.pool.place[id(parameter)]
            decay = self.flow.taken.decay[index] / self.flow.size
            self.flow.residual.accumulate(index, gradient.detach(), divisor, decay)
            for number in self.pool.chunks_of(index):
                self._missing[number] -= 1
                if not self._missing[number]:
                    complete.append(number)
        return complete

    def _send(self, numbers: list[int]) -> None:
        """Start the sum of these chunks over all ranks."""
        packed = self.pool.packed(self.flow.residual.sends, numbers)  # if in place: it is cleared
        if self.flow.scaler is not None:
            packed.mul_(self.scale)
        packed = packed.to(self.flow.wire or packed.dtype)
        work = dist.all_reduce(packed, group=self.flow.group, async_op=True)
        self._works.append((numbers, packed, work.get_future()))
        self.sent += packed.numel()

    def _close(self) -> None:
        """Norms and a flag; `_arrived` follows when all sums are there.

        The flag is REFUSED or 0, and the fingerprint of this rank's settings: sums are exact.
        """
        norms, right = self._norms, self._norms.isfinite().all()
        if self.flow.chunks.after:
            norms = self.flow.residual.kept_norms(norms, self.numbers)
        self._settings = fingerprint(self.flow.optimizer)
        flag = torch.where(right, 0.0, REFUSED).double().reshape(1) + self._settings
        self._message = torch.cat([torch.where(right, norms, 0.0), flag])  # (C + 1,)
        work = dist.all_reduce(self._message, group=self.flow.group, async_op=True)
        futures = [*(future for _, _, future in self._works), work.get_future()]
        torch.futures.collect_all(futures).then(self._arrived)

    def _arrived(self, arrived: torch.futures.Future[list[Future]]) -> None:
        """Every message has arrived: the verdict, the sums into DDP's buckets, the next choice."""
        future: Any
        try:
            for future in arrived.value():
                future.value()  # raises what went wrong
            flag = self._message[-1]
            accepted, alike = flag < REFUSED, flag % REFUSED == self.flow.size * self._settings
            for _, packed, _ in self._works:
                accepted = accepted & finite(packed)  # the same bits on all ranks
            segments = [
                s for numbers, x, _ in self._works for s in self._sums(numbers, x, accepted)
            ]
            segments.sort(key=lambda segment: segment[0])
            for parameters, gradients, _, _ in self.buckets:
                for parameter, gradient in zip(parameters, gradients):
                    self._deliver(segments, self.pool.place[id(parameter)], gradient, accepted)
            self.flow.decided(self, torch.stack([accepted, alike]), self._message[:-1])
            # what this thread holds may be the last: the group that `flow` has would join itself
            self.flow = None
            for _, _, buffer, future in self.buckets:
                future.set_result(buffer)
        except BaseException as error:  # otherwise DDP would wait for ever
            for *_, future in self.buckets:
                if not future.done():
                    future.set_exception(error)
            raise

    def _sums(self, numbers: list[int], packed: Tensor, accepted: Tensor) -> Iterator[Segment]:
        """What the optimiser gets for these chunks, multiplied by the loss scale."""
        total = packed.float()
        if self.flow.velocity is not None:
            if self.flow.scaler is not None:
                total.div_(self.scale)
            for start, values in self.pool.segments(numbers, total):
                self._with_momentum(start, values, accepted)
            if self.flow.scaler is not None:
                total.mul_(self.scale)
        return self.pool.segments(numbers, total)

    def _with_momentum(self, start: int, values: Tensor, accepted: Tensor) -> None:
        """Forms history and none: decay for the steps waited, then momentum, of what was sent."""
        k, chunk = values.numel(), self.pool.chunk
        if any(self.flow.taken.decay):
            gap = self.flow.gap[start // chunk : -(-(start + k) // chunk)]
            weights = self.pool.decayed(start, k, self.flow.taken.decay)
            values.add_(weights.mul_(gap.repeat_interleave(chunk)[:k]))
        velocity = self.flow.velocity.view(-1)[start : start + k]
        values.add_(velocity, alpha=self.flow.taken.momentum[0])
        torch.where(accepted, values, velocity, out=velocity)

    def _deliver(
        self, segments: list[Segment], index: int, gradient: Tensor, accepted: Tensor
    ) -> None:
        """The gradient that DDP hands to the optimiser: sums of chosen chunks, elsewhere 0."""
        contiguous = gradient.is_contiguous() and gradient.dtype == torch.float32
        size = self.pool.parameters[index].numel()
        out = gradient.view(-1) if contiguous else torch.empty(size, device=self.pool.device)
        write(segments, self.pool.starts[index], out, accepted, self._refused)
        if not contiguous:
            gradient.copy_(out.view(gradient.shape))


def gradients_of(bucket: dist.GradBucket) -> list[Tensor]:
    """A bucket's gradients as DDP holds them, channels last for example.

    `bucket.gradients()` has the strides of contiguous tensors. DDP's have their parameters', as
    these were when it made the bucket: a `.grad` that is a view of the bucket still has them.
    """
    found = []
    for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
        strides, usual = parameter.stride(), torch.empty_like(parameter, device="meta").stride()
        dense, own = strides == usual, parameter.grad  # without gaps; else DDP's lies contiguous
        if own is not None and own.data_ptr() == gradient.data_ptr():
            gradient = own.detach()
        elif dense:
            gradient = gradient.as_strided(gradient.shape, strides)
        found.append(gradient)
    return found
