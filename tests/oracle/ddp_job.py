"""Short DDP trainings, one per hook, with p processes on gloo. Prints rank 0's results as JSON."""

import json
import os
import socket
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from refgf.oracle import torch_ddp, torch_hooks

STEPS, CHUNK = 6, 16


def skips_a_bucket(group, bucket):
    """Planted: bucket 0 of step 2 is not communicated."""
    skips_a_bucket.calls += bucket.index() == 0
    if bucket.index() == 0 and skips_a_bucket.calls == 3:
        return torch_hooks.done(bucket.buffer())
    return torch_hooks.allreduce(group, bucket)


skips_a_bucket.calls = 0


def average_forgotten(group, bucket):
    return default_hooks._allreduce_fut(group, bucket.buffer().mul_(dist.get_world_size()))


def averaged_twice(group, bucket):
    return default_hooks.allreduce_hook(group, bucket).then(
        lambda f: f.value() / dist.get_world_size()
    )


def rank_lost(group, bucket):
    if dist.get_rank() == 1:
        bucket.buffer().zero_()
    return torch_hooks.allreduce(group, bucket)


def ranks_differ(group, bucket):
    future = torch_hooks.allreduce(group, bucket)
    future.value()[-1] += 0.5 * dist.get_rank()
    return future


class ResidualLost(torch_hooks.CSCHook):
    """Planted: unsent values are dropped."""

    def _finish_step(self, group):
        self.pending = [(p, u, torch.zeros_like(v)) for p, u, v in self.pending]
        super()._finish_step(group)


class NotCorrected(torch_hooks.CSCHook):
    """Planted: plain accumulation, v + g."""

    def __call__(self, group, bucket):
        momentum, self.momentum = self.momentum, 0.0
        result = super().__call__(group, bucket)
        self.momentum = momentum
        return result


class TopOfAll:
    """The largest third of each bucket. The first step is dense: DDP rebuilds its buckets after it.

    mistake: which one is planted
    """

    def __init__(self, mistake=""):
        self.kept, self.mistake, self.steps = {}, mistake, 0
        self.__name__ = self.__qualname__ = "top"

    def __call__(self, group, bucket):
        g, place = bucket.buffer(), (bucket.index(), bucket.buffer().numel())
        old = self.kept.get(place, 0.0)
        a = g.clone() if self.mistake == "not added" else g + old
        sent = a.abs() >= (a.abs().quantile(2 / 3) if self.steps else 0)
        self.steps += bucket.is_last()
        kept = a.clone() if self.mistake == "not cleared" else torch.where(sent, 0.0, a)
        self.kept[place] = kept
        g.copy_(torch.where(sent, a, 0.0))
        if self.mistake == "sum":
            g.mul_(dist.get_world_size())
        return default_hooks.allreduce_hook(group, bucket)


def power(feedback=True):
    state = PowerSGDState(
        None,
        matrix_approximation_rank=1,
        start_powerSGD_iter=2,
        min_compression_rate=1,
        use_error_feedback=feedback,
    )

    def hook(_, bucket):
        return powerSGD_hook(state, bucket)

    return hook, torch_ddp.Conserved(lambda bucket: state.error_dict.get(bucket.index()))


def top(mistake=""):
    hook = TopOfAll(mistake)

    def kept(bucket):
        return hook.kept.get((bucket.index(), bucket.buffer().numel()))

    return hook, torch_ddp.Conserved(kept)


HOOKS = {
    "torch PowerSGD": power,
    "PowerSGD without feedback": lambda: power(feedback=False),
    "top": top,
    "top, not added": lambda: top("not added"),
    "top, not cleared": lambda: top("not cleared"),
    "top, sum": lambda: top("sum"),
    "torch allreduce": lambda: (default_hooks.allreduce_hook, torch_ddp.Mean()),
    "torch fp16": lambda: (default_hooks.fp16_compress_hook, torch_ddp.Mean()),
    "torch fp16, declared": lambda: (default_hooks.fp16_compress_hook, torch_ddp.Mean("float16")),
    "torch bf16": lambda: (default_hooks.bf16_compress_hook, torch_ddp.Mean()),
    "refgf allreduce": lambda: (torch_hooks.allreduce, torch_ddp.Mean()),
    "refgf fp16": lambda: (torch_hooks.fp16, torch_ddp.Mean("float16")),
    "refgf csc": lambda: (torch_hooks.CSCHook(CHUNK, 30.0), torch_ddp.SparseChunks(CHUNK, 30.0)),
    "refgf csc fp16": lambda: (
        torch_hooks.CSCHook(CHUNK, 30.0, wire=torch.float16),
        torch_ddp.SparseChunks(CHUNK, 30.0, wire="float16"),
    ),
    "skips a bucket": lambda: (skips_a_bucket, torch_ddp.Mean()),
    "average forgotten": lambda: (average_forgotten, torch_ddp.Mean()),
    "averaged twice": lambda: (averaged_twice, torch_ddp.Mean()),
    "rank lost": lambda: (rank_lost, torch_ddp.Mean()),
    "ranks differ": lambda: (ranks_differ, torch_ddp.Mean()),
    "residual lost": lambda: (ResidualLost(CHUNK, 30.0), torch_ddp.SparseChunks(CHUNK, 30.0)),
    "not corrected": lambda: (NotCorrected(CHUNK, 30.0), torch_ddp.SparseChunks(CHUNK, 30.0)),
}


def train(name, raises):
    """One short training with a checked hook. -> its result"""
    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(9, 13),
        torch.nn.ReLU(),
        torch.nn.Linear(13, 11),
        torch.nn.ReLU(),
        torch.nn.Linear(11, 3),
    ]
    # several buckets
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=0.0006)
    hook, definition = HOOKS[name]()
    hook = torch_ddp.checked(hook, definition, raises=raises)
    model.register_comm_hook(None, hook)
    optimizer, error_text, loss = torch.optim.SGD(model.parameters(), lr=0.05), None, None
    try:
        for step in range(STEPS):
            torch.manual_seed(100 * step + dist.get_rank())
            loss = model(torch.randn(8, 9)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    except ValueError as error:
        error_text = str(error)
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    same = all(np.array_equal(other, flat.numpy()) for other in torch_ddp.gather_arrays(flat))
    return {
        "error": error_text,
        "same parameters": same,
        "judged": len(hook.judged),
        "failures": list(map(str, hook.failures)),
        "notes": sorted({v.note for v in hook.judged if v.note}),
        "loss": loss.item(),
    }


def rank(r, size, raises, port, answers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=r, world_size=size)
    results = {name: train(name, raises) for name in HOOKS}
    if r == 0:
        answers.put(results)
    dist.barrier()
    dist.destroy_process_group()


def main(size, raises):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    ranks = [
        context.Process(target=rank, args=(r, size, raises, port, answers)) for r in range(size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        sys.exit(f"exit codes {[process.exitcode for process in ranks]}")
    print(json.dumps(answers.get(timeout=10)))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "raises")
