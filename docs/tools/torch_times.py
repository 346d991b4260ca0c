"""One cluster's times for docs/tools/torch_study.py: python torch_times.py OUT DILATION

Each row of torch_hooks.py on gloo, with the tensors of ResNet-18 (11.7 million parameters). Forward
and backward are slept, DILATION times as long as a V100's, because links are as many times slower.
A step ends with the optimiser's. Bytes are what a node's link has sent, headers included; memory is
what the process has grown by.
"""

import refgf.launch  # noqa: F401  before MPI starts

# isort: split
import ctypes
import gc
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

from docs.tools.torch_hooks import AT_ONCE, DENSE, ROWS, attach, bucket_mb
from docs.tools.torch_training import COMPUTE_S, resnet18
from tests.speed.ddp import WaitingModel, start

CHUNK, WARM, STEPS = 11_700, 3, 3  # a thousand chunks; PowerSGD begins in the third step
HIDDEN = (DENSE, "fp16 hook", "PowerSGD, rank 2", "CSC 10 %")  # timed without computing, too


def pace(shapes: list[torch.Size], step_s: float) -> dict:
    """A third is forward. Each convolution of ResNet-18 costs about as much as any other."""
    counted = sum(len(shape) > 1 for shape in shapes)
    each_s = step_s * 2 / 3 / counted
    steps_s = [each_s if len(shape) > 1 else 0.0 for shape in reversed(shapes)]
    return {"forward_s": step_s / 3, "steps_s": steps_s}


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


def timed(comm, row: str, step_s: float) -> dict:
    """Seconds of each step on the slowest rank, bytes of a step, megabytes of this row."""
    before_mb = resident_mb()
    network = resnet18((64, 128, 256, 512), 3, 1000)
    shapes = [p.shape for p in network.parameters()]
    tensors = [torch.empty(shape, device="meta") for shape in reversed(shapes)]
    del network
    model = DistributedDataParallel(
        WaitingModel(tensors, pace(shapes, step_s)), bucket_cap_mb=bucket_mb(row)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.0, momentum=0.9)
    flow = attach(row, model, optimizer, chunk=CHUNK, epoch=1, warm=False)
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


def main(out: str, dilation: float) -> None:
    comm = MPI.COMM_WORLD
    start(comm)
    found = {}
    for row in ROWS:
        if row.endswith(AT_ONCE):
            continue
        found[row] = timed(comm, row, dilation * COMPUTE_S)
        if row in HIDDEN:
            found[row]["sent_alone_s"] = timed(comm, row, 0.0)["steps_s"]
        if comm.rank == 0:
            median_s = sorted(found[row]["steps_s"])[STEPS // 2] / dilation
            print(f"{row:20} {1e3 * median_s:8.1f} ms {found[row]['bytes'] / 1e6:8.2f} MB")
            Path(out).write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
