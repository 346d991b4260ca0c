"""GradientFlow as PyTorch DDP communication hooks, written on torch.distributed only.

    model.register_comm_hook(None, allreduce)                        ring, as R2 says
    model.register_comm_hook(None, fp16)                             ring with float16 on the wire (R3)
    model.register_comm_hook(None, CSC(chunk=32768, percent=10))     sparse chunks with momentum correction (C1 to C11)

The first argument is the process group, None for all ranks. DDP's gradients are means over each rank's own batch, so hooks
divide by the number of ranks, before the exchange. Worked examples for `refgf.oracle.torch_ddp.checked`: they wait for
each message, so nothing overlaps with backward. CPU and gloo.
"""

import torch
import torch.distributed as dist


def ring_allreduce(x, group=None, wire=None):
    """R2, R3: sums a flat tensor over the ranks of a group, in place. Rank r sends to r+1 and receives from r-1.

    2(p-1) messages and 2n - len(slice r+1) - len(slice r+2) elements (R6).
    """
    p, r = dist.get_world_size(group), dist.get_rank(group)
    parts = torch.tensor_split(x, p)  # the first n mod p are one longer: R1
    wire = wire or x.dtype
    for t in range(p - 1):
        parts[(r - t - 1) % p].add_(
            _sendrecv(parts[(r - t) % p].to(wire), parts[(r - t - 1) % p], group)
        )
    own = parts[(r + 1) % p]
    own.copy_(own.to(wire))
    for t in range(p - 1):
        parts[(r - t) % p].copy_(
            _sendrecv(parts[(r + 1 - t) % p].to(wire), parts[(r - t) % p], group)
        )


def _sendrecv(outgoing, place, group):
    """Send to the right while receiving from the left as many elements as `place` has. -> them, in the type of place"""
    p, r = dist.get_world_size(group), dist.get_rank(group)
    neighbours = [(r + 1) % p, (r - 1) % p]
    right, left = (
        neighbours if group is None else [dist.get_global_rank(group, rank) for rank in neighbours]
    )
    arriving = torch.empty(place.numel(), dtype=outgoing.dtype)
    requests = [
        dist.isend(_bytes(outgoing.contiguous()), right, group),
        dist.irecv(_bytes(arriving), left, group),
    ]
    for request in requests:
        request.wait()
    return arriving.to(place.dtype)


def _bytes(tensor):
    """The same memory as bytes, which every backend can send; gloo wants at least one."""
    return tensor.view(torch.uint8) if tensor.numel() else torch.zeros(1, dtype=torch.uint8)


def done(tensor):
    """A future that has its result: what a hook returns."""
    future = torch.futures.Future()
    future.set_result(tensor)
    return future


def allreduce(group, bucket):
    """The mean over ranks, by the ring."""
    x = bucket.buffer().div_(dist.get_world_size(group))
    ring_allreduce(x, group)
    return done(x)


def fp16(group, bucket):
    """The mean over ranks, by the ring, every hop rounded to float16; sums are formed in float32."""
    x = bucket.buffer().div_(dist.get_world_size(group))
    ring_allreduce(x, group, torch.float16)
    return done(x)


class CSC:
    """Coarse-grained sparse communication with DGC's momentum correction; use it with SGD without momentum.

    Each bucket is cut into chunks; at the last bucket of a step all chunks of all buckets compete for the next step.
    Dense are the first `dense_steps` steps, and every step whose buckets are others than before (DDP lays them out anew
    after the first). A value that is not finite on any rank makes the bucket NaN on all, and no rank keeps anything of
    the step (C10): let torch.amp.GradScaler skip it.
    """

    def __init__(self, chunk=32768, percent=10.0, momentum=0.9, dense_steps=2, wire=None):
        self.chunk, self.percent, self.momentum, self.dense_steps, self.wire = (
            chunk,
            percent,
            momentum,
            dense_steps,
            wire,
        )
        self.kept = {}  # parameter -> (u, v)
        self.chosen, self.layout, self.steps = (
            None,
            None,
            0,
        )  # chosen: {bucket: bool per chunk}, None for all
        self.__name__ = self.__qualname__ = "csc"  # DDP asks a hook for its name
        self._start()

    def _start(self):
        self.norms, self.pending, self.seen, self.finite = {}, [], [], True

    def __call__(self, group, bucket):
        index, parameters = bucket.index(), bucket.parameters()
        g = bucket.buffer().div_(dist.get_world_size(group))
        u, v = (torch.cat([self._kept(p)[i] for p in parameters]) for i in (0, 1))
        u = self.momentum * u + g
        a = v + u
        self.seen.append((index, tuple(id(p) for p in parameters)))
        sent = self._sent(index, g.numel())
        packed = a[sent]
        finite = self._all_finite(a, group)
        ring_allreduce(packed, group, self.wire)
        self.finite = self.finite and finite and bool(packed.isfinite().all())
        self.norms[index] = torch.stack(
            [c.double().abs().sum() / len(c) for c in a.split(self.chunk)]
        )
        v = torch.where(sent, torch.zeros_like(a), a)
        self.pending += zip(parameters, *(t.split([p.numel() for p in parameters]) for t in (u, v)))
        g.zero_()
        g[sent] = packed if self.finite else torch.nan
        if bucket.is_last():
            self._finish(group)
        return done(g)

    def _kept(self, parameter):
        zeros = torch.zeros(parameter.numel())
        return self.kept.get(parameter, (zeros, zeros))

    def _sent(self, index, n):
        """bool (n,): which elements travel."""
        same = self.layout is not None and self.layout[: len(self.seen)] == self.seen
        if self.chosen is None or not same:
            self.chosen = None
            return torch.ones(n, dtype=torch.bool)
        return self.chosen[index].repeat_interleave(self.chunk)[:n]

    def _all_finite(self, a, group):
        flag = torch.tensor([not bool(a.isfinite().all())], dtype=torch.float32)
        dist.all_reduce(flag, group=group)
        return flag.item() == 0

    def _finish(self, group):
        """The step is over: keep, and choose for the next one."""
        self.steps += 1
        if self.finite:
            self.kept.update({p: (u.clone(), v.clone()) for p, u, v in self.pending})
            norms = torch.cat([self.norms[i] for i in sorted(self.norms)])
            dist.all_reduce(norms, group=group)
            count = max(1, -int(-len(norms) * self.percent // 100))
            order = torch.argsort(norms, descending=True, stable=True)  # ties to the lower number
            best = torch.zeros(len(norms), dtype=torch.bool)
            best[order[:count]] = True
            flags = best.split([len(self.norms[i]) for i in sorted(self.norms)])
            self.chosen = (
                dict(zip(sorted(self.norms), flags)) if self.steps >= self.dense_steps else None
            )
            self.layout = self.seen
        self._start()
