"""What one training step did on this rank: its gradients at every stage and its parameters.

    before      parameters when the batch is handed out
    local       this rank's own gradients, one entry for each backward (tensor hooks)
    backward    .grad after the last backward: communicated there by DDP and FSDP
    clip        .grad when torch.nn.utils.clip_grad_norm_ or clip_grad_value_ is called
    used        .grad when the optimizer's step begins; optimized: names of all its parameters
    after       parameters when the next batch is asked for
    trained     names of the parameters that require a gradient at backward; eval: of the modules
                in evaluation mode there

A stage is {name: (offset, array)}: where this rank's piece lies in the whole tensor, and the piece.
PyTorch's functions are wrapped once in a process of its own, before the judged file is imported.

In the replay on one rank, `forced` holds what p ranks had: parameters, gradients before clipping,
gradients that the optimizer got. Each stage then starts from the same numbers and is judged alone.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

Piece = tuple[list[int], np.ndarray]
COARSE = {torch.bfloat16: 3, torch.float16: 2, torch.float32: 1, torch.float64: 0}
CLIPPING = "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_"  # the last is newer
CHANGING = "parameters change between backward calls, as in SAM or with a step in each call"
current: "Recorder | None" = None


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's piece of a DTensor; of a plain tensor all of it."""
    return tensor.to_local() if hasattr(tensor, "placements") else tensor


def as_array(tensor: torch.Tensor) -> np.ndarray:
    kept = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    return kept.to(torch.float64 if kept.dtype == torch.float64 else torch.float32).numpy().copy()


def piece(tensor: torch.Tensor) -> Piece:
    """(offset, array); 16-bit types become float32, which holds them exactly."""
    offset = [0] * tensor.ndim
    if hasattr(tensor, "placements"):
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        layout = tuple(tensor.shape), tensor.device_mesh, tensor.placements
        offset = [int(i) for i in compute_local_shape_and_global_offset(*layout)[1]]
    return offset, as_array(local_part(tensor))


