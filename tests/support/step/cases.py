"""What the rebuilt mistakes share: a model, a batch, a loss, and the usual steps of a training.

A mistake is a function `train`. @mistake says where it comes from and what the verdict must name:
a stage, and names of which at least one is given. A mistake without a thread was made up: it is one
that the command promises to name.
"""

from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

IGNORED, SAMPLES, CALLS = -100, 24, 3
MISTAKES: dict[str, SimpleNamespace] = {}
HUB = "https://github.com/"


def model():
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 3))


def batch(seed):
    """(features, labels); half of the first samples' labels have no loss."""
    drawn = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (SAMPLES,), generator=drawn)
    labels[: SAMPLES // 2 : 2] = IGNORED
    return torch.randn(SAMPLES, 6, generator=drawn), labels


def full_batch(seed):
    """Every label has a loss: equal shares have equal weights."""
    features, labels = batch(seed)
    return features, labels.clamp(min=0)


def loss(net, pair, reduction="mean"):
    return nn.functional.cross_entropy(net(pair[0]), pair[1], reduction=reduction)


def mistake(thread, stage, *names, **functions):
    def add(train):
        usual = {"model": model, "batch": full_batch, "loss": loss, "train": train}
        link = HUB + thread if thread else None
        case = SimpleNamespace(**usual | functions, thread=link, stage=stage, names=set(names))
        MISTAKES[train.__name__] = case
        return case

    return add


def share(pair, rank, size):
    """Equal neighbours: the first ranks get the samples with ignored labels."""
    each = len(pair[0]) // size
    return tuple(t[rank * each : (rank + 1) * each] for t in pair)


def calls_of(pair, calls=CALLS):
    """The share of each backward call; the sizes may differ."""
    return zip(*(t.tensor_split(calls) for t in pair))


def ddp(net, size):
    return DistributedDataParallel(net) if size > 1 else net


def sgd(net, rate=0.1, **more):
    return torch.optim.SGD(net.parameters(), lr=rate, **more)


def adam(net):
    return torch.optim.AdamW(net.parameters(), lr=0.01)


def reduce_gradients(net, size, op=dist.ReduceOp.AVG, leave=()):
    for name, p in net.named_parameters():
        if size > 1 and not name.startswith(tuple(leave)):
            dist.all_reduce(p.grad)
            p.grad /= size if op == dist.ReduceOp.AVG else 1


def loop(net, batches, rank, size, value, optimizer=sgd, then=None):
    """The usual step with a loss of its own, and something between backward and the optimizer."""
    own, chosen = ddp(net, size), optimizer(net)
    for pair in batches:
        chosen.zero_grad()
        value(own, share(pair, rank, size)).backward()
        if then:
            then()
        chosen.step()


def sharded(net, size):
    fully_shard(net, mesh=init_device_mesh("cpu", (size,)))
