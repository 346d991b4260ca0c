"""The errors of `refgf.torch`: what was got, what is wanted, what to try; on all ranks alike."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist


def require(ok: bool, got: str, wanted: str, next_step: str) -> None:
    """ValueError unless ok."""
    if not ok:
        raise ValueError(f"GradientFlow: got {got}; wanted {wanted}; next: {next_step}")


def of_all(group: dist.ProcessGroup, own: Any) -> list[Any]:
    """What each rank gives. Collective."""
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, own, group=group)
    return every


def alike(group: dist.ProcessGroup, own: Any) -> bool:
    """Do all ranks give the same? Collective."""
    every = of_all(group, own)
    return all(other == every[0] for other in every)


def on_all_ranks(group: dist.ProcessGroup, check: Callable[..., Any], *arguments: Any) -> Any:
    """check(*arguments); a ValueError of one rank is raised on all. Collective."""
    found, own = None, ""
    try:
        found = check(*arguments)
    except ValueError as error:
        own = str(error)
    for rank, text in enumerate(of_all(group, own)):
        if text:
            raise ValueError(own or f"{text} (on rank {rank})")
    return found
