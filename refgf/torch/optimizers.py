"""Momentum and weight decay, taken out of an SGD and given back.

Momentum that an optimiser applies to what CSC sends late is not the momentum of dense training. In
the forms `dgc` it happens before the exchange, in the residual; in `history` and `none` after it,
and only where a chunk was sent. So the optimiser keeps neither of both: it multiplies by the rate.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from refgf.torch.pool import FlatPool
from refgf.torch.residual import BEFORE
from refgf.torch.wrong import require

KEYS = ("momentum", "weight_decay")
MARK = "taken_by_gradientflow"  # in a group, so it travels with optimizer.state_dict


@dataclass
class Taken:
    """What was taken: momentum and decay of each parameter of the pool. False if nothing."""

    momentum: list[float] = field(default_factory=list)
    decay: list[float] = field(default_factory=list)
    buffers: dict[int, Tensor] = field(default_factory=dict)
    optimizer: torch.optim.Optimizer | None = None
    own: list[dict[str, Any]] = field(default_factory=list)  # of each group of the optimiser

    def __bool__(self) -> bool:
        return bool(self.own)

    def give_back(self) -> None:
        if self.optimizer is not None:  # load_state_dict makes new groups
            for group, own in zip(self.optimizer.param_groups, self.own):
                group.update(own)
                group.pop(MARK, None)

    def require_gone(self) -> None:
        """ValueError if somebody has put them back: then momentum would happen twice."""
        for group in self.optimizer.param_groups if self.optimizer else ():
            for key in KEYS:
                got = f"{key}={group[key]} in the optimiser"
                wanted = f"0: GradientFlow has taken {key} over"
                put = (
                    "make GradientFlow after optimizer.load_state_dict; let schedulers change the "
                )
                put += "rate only (cycle_momentum=False)"
                require(group[key] == 0, got, wanted, put)


def take_over(optimizer: torch.optim.Optimizer, form: str, pool: FlatPool) -> Taken:
    """Take momentum and decay. With form `none` any other optimiser keeps what it has."""
    kind = type(optimizer).__name__
    plain = isinstance(optimizer, torch.optim.SGD)
    odd = [g for g in optimizer.param_groups if g.get("nesterov") or g.get("dampening")]
    got = f"{kind}{' with nesterov or dampening' if plain and odd else ''} and form={form!r}"
    wanted = "torch.optim.SGD with plain momentum, which CSC takes over"
    require(form == "none" or (plain and not odd), got, wanted, "form='none', which keeps it all")
    count = len(pool.names)
    taken = Taken([0.0] * count, [0.0] * count)
    given = {id(p) for group in optimizer.param_groups for p in group["params"]}
    known = not given.isdisjoint(pool.place)
    require(known, f"an {kind} of other parameters", "this model's", "model.parameters()")
    if not plain or odd:
        return taken
    taken.optimizer = optimizer
    for group in optimizer.param_groups:
        own = dict(group.get(MARK) or {key: group[key] for key in KEYS})
        taken.own.append(own)
        group.update(dict.fromkeys(KEYS, 0.0) | {MARK: own})
        for parameter in group["params"]:
            if (index := pool.place.get(id(parameter))) is None:
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
