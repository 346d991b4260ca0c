"""Mistakes of experts and shards, in clipping and in the update."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from refgf.oracle.step import communicated
from tests.support.step.cases import (
    SAMPLES,
    ddp,
    loop,
    loss,
    mistake,
    reduce_gradients,
    sgd,
    sharded,
    share,
)

# -- experts: each rank owns a slice of them


class Experts(nn.Module):
    """Every sample goes to one of 12 experts; the router's layer is dense."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(6, 5)
        self.experts = nn.Parameter(torch.randn(12, 5, 3))

    def forward(self, x):
        x, chosen = torch.tanh(self.dense(x)), torch.arange(len(x)) % 12
        return torch.einsum("ni,nio->no", x, self.experts[chosen])


def expert_step(net, batches, rank, size, divide=1.0, clip=None):
    """Ranks gather all samples and compute their own experts: their gradients are not reduced."""
    optimizer = sgd(net)
    if size > 1:
        mesh = init_device_mesh("cpu", (size,))
        net.experts = nn.Parameter(distribute_tensor(net.experts.detach(), mesh, [Shard(0)]))
        optimizer = sgd(net)
    each = 12 // size
    for features, labels in batches:
        optimizer.zero_grad()
        own = torch.arange(SAMPLES) % 12 // each == rank
        experts = net.experts.to_local() if size > 1 else net.experts
        x = torch.tanh(net.dense(features[own]))
        chosen = torch.arange(SAMPLES)[own] % 12 - rank * each
        y = torch.einsum("ni,nio->no", x, experts[chosen])
        # the mean over the samples of a rank; a share of the batch has SAMPLES / size of them
        value = nn.functional.cross_entropy(y, labels[own], reduction="sum") / SAMPLES * size
        value.backward()
        if size > 1:
            for p in net.dense.parameters():
                dist.all_reduce(p.grad)
                p.grad /= size
            net.experts.grad /= divide
        if clip:
            communicated()
            clip(net)
        optimizer.step()


@mistake("pytorch/pytorch/issues/160285", "gradient", "p", model=Experts)
def experts_not_divided(net, batches, rank, size):
    expert_step(net, batches, rank, size)


@mistake(None, "gradient", "1 / p", model=Experts)
def experts_divided_twice(net, batches, rank, size):
    expert_step(net, batches, rank, size, size * size)


def clip_by(net, norm, limit=0.01):
    for p in net.parameters():
        grad = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
        grad *= min(1.0, limit / float(norm))


def square(net, kind=lambda p: True):
    parts = [p.grad for p in net.parameters() if kind(p)]
    locals_ = [g.to_local() if isinstance(g, DTensor) else g for g in parts]
    return sum(g.square().sum() for g in locals_)


@mistake(
    "NVIDIA-NeMo/Automodel/issues/3816", "clip", "norm of each rank's shard alone", model=Experts
)
def clip_by_own_experts(net, batches, rank, size):
    def clip(net):
        clip_by(net, square(net).sqrt())

    expert_step(net, batches, rank, size, size, clip)


@mistake("deepspeedai/DeepSpeed/issues/8475", "clip", "mean of the shards' norms", model=Experts)
def clip_by_the_mean_of_norms(net, batches, rank, size):
    def clip(net):
        norm = square(net).sqrt()
        if size > 1:
            dist.all_reduce(norm)
        clip_by(net, norm / size)

    expert_step(net, batches, rank, size, size, clip)


@mistake(
    "deepspeedai/DeepSpeed/pull/8613", "clip", "norm of the replicated tensors alone", model=Experts
)
def clip_without_experts(net, batches, rank, size):
    def clip(net):
        plain = square(net, lambda p: size == 1 or not isinstance(p, DTensor))
        clip_by(net, plain.sqrt())

    expert_step(net, batches, rank, size, size, clip)


# -- clipping


def fsdp_clipped(net, batches, rank, size, norm_of):
    sharded(net, size)
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        clip_by(net, norm_of(net))
        optimizer.step()


