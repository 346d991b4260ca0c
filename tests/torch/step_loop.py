"""A loop with CSC at a density of 100, for `refgf step`."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from refgf.torch import Chunks, GradientFlow


def model():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def batch(seed):
    drawn = torch.Generator().manual_seed(seed)
    return torch.randn(12, 6, generator=drawn), torch.randint(0, 3, (12,), generator=drawn)


def loss(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def train(model, batches, rank, size):
    wrapped = DistributedDataParallel(model) if size > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if size > 1:
        GradientFlow(wrapped, optimizer, density=100, chunks=Chunks(8), form="none")
    for features, labels in batches:
        optimizer.zero_grad()
        loss(wrapped, (features[rank::size], labels[rank::size])).backward()
        optimizer.step()
