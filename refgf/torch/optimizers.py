"""Momentum and weight decay, taken out of an SGD and given back.

Momentum that an optimiser applies to what CSC sends late is not the momentum of dense training. In
the forms `dgc` it happens before the exchange, in the residual; in `history` and `none` after it,
and only where a chunk was sent. So the optimiser keeps neither of both: it multiplies by the rate.
"""

import inspect
import sys
import zlib
from dataclasses import dataclass, field
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from refgf.torch.pool import FlatPool
from refgf.torch.residual import BEFORE
from refgf.torch.wrong import require

KEYS = ("momentum", "weight_decay")
ODD = ("nesterov", "dampening", "maximize")
MARK = "taken_by_gradientflow"  # in a group and a state: it is saved with optimizer.state_dict


@dataclass
class Taken:
    """Momentum and decay of each parameter of the pool, which `take` takes. False if nothing.

    loads    how often the optimiser was loaded, less how often the flow was
    """

    optimizer: torch.optim.Optimizer
    pool: FlatPool
    momentum: list[float]
    decay: list[float]
    loads: int = 0
    own: list[dict[str, Any]] = field(default_factory=list)  # of each group of the optimiser
    members: list[list[int]] = field(default_factory=list)  # ids of each group's parameters

    def __bool__(self) -> bool:
        return any(self.own)

    def take(self) -> dict[int, Tensor]:
        """The optimiser keeps neither. -> the momentum that it has gathered, by parameter"""
        for group, own in zip(self.optimizer.param_groups, self.own):
            group.update(dict.fromkeys(own, 0.0) | {MARK: own})
        self.members = members(self.optimizer)
        self.mark()
        gathered = [state.pop("momentum_buffer", None) for state in self.states()]
        return {index: buffer for index, buffer in enumerate(gathered) if buffer is not None}

    def states(self) -> list[dict[str, Any]]:
        """What the optimiser keeps of each parameter of the pool, if anything was taken."""
        return [self.optimizer.state[p] for p in self.pool.parameters if self]

    def mark(self) -> None:
        for state in self.states():
            state[MARK] = True

    def give_back(self) -> None:
        for group, own in zip(self.optimizer.param_groups, self.own):
            group.update(own)
            group.pop(MARK, None)  # load_state_dict makes new groups
        for state in self.states():
            state.pop(MARK, None)

    def give_velocity(self, rows: Tensor) -> None:
        """The momentum buffers become rows (C, chunk)."""
        velocities = self.pool.named(rows).values()
        for state, values, p, m in zip(
            self.states(), velocities, self.pool.parameters, self.momentum
        ):
            if m:
                state["momentum_buffer"] = torch.empty_like(p).detach().copy_(values)

    def require_gone(self) -> None:
        """ValueError if they were put back, which would apply them twice, or the state cleared."""
        put = "make GradientFlow after optimizer.load_state_dict; let schedulers change the "
        put += "rate only (cycle_momentum=False); add no group of parameters"
        for group in self.optimizer.param_groups if self else ():
            for key in (*KEYS, *ODD):
                got = f"{key}={group[key]} in the optimiser"
                require(not group[key], got, "0: GradientFlow has taken momentum and decay", put)
        anew = "then a new DistributedDataParallel and GradientFlow"
        same = not self or self.members == members(self.optimizer)
        got = "parameters that moved between groups, or in or out of one"
        require(same, got, "each in the group that it had", f"close(), {anew}")
        kept = all(MARK in state for state in self.states())
        got = "optimizer.state cleared, and the momentum is not there: GradientFlow has it"
        begin = f"to begin without momentum: close(momentum=False), {anew}"
        require(kept, got, "the state as it was", begin)


