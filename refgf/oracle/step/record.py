"""What one training step did on this rank: its gradients at every stage and its parameters.

    before      parameters when the batch is handed out
    local       this rank's own gradients, one entry for each backward (tensor hooks)
    backward    .grad after the last backward: communicated there by DDP and FSDP
    clip        .grad when torch.nn.utils.clip_grad_norm_ or clip_grad_value_ is called
    used        .grad when the optimizer's step begins; optimized: names of all its parameters
    after       parameters when the next step begins; changed: any is another than before
    state       buffers at the first forward (state.py); last: those that differ at the last one
    trained     names of the parameters that require a gradient at backward; eval: of the modules
                in evaluation mode there

A stage is {name: (offset, array)}: where this rank's piece lies in the whole tensor, and the piece.
A forward after a step of an optimizer begins another step, on the same batch: two optimizers in
turn. PyTorch's functions are wrapped once (watch.py), before the judged file is imported.

In the replay on one rank, `forced` holds what p ranks had: parameters, buffers, gradients before
clipping, gradients that the optimizer got. Each stage then starts from the same numbers and is
judged alone. A replay with `noise` has its own gradients, changed a little.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from refgf.oracle.step.state import ModelState, array_of, put, saved_buffers

Piece = tuple[list[int], np.ndarray]
COARSE = {torch.bfloat16: 3, torch.float16: 2, torch.float32: 1, torch.float64: 0}
CHANGING = "parameters change between backward calls without an optimizer's step, as in SAM"
NOT_SETTINGS = ("params", "initial_lr", "foreach", "fused", "capturable", "differentiable")
current: "Recorder | None" = None


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's piece of a DTensor; of a plain tensor all of it."""
    return tensor.to_local() if hasattr(tensor, "placements") else tensor


def piece(tensor: torch.Tensor) -> Piece:
    """(offset, array)"""
    offset = [0] * tensor.ndim
    if hasattr(tensor, "placements"):
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        layout = tuple(tensor.shape), tensor.device_mesh, tensor.placements
        offset = [int(i) for i in compute_local_shape_and_global_offset(*layout)[1]]
    return offset, array_of(tensor)


