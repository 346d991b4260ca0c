"""The oracle attached to PyTorch DDP: checked(hook) compares each bucket with a definition.

    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    hook = checked(allreduce_hook)
    model.register_comm_hook(None, hook)
    ... train ...
    hook.failures        with step, bucket, rank, element, and what the failure looks like

Rank 0 gathers every rank's bucket before and after the hook and judges it, so this is for tests,
not for speed: about 0.5 s of CPU time a million numbers on 4 ranks, more for a wrong bucket. Each
bucket is waited for, so a hook that deadlocks with several in flight does not show it here. A wrong
bucket raises ValueError on all ranks in its step; with raises=False it is only recorded. CPU and
gloo. The definitions are:

    Mean()               mean over ranks, in float32, in any order; rounding to 16 bits is noted
    Mean("float16")      the same, within the bound for that wire type
    SparseChunks(...)    what refgf.oracle.torch_hooks.CSCHook should give
    Conserved(kept)      any lossy hook with error feedback: nothing is lost, PowerSGD and top-k too
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

# ruff: noqa: F401  definitions are imported from here
from refgf.oracle.buckets import (
    Arrays,
    Bucket,
    BucketVerdict,
    Conserved,
    Definition,
    Mean,
    SparseChunks,
)


class checked:  # noqa: N801  used like a function: checked(hook)
    """A communication hook around another one. `judged` has one entry per bucket and step."""

    def __init__(self, hook: Callable, definition: Definition | None = None, raises: bool = True):
        self.hook, self.definition, self.raises = hook, definition or Mean(), raises
        self.judged: list[BucketVerdict] = []
        self.step = 0
        name = getattr(hook, "__name__", type(hook).__name__)
        self.__name__ = self.__qualname__ = f"checked {name}"  # DDP reads both

    def __call__(self, state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        before = gather_arrays(bucket.buffer())
        parameters = [(id(p), p.numel()) for p in bucket.parameters()]
        last, index, kept = bucket.is_last(), bucket.index(), self._kept(bucket)
        result = self.result(self.hook(state, bucket), bucket)
        after = gather_arrays(result)
        found = Bucket(self.step, index, last, parameters, before, after, kept, self._kept(bucket))
        verdict = self._judged(found)
        self.judged.append(verdict)
        self.step += last
        if verdict.failure and self.raises:
            raise ValueError(f"DDP hook {self.__name__}: {verdict}")
        future = torch.futures.Future()
        future.set_result(result)
        return future

    def _kept(self, bucket: dist.GradBucket) -> Arrays:
        """What each rank keeps of a bucket, if the definition asks for it."""
        if not isinstance(self.definition, Conserved):
            return []
        own = self.definition.kept(bucket)
        return gather_arrays(torch.zeros_like(bucket.buffer()) if own is None else own)

    def _judged(self, bucket: Bucket) -> BucketVerdict:
        """By rank 0, for all; what its definition raises is raised on all, too."""
        answer: list[Any] = [None]
        if dist.get_rank() == 0:
            try:
                answer = [self.definition.judge(bucket)]
            except Exception as error:
                answer = [error]
        dist.broadcast_object_list(answer)
        if isinstance(answer[0], Exception):
            raise answer[0]
        return answer[0]

    def result(self, future: Any, bucket: dist.GradBucket) -> torch.Tensor:
        """The hook's tensor. If one rank's is not like the bucket, all ranks raise."""
        is_future = hasattr(future, "wait")
        value = future.wait() if is_future else future
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        wanted = bucket.buffer()
        right = is_future and isinstance(value, torch.Tensor) and value.dtype == wanted.dtype
        for rank, count in enumerate(of_all_ranks(value.numel() if right else -1)):
            if count != wanted.numel():
                got = f"a tensor of {count}"
                if count < 0:
                    got = "no Future, or not of one tensor of the bucket's type"
                place = f"step {self.step}, bucket {bucket.index()}, rank {rank}"
                raise ValueError(
                    f"DDP hook {self.__name__}, {place}: returned {got}; wanted a Future of "
                    f"{wanted.numel()} {wanted.dtype}; next: future.then(lambda f: ...) returns one"
                )
        return value

    @property
    def failures(self) -> list[BucketVerdict]:
        return [verdict for verdict in self.judged if verdict.failure]


def of_all_ranks(number: int) -> list[int]:
    numbers = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(numbers, torch.tensor([number]))
    return [int(own) for own in numbers]


def gather_arrays(tensor: torch.Tensor) -> Arrays:
    """This tensor of every rank, as p arrays (n,), on rank 0; nothing on the others."""
    own = tensor.detach().reshape(-1).clone()
    first = dist.get_rank() == 0
    gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())] if first else None
    dist.gather(own, gathered)
    return [t.numpy() for t in gathered or []]
