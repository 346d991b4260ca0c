"""PowerSGD and PyTorch's powerSGD_hook under DDP on gloo: the same sums, the same bytes."""

import numpy as np
import pytest

from refgf.machine import threads
from refgf.oracle.definitions import factor_elements, low_rank_sum
from refgf.papers.powersgd.powersgd import PowerSGD
from tests.support.sizes import long_but

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as theirs

from tests.support.gloo import on_gloo

SHAPES = [(9, 8), (5,), (6, 14), (1,), (2, 3), (20, 6)]
BOUNDS = np.cumsum([0, *map(np.prod, SHAPES)])
DENSE, STEPS = 2, 5  # DDP wants two dense steps first
UNIT = 2.0**-24


def gradients(size):
    """(steps, ranks, n), of falling singular values, as gradients have."""
    rng, found = np.random.default_rng(size), []
    for shape in SHAPES:
        g = rng.standard_normal((STEPS, size, *shape))
        if len(shape) == 2:
            u, s, v = np.linalg.svd(g, full_matrices=False)
            g = (u * 2.0 ** -np.arange(s.shape[-1])) @ v
        found.append(g.reshape(STEPS, size, -1))
    return np.concatenate(found, axis=2).astype(np.float32)


class Given(torch.nn.Module):
    """Its gradients are what it is called with."""

    def __init__(self):
        super().__init__()
        self.tensors = torch.nn.ParameterList(torch.zeros(shape) for shape in SHAPES)

    def forward(self, g):
        parts = zip(self.tensors, BOUNDS, BOUNDS[1:])
        return sum((w * g[i:j].reshape(w.shape)).sum() for w, i, j in parts)


def rank_of_torch(rank, size, r):
    """(sums of each step, elements of each allreduce of the last, first Q of each matrix)."""
    model = torch.nn.parallel.DistributedDataParallel(Given(), bucket_cap_mb=1e3)
    state = theirs.PowerSGDState(None, r, start_powerSGD_iter=DENSE, min_compression_rate=1)
    order, calls, sums = [], [], []

    def hook(state, bucket):
        order[:] = [
            next(i for i, w in enumerate(model.module.tensors) if w is each)
            for each in bucket.parameters()
        ]
        return theirs.powerSGD_hook(state, bucket)

    def counted(x, *arguments, all_reduce=dist.all_reduce, **named):
        calls.append(x.numel())
        return all_reduce(x, *arguments, **named)

    model.register_comm_hook(state, hook)
    for step in [*[np.zeros_like(gradients(size)[0])] * DENSE, *gradients(size)]:
        calls.clear()
        dist.all_reduce, kept = counted, dist.all_reduce
        model.zero_grad()
        model(torch.from_numpy(step[rank])).backward()
        dist.all_reduce = kept
        sums.append(np.concatenate([w.grad.numpy().reshape(-1) for w in model.module.tensors]))
    torch.manual_seed(np.random.RandomState(0).randint(1_000_000_000))
    drawn = {
        i: torch.randn(1, SHAPES[i][1], r).numpy()[0]
        for i in order
        if factor_elements(SHAPES[i], r)[1]
    }
    return size * np.array(sums[DENSE:]), list(calls), state.compression_stats()[2], drawn


def rank_of_ours(comm, g, r, drawn):
    made, sums = PowerSGD(comm, shapes=SHAPES, rank=r), []
    made.start(np.zeros(BOUNDS[-1], np.float32))
    made.state["q"][...] = np.concatenate([drawn[i].reshape(-1) for i in sorted(drawn)])
    for step in g[:, comm.Get_rank()]:
        x = step.copy()
        made.sum(x, slice(0, x.size))
        made.end(True)
        sums.append(x)
    return np.array(sums)


def defined(g, drawn, cold=False):
    """W3 in float64. -> (sums of each step, how far float32 may be off), (steps, n) each

    Rounding turns the directions of P by at most about the number of additions times 2^-24 times
    the condition of its columns, and the part of M in them as far. Errors carry this to later
    steps, so it adds up. Twice, because both products are rounded.
    """
    size, sums = g.shape[1], g.sum(axis=1, dtype=np.float64)
    bounds = (size * UNIT * np.abs(g).sum(axis=1)).cumsum(axis=0)
    for i, first in drawn.items():
        part, shape, q = slice(*BOUNDS[i : i + 2]), SHAPES[i], first.astype(np.float64)
        errors, off = np.zeros((size, *shape)), 0.0
        for t, step in enumerate(g[:, :, part].reshape(STEPS, size, *shape).astype(np.float64)):
            ms = list(step + errors)
            p = np.sum([m @ q for m in ms], axis=0)
            condition = np.linalg.cond(p / np.linalg.norm(p, axis=0))
            total, after, errors = low_rank_sum(ms, q)
            q = first.astype(np.float64) if cold else after
            off += 2 * UNIT * (sum(shape) + size) * condition * np.linalg.norm(ms)
            sums[t, part], bounds[t, part] = total.reshape(-1), off
    return sums, bounds


@pytest.mark.parametrize("size", long_but([2, 3, 4], 2))
def test_sums_and_bytes_are_those_of_pytorch(size):
    g = gradients(size)
    for r, found in zip((1, 2, 4), on_gloo(size, all_of_torch, size)[0]):
        got, calls, sent, drawn = found
        assert set(drawn) == {i for i, s in enumerate(SHAPES) if factor_elements(s, r)[1]}
        wanted, bounds = defined(g, drawn)
        ours = threads.run(size, rank_of_ours, g, r, drawn)
        assert all(one.tobytes() == ours[0].tobytes() for one in ours)
        for sums in (got, ours[0]):
            assert (np.abs(sums - wanted) <= bounds).all(), (np.abs(sums - wanted) / bounds).max()
        # a bound that notices: without warm start the sums are others
        assert (np.abs(defined(g, drawn, cold=True)[0] - wanted) > bounds).any()
        first, second = np.sum([factor_elements(shape, r) for shape in SHAPES], axis=0)
        vectors = sum(int(np.prod(s)) for i, s in enumerate(SHAPES) if i not in drawn)
        assert calls == [vectors, first - vectors, second]
        assert sent == STEPS * (first + second)


def all_of_torch(rank, size):
    return [rank_of_torch(rank, size, r) for r in (1, 2, 4)]
