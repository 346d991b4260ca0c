"""Right training steps of random shape for `oracle step`: FILE.py:set_up_17 is number 17.

Networks, batches, optimizers and ways to communicate are drawn; every one of them is right, so a
verdict other than right is a false alarm.
"""

import contextlib
import random
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

IGNORED, CLASSES, LENGTH = -100, 5, 4
WAYS = ("ddp", "no_sync", "tokens", "scaled later", "manual", "fsdp", "fsdp accumulates", "fsdp16")
OPTIMIZERS = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1),
    "momentum": lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9, weight_decay=1e-2),
    "adam": lambda ps: torch.optim.Adam(ps, lr=1e-3),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=1e-2, weight_decay=0.1),
}


class Tokens(nn.Module):
    """(N, LENGTH) tokens -> (N, LENGTH, CLASSES): one layer of attention."""

    def __init__(self, width):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(CLASSES, width), nn.LayerNorm(width)
        self.mix = nn.MultiheadAttention(width, 2, batch_first=True)
        self.out = nn.Linear(width, CLASSES)

    def forward(self, x):
        y = self.norm(self.embedding(x))
        return self.out(y + self.mix(y, y, y, need_weights=False)[0])


def network(kind, width, depth, activation):
    if kind == "tokens":
        return Tokens(2 * width)
    if kind == "images":
        first = [nn.Conv2d(2, width, 3, padding=1), activation(), nn.MaxPool2d(2), nn.Flatten()]
        return nn.Sequential(*first, nn.Linear(width * 4, CLASSES))
    layers = [nn.Linear(6, width), activation()]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.LayerNorm(width), activation()]
    return nn.Sequential(*layers, nn.Linear(width, CLASSES))


def loss(net, pair, reduction="mean"):
    out = net(pair[0])
    labels = pair[1].reshape(-1)
    return nn.functional.cross_entropy(
        out.reshape(len(labels), -1).float(), labels, reduction=reduction
    )


def set_up(number):
    draw = random.Random(number)
    kind = draw.choice(("features", "images", "tokens"))
    shape = draw.choice((4, 6, 8)), draw.randrange(3), draw.choice((nn.ReLU, nn.Tanh, nn.GELU))
    way, optimizer = draw.choice(WAYS), OPTIMIZERS[draw.choice(list(OPTIMIZERS))]
    clip, calls = draw.choice((None, 0.05, 10.0)), draw.choice((2, 3))
    half = way in ("ddp", "manual") and draw.random() < 0.3
    autocast = way in ("ddp", "no_sync") and draw.random() < 0.3
    scaler = way in ("ddp", "no_sync") and draw.random() < 0.3
    samples = 24 * draw.choice((1, 2)) + (draw.randrange(5) if way == "tokens" else 0)

    def model():
        net = network(kind, *shape)
        return net.bfloat16() if half else net

    def batch(seed):
        drawn = torch.Generator().manual_seed(1000 * number + seed)
        kind_shape = {"features": (6,), "images": (2, 4, 4), "tokens": (LENGTH,)}[kind]
        x = torch.randn(samples, *kind_shape, generator=drawn)
        labels = (samples, LENGTH) if kind == "tokens" else (samples,)
        y = torch.randint(0, CLASSES, labels, generator=drawn)
        if kind == "tokens":
            x = torch.randint(0, CLASSES, (samples, LENGTH), generator=drawn)
        if way in ("tokens", "scaled later"):
            often = torch.linspace(0, 0.8, samples).reshape(-1, *[1] * (len(labels) - 1))
            y[torch.rand(labels, generator=drawn) < often] = IGNORED
        return (x.bfloat16() if half and kind != "tokens" else x), y

    def train(net, batches, rank, size):
        own = wrapped(net, way, size)
        chosen = optimizer(net.parameters())
        scale = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=scaler)
        for pair in batches:
            chosen.zero_grad()
            tokens = (pair[1] != IGNORED).sum()
            share = tuple(t.tensor_split(size)[rank] for t in pair)
            parts = list(zip(*(t.tensor_split(calls) for t in share)))
            parts = parts if way in ("no_sync", "fsdp accumulates", "tokens") else [share]
            for call, part in enumerate(parts):
                last = call == len(parts) - 1
                if way == "fsdp accumulates":
                    own.set_requires_gradient_sync(last)
                quiet = way == "no_sync" and size > 1 and not last
                with own.no_sync() if quiet else contextlib.nullcontext():
                    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                        if way == "tokens":
                            value = loss(own, part, "sum") * size / tokens
                        elif way == "scaled later":
                            value = loss(own, part, "sum")
                        else:
                            value = loss(own, part) * len(part[1]) / len(share[1])
                    scale.scale(value).backward()
            for p in net.parameters():
                if way == "manual" and size > 1:
                    dist.all_reduce(p.grad)
                    p.grad /= size
                if way == "scaled later":
                    p.grad *= size / tokens
            scale.unscale_(chosen)
            if clip:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            scale.step(chosen)
            scale.update()

    about = f"{way}, {kind}, bfloat16 {half}, autocast {autocast}, scaler {scaler}, clip {clip}"
    functions = {"model": model, "batch": batch, "loss": loss, "train": train}
    sixteen_bits = half or autocast or way == "fsdp16"
    return SimpleNamespace(**functions, about=about, sixteen_bits=sixteen_bits)


def wrapped(net, way, size):
    if way.startswith("fsdp"):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        settings = {"mp_policy": policy} if way == "fsdp16" else {}
        mesh = init_device_mesh("cpu", (size,))
        for part in net.children():
            if isinstance(part, nn.Linear):
                fully_shard(part, mesh=mesh, **settings)
        return fully_shard(net, mesh=mesh, **settings)
    return DistributedDataParallel(net) if size > 1 and way != "manual" else net


def __getattr__(name):
    if name.startswith("set_up_"):
        return set_up(int(name.removeprefix("set_up_")))
    raise AttributeError(name)
