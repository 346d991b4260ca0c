"""What CSC keeps of gradients that were not sent, on this rank.

    form         state   a chunk sends (a)   if it was sent       if it was not        momentum in
    dgc          u, v    v + (m u + g)       v = 0, u = m u + g   v = a, u = m u + g   the residual
    dgc_masked   u, v    v + (m u + g)       v = 0, u = 0         v = a, u = m u + g   the residual
    history      h       g + h               h = 0                h = m (g + h)        the velocity
    none         h       g + h               h = 0                h = g + h            the velocity

A step writes the other one of two sets of arrays; to accept it is to exchange the sets. So a step
that any rank refuses leaves no trace, and nothing is computed twice. Source and bits:
refgf/exchange/momentum_correction.py, statements C2, C3, C7 of refgf/oracle/SPEC.md.
"""

from typing import Any

import torch
from torch import Tensor

from refgf.torch.pool import FlatPool

BEFORE = ("dgc", "dgc_masked")
FORMS = (*BEFORE, "history", "none")


class LocalResidual:
    """Arrays over the pool, (C, chunk) each: u and v, or h, and what the next step writes.

    momentum  of each parameter
    empty     v, or h, is zero: everything was sent. Then nobody reads or clears it
    """

    def __init__(self, pool: FlatPool, form: str, momentum: list[float]) -> None:
        self.pool, self.form, self.momentum = pool, form, momentum
        self.before = form in BEFORE
        names = ("u", "v") if self.before else ("h",)
        self.unsent, self.empty = names[-1], True
        self.state = {name: pool.zeros() for name in names}
        self._next = {name: pool.zeros() for name in names}

    @property
    def sends(self) -> Tensor:
        """a of the table, for what `accumulate` has seen. (C, chunk)"""
        return self._next[self.unsent]

    def accumulate(self, index: int, gradient: Tensor, divisor: Any, decay: float) -> None:
        """A local gradient of parameter number `index`, over divisor, goes into u and v, or h.

        decay  this rank's share, in the forms that have it here
        """
        part, m = self.pool.part(index), self.momentum[index]
        new, *_ = (rows.view(-1)[part] for rows in self._next.values())
        old = {name: rows.view(-1)[part] for name, rows in self.state.items()}
        torch.div(gradient.reshape(-1).float(), divisor, out=new)
        if self.before:
            if decay:
                new.add_(self.pool.parameters[index].detach().reshape(-1), alpha=decay)
            new.add_(old["u"], alpha=m)
            a = self.sends.view(-1)[part]
            a.copy_(new) if self.empty else torch.add(old["v"], new, out=a)
        elif not self.empty:
            new.add_(old["h"], alpha=m if self.form == "history" else 1.0)

    def accept(self, sent: list[int], dense: bool) -> None:
        """Keep the step's arrays, without the chunks that were sent."""
        cleared = ("u", "v") if self.form == "dgc_masked" and not dense else (self.unsent,)
        all_sent = len(sent) == self.pool.count
        index = self.pool.index(sent)
        for name in self.state:
            if name == self.unsent and self.empty and all_sent:
                continue  # it was zero, and is
            self.state[name], self._next[name] = self._next[name], self.state[name]
            if name in cleared:
                self.state[name].index_fill_(0, index, 0)
        self.empty = all_sent

    def kept_norms(self, norms: Tensor, sent: list[int]) -> Tensor:
        """Norms of what is kept, from those of what is sent. (C,) -> (C,)"""
        kept = norms * (max(self.momentum) if self.form == "history" else 1.0)  # a copy
        return kept.index_fill_(0, self.pool.index(sent), 0)
