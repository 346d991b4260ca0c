"""Right loops for `oracle step`: optimizers that communicate, turns, batch normalisation, hooks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from refgf.oracle.step import communicated
from tests.support.step.cases import adam, ddp, loss, reduce_gradients, sgd, share
from tests.support.step.state import LOOPS, right, steps

# -- communication inside or after the optimizer


class Reducing(torch.optim.SGD):
    """Sums gradients in its step, as Horovod's optimizer does."""

    call = False

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            if dist.get_world_size() > 1:
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
        if self.call:
            communicated()
        super().step()


@right()
def reduced_in_step(net, batches, rank, size):
    steps(net, [Reducing(net.parameters(), lr=0.1, momentum=0.9)], batches, rank, size)


@right()
def reduced_in_step_with_the_call(net, batches, rank, size):
    optimizer = Reducing(net.parameters(), lr=0.1)
    optimizer.call = True
    steps(net, [optimizer], batches, rank, size)


@right()
def reduced_by_a_hook_of_the_optimizer(net, batches, rank, size):
    optimizer = sgd(net)
    optimizer.register_step_pre_hook(lambda *held: reduce_gradients(net, size))
    steps(net, [optimizer], batches, rank, size)


class Signs(torch.optim.Optimizer):
    """Of a sum that it makes itself: the sign hides any factor."""

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            total = p.grad.clone()
            dist.all_reduce(total)
            p.sub_(0.01 * total.sign())


@right(says="cannot tell: .* 1.1 times as large .* next: .*communicated")
def signs_of_a_sum_inside(net, batches, rank, size):
    steps(net, [Signs(net.parameters(), {})], batches, rank, size)


def sharing(net, rank, size, kind=torch.optim.AdamW, **settings):
    """(an optimizer of this rank's tensors, what broadcasts them)"""
    tensors = list(net.parameters())

    def share_out(pair=None):
        for i, p in enumerate(tensors):
            dist.broadcast(p.data, i % size)

    mine = tensors[rank::size] if rank < len(tensors) else []
    return kind(mine or [nn.Parameter(torch.zeros(1))], lr=0.01, **settings), share_out


@right()
def own_zero_one(net, batches, rank, size):
    optimizer, share_out = sharing(net, rank, size, betas=(0.8, 0.9))
    steps(ddp(net, size), [optimizer], batches, rank, size, after=share_out)


@right()
def own_zero_two(net, batches, rank, size):
    """Each gradient is summed on its owner alone."""

    def to_owners():
        for i, p in enumerate(net.parameters()):
            dist.reduce(p.grad, i % size)
            p.grad /= size

    optimizer, share_out = sharing(net, rank, size)
    steps(net, [optimizer], batches, rank, size, then=to_owners, after=share_out)


