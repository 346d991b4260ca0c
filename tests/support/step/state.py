"""Right loops for `oracle step`: state that is no parameter, and constants in float32."""

import copy
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from tests.support.step.cases import adam, ddp, full_batch, loss, sgd, share

LOOPS: dict[str, SimpleNamespace] = {}


def right(says="right", batch_norm="refuse", **functions):
    """says: what the verdict must say."""

    def add(train):
        usual = {"model": small, "batch": full_batch, "loss": loss, "train": train}
        about = {"says": says, "batch_norm": batch_norm}
        LOOPS[train.__name__] = SimpleNamespace(**usual | functions, **about)
        return LOOPS[train.__name__]

    return add


def small():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def steps(own, optimizers, batches, rank, size, value=loss, then=None, after=None):
    """The usual loop with something between backward and the step, and after it."""
    for pair in batches:
        own.zero_grad()
        value(own, share(pair, rank, size)).backward()
        if then:
            then()
        for optimizer in optimizers:
            optimizer.step()
        if after:
            after(pair)


# -- state


def spectral(norm):
    return lambda: nn.Sequential(norm(nn.Linear(6, 16)), nn.Tanh(), nn.Linear(16, 3))


def usual(net, batches, rank, size):
    steps(ddp(net, size), [sgd(net, momentum=0.9)], batches, rank, size)


right(model=spectral(nn.utils.parametrizations.spectral_norm))(usual)
LOOPS["spectral_norm"] = LOOPS.pop("usual")
right(model=spectral(nn.utils.spectral_norm))(usual)
LOOPS["spectral_norm_of_hooks"] = LOOPS.pop("usual")
right(model=spectral(nn.utils.parametrizations.weight_norm))(usual)
LOOPS["weight_norm"] = LOOPS.pop("usual")


@right(model=spectral(nn.utils.parametrizations.spectral_norm))
def spectral_norm_and_accumulation(net, batches, rank, size):
    """A buffer that changes from one forward to the next, in one step."""
    own, optimizer = ddp(net, size), sgd(net)
    for pair in batches:
        optimizer.zero_grad()
        for part in zip(*(t.chunk(2) for t in share(pair, rank, size))):
            (loss(own, part) / 2).backward()
        optimizer.step()


class Codebook(nn.Module):
    """Moving averages of counts and sums over all ranks' samples, as in VQ-VAE."""

    def __init__(self, everywhere=True):
        super().__init__()
        self.inner, self.outer, self.everywhere = nn.Linear(6, 4), nn.Linear(4, 3), everywhere
        self.register_buffer("codes", torch.randn(5, 4))
        self.register_buffer("counts", torch.ones(5))
        self.register_buffer("used", torch.zeros(5, dtype=torch.int64))

    def forward(self, x):
        z = self.inner(x)
        index = torch.cdist(z, self.codes).argmin(1)
        chosen = self.codes[index]
        if self.training:
            with torch.no_grad():
                one = F.one_hot(index, 5)
                sums, counts = one.to(z.dtype).T @ z, one.sum(0)
                if self.everywhere and dist.get_world_size() > 1:
                    dist.all_reduce(sums)
                    dist.all_reduce(counts)
                self.used += counts
                self.counts.lerp_(counts.to(z.dtype), 0.3)
                self.codes.lerp_(sums / self.counts[:, None].clamp(min=0.1), 0.3)
        return self.outer(z + (chosen - z).detach())


@right(model=Codebook)
def codebook(net, batches, rank, size):
    steps(ddp(net, size), [sgd(net)], batches, rank, size)


