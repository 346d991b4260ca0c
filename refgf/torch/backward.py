"""One backward pass under CSC: what of a step is on its way.

    add(bucket)   gradients -> a of the residual; chunks that are complete and chosen -> all_reduce
    the last      norms of all chunks and a flag -> all_reduce
    _arrived      the verdict; sums -> DDP's buckets, whose futures then have their results

All chunks of a bucket travel together. DDP's futures have results only when the whole step has a
verdict, since a bucket that was sent long ago may still be refused with the others.
"""

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from refgf.torch.pool import Segment, l1_norms, runs, write
from refgf.torch.residual import BEFORE

Future = torch.futures.Future[Tensor]


class Backward:
    """The sums of one step, from its first bucket to the verdict.

    flow  a `GradientFlow`: what outlives the step
    """

    def __init__(self, flow: Any) -> None:
        self.flow, self.pool = flow, flow.pool
        device = self.pool.device
        self.numbers = list(range(self.pool.count)) if flow.chosen is None else flow.chosen
        self.sent, self._wanted, self._missing = 0, set(self.numbers), list(self.pool.parts)
        self._norms = torch.zeros(self.pool.count, dtype=torch.float64, device=device)
        self._finite = torch.ones((), dtype=torch.bool, device=device)
        self._works: list[tuple[list[int], Tensor, Future]] = []
        self.buckets: list[tuple[list[Tensor], list[Tensor], Tensor, Future]] = []
        self.scale: Any = 1.0  # as a tensor it is not read on the host, which would wait for it
        if flow.scaler is not None:
            self.scale = flow.scaler.scale(torch.ones((), device=device))

    def add(self, bucket: dist.GradBucket) -> Future:
        """A bucket's gradients are final: a future that has it once the step has its verdict."""
        gradients = gradients_of(bucket)
        complete = sorted(self._accumulate(bucket.parameters(), gradients))
        for first, last in runs(complete):
            l1_norms(self.flow.residual.sends[first : last + 1], self._norms[first : last + 1])
        if chosen := [number for number in complete if number in self._wanted]:
            self._send(chosen)
        devices = None if self.pool.device.type == "cpu" else [self.pool.device]
        future = torch.futures.Future(devices=devices)
        self.buckets.append((bucket.parameters(), gradients, bucket.buffer(), future))
        if bucket.is_last():
            self._close()
        return future

    def _accumulate(self, parameters: list[Tensor], gradients: list[Tensor]) -> list[int]:
        """The local gradients go into the residual. Returns the chunks that are now complete."""
        complete, divisor = [], self.flow.size * self.scale
        for parameter, gradient in zip(parameters, gradients):
            index = self.pool.place[id(parameter)]
            new = self.flow.residual.fresh(index)
            torch.div(gradient.detach().reshape(-1).float(), divisor, out=new)
            if self.flow.form in BEFORE and self.flow.taken.decay[index]:
                share = self.flow.taken.decay[index] / self.flow.size
                new.add_(parameter.detach().reshape(-1), alpha=share)
            self.flow.residual.accumulate(index)
            for number in self.pool.chunks_of(index):
                self._missing[number] -= 1
                if not self._missing[number]:
                    complete.append(number)
        return complete

    def _send(self, numbers: list[int]) -> None:
        """Start the sum of these chunks over all ranks."""
        packed = self.pool.packed(self.flow.residual.sends, numbers) * self.scale
        packed = packed.to(self.flow.wire or packed.dtype)
        self._finite = self._finite & packed.isfinite().all()  # it may be too large for the wire
        work = dist.all_reduce(packed, group=self.flow.group, async_op=True)
        self._works.append((numbers, packed, work.get_future()))
        self.sent += packed.numel()

    def _close(self) -> None:
        """Norms and a flag; `_arrived` follows when all sums are there."""
        norms, finite = self._norms, self._finite & self._norms.isfinite().all()
        if self.flow.chunks.after:
            norms = self.flow.residual.kept_norms(norms, self.numbers)
        flag = torch.where(finite, 0.0, 1.0).double().reshape(1)
        self._message = torch.cat([torch.where(finite, norms, 0.0), flag])  # (C + 1,)
        work = dist.all_reduce(self._message, group=self.flow.group, async_op=True)
        futures = [*(future for _, _, future in self._works), work.get_future()]
        torch.futures.collect_all(futures).then(self._arrived)

    def _arrived(self, arrived: torch.futures.Future[list[Future]]) -> None:
        """Every message has arrived: the verdict, the sums into DDP's buckets, the next choice."""
        try:
            for future in arrived.value():
                future.value()  # raises what went wrong
            accepted = self._message[-1] == 0
            for _, packed, _ in self._works:
                accepted = accepted & packed.isfinite().all()
            segments = [
                s for numbers, x, _ in self._works for s in self._sums(numbers, x, accepted)
            ]
            segments.sort(key=lambda segment: segment[0])
            for parameters, gradients, _, _ in self.buckets:
                for parameter, gradient in zip(parameters, gradients):
                    self._deliver(segments, self.pool.place[id(parameter)], gradient)
            self.flow.decided(self, accepted, self._message[:-1])
            for _, _, buffer, future in self.buckets:
                future.set_result(buffer)
        except BaseException as error:  # otherwise DDP would wait for ever
            for *_, future in self.buckets:
                if not future.done():
                    future.set_exception(error)
            raise

    def _sums(self, numbers: list[int], packed: Tensor, accepted: Tensor) -> list[Segment]:
        """What the optimiser gets for these chunks, multiplied by the loss scale."""
        total = packed.float()
        if self.flow.velocity is not None:
            total = self._with_momentum(numbers, total / self.scale, accepted) * self.scale
        # the scaler notices a NaN and lowers its scale; without one a zero changes no weight
        refused = 0.0 if self.flow.scaler is None else math.nan
        return list(self.pool.segments(numbers, torch.where(accepted, total, refused)))

    def _with_momentum(self, numbers: list[int], total: Tensor, accepted: Tensor) -> Tensor:
        """Forms history and none: decay for the steps waited, then momentum, of what was sent."""
        index = torch.tensor(numbers, device=self.pool.device)
        weights = torch.zeros_like(total)  # (k,) times each parameter's decay
        at = 0
        for start, values in self.pool.segments(numbers, total):
            self.pool.decayed(start, self.flow.taken.decay, weights[at : at + values.numel()])
            at += values.numel()
        waited = self.flow.gap[index].repeat_interleave(self.pool.chunk)[: total.numel()]
        old = self.pool.packed(self.flow.velocity, numbers)
        new = self.flow.taken.momentum[0] * old + (total + waited * weights)
        rows = torch.zeros(len(numbers), self.pool.chunk, device=self.pool.device)
        rows.view(-1)[: total.numel()] = torch.where(accepted, new, old)
        self.flow.velocity.index_copy_(0, index, rows)
        return new

    def _deliver(self, segments: list[Segment], index: int, gradient: Tensor) -> None:
        """The gradient that DDP hands to the optimiser: sums of chosen chunks, elsewhere 0."""
        contiguous = gradient.is_contiguous() and gradient.dtype == torch.float32
        size = self.pool.parameters[index].numel()
        out = gradient.view(-1) if contiguous else torch.empty(size, device=self.pool.device)
        write(segments, self.pool.starts[index], out)
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
