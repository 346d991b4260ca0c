"""GradientFlow as PyTorch DDP communication hooks, written on torch.distributed only.

    model.register_comm_hook(None, allreduce)      ring, as R2 says
    model.register_comm_hook(None, fp16)           ring with float16 on the wire (R3)
    model.register_comm_hook(None, CSCHook(chunk=32768, percent=10))      sparse chunks (C1 to C11)

The first argument is the process group, None for all ranks. DDP's gradients are means over each
rank's own batch, so hooks divide by the number of ranks before the exchange. They are worked
examples for `refgf.oracle.torch_ddp.checked`: they wait for each message, so nothing overlaps with
backward. CPU and gloo.
"""

import torch
import torch.distributed as dist

Group = dist.ProcessGroup | None


def ring_allreduce(x: torch.Tensor, group: Group = None, wire: torch.dtype | None = None) -> None:
    """R2, R3: sums a flat tensor over the ranks of a group, in place.

    Rank r sends to r+1 and receives from r-1: 2(p-1) messages and
    2n - len(slice r+1) - len(slice r+2) elements (R6).
    """
    p, r = dist.get_world_size(group), dist.get_rank(group)
    slices = torch.tensor_split(x, p)  # the first n mod p are one longer: R1
    wire = wire or x.dtype
    for t in range(p - 1):
        target = slices[(r - t - 1) % p]
        target.add_(_sendrecv(slices[(r - t) % p].to(wire), target, group))
    own = slices[(r + 1) % p]
    own.copy_(own.to(wire))
    for t in range(p - 1):
        target = slices[(r - t) % p]
        target.copy_(_sendrecv(slices[(r + 1 - t) % p].to(wire), target, group))


def _sendrecv(outgoing: torch.Tensor, like: torch.Tensor, group: Group) -> torch.Tensor:
    """Send to the right while receiving from the left a tensor of the shape and type of `like`."""
    p, r = dist.get_world_size(group), dist.get_rank(group)
    right, left = (r + 1) % p, (r - 1) % p
    if group is not None:
        right, left = (dist.get_global_rank(group, rank) for rank in (right, left))
    incoming = torch.empty(like.numel(), dtype=outgoing.dtype)
    requests = [
        dist.isend(_bytes(outgoing.contiguous()), right, group),
        dist.irecv(_bytes(incoming), left, group),
    ]
    for request in requests:
        request.wait()
    return incoming.to(like.dtype)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as bytes, which every backend can send; gloo needs at least one."""
    return tensor.view(torch.uint8) if tensor.numel() else torch.zeros(1, dtype=torch.uint8)


def done(tensor: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """A future that has its result: what a hook returns."""
    future = torch.futures.Future()
    future.set_result(tensor)
    return future


def allreduce(group: Group, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean over ranks, by the ring."""
    x = bucket.buffer().div_(dist.get_world_size(group))
    ring_allreduce(x, group)
    return done(x)


def fp16(group: Group, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The mean over ranks, by the ring, each hop rounded to float16; sums are in float32."""
    x = bucket.buffer().div_(dist.get_world_size(group))
    ring_allreduce(x, group, torch.float16)
    return done(x)


class CSCHook:
    """Coarse-grained sparse communication with DGC's momentum correction.

    Use it with SGD without momentum. Each bucket is cut into chunks; at the last bucket of a step
    all chunks of all buckets compete for the next step. The first `dense_steps` steps are dense,
    and so is every step whose buckets differ from the last step's (DDP rebuilds them after the
    first). One non-finite value on any rank makes the bucket NaN on all, and no rank changes its
    residual in that step (C10): let torch.amp.GradScaler skip it.
    """

    def __init__(
        self,
        chunk: int = 32768,
        percent: float = 10.0,
        momentum: float = 0.9,
        dense_steps: int = 2,
        wire: torch.dtype | None = None,
    ):
        self.chunk, self.percent, self.momentum = chunk, percent, momentum
        self.dense_steps, self.wire = dense_steps, wire
        self.residuals = {}  # parameter -> (u, v)
        self.chosen = None  # {bucket: bool per chunk}, None for all
        self.layout, self.steps = None, 0
        self.__name__ = self.__qualname__ = "csc"  # DDP reads both
        self._start_step()

    def _start_step(self) -> None:
        self.norms, self.pending, self.seen, self.finite = {}, [], [], True

    def __call__(self, group: Group, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        index, parameters = bucket.index(), bucket.parameters()
        g = bucket.buffer().div_(dist.get_world_size(group))
        u, v = (torch.cat([self._residual(p)[i] for p in parameters]) for i in (0, 1))
        u = self.momentum * u + g
        a = v + u
        self.seen.append((index, tuple(id(p) for p in parameters)))
        sent = self._sent(index, g.numel())
        packed = a[sent]
        finite = self._all_finite(a, group)
        ring_allreduce(packed, group, self.wire)
        self.finite = self.finite and finite and bool(packed.isfinite().all())
        norms = [c.double().abs().sum() / len(c) for c in a.split(self.chunk)]
        self.norms[index] = torch.stack(norms)
        v = torch.where(sent, torch.zeros_like(a), a)
        sizes = [p.numel() for p in parameters]
        self.pending += zip(parameters, u.split(sizes), v.split(sizes))
        g.zero_()
        g[sent] = packed if self.finite else torch.nan
        if bucket.is_last():
            self._finish_step(group)
        return done(g)

    def _residual(self, parameter: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        zeros = torch.zeros(parameter.numel())
        return self.residuals.get(parameter, (zeros, zeros))

    def _sent(self, index: int, n: int) -> torch.Tensor:
        """Which elements are sent, bool (n,)."""
        same = self.layout is not None and self.layout[: len(self.seen)] == self.seen
        if self.chosen is None or not same:
            self.chosen = None
            return torch.ones(n, dtype=torch.bool)
        return self.chosen[index].repeat_interleave(self.chunk)[:n]

    def _all_finite(self, a: torch.Tensor, group: Group) -> bool:
        flag = torch.tensor([not bool(a.isfinite().all())], dtype=torch.float32)
        dist.all_reduce(flag, group=group)
        return flag.item() == 0

    def _finish_step(self, group: Group) -> None:
        """After the last bucket: store the residuals, and choose chunks for the next step."""
        self.steps += 1
        if self.finite:
            self.residuals.update({p: (u.clone(), v.clone()) for p, u, v in self.pending})
            buckets = sorted(self.norms)
            norms = torch.cat([self.norms[i] for i in buckets])
            dist.all_reduce(norms, group=group)
            count = max(1, -int(-len(norms) * self.percent // 100))
            order = torch.argsort(norms, descending=True, stable=True)  # ties to the lower number
            best = torch.zeros(len(norms), dtype=torch.bool)
            best[order[:count]] = True
            flags = best.split([len(self.norms[i]) for i in buckets])
            self.chosen = dict(zip(buckets, flags)) if self.steps >= self.dense_steps else None
            self.layout = self.seen
        self._start_step()
