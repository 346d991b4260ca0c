"""Wraps what a training step calls in PyTorch, once, in a process of its own: never undone."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from refgf.oracle.step import record

CLIPPING = "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"  # the last is newer


def hook_name(hook: Callable) -> str:
    """Also of the hooks that this one is around, with the module that defines each."""
    function = getattr(hook, "func", hook)  # of a functools.partial
    name = getattr(function, "__name__", type(function).__name__)
    inner = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    names = [hook_name(own) for own in inner if callable(own)]
    return " of ".join([f"{getattr(function, '__module__', '')}:{name}", *names])


def watch() -> None:
    backward, scale = torch.autograd.backward, torch.amp.GradScaler.scale
    register = DistributedDataParallel.register_comm_hook

    def watched_backward(*args: Any, **kwargs: Any) -> None:
        if record.current:
            record.current.before_backward()
        backward(*args, **kwargs)
        if record.current:
            record.current.after_backward()

    def watched_clip(clip: Callable) -> Callable:
        @functools.wraps(clip)
        def call(*args: Any, **kwargs: Any) -> Any:
            if record.current:
                by_norm, second = "norm" in clip.__name__, args[1] if len(args) > 1 else None
                record.current.before_clip(kwargs.get("max_norm", second) if by_norm else None)
            return clip(*args, **kwargs)

        return call

    def watched_scale(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        if record.current and record.current.steps and self.is_enabled():
            record.current.steps[-1]["scale"] = float(self.get_scale())
        return scaled

    @functools.wraps(register)
    def watched_register(self: Any, state: object, hook: Callable) -> None:
        if record.current:
            record.current.hooks.append(hook_name(hook))
        register(self, state, hook)

    torch.autograd.backward = watched_backward
    DistributedDataParallel.register_comm_hook = watched_register
    for name in CLIPPING:
        if hasattr(torch.nn.utils, name):
            call = watched_clip(getattr(torch.nn.utils, name))
            for module in (torch.nn.utils, torch.nn.utils.clip_grad):
                setattr(module, name, call)
    torch.amp.GradScaler.scale = watched_scale
    register_optimizer_step_pre_hook(
        lambda optimizer, args, kwargs: record.current and record.current.before_update(optimizer)
    )
    register_optimizer_step_post_hook(
        lambda optimizer, args, kwargs: record.current and record.current.after_update()
    )
    register_module_forward_hook(
        lambda module, args, output: record.current and record.current.saw(module)
    )
    register_module_forward_pre_hook(
        lambda module, args: record.current and record.current.forward_begins(module)
    )
