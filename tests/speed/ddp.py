"""PyTorch's side of gradientflow_speed.py, on the emulated cluster: python ddp.py MODE OUT [PACE]

    compute   full AlexNet in PyTorch, channels last: a step without communication, and one with
              DDP over gloo
    wait      DDP over gloo, float32 and with its fp16 compression hook, of modules that wait at the
              given pace

Parameters and their order are those of refgf's AlexNet with batch normalisation; bucket size is
DDP's default.
"""

import refgf.launch  # noqa: F401  before MPI starts: it brings the ranks up and sets threads

# isort: split
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from refgf.nn.alexnet import CONVOLUTIONS, AlexNet

BATCH, STEPS, WARMUP = 16, 5, 2
WAITED_STEPS = 3  # one run of many


class Waited(torch.autograd.Function):
    """Passes x on. Backward waits, then returns the parameter's gradient, all that is in `box`.

    The gradient leaves the box, because autograd would copy one that is referenced elsewhere.
    """

    @staticmethod
    def forward(ctx, x, parameter, box, seconds):
        ctx.box, ctx.seconds = box, seconds
        return x.view_as(x)

    @staticmethod
    def backward(ctx, dy):
        time.sleep(ctx.seconds)
        return dy, ctx.box.pop(), None, None


class WaitingModel(nn.Module):
    """Parameters of the given tensors (order of generation), each with its share of waiting."""

    def __init__(self, tensors, pace) -> None:
        super().__init__()
        self.pace = pace
        forward = list(reversed(tensors))
        self.parameters_ = nn.ParameterList([nn.Parameter(torch.zeros(t.shape)) for t in forward])
        self.boxes = [[torch.full(t.shape, 1e-3)] for t in forward]
        self.seconds = list(reversed(pace["steps_s"]))

    def forward(self, x):
        time.sleep(self.pace["forward_s"])
        for parameter, box, seconds in zip(self.parameters_, self.boxes, self.seconds):
            if parameter.grad is not None:
                box.append(parameter.grad)
                parameter.grad = None
            x = Waited.apply(x, parameter, box, seconds)
        return x


def alexnet() -> nn.Module:
    layers, channels = [], 3
    for outputs, kernel, stride, padding, pooled in CONVOLUTIONS:
        layers += [nn.Conv2d(channels, outputs, kernel, stride, padding), nn.BatchNorm2d(outputs)]
        layers += [nn.ReLU(inplace=True)] + [nn.MaxPool2d(3, 2)] * pooled
        channels = outputs
    layers.append(nn.Flatten())
    for inputs in (9216, 4096):
        layers += [nn.Linear(inputs, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    layers.append(nn.Linear(4096, 1000))
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


def times(comm, step, count=STEPS) -> list[float]:
    mine = []
    for _ in range(WARMUP + count):
        comm.Barrier()
        start_s = time.perf_counter()
        step()
        mine.append(time.perf_counter() - start_s)
    return [max(some) for some in zip(*comm.allgather(mine[WARMUP:]))]


def compute(comm) -> dict:
    torch.manual_seed(comm.rank)
    images = torch.randn(BATCH, 3, 227, 227).to(memory_format=torch.channels_last)
    labels, found, loss = torch.arange(BATCH), {}, nn.CrossEntropyLoss()
    for name in ("alone", "float32"):
        model = alexnet()
        model = model if name == "alone" else DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, weight_decay=5e-4)

        def step(model=model, optimizer=optimizer):
            optimizer.zero_grad(set_to_none=True)
            loss(model(images), labels).backward()
            optimizer.step()

        found[name] = times(comm, step)
    return found


def wait(comm, pace) -> dict:
    found, x = {}, torch.zeros(1, requires_grad=True)
    tensors = AlexNet(1000).tensors
    for name in ("float32", "float16"):
        model = DistributedDataParallel(WaitingModel(tensors, pace))
        if name == "float16":
            model.register_comm_hook(None, fp16_compress_hook)

        found[name] = times(comm, lambda model=model: model(x).sum().backward(), WAITED_STEPS)
    return found


def start(comm) -> None:
    """gloo's ranks meet through a file that all see, and communicate over the node's own link."""
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0" if "REFGF_CLUSTER" in os.environ else "lo"
    torch.set_num_threads(1)
    place = comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None)
    dist.init_process_group(
        "gloo", init_method=f"file://{place}/gloo", rank=comm.rank, world_size=comm.size
    )


if __name__ == "__main__":
    mode, out, *pace = sys.argv[1:]
    start(MPI.COMM_WORLD)
    paces = [json.loads(Path(name).read_text()) for name in pace]
    result = {"compute": compute, "wait": wait}[mode](MPI.COMM_WORLD, *paces)
    if MPI.COMM_WORLD.rank == 0:
        Path(out).write_text(json.dumps(result))
    dist.destroy_process_group()
