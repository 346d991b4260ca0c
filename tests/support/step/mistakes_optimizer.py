"""Mistakes in the optimizer's settings, in buffers, and where optimizers communicate."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from tests.support.step.cases import adam, ddp, loss, mistake, reduce_gradients, sgd, share
from tests.support.step.state import Codebook, Normalised, Routed, small
from tests.support.step.state import steps as usual
from tests.support.step.turns import Reducing, convolutions, images, sharing

# -- settings of the optimizer on p ranks


def other_setting(right, wrong, *names):
    """An optimizer on one rank, another one on several."""

    def train(net, batches, rank, size):
        usual(ddp(net, size), [(wrong if size > 1 else right)(net)], batches, rank, size)

    train.__name__ = f"other_{names[0].replace(' ', '_')}"
    mistake(None, "update", *names, model=small)(train)


other_setting(adam, lambda net: torch.optim.AdamW(net.parameters(), 0.01, (0.7, 0.95)), "betas")
other_setting(adam, lambda net: torch.optim.Adam(net.parameters(), 0.01), "optimizer class")
other_setting(adam, lambda net: torch.optim.AdamW(net.parameters(), 0.01, eps=1e-3), "eps")
other_setting(
    lambda net: sgd(net, momentum=0.9),
    lambda net: sgd(net, momentum=0.9, nesterov=True),
    "nesterov",
)
other_setting(lambda net: sgd(net, momentum=0.9), lambda net: sgd(net, momentum=0.3), "momentum")


def made_anew(net, batches, rank, size, kind):
    own, optimizer = ddp(net, size), kind(net)
    for pair in batches:
        optimizer = kind(net) if size > 1 else optimizer
        optimizer.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        optimizer.step()


@mistake(None, "update", "state lost")
def adam_made_in_each_step(net, batches, rank, size):
    made_anew(net, batches, rank, size, adam)


@mistake(None, "update", "state lost")
def momentum_made_in_each_step(net, batches, rank, size):
    made_anew(net, batches, rank, size, lambda net: sgd(net, momentum=0.9))


@mistake("huggingface/accelerate/issues/2926", "update", "learning rate", "schedule")
def schedule_stepped_by_each_rank(net, batches, rank, size):
    optimizer = sgd(net)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)

    def next_rate(pair):
        for _ in range(1 if size == 1 else 2):
            schedule.step()

    usual(ddp(net, size), [optimizer], batches, rank, size, after=next_rate)


# -- gradients


@mistake(None, "gradient", "changed after communication")
def noise_of_each_rank(net, batches, rank, size):
    drawn = torch.Generator().manual_seed(rank)

    def noisy():
        reduce_gradients(net, size)
        for p in net.parameters():
            p.grad += 0.01 * torch.randn(p.shape, generator=drawn)

    usual(net, [sgd(net)], batches, rank, size, then=noisy if size > 1 else None)


@mistake(None, "gradient", "another loss")
def another_loss_on_one_rank_too(net, batches, rank, size):
    def smooth(own, part):
        return nn.functional.cross_entropy(own(part[0]), part[1], label_smoothing=0.3)

    usual(ddp(net, size), [sgd(net)], batches, rank, size, smooth)


@mistake(None, "gradient", "p")
def own_hook_that_sums(net, batches, rank, size):
    def hook(state, bucket):
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0])

    own = ddp(net, size)
    if size > 1:
        own.register_comm_hook(None, hook)
    usual(own, [sgd(net)], batches, rank, size)


@mistake(None, "gradient", "p")
def factor_before_a_lossy_hook(net, batches, rank, size):
    """PowerSGD sums everything in its first steps."""
    own = ddp(net, size)
    if size > 1:
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
        own.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    usual(own, [sgd(net)], batches, rank, size, lambda *pair: size * loss(*pair))


@mistake(None, "gradient", "p")
def steps_inside_backward_of_sums(net, batches, rank, size):
    optimizers = {p: sgd(nn.ParameterList([p])) for p in net.parameters()}

    def step(p):
        if size > 1:
            dist.all_reduce(p.grad)
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(step)
    for pair in batches:
        loss(net, share(pair, rank, size)).backward()


@mistake(None, "gradient", "1 / p", batch=images, model=convolutions, batch_norm="whole")
def divided_next_to_batch_norm(net, batches, rank, size):
    usual(ddp(net, size), [sgd(net)], batches, rank, size, lambda *pair: loss(*pair) / size)


@mistake(None, "gradient", "p")
def second_turn_times_world_size(net, batches, rank, size):
    own = ddp(net, size)
    first, second = sgd(net[:2]), sgd(net[2:])
    for pair in batches:
        for factor, optimizer in ((1, first), (size, second)):
            own.zero_grad()
            (factor * loss(own, share(pair, rank, size))).backward()
            optimizer.step()


# -- buffers


class OwnMean(nn.Module):
    """Running statistics of a rank's own samples, which training does not read."""

    def __init__(self):
        super().__init__()
        self.net = small()
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        with torch.no_grad():
            self.mean.lerp_(x.mean(0).to(self.mean.dtype), 0.5)
        return self.net(x)


@mistake("lucidrains/vector-quantize-pytorch/pull/17", "buffer", "buffers differ", model=OwnMean)
def statistics_apart(net, batches, rank, size):
    own = DistributedDataParallel(net, broadcast_buffers=False) if size > 1 else net
    usual(own, [sgd(net)], batches, rank, size)


