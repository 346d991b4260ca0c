"""One cluster's times for docs/tools/torch_study.py: python torch_times.py OUT DILATION NETWORK

Rows of torch_hooks.py on gloo, with a network's tensors. Forward and backward are slept, DILATION
times as long as a V100's, because links are as many times slower. A step ends with the optimiser's.
Bytes are what a node's link has sent, headers included; memory is what the process has grown by.

With DILATION 0 it runs by itself: one rank, no network, and ResNet-18 computed on a core.
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import ctypes
import gc
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

from docs.tools.torch_hooks import AT_ONCE, DENSE, ROWS, attach, bucket_mb
from docs.tools.torch_training import COMPUTE_S, resnet18
from refgf.papers.scaling import workloads
from tests.speed.ddp import WaitingModel, alexnet, start

CHUNKS, WARM, STEPS = 1000, 3, 3  # PowerSGD begins in the third step
HIDDEN = (DENSE, "fp16 hook", "PowerSGD, rank 2", "CSC 10 %")  # timed without computing, too
ALONE, BATCH, PAIRS = (DENSE, "fp16 hook", "CSC 100 %", "CSC 10 %"), 32, 5
WIDE = (64, 128, 256, 512), 3, 1000  # ResNet-18 as published, 11.7 million parameters


@dataclass(frozen=True)
class Network:
    """shapes: of the tensors as they are generated; ready_s: of each, in shares of a step."""

    compute_s: float  # a step on a V100, from refgf/cluster/machines
    rows: tuple[str, ...]
    shapes: list[tuple[int, ...]]
    ready_s: list[float]


def of_resnet18() -> Network:
    """Each convolution costs about as much as any other; a third of a step is forward."""
    shapes = [tuple(p.shape) for p in reversed(list(resnet18(*WIDE).parameters()))]
    weights = [float(len(shape) > 1) for shape in shapes]
    ready_s = [1 / 3 + 2 / 3 * sum(weights[: i + 1]) / sum(weights) for i in range(len(shapes))]
    rows = tuple(row for row in ROWS if not row.endswith(AT_ONCE))
    return Network(COMPUTE_S, rows, shapes, ready_s)


def of_alexnet() -> Network:
    """128 images at 3,297 a second; layers by their flops."""
    with torch.device("meta"):
        shapes = [tuple(p.shape) for p in reversed(list(alexnet().parameters()))]
    ready_s = [each_s for each_s, _ in workloads.alexnet().step_gradients(1.0)]
    return Network(128 / 3297, HIDDEN, shapes, ready_s)


NETWORKS = {"ResNet-18": of_resnet18, "AlexNet": of_alexnet}


def pace(network: Network, step_s: float) -> dict:
    """For WaitingModel: seconds of forward, and of each tensor's backward."""
    first_s, *later = [step_s * ready_s for ready_s in network.ready_s]
    ends = [step_s / 3, first_s, *later]
    return {"forward_s": step_s / 3, "steps_s": [max(0.0, b - a) for a, b in zip(ends, ends[1:])]}


def sent_bytes() -> int:
    """By this node's link since it exists; 0 without one."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("eth0:"):
            return int(line.split(":")[1].split()[8])
    return 0


def resident_mb() -> float:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def timed(comm, network: Network, row: str, step_s: float) -> dict:
    """Seconds of each step on the slowest rank, bytes of a step, megabytes of this row."""
    before_mb = resident_mb()
    tensors = [torch.empty(shape, device="meta") for shape in network.shapes]
    model = DistributedDataParallel(
        WaitingModel(tensors, pace(network, step_s)), bucket_cap_mb=bucket_mb(row)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.0, momentum=0.9)
    chunk = sum(map(math.prod, network.shapes)) // CHUNKS
    flow = attach(row, model, optimizer, chunk=chunk, epoch=1, warm=False)
    x, mine, sent = torch.zeros(1, requires_grad=True), [], []
    for _ in range(WARM + STEPS):
        comm.Barrier()
        start_s, start_bytes = time.perf_counter(), sent_bytes()
        model(x).sum().backward()
        optimizer.step()
        mine.append(time.perf_counter() - start_s)
        sent.append(sent_bytes() - start_bytes)
    grown_mb = max(comm.allgather(resident_mb() - before_mb))
    if flow:
        flow.close(momentum=False)
    slowest = [max(every) for every in zip(*comm.allgather(mine[WARM:]))]
    most = [max(every) for every in zip(*comm.allgather(sent[WARM:]))]
    return {"steps_s": slowest, "bytes": sorted(most)[STEPS // 2], "memory_mb": grown_mb}


def alone() -> dict:
    """Seconds of PAIRS steps that this rank computes, rows in turn: what a row's own work costs."""
    images, labels = torch.randn(BATCH, 3, 32, 32), torch.arange(BATCH)
    steps, found = {}, {row: {"steps_s": []} for row in ALONE}
    for row in ALONE:
        model = DistributedDataParallel(resnet18(*WIDE))
        optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
        flow = attach(row, model, optimizer, chunk=11_700, epoch=1, warm=False)

        def step(model=model, optimizer=optimizer, flow=flow):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()

        steps[row] = step
    for turn in range(WARM + PAIRS):
        for row, step in steps.items():
            start_s = time.perf_counter()
            step()
            if turn >= WARM:
                found[row]["steps_s"].append(time.perf_counter() - start_s)
    return found


def main(out: str, dilation: float, name: str) -> None:
    comm = MPI.COMM_WORLD
    start(comm)
    network, found = NETWORKS[name](), alone() if not dilation else {}
    for row in network.rows if dilation else ():
        step_s = dilation * network.compute_s
        found[row] = {"compute_s": step_s} | timed(comm, network, row, step_s)
        if row in HIDDEN:
            found[row]["sent_alone_s"] = timed(comm, network, row, 0.0)["steps_s"]
        if comm.rank == 0:
            median_s = sorted(found[row]["steps_s"])[STEPS // 2] / dilation
            print(f"{row:20} {1e3 * median_s:8.1f} ms {found[row]['bytes'] / 1e6:8.2f} MB")
            Path(out).write_text(json.dumps(found))
    if comm.rank == 0:
        Path(out).write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])