def settings_of(optimizer: torch.optim.Optimizer, group: dict) -> dict[str, Any]:
    """Its class, and the numbers in this group of parameters."""

    def number(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            return value.item()
        return [number(item) for item in value] if isinstance(value, (list, tuple)) else value

    kept = {key: number(value) for key, value in group.items() if key not in NOT_SETTINGS}
    kept = {k: v for k, v in kept.items() if isinstance(v, (bool, int, float, list, type(None)))}
    return {"optimizer": type(optimizer).__name__} | kept


class Recorder:
    """noise: {bounds: of each step, factor, seed}; its replay's gradients are changed by them."""

    def __init__(
        self, model: torch.nn.Module, forced: list[dict] | None = None, noise: dict | None = None
    ):
        self.model, self.forced, self.noise = model, forced, noise
        self.drawn = torch.Generator().manual_seed(noise["seed"] if noise else 0)
        self.steps: list[dict[str, Any]] = []
        self.batch = -1
        self.state: ModelState | None = None
        self.inside = {id(module) for module in model.modules()}
        self.hooked: set[int] = set()
        self.plain: set[str] = set()  # not sharded; FSDP's are whole for the time of backward
        self.coarsest = torch.float64
        self.updating = 0  # steps of optimizers that this is in: ZeRO's calls another's
        self.differentiating = 0  # backward calls that this is in
        self.log: Any = None  # of collective calls
        self.refused = ""  # why this way to train cannot be judged
        self.own_statistics = ""  # a layer that normalises by the statistics of a rank's samples
        self.hooks: list[str] = []  # DDP's communication hooks

    def named(self) -> dict[str, torch.nn.Parameter]:
        """Frozen ones, too: train may freeze them and train them later."""
        return {n: p for n, p in self.model.named_parameters() if p.is_floating_point()}

    def batches(self, batches: list[Any]) -> Iterator[Any]:
        for batch in batches:
            self.close()
            self.batch += 1
            self._begin()
            yield batch
        self.close()

    def _begin(self) -> None:
        """A step: of the next batch, or after another optimizer's step in the same."""
        self._put(self._forced("before", len(self.steps)), gradients=False)
        step = {"before": self._parameters(), "local": [], "backward": {}, "clip": None}
        step |= {"used": {}, "settings": {}, "scale": None, "max_norm": None, "batch": self.batch}
        step |= {"updates": {}, "trained": [], "eval": [], "communicated": False}
        turn = sum(earlier["batch"] == self.batch for earlier in self.steps)
        step |= {"optimized": [], "state": {}, "last": {}, "turn": turn}
        self.steps.append(step)
        self._note_modes()
        self.plain = {n for n, p in self.named().items() if not hasattr(p, "placements")}
        self.inside = {id(module) for module in self.model.modules()}
        self.state = ModelState(self.model, self._forced("state"))
        if self.noise:
            self._hook_tensors()

    def _forced(self, kind: str, number: int | None = None) -> dict[str, np.ndarray]:
        number = len(self.steps) - 1 if number is None else number
        forced = self.forced or []
        return (forced[number].get(kind) or {}) if number < len(forced) else {}

    def close(self) -> None:
        if not self.steps or "after" in self.steps[-1]:
            return
        step = self.steps[-1]
        step["after"] = self._parameters()
        step |= {"state": self.state.found, "last": self.state.changed_inside()}
        step |= {"attributes": self.state.attributes} if self.forced else {}  # they are not sent
        before = step["before"]
        step["changed"] = any(
            n not in before or not np.array_equal(before[n][1], a, equal_nan=True)
            for n, (_, a) in step["after"].items()
        )
        earlier = self.steps[-2] if len(self.steps) > 1 else None
        if earlier and earlier["batch"] == self.batch and not step["used"]:
            earlier["after"], earlier["changed"] = step["after"], True  # a loss that is looked at
            self.steps.pop()

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
        found = {"shapes": shapes, "types": types, "coarsest": coarsest, "steps": self.steps}
        found["normalised"] = bool(self.own_statistics)
        return found | {"saved": saved_buffers(self.model), "hooks": self.hooks}

    def forward_begins(self, module: torch.nn.Module) -> None:
        if not self.steps or id(module) not in self.inside or "after" in self.steps[-1]:
            return
        idle = not (self.updating or self.differentiating)
        if idle and self.steps[-1]["used"] and torch.is_grad_enabled():
            self.close()
            self._begin()
        if idle:
            self.state.forward_begins(module)

    def before_backward(self) -> None:
        self.differentiating += 1
        if self.log is not None:
            self.log.note_backward()
        if self.steps:
            self._note_modes()
            self._hook_tensors()

    def after_backward(self) -> None:
        self.differentiating -= 1
        if self.updating:
            self.refused = "the optimizer's step calls backward, as LBFGS's does with a closure"
        if self.steps:
            step, named = self.steps[-1], self.named()
            for name in (n for n in step["trained"] if n in step["before"] and not step["used"]):
                before, now = step["before"][name][1], piece(named[name])[1]
                if now.shape == before.shape and not np.array_equal(now, before, equal_nan=True):
                    self.refused = self.refused or CHANGING
            step["backward"] = self._gradients()
            step["local"].append(step.pop("pending", {}))

    def before_clip(self, max_norm: float | None, communicated: bool = False) -> None:
        """Before the optimizer's step: clipped later, a gradient changes nothing.

        communicated() counts inside a step, too: what the optimizer gets is what it has there.
        """
        step = self.steps[-1] if self.steps else None
        inside = communicated and self.updating
        gradients = self._gradients() if step else {}
        gradients = {n: g for n, g in gradients.items() if inside or n not in step["used"]}
        if not gradients or (step["clip"] is not None and not inside):
            return
        if inside:
            step["used"] |= {n: g for n, g in gradients.items() if n in step["used"]}
        step["clip"], step["communicated"] = (step["clip"] or {}) | gradients, communicated
        if max_norm is not None and float(max_norm) < float("inf"):  # else the norm is asked for
            step["max_norm"] = float(max_norm)
        self._put(self._forced("used" if inside else "clip"), gradients=True)

    def before_update(self, optimizer: torch.optim.Optimizer) -> None:
        self.updating += 1
        if not self.steps:
            return
        step, names = self.steps[-1], {id(p): name for name, p in self.named().items()}
        own = {}
        for group in optimizer.param_groups:
            step["optimized"] += [names[id(p)] for p in group["params"] if id(p) in names]
            settings = settings_of(optimizer, group)
            for p in group["params"]:
                if id(p) in names and p.grad is not None:
                    name = names[id(p)]
                    own[name] = self._of_update(name, piece(p.grad))
                    made = step["updates"].get(name, 0)
                    step["updates"][name] = made + (self.updating == 1)
                    state = {"state": bool(optimizer.state.get(p)), "depth": self.updating}
                    step["settings"][name] = settings | state
        step["used"] |= own
        forced = self._forced("used")
        self._put({n: forced[n] for n in own if n in forced}, gradients=True)

    def _of_update(self, name: str, found: Piece) -> Piece:
        """In a replay an inner optimizer gets what was forced for the outer one: its own is seen"""
        earlier, forced = self.steps[-1]["used"].get(name), self._forced("used").get(name)
        nested = self.updating > 1 and earlier is not None and forced is not None
        return earlier if nested and np.array_equal(found[1], forced) else found

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
        return {name: piece(p) for name, p in self.named().items() if not p.is_meta}

    def _gradients(self) -> dict[str, Piece]:
        return {name: piece(p.grad) for name, p in self.named().items() if p.grad is not None}

    def _put(self, arrays: dict[str, np.ndarray], gradients: bool) -> None:
        named = self.named()
        with torch.no_grad():
            for name, array in arrays.items():
                p = named[name]
                if p.is_meta:  # train makes it later
                    continue
                if gradients and p.grad is None:
                    p.grad = torch.zeros_like(p)
                if gradients and p.grad.is_sparse:
                    p.grad = torch.tensor(array).to_sparse(p.grad.sparse_dim())
                    continue
                put(local_part(p.grad if gradients else p), array)

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

    def _local(self, name: str, gradient: torch.Tensor) -> torch.Tensor | None:
        if current is not self or not self.steps:
            return None
        if self.noise and not gradient.is_sparse:
            bounds = self.noise["bounds"][len(self.steps) - 1 :][:1]
            signs = torch.randint(0, 2, gradient.shape, generator=self.drawn) * 2 - 1
            bound = bounds[0].get(name, 0.0) if bounds and self.noise["seed"] else 0.0
            return self.noise["factor"] * gradient + (bound * signs).to(gradient)
        if not self.forced:
            pending = self.steps[-1].setdefault("pending", {})
            array = array_of(gradient)
            pending[name] = pending[name] + array if name in pending else array
        return None


def recorded(recorder: Recorder, train: Callable[[Iterator[Any]], Any], batches: list[Any]) -> None:
    """Run train(batches) under this recorder."""
    global current
    current = recorder
    try:
        train(recorder.batches(batches))
        recorder.close()
    finally:
        current = None