@mistake("pytorch/pytorch/issues/72548", "clip", "norm of each rank's shard alone")
def clip_by_own_shard(net, batches, rank, size):
    fsdp_clipped(net, batches, rank, size, lambda net: square(net).sqrt())


@mistake("pytorch/pytorch/pull/88955", "clip", "sqrt(p)")
def clip_counts_copies(net, batches, rank, size):
    def clip():
        total = square(net)
        if size > 1:
            dist.all_reduce(total)  # every rank has all of it: counted p times
        clip_by(net, total.sqrt())

    loop(net, batches, rank, size, loss, sgd, clip)


@mistake("hpcaitech/ColossalAI/issues/2192", "clip", "norm of each rank's shard alone")
def clip_by_own_shard_of_experts(net, batches, rank, size):
    def norm_of(net):
        return torch.stack([p.grad.to_local().norm() for p in net.parameters()]).norm()

    fsdp_clipped(net, batches, rank, size, norm_of)


@mistake(None, "clip", "clipped before communication")
def clip_before_allreduce(net, batches, rank, size):
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        reduce_gradients(net, size)
        optimizer.step()


@mistake("pytorch/examples/issues/1196", "gradient", "loss scale")
def clip_before_unscale(net, batches, rank, size):
    own, optimizer = ddp(net, size), sgd(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for pair in batches:
        optimizer.zero_grad()
        scaler.scale(loss(own, share(pair, rank, size))).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()


# -- no thread: what the command promises to name


@mistake(None, "update", "weight decay", "p")
def decay_applied_p_times(net, batches, rank, size):
    own, optimizer = ddp(net, size), torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.5)
    for pair in batches:
        optimizer.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        with torch.no_grad():
            for _ in range(size - 1):
                for p in net.parameters():
                    p -= 0.01 * 0.5 * p
        optimizer.step()


@mistake(None, "gradient", "whole batch")
def whole_batch_on_every_rank(net, batches, rank, size):
    own, optimizer = ddp(net, size), sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(own, pair).backward()
        optimizer.step()


@mistake(None, "gradient", "shard of rank 1", "twice")
def shard_scaled_twice(net, batches, rank, size):
    sharded(net, size)
    optimizer = sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        for p in net.parameters():
            if rank == 1:
                p.grad.to_local().mul_(2)
        optimizer.step()


@mistake(None, "update", "p")
def rate_times_world_size(net, batches, rank, size):
    loop(net, batches, rank, size, loss, lambda net: sgd(net, 0.1 * size))


@mistake(None, "update", "weight decay", "p")
def decay_setting_times_world_size(net, batches, rank, size):
    """With momentum no single factor would explain steps 1 and 2."""
    more = {"momentum": 0.9, "weight_decay": 0.1 * size}
    loop(net, batches, rank, size, loss, lambda net: sgd(net, **more))


@mistake(None, "update", "learning rate", "weight decay", "p", "1 / p")
def rate_times_and_decay_over_world_size(net, batches, rank, size):
    more = {"rate": 0.1 * size, "weight_decay": 0.1 / size}
    loop(net, batches, rank, size, loss, lambda net: sgd(net, **more))


@mistake(None, "update", "weight decay")
def decay_by_hand_p_times(net, batches, rank, size):
    def decay():
        with torch.no_grad():
            for p in net.parameters():
                p *= 1 - 0.001 * size

    loop(net, batches, rank, size, loss, then=decay)


@mistake(None, "gradient", "changed after communication")
def clip_by_the_norm_of_a_share(net, batches, rank, size):
    """Without communicated()."""

    def clip():
        norm = torch.sqrt(sum((p.grad**2).sum() for p in list(net.parameters())[rank::size]))
        for p in net.parameters():
            p.grad *= min(1.0, 0.01 / float(norm))

    loop(net, batches, rank, size, loss, then=clip)