class Recorder:
    def __init__(self, model: torch.nn.Module, forced: list[dict] | None = None):
        self.model, self.forced = model, forced
        self.steps: list[dict[str, Any]] = []
        self.hooked: set[int] = set()
        self.plain: set[str] = set()  # not sharded; FSDP's are whole for the time of backward
        self.coarsest = torch.float64
        self.updating = 0  # steps of optimizers that this is in: ZeRO's calls another's
        self.refused = ""  # why this way to train cannot be judged
        self.own_statistics = ""  # a layer that normalises by the statistics of a rank's samples

    def named(self) -> dict[str, torch.nn.Parameter]:
        """Frozen ones, too: train may freeze them and train them later."""
        return {n: p for n, p in self.model.named_parameters() if p.is_floating_point()}

    def batches(self, batches: list[Any]) -> Iterator[Any]:
        for batch in batches:
            self.close()
            if self.forced:
                self._put(self.forced[len(self.steps)]["before"], gradients=False)
            step = {"before": self._parameters(), "local": [], "backward": {}, "clip": None}
            step |= {"used": {}, "rate": {}, "decay": {}, "scale": None, "max_norm": None}
            step |= {"updates": {}, "trained": [], "eval": [], "communicated": False}
            step["optimized"] = []
            self.steps.append(step)
            self._note_modes()
            self.plain = {n for n, p in self.named().items() if not hasattr(p, "placements")}
            yield batch
        self.close()

    def close(self) -> None:
        if self.steps and "after" not in self.steps[-1]:
            self.steps[-1]["after"] = self._parameters()

    def infinite_scaled(self) -> bool:
        """Did each step of a GradScaler end with an infinite gradient or a NaN?"""

        def infinite(step: dict) -> bool:
            return not all(np.isfinite(array).all() for _, array in step["backward"].values())

        return all(step["scale"] is not None and infinite(step) for step in self.steps)

    def result(self) -> dict[str, Any]:
        named, trained = self.named(), {n for step in self.steps for n in step["trained"]}
        for p in (named[name] for name in trained & named.keys()):
            self.coarsest = max(self.coarsest, p.dtype, key=COARSE.__getitem__)
        shapes = {name: list(p.shape) for name, p in named.items()}
        types = {name: str(p.dtype).removeprefix("torch.") for name, p in named.items()}
        coarsest = str(self.coarsest).removeprefix("torch.")
        return {"shapes": shapes, "types": types, "coarsest": coarsest, "steps": self.steps}

    def before_backward(self) -> None:
        if self.steps:
            self._note_modes()
            self._hook_tensors()

    def after_backward(self) -> None:
        if self.updating:
            self.refused = "the optimizer's step calls backward, as LBFGS's does with a closure"
        if self.steps:
            step, named = self.steps[-1], self.named()
            for name in (n for n in step["trained"] if n in step["before"]):
                before, now = step["before"][name][1], piece(named[name])[1]
                if now.shape == before.shape and not np.array_equal(now, before, equal_nan=True):
                    self.refused = self.refused or CHANGING
            self.steps[-1]["backward"] = self._gradients()
            self.steps[-1]["local"].append({})

    def before_clip(self, max_norm: float | None, communicated: bool = False) -> None:
        """Before the optimizer's step: clipped later, a gradient changes nothing."""
        step = self.steps[-1] if self.steps else None
        gradients = {n: g for n, g in self._gradients().items() if step and n not in step["used"]}
        if not gradients or step["clip"] is not None:
            return
        step["clip"], step["communicated"] = gradients, communicated
        if max_norm is not None and float(max_norm) < float("inf"):  # else the norm is asked for
            step["max_norm"] = float(max_norm)
        forced = self.forced[len(self.steps) - 1]["clip"] if self.forced else None
        if forced:
            self._put(forced, gradients=True)

    def before_update(self, optimizer: torch.optim.Optimizer) -> None:
        self.updating += 1
        if not self.steps:
            return
        step, names = self.steps[-1], {id(p): name for name, p in self.named().items()}
        own = {}
        for group in optimizer.param_groups:
            step["optimized"] += [names[id(p)] for p in group["params"] if id(p) in names]
            for p in group["params"]:
                if id(p) in names and p.grad is not None:
                    own[names[id(p)]] = piece(p.grad)
                    made = step["updates"].get(names[id(p)], 0)
                    step["updates"][names[id(p)]] = made + (self.updating == 1)
                    step["rate"][names[id(p)]] = float(group.get("lr", 0))
                    step["decay"][names[id(p)]] = float(group.get("weight_decay", 0))
        step["used"] |= own
        if self.forced:
            forced = self.forced[len(self.steps) - 1]["used"]
            self._put({n: forced[n] for n in own if n in forced}, gradients=True)

    def after_update(self) -> None:
        self.updating -= 1

    def saw(self, module: torch.nn.Module) -> None:
        """Under autocast, or with FSDP's policy, layers compute in a coarser type."""
        if isinstance(module, _BatchNorm) and module.training:
            self.own_statistics = type(module).__name__
        kinds = [p.dtype for p in module._parameters.values() if p is not None]
        if torch.is_autocast_enabled("cpu"):
            kinds.append(torch.get_autocast_dtype("cpu"))
        kinds = [kind for kind in kinds if kind in COARSE]
        self.coarsest = max([self.coarsest, *kinds], key=COARSE.__getitem__)

    def _parameters(self) -> dict[str, Piece]:
        return {name: piece(p) for name, p in self.named().items()}

    def _gradients(self) -> dict[str, Piece]:
        return {name: piece(p.grad) for name, p in self.named().items() if p.grad is not None}

    def _put(self, arrays: dict[str, np.ndarray], gradients: bool) -> None:
        named = self.named()
        with torch.no_grad():
            for name, array in arrays.items():
                p = named[name]
                if gradients and p.grad is None:
                    p.grad = torch.zeros_like(p)
                if gradients and p.grad.is_sparse:
                    p.grad = torch.tensor(array).to_sparse(p.grad.sparse_dim())
                    continue
                local_part(p.grad if gradients else p).copy_(torch.tensor(array))

    def _note_modes(self) -> None:
        """What the gradient of this step depends on: train may change it at any time."""
        step, named = self.steps[-1], self.named()
        earlier = step["trained"] if step["local"] else []  # in other backward calls
        step["trained"] = [n for n, p in named.items() if p.requires_grad or n in earlier]
        step["eval"] = [n for n, module in self.model.named_modules() if not module.training]

    def _hook_tensors(self) -> None:
        for name, p in self.named().items():
            if p.requires_grad and name in self.plain and id(p) not in self.hooked:
                self.hooked.add(id(p))
                p.register_hook(lambda gradient, name=name: self._local(name, gradient))

    def _local(self, name: str, gradient: torch.Tensor) -> None:
        if current is self and self.steps and not self.forced:
            step = self.steps[-1]
            pending = step.setdefault("pending", {})
            array = as_array(local_part(gradient))
            pending[name] = pending[name] + array if name in pending else array


def watch() -> None:
    """Wrap what a training step calls in PyTorch. For a process of its own: never undone."""
    backward, scale = torch.autograd.backward, torch.amp.GradScaler.scale

    def watched_backward(*args: Any, **kwargs: Any) -> None:
        if current:
            current.before_backward()
        backward(*args, **kwargs)
        if current:
            current.after_backward()
            step = current.steps[-1] if current.steps else {}
            if "pending" in step:
                step["local"][-1] = step.pop("pending")

    def watched_clip(clip: Callable) -> Callable:
        @functools.wraps(clip)
        def call(*args: Any, **kwargs: Any) -> Any:
            if current:
                by_norm, second = "norm" in clip.__name__, args[1] if len(args) > 1 else None
                current.before_clip(kwargs.get("max_norm", second) if by_norm else None)
            return clip(*args, **kwargs)

        return call

    def watched_scale(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        if current and current.steps and self.is_enabled():
            current.steps[-1]["scale"] = float(self.get_scale())
        return scaled

    torch.autograd.backward = watched_backward
    for name in CLIPPING:
        if hasattr(torch.nn.utils, name):
            call = watched_clip(getattr(torch.nn.utils, name))
            for module in (torch.nn.utils, torch.nn.utils.clip_grad):
                setattr(module, name, call)
    torch.amp.GradScaler.scale = watched_scale
    register_optimizer_step_pre_hook(
        lambda optimizer, args, kwargs: current and current.before_update(optimizer)
    )
    register_optimizer_step_post_hook(
        lambda optimizer, args, kwargs: current and current.after_update()
    )
    register_module_forward_hook(lambda module, args, output: current and current.saw(module))


def recorded(recorder: Recorder, train: Callable[[Iterator[Any]], Any], batches: list[Any]) -> None:
    """Run train(batches) under this recorder."""
    global current
    current = recorder
    try:
        train(recorder.batches(batches))
        recorder.close()
    finally:
        current = None
