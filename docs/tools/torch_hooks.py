"""What people put into DDP to send less, by name: for docs/tools/torch_study.py.

    flow = attach("CSC 10 %", model, optimizer, chunk=32768, epoch=500)

After `(100, 25)` a row has a warm-up: an epoch dense and one at 25 %. PowerSGD and top-k begin
after as many dense steps. PowerSGD's second messages leave in any order, so on gloo it needs one
bucket: `bucket_mb` says so. DDP refuses its own bf16 hook on CPUs by its name, so it has another.
"""

import math

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from refgf.torch import Chunks, GradientFlow, Warmup

DENSITIES = (100, 50, 25, 10, 5, 1)
WARM = (100.0, 25.0)
AT_ONCE = ", at once"
DENSE = "DDP alone, float32"
ROWS = (
    DENSE,
    "fp16 hook",
    "bf16 hook",
    *(f"PowerSGD, rank {rank}" for rank in (1, 2, 4)),
    *(f"top-k {percent} %" for percent in (10, 1)),
    *(f"CSC {percent} %" for percent in DENSITIES),
    *(f"CSC {percent} %{AT_ONCE}" for percent in DENSITIES[1:]),
    "CSC 10 %, float16",
)


def bucket_mb(name: str) -> float:
    """DDP's bucket_cap_mb for this row."""
    return 1e6 if name.startswith("PowerSGD") else 25


def attach(
    name: str,
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    *,
    chunk: int,
    epoch: int,
    warm: bool = True,
) -> GradientFlow | None:
    """Register what a row is called after. warm: False leaves out every warm-up, to take times."""
    word = name.split()
    if name == "fp16 hook":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name == "bf16 hook":
        model.register_comm_hook(None, bf16)
    elif name.startswith("PowerSGD"):
        start = epoch if warm else 2
        state = powerSGD_hook.PowerSGDState(None, int(word[-1]), start_powerSGD_iter=start)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif name.startswith("top-k"):
        start = epoch if warm else 1
        model.register_comm_hook(None, TopK(float(word[1]), start))
    elif name.startswith("CSC"):
        plain, percent = isinstance(optimizer, torch.optim.SGD), float(word[1])
        percents = tuple(max(each, percent) for each in WARM)
        return GradientFlow(
            model,
            optimizer,
            density=percent,
            warmup=Warmup(percents, epoch) if warm and not name.endswith(AT_ONCE) else None,
            form="dgc" if plain else "none",
            wire=torch.float16 if name.endswith("float16") else None,
            chunks=Chunks(chunk),
        )
    return None


def bf16(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """DDP's bf16_compress_hook under a name that a CPU may use."""
    return default_hooks.bf16_compress_hook(state, bucket)


class TopK:
    """The largest percent of each rank's bucket and their indices, by allgather; error feedback.

    The first `dense` steps are dense: DDP rebuilds its buckets after the first one.
    """

    def __init__(self, percent: float, dense: int) -> None:
        self.percent, self.dense, self.steps = percent, dense, 0
        self.residuals: dict[int, Tensor] = {}
        self.__name__ = self.__qualname__ = "top_k"  # DDP reads both

    def __call__(self, _: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        self.steps += bucket.is_last()
        if self.steps < self.dense + bucket.is_last():
            return default_hooks.allreduce_hook(None, bucket)
        g, size = bucket.buffer(), dist.get_world_size()
        a = self.residuals.pop(bucket.index(), 0.0) + g
        k = max(1, math.ceil(a.numel() * self.percent / 100))
        index = a.abs().topk(k, sorted=False).indices  # (k,)
        own = torch.cat([a[index], index.int().view(torch.float32)])  # (2 k,)
        every = [torch.empty_like(own) for _ in range(size)]
        self.residuals[bucket.index()] = a.index_fill_(0, index, 0)

        def summed(_: torch.futures.Future) -> Tensor:
            g.zero_()
            for other in every:
                values, places = other.split(k)
                g.index_add_(0, places.view(torch.int32), values, alpha=1 / size)
            return g

        return dist.all_gather(every, own, async_op=True).get_future().then(summed)