class Normalised(nn.Module):
    """Inputs by running statistics in float64, which the loop updates from all samples."""

    def __init__(self):
        super().__init__()
        self.net = small()
        self.register_buffer("mean", torch.zeros(6, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        return self.net(x - self.mean.to(x.dtype))


@right(model=Normalised)
def running_normaliser(net, batches, rank, size):
    own, optimizer = ddp(net, size), sgd(net)
    for pair in batches:
        net.count += len(pair[0])
        net.mean += (pair[0].mean(0) - net.mean) * len(pair[0]) / net.count  # before forward
        optimizer.zero_grad()
        loss(own, share(pair, rank, size)).backward()
        optimizer.step()


class Routed(nn.Module):
    """Experts by a score and a bias without gradient, which the loop balances."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 3) for _ in range(4))
        self.register_buffer("bias", torch.zeros(4))

    def forward(self, x):
        score = self.gate(x).softmax(1)
        index = (score + self.bias).argmax(1)
        self.counts = F.one_hot(index, 4).sum(0)
        found = torch.stack([expert(x) for expert in self.experts], 1)[torch.arange(len(x)), index]
        return found * score.gather(1, index[:, None])


@right(model=Routed)
def routing_bias(net, batches, rank, size):
    def balance(pair):
        if size > 1:
            dist.all_reduce(net.counts)
        net.bias += 0.1 * torch.sign(net.counts.float().mean() - net.counts)

    steps(ddp(net, size), [adam(net)], batches, rank, size, after=balance)


class Annealed(nn.Module):
    """A temperature that is an attribute, and a count of calls."""

    def __init__(self):
        super().__init__()
        self.net, self.temperature, self.weights = small(), 1.0, torch.tensor([0.5, 1.0, 2.0])

    def forward(self, x):
        return self.net(x) / self.temperature * self.weights


@right(model=Annealed)
def temperature_lowered_by_the_loop(net, batches, rank, size):
    def lower(pair):
        net.temperature *= 0.7
        net.weights = net.weights * 0.9

    steps(ddp(net, size), [sgd(net)], batches, rank, size, after=lower)


class Remembering(nn.Module):
    """The state of each sample from batch to batch: a buffer, or an attribute."""

    def __init__(self, buffer):
        super().__init__()
        self.cell, self.outer, state = nn.GRUCell(6, 8), nn.Linear(8, 3), torch.zeros(24, 8)
        if buffer:
            self.register_buffer("held", state)
        else:
            self.held = state

    def forward(self, x):
        found = self.cell(x, self.held[: len(x)].to(x.dtype))
        self.held = found.detach()
        return self.outer(found)


@right(model=lambda: Remembering(False))
def state_of_samples_in_an_attribute(net, batches, rank, size):
    usual(net, batches, rank, size)


@right(model=lambda: Remembering(True))
def state_of_samples_in_a_buffer(net, batches, rank, size):
    own = DistributedDataParallel(net, broadcast_buffers=False) if size > 1 else net
    steps(own, [sgd(net)], batches, rank, size)


class Queue(nn.Module):
    """Keys of a momentum encoder, of all ranks, in a ring of a buffer and a pointer."""

    def __init__(self):
        super().__init__()
        self.query = nn.Linear(6, 8)
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(48, 8), dim=1))
        self.register_buffer("at", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        q, k = (F.normalize(layer(x), dim=1) for layer in (self.query, self.key))
        self.keys = k.detach()
        scores = torch.cat([(q * k.detach()).sum(1, True), q @ self.queue.T.clone()], 1)
        return scores / 0.2


def first(net, pair):
    scores = net(pair[0])
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64))


@right(model=Queue, loss=first)
def queue_of_keys(net, batches, rank, size):
    own, optimizer = ddp(net, size), sgd(net.query)
    for pair in batches:
        optimizer.zero_grad()
        first(own, share(pair, rank, size)).backward()
        optimizer.step()
        keys = [torch.empty_like(net.keys) for _ in range(size)]
        dist.all_gather(keys, net.keys)
        places = (net.at + torch.arange(24)) % 48
        net.queue[places] = torch.cat(keys)
        net.at = (net.at + 24) % 48
        for a, b in zip(net.key.parameters(), net.query.parameters()):
            a.data.lerp_(b.data, 0.1)


def on_meta():
    with torch.device("meta"):
        net = Rotary()
    return net


class Rotary(nn.Module):
    """A complex buffer and a mask that a checkpoint does not hold."""

    def __init__(self):
        super().__init__()
        self.net = small()
        self.register_buffer("turns", torch.empty(3, dtype=torch.complex64), persistent=False)
        self.register_buffer("mask", torch.empty(6, dtype=torch.bool), persistent=False)

    def prepare(self):
        self.turns.copy_(torch.polar(torch.ones(3), torch.tensor([0.1, 0.3, 1.0])))
        self.mask.copy_(torch.arange(6) < 5)
        for layer in (self.net[0], self.net[2]):
            layer.reset_parameters()

    def forward(self, x):
        pairs = torch.view_as_complex(x.reshape(len(x), 3, 2).float().contiguous())
        x = torch.view_as_real(pairs * self.turns).flatten(1) * self.mask
        return self.net(x.to(self.net[0].weight.dtype))


@right(model=on_meta)
def model_on_the_meta_device(net, batches, rank, size):
    net.to_empty(device="cpu")
    torch.manual_seed(1)
    net.prepare()
    steps(ddp(net, size), [adam(net)], batches, rank, size)


WEIGHTS = torch.tensor([0.2, 1.0, 3.0])


def with_constants(net, pair):
    """float32 in four ways: a module's tensor, one made here, a cast, a mask."""
    x, y = pair
    found = -(net(x).log_softmax(1) * F.one_hot(y, 3).float() * WEIGHTS).sum(1)
    found = found + F.cross_entropy(net(x), y, WEIGHTS, reduction="none")
    mask = (x[:, 0] > -9).float()
    return (found * mask).mean() + torch.tensor(0.1) * torch.zeros(1).mean()


@right(loss=with_constants)
def constants_in_float32(net, batches, rank, size):
    steps(ddp(net, size), [sgd(net)], batches, rank, size, with_constants)


def __getattr__(name):
    if name in LOOPS:
        return LOOPS[name]
    raise AttributeError(name)
