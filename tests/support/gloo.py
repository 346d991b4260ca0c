"""Ranks of torch.distributed on gloo: processes that call a function and give back what it says.

They are forked by a server that has imported what is slow, PyTorch above all. It starts with the
first rank that is asked for, computes nothing, and ends with its caller.
"""

import os
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.utils._python_dispatch import TorchDispatchMode

HOW = "forkserver"
IMPORTED = "refgf.torch torch._dynamo torch.distributed.optim tests.support.golden pytest"
multiprocessing.set_forkserver_preload(IMPORTED.split())
PATIENCE = timedelta(seconds=180)  # of a rank that waits for one that does not come
WHOLE = {  # names of FSDP's calls, and of the argument that has all elements
    "allgather_base": ("allgather", lambda args: args[0]),
    "reduce_scatter_base": ("reduce-scatter", lambda args: args[1]),
    "allreduce": ("allreduce", lambda args: args[0][0]),
}


def on_gloo(size: int, function, *arguments) -> list:
    """[function(rank, *arguments) for each rank]; a rank that fails ends all of them."""
    with tempfile.TemporaryDirectory(prefix="refgf-gloo-") as folder:
        work = (size, folder, function, arguments)
        multiprocessing.start_processes(_rank, work, nprocs=size, start_method=HOW)
        paths = [os.path.join(folder, f"{rank}.pt") for rank in range(size)]
        return [torch.load(path, weights_only=False) for path in paths]


class Calls(TorchDispatchMode):
    """found: [(kind, elements)] of FSDP's collective calls within, in their order."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        for name, (kind, whole) in WHOLE.items():
            if name in str(function):
                self.found.append((kind, whole(args).numel()))
        return function(*args, **(kwargs or {}))


def _rank(rank: int, size: int, folder: str, function, arguments) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        found = function(rank, *arguments)
        torch.save(found, os.path.join(folder, f"{rank}.pt"))
        dist.barrier()
    finally:
        dist.destroy_process_group()
