"""CSC as a DDP hook: a rank on a GPU with NCCL against a rank on the CPU with gloo.

    python tests/gpu/nccl.py

The same network, batches and settings. A rank alone sums nothing, but all of the hook runs: chunks
are chosen on the device, packed, sent and put back, and momentum is corrected. The weights may
differ by what the order of sums does, which may also decide between two chunks that are nearly
equal.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from refgf.torch import Chunks, GradientFlow
from refgf.torch.example import network

STEPS, BATCH = 20, 32
LARGEST = 1e-3  # difference of the weights, relative to the way that they went


def trained(where: str, backend: str) -> tuple[torch.Tensor, torch.Tensor, list]:
    """(first weights, last weights, the chunks of each step), on the host."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = DistributedDataParallel(network(0).to(where))
        before, chosen = weights(model), []
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=5e-4)
        flow = GradientFlow(model, optimizer, density=20, chunks=Chunks(256))
        random = torch.Generator().manual_seed(0)
        for _ in range(STEPS):
            images = torch.randn(BATCH, 1, 8, 8, generator=random).to(where)
            labels = torch.randint(10, (BATCH,), generator=random).to(where)
            optimizer.zero_grad()
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            chosen.append(None if flow.chosen is None else [int(i) for i in flow.chosen])
        flow.close()
        return before, weights(model), chosen
    finally:
        dist.destroy_process_group()


def weights(model: DistributedDataParallel) -> torch.Tensor:
    return torch.cat([x.detach().cpu().double().flatten() for x in model.parameters()])


def main(where: str = "cuda", backend: str = "nccl") -> int:
    torch.backends.cudnn.allow_tf32 = False  # products of float32, as on the CPU
    start, wanted, chunks = trained("cpu", "gloo")
    _, got, found = trained(where, backend)
    difference = ((got - wanted).norm() / (wanted - start).norm()).item()
    same = sum(one == other for one, other in zip(found, chunks, strict=True))
    print(f"{STEPS} steps on {backend}: the same chunks in {same}; weights differ by", end=" ")
    print(f"{difference:.2g} of the way that they went (at most {LARGEST})")
    return int(not difference <= LARGEST)


if __name__ == "__main__":
    sys.exit(main())
