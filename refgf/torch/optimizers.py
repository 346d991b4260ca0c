"""Momentum and weight decay, taken out of an SGD and given back.

Momentum that an optimiser applies to what CSC sends late is not the momentum of dense training. In
the forms `dgc` it happens before the exchange, in the residual; in `history` and `none` after it,
and only where a chunk was sent. So the optimiser keeps neither of both: it multiplies by the rate.
"""

import inspect
import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from refgf.torch.pool import FlatPool
from refgf.torch.residual import BEFORE
from refgf.torch.wrong import require

KEYS = ("momentum", "weight_decay")
ODD = ("nesterov", "dampening", "maximize")
MARK = "taken_by_gradientflow"  # in a group, so it travels with optimizer.state_dict


@dataclass
class Taken:
    """What was taken: momentum and decay of each parameter of the pool. False if nothing.

    loads    how often the optimiser was loaded, less how often the flow was
    """

    optimizer: torch.optim.Optimizer
    momentum: list[float]
    decay: list[float]
    loads: int = 0
    buffers: dict[int, Tensor] = field(default_factory=dict)
    own: list[dict[str, Any]] = field(default_factory=list)  # of each group of the optimiser

    def __bool__(self) -> bool:
        return any(self.own)

    def give_back(self) -> None:
        for group, own in zip(self.optimizer.param_groups, self.own):
            group.update(own)
            group.pop(MARK, None)  # load_state_dict makes new groups

    def give_velocity(self, pool: FlatPool, rows: Tensor) -> None:
        """The momentum buffers become rows (C, chunk)."""
        for name, values in pool.named(rows).items():
            index = pool.names.index(name)
            if self.momentum[index]:
                state = self.optimizer.state[pool.parameters[index]]
                state["momentum_buffer"] = values.to(pool.parameters[index].dtype)

    def require_gone(self) -> None:
        """ValueError if somebody has put them back: then momentum would happen twice."""
        for group in self.optimizer.param_groups if self else ():
            for key in KEYS:
                got = f"{key}={group[key]} in the optimiser"
                wanted = f"0: GradientFlow has taken {key} over"
                put = (
                    "make GradientFlow after optimizer.load_state_dict; let schedulers change the "
                )
                put += "rate only (cycle_momentum=False); add no group of parameters"
                require(group[key] == 0, got, wanted, put)


def take_over(optimizer: torch.optim.Optimizer, form: str, pool: FlatPool) -> Taken:
    """Take momentum and decay. With form `none` any other optimiser keeps what it has."""
    kind = type(optimizer).__name__
    sgd = type(optimizer) is torch.optim.SGD  # a class made of it may use momentum in another way
    odd = {key for group in optimizer.param_groups for key in ODD if group.get(key)}
    plain = sgd and not odd
    got = f"{kind}{' with ' if odd else ''}{', '.join(sorted(odd))} and form={form!r}"
    wanted = "torch.optim.SGD with plain momentum, which CSC takes over"
    require(form == "none" or plain, got, wanted, "form='none', which keeps it all")
    closures = isinstance(optimizer, torch.optim.LBFGS)
    require(not closures, f"{kind}, which calls backward in its step", "one backward a step", "SGD")
    groups = [(group, group["params"]) for group in optimizer.param_groups]
    given = {id(p) for _, parameters in groups for p in parameters}
    missing = [name for name, p in zip(pool.names, pool.parameters) if id(p) not in given]
    one = "one optimizer of model.parameters(); requires_grad_(False) before DDP freezes"
    require(not missing, f"an {kind} without {missing[:3]}", "all that this model trains", one)
    other = [p for _, parameters in groups for p in parameters if id(p) not in pool.place]
    other = [tuple(p.shape) for p in other if p.requires_grad]
    got = f"an {kind} with parameters of shape {other[:3]}, which DDP does not reduce"
    require(not other, got, "this model's only", "a second optimizer for the others")
    count = len(pool.names)
    taken = Taken(optimizer, [0.0] * count, [0.0] * count)
    for group, parameters in groups:
        own = {key: group[key] for key in KEYS} if plain else {}
        taken.loads = max(taken.loads, int(MARK in group))
        own = dict(group.get(MARK, own))
        taken.own.append(own)
        group.update(dict.fromkeys(own, 0.0) | {MARK: own})
        for parameter in parameters:
            if not own or (index := pool.place.get(id(parameter))) is None:
                continue
            taken.momentum[index], taken.decay[index] = own["momentum"], own["weight_decay"]
            buffer = optimizer.state.get(parameter, {}).pop("momentum_buffer", None)
            if buffer is not None:
                taken.buffers[index] = buffer
    factors = sorted(set(taken.momentum))
    if form not in BEFORE and len(factors) > 1:
        taken.give_back()
        next_step = "form='dgc', or one momentum for all"
        require(False, f"momenta {factors} and form={form!r}", "one momentum", next_step)
    return taken


def stepping_scaler() -> torch.amp.GradScaler | None:
    """The GradScaler whose `step` has called the optimiser, if any is on the stack."""
    frame, file = sys._getframe(1), inspect.getfile(torch.amp.GradScaler)
    while frame is not None:
        if frame.f_code.co_filename == file and frame.f_code.co_name == "step":
            scaler = frame.f_locals["self"]
            return scaler if scaler.is_enabled() else None
        frame = frame.f_back
    return None