def takeable(optimizer: torch.optim.Optimizer, form: str, pool: FlatPool) -> Taken:
    """What is to be taken; with form `none` any other optimiser keeps what it has."""
    kind = type(optimizer).__name__
    sgd = type(optimizer) is torch.optim.SGD  # a class made of it may use momentum in another way
    odd = {key for group in optimizer.param_groups for key in ODD if group.get(key)}
    own_momentum = sgd and not odd
    got = f"{kind}{' with ' if odd else ''}{', '.join(sorted(odd))} and form={form!r}"
    wanted = "torch.optim.SGD with plain momentum, which CSC takes over"
    require(form == "none" or own_momentum, got, wanted, "form='none', which keeps it all")
    closures = isinstance(optimizer, torch.optim.LBFGS)
    require(not closures, f"{kind}, which calls backward in its step", "one backward a step", "SGD")
    given = [p for group in optimizer.param_groups for p in group["params"]]
    ids = {id(p) for p in given}
    missing = [name for name, p in zip(pool.names, pool.parameters) if id(p) not in ids]
    one = "one optimizer of model.parameters(); requires_grad_(False) before DDP freezes"
    require(not missing, f"an {kind} without {missing[:3]}", "all that this model trains", one)
    other = [tuple(p.shape) for p in given if p.requires_grad and id(p) not in pool.place]
    got = f"an {kind} with parameters of shape {other[:3]}, which DDP does not reduce"
    require(not other, got, "this model's only", "a second optimizer for the others")
    count = len(pool.names)
    taken = Taken(optimizer, pool, [0.0] * count, [0.0] * count)
    for group in optimizer.param_groups:
        taken.loads = max(taken.loads, int(MARK in group))
        own = {key: group[key] for key in KEYS} if own_momentum else {}
        own = dict(group.get(MARK, own))
        taken.own.append(own)
        for index in {pool.place[id(p)] for p in group["params"] if own and id(p) in pool.place}:
            taken.momentum[index], taken.decay[index] = own["momentum"], own["weight_decay"]
    factors = sorted(set(taken.momentum))
    one_factor = form in BEFORE or len(factors) < 2
    next_step = "form='dgc', or one momentum for all"
    require(one_factor, f"momenta {factors} and form={form!r}", "one momentum", next_step)
    return taken


def members(optimizer: torch.optim.Optimizer) -> list[list[int]]:
    return [[id(p) for p in group["params"]] for group in optimizer.param_groups]


def compared(optimizer: torch.optim.Optimizer, pool: FlatPool) -> dict[str, Any]:
    """Every number, flag and tuple of its groups, by what it is called in a sentence."""
    settings: dict[str, Any] = {"the optimizer": type(optimizer).__name__}
    for number, group in enumerate(optimizer.param_groups):
        for key, value in (group | group.get(MARK, {})).items():
            if key not in ("params", MARK):
                settings[f"{key} of parameter group {number}"] = plain(value)
        for index in sorted(pool.place.get(id(p), -1) for p in group["params"]):
            settings[f"the group of {pool.names[index]}"] = number
    return settings


def fingerprint(optimizer: torch.optim.Optimizer) -> int:
    """Below 2 ** 20, of what its groups hold on the host: another one for another rate."""
    held = [
        (key, plain(value))
        for group in optimizer.param_groups
        for key, value in group.items()
        if key not in ("params", MARK) and not getattr(value, "is_cuda", False)  # that would wait
    ]
    return zlib.crc32(repr(held).encode()) >> 12


def plain(value: Any) -> Any:
    """A tensor, array or scalar as its numbers; what is no number, flag or text as its type."""
    if hasattr(value, "tolist"):  # also NumPy's
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    right = value is None or isinstance(value, Number | str)
    return value if right else type(value).__name__


def stepping_scaler() -> torch.amp.GradScaler | None:
    """The GradScaler whose `step` has called the optimiser, if any is on the stack."""
    frame: Any
    frame, file = sys._getframe(1), inspect.getfile(torch.amp.GradScaler)
    while frame is not None:
        if frame.f_code.co_filename == file and frame.f_code.co_name == "step":
            scaler = frame.f_locals["self"]
            return scaler if scaler.is_enabled() else None
        frame = frame.f_back
    return None