@mistake(None, "buffer", "buffers apart", model=lambda: Codebook(everywhere=False))
def codebook_of_rank_0(net, batches, rank, size):
    """DDP broadcasts it, and nothing sums what it is updated with."""
    usual(ddp(net, size), [sgd(net)], batches, rank, size)


@mistake(None, "buffer", "buffers differ", model=Routed)
def routing_by_own_counts(net, batches, rank, size):
    def balance(pair):
        net.bias += 0.1 * torch.sign(net.counts.float().mean() - net.counts)

    reduce = lambda: reduce_gradients(net, size)  # noqa: E731
    usual(net, [sgd(net)], batches, rank, size, then=reduce, after=balance)


@mistake(None, "buffer", "buffers apart", model=Normalised)
def normalised_by_the_first_share(net, batches, rank, size):
    def update(pair):
        net.mean += 0.5 * (share(pair, 0, size)[0].mean(0) - net.mean)

    usual(ddp(net, size), [sgd(net)], batches, rank, size, after=update)


# -- optimizers that communicate


class Summing(Reducing):
    """A factor p, which the sum inside the step leaves."""

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.grad *= dist.get_world_size()
        super().step()


@mistake(None, "gradient", "p")
def summed_in_step(net, batches, rank, size):
    usual(net, [Summing(net.parameters(), lr=0.1)], batches, rank, size)


@mistake(None, "gradient", "p")
def summed_in_step_with_the_call(net, batches, rank, size):
    optimizer = Summing(net.parameters(), lr=0.1)
    optimizer.call = True
    usual(net, [optimizer], batches, rank, size)


@mistake(None, "update", "different updates")
def shares_not_broadcast(net, batches, rank, size):
    usual(ddp(net, size), [sharing(net, rank, size)[0]], batches, rank, size)


@mistake(None, "gradient", "owner")
def shares_of_own_gradients(net, batches, rank, size):
    optimizer, share_out = sharing(net, rank, size)
    usual(net, [optimizer], batches, rank, size, after=share_out)


@mistake(None, "update", "p")
def master_copies_of_sums(net, batches, rank, size):
    masters = [p.detach().clone() for p in net.parameters()]
    optimizer = torch.optim.SGD(masters, lr=0.1)
    for pair in batches:
        net.zero_grad()
        loss(net, share(pair, rank, size)).backward()
        for copy, p in zip(masters, net.parameters()):
            copy.grad = p.grad.clone()
            dist.all_reduce(copy.grad)
        optimizer.step()
        with torch.no_grad():
            for copy, p in zip(masters, net.parameters()):
                p.copy_(copy)


@mistake(None, "update")
def adam_steps_averaged(net, batches, rank, size):
    def average(pair):
        for p in net.parameters():
            dist.all_reduce(p.data)
            p.data /= size

    usual(net, [adam(net)], batches, rank, size, after=average)


# -- gradients that are no multiple of the right one


def summed_by(change, *names, **functions):
    """What the sum over ranks becomes: change(rank, size, gradient, kept)."""

    def add(name):
        def train(net, batches, rank, size):
            kept: dict = {}

            def communicate():
                for p in net.parameters():
                    if size > 1:
                        change(rank, size, p, kept)

            usual(net, [sgd(net)], batches, rank, size, then=communicate)

        train.__name__ = name
        mistake(None, "gradient", *names, model=small, **functions)(train)

    return add


def by_max(rank, size, p, kept):
    dist.all_reduce(p.grad, dist.ReduceOp.MAX)


def by_the_mean(size, p):
    dist.all_reduce(p.grad)
    p.grad /= size


def blend(rank, size, p, kept):
    by_the_mean(size, p)
    new = p.grad.clone()
    p.grad.mul_(0.9).add_(kept.get(p, 0 * new), alpha=0.1)
    kept[p] = new


def in_8_bits(rank, size, p, kept):
    scale = p.grad.abs().max() / 127
    p.grad.copy_((p.grad / scale).round() * scale)
    by_the_mean(size, p)


def largest_tenth(rank, size, p, kept):
    least = p.grad.abs().flatten().sort().values[-max(1, p.numel() // 10)]
    p.grad[p.grad.abs() < least] = 0
    by_the_mean(size, p)


summed_by(by_max, "MAX")("reduced_by_max")
summed_by(blend)("old_gradient_blended")
summed_by(in_8_bits, "few bits")("summed_in_8_bits")
summed_by(largest_tenth, "sparsified")("summed_of_the_largest_tenth")


def on_ranks_only(name, change):
    """Another function than on one rank."""

    def train(net, batches, rank, size):
        def value(own, part):
            return change(own, part) if size > 1 else loss(own, part)

        usual(ddp(net, size), [sgd(net)], batches, rank, size, value)

    train.__name__ = name
    mistake(None, "gradient", "own gradients")(train)


def smoothed(own, part):
    return nn.functional.cross_entropy(own(part[0]), part[1], label_smoothing=0.1)


on_ranks_only("labels_of_the_neighbour", lambda own, part: loss(own, (part[0], part[1].roll(1))))
on_ranks_only("inputs_shifted", lambda own, part: loss(own, (part[0] + 0.1, part[1])))
on_ranks_only("labels_smoothed", smoothed)