@right()
def flat_shards(net, batches, rank, size):
    """The optimizer has a slice of a flat copy."""
    own, tensors = ddp(net, size), list(net.parameters())
    flat = nn.utils.parameters_to_vector(tensors).detach()
    each = -(-len(flat) // size)
    padded = torch.cat([flat, torch.zeros(each * size - len(flat))])
    mine = nn.Parameter(padded[rank * each : (rank + 1) * each].clone())
    optimizer = torch.optim.AdamW([mine], lr=0.01)
    for pair in batches:
        own.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        gradient = nn.utils.parameters_to_vector([p.grad for p in tensors])
        gradient = torch.cat([gradient, torch.zeros(each * size - len(gradient))])
        mine.grad = gradient[rank * each : (rank + 1) * each].clone()
        optimizer.step()
        pieces = [torch.empty(each) for _ in range(size)]
        dist.all_gather(pieces, mine.detach())
        nn.utils.vector_to_parameters(torch.cat(pieces)[: len(flat)], tensors)


@right()
def master_copies(net, batches, rank, size):
    own, masters = ddp(net, size), [p.detach().clone() for p in net.parameters()]
    optimizer = torch.optim.SGD(masters, lr=0.1, momentum=0.9)
    for pair in batches:
        own.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        for copy_, p in zip(masters, net.parameters()):
            copy_.grad = p.grad.clone()
        optimizer.step()
        with torch.no_grad():
            for copy_, p in zip(masters, net.parameters()):
                p.copy_(copy_)


@right()
def parameter_server(net, batches, rank, size):
    """Rank 0 alone has an optimizer."""
    optimizers = [adam(net)] if rank == 0 else []

    def to_zero():
        for p in net.parameters():
            dist.reduce(p.grad, 0)
            p.grad /= size

    def spread(pair):
        for p in net.parameters():
            dist.broadcast(p.data, 0)

    steps(net, optimizers, batches, rank, size, then=to_zero, after=spread)


@right()
def parameters_averaged_after_momentum(net, batches, rank, size):
    def average(pair):
        for p in net.parameters():
            dist.all_reduce(p.data)
            p.data /= size

    steps(net, [sgd(net, momentum=0.9)], batches, rank, size, after=average)


# -- turns, and steps inside backward


class Adversaries(nn.Module):
    def __init__(self):
        super().__init__()
        self.made = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
        judge = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 16))
        self.judge = nn.Sequential(judge, nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        fake = self.made(x)
        ones = torch.ones(len(x), 1)
        caught = F.binary_cross_entropy_with_logits(self.judge(fake.detach()), 0 * ones)
        seen = F.binary_cross_entropy_with_logits(self.judge(x), ones)
        return caught + seen, F.binary_cross_entropy_with_logits(self.judge(fake), ones)


@right(model=Adversaries, loss=lambda net, pair: net(pair[0]))
def adversaries_in_turn(net, batches, rank, size):
    optimizers = [adam(net.judge), adam(net.made)]
    own = ddp(net, size)
    for pair in batches:
        for turn, optimizer in enumerate(optimizers):
            net.requires_grad_(False)
            (net.judge, net.made)[turn].requires_grad_(True)
            net.zero_grad()
            losses = net(share(pair, rank, size)[0])
            losses[turn].backward()
            reduce_gradients((net.judge, net.made)[turn], size)
            optimizer.step()
    net.requires_grad_(True), own


@right()
def two_steps_on_one_batch(net, batches, rank, size):
    """As PPO's epochs."""
    own, optimizer = ddp(net, size), adam(net)
    for pair in batches:
        for _ in range(2):
            optimizer.zero_grad()
            loss(own, share(pair, rank, size)).backward()
            optimizer.step()


@right()
def steps_inside_backward(net, batches, rank, size):
    optimizers = {p: torch.optim.AdamW([p], lr=0.01) for p in net.parameters()}

    def step(p):
        if size > 1:
            dist.all_reduce(p.grad)
            p.grad /= size
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(step)
    for pair in batches:
        loss(net, share(pair, rank, size)).backward()


# -- batch normalisation, hooks, settings


def images(seed):
    drawn = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (24,), generator=drawn)
    return torch.randn(24, 3, 6, 6, generator=drawn), labels


def convolutions():
    first, second = nn.Conv2d(3, 6, 3, bias=False), nn.Conv2d(6, 4, 3, bias=False)
    layers = first, nn.BatchNorm2d(6), nn.ReLU(), second, nn.BatchNorm2d(4, momentum=None)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3))


@right(batch_norm="whole", model=convolutions, batch=images)
def batch_norm(net, batches, rank, size):
    steps(ddp(net, size), [sgd(net, momentum=0.9)], batches, rank, size)


@right(batch_norm="whole", model=convolutions, batch=images)
def synchronised_batch_norm_of_uneven_shares(net, batches, rank, size):
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net) if size > 1 else net
    own, optimizer = ddp(net, size), sgd(net)
    for pair in batches:
        cuts = [0, *(5 + 3 * r for r in range(size - 1)), 24]
        part = tuple(t[cuts[rank] : cuts[rank + 1]] for t in pair)
        optimizer.zero_grad()
        (loss(own, part) * size * len(part[1]) / 24).backward()
        optimizer.step()


def mean_hook(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return work.then(lambda future: future.value()[0] / dist.get_world_size())


@right()
def a_hook_of_its_own(net, batches, rank, size):
    own = ddp(net, size)
    if size > 1:
        own.register_comm_hook(None, mean_hook)
    steps(own, [sgd(net)], batches, rank, size)


@right()
def rate_in_a_tensor(net, batches, rank, size):
    optimizer = torch.optim.AdamW(net.parameters(), lr=torch.tensor(0.01), amsgrad=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    steps(ddp(net, size), [optimizer], batches, rank, size, after=lambda pair: schedule.step())


@right()
def buffers_left_to_each_rank(net, batches, rank, size):
    own = net
    if size > 1:
        own = DistributedDataParallel(net, broadcast_buffers=False)
    steps(own, [adam(net)], batches, rank, size)


def __getattr__(name):
    if name in LOOPS:  # those of step_state.py, too
        return LOOPS[name]
    raise AttributeError(name)
