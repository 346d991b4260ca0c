"""The errors of `refgf.torch`: what was got, what is wanted, what to try; on all ranks alike."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist


def require(ok: bool, got: str, wanted: str, next_step: str) -> None:
    """ValueError unless ok."""
    if not ok:
        raise ValueError(f"GradientFlow: got {got}; wanted {wanted}; next: {next_step}")


def of_all(group: dist.ProcessGroup | None, own: Any) -> list[Any]:
    """What each rank gives; this one's alone where no ranks are connected. Collective."""
    if not dist.is_initialized():
        return [own]
    every: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(every, own, group=group)
    return every


def on_all_ranks(
    group: dist.ProcessGroup | None, check: Callable[..., Any], *arguments: Any
) -> Any:
    """check(*arguments); an error of one rank is raised on all, so none waits. Collective."""
    found, error = None, None
    try:
        found = check(*arguments)
    except Exception as own:
        error = own
    every = of_all(group, error and (str(error) or repr(error)))
    if error:
        raise error
    for rank, text in enumerate(every):
        if text:
            raise ValueError(f"{text} (on rank {rank})")
    return found


def require_alike(group: dist.ProcessGroup | None, own: dict[str, Any], next_step: str) -> None:
    """ValueError on every rank for the first value that is not the same on all. Collective."""
    every = of_all(group, own)
    for name in dict.fromkeys(name for settings in every for name in settings):
        values = [settings.get(name) for settings in every]
        if all(value == values[0] or repr(value) == repr(values[0]) for value in values):  # NaN
            continue
        ranks: dict[str, list[str]] = {}
        for rank, value in enumerate(values):
            ranks.setdefault(str(value), []).append(str(rank))
        got = " and ".join(f"{text[:100]} on rank {', '.join(r)}" for text, r in ranks.items())
        require(False, f"{name} = {got}", "the same on all ranks", next_step)
