"""What CSC keeps of the gradients that do not travel, and what momentum becomes of it.

    form          kept    a chunk carries (a)   sent: kept becomes    not sent: kept becomes   momentum
    dgc           u, v    v + (m u + g)         v = 0, u = m u + g    v = a, u = m u + g       here, before the exchange
    dgc_masked    u, v    v + (m u + g)         v = 0, u = 0          v = a, u = m u + g       here
    history       h       g + h                 h = 0                 h = m (g + h)            in the optimiser
    none          h       g + h                 h = 0                 h = g + h                in the optimiser

A gradient that waits T steps would enter momentum SGD with weight 1 instead of 1 + m + ... + m^T if it were only added
up (`none`): the correction lets it age as it would have in dense training. With `dgc` the sum of everything sent equals
dense momentum SGD by linearity. Masking (Lin et al. 2018) also stops the momentum of what was just sent; never in a
dense step, where u is ordinary momentum. GradientFlow's own formula is not at hand; `dgc` is the default by choice.

Each form works in phases. `carry` only reads what is kept: the new u (or g + h) takes the gradient's own place. Once all
ranks have accepted the step, `keep` changes the two buffers' places: nothing is copied, and a step that is not accepted
leaves no trace. What is left to do, `age` and for what was sent `forget`, waits until the memory is read anyway.
"""

from refgf.device import array_module

FORMS = ("dgc", "dgc_masked", "history", "none")


class MomentumBefore:
    """`dgc` and `dgc_masked`: momentum is each rank's own, before the exchange. Keeps u and v (n,)."""

    factor = 1.0  # what waits is not aged

    def __init__(self, gradients, momentum: float, masked: bool) -> None:
        xp = array_module(gradients)
        self.u, self.v = xp.zeros_like(gradients), xp.zeros_like(gradients)
        self.momentum, self.masked = float(momentum), masked

    @property
    def kept(self) -> dict:
        return {"u": self.u, "v": self.v}

    def carry(self, block: slice, g, scratch) -> None:
        """g <- m u + g, the next u."""
        g += array_module(g).multiply(self.u[block], self.momentum, out=scratch)

    def travels(self, of, g, out) -> None:
        """out <- v + g, g being the next u. of(x): the part of x (n,) that g belongs to."""
        array_module(g).add(of(self.v), g, out=out)

    def keep(self, pool) -> None:
        """The step is accepted: what was carried is kept, and its buffer exchanged for the old one."""
        self.u = pool.swap(self.u)

    def age(self, block: slice) -> None:
        """What was not sent in the step before."""
        self.v[block] += self.u[block]

    def forget(self, part: slice, dense: bool) -> None:
        """What was sent in the step before."""
        self.v[part] = 0
        if self.masked and not dense:
            self.u[part] = 0


class MomentumAfter:
    """`history` and `none`: momentum is the optimiser's, after the exchange. Keeps h (n,).

    factor: m for `history`, so that what waits ages; 1 for `none`.
    """

    def __init__(self, gradients, factor: float) -> None:
        self.h = array_module(gradients).zeros_like(gradients)
        self.factor = float(factor)

    @property
    def kept(self) -> dict:
        return {"h": self.h}

    def carry(self, block: slice, g, scratch) -> None:
        """g <- g + h"""
        g += self.h[block]

    def travels(self, of, g, out) -> None:
        out[...] = g

    def keep(self, pool) -> None:
        self.h = pool.swap(self.h)

    def age(self, block: slice) -> None:
        if self.factor != 1:
            self.h[block] *= self.factor

    def forget(self, part: slice, dense: bool) -> None:
        self.h[part] = 0


def correction(form: str, gradients, momentum: float) -> MomentumBefore | MomentumAfter:
    """The state of one form for gradients (n,), zeros at first."""
    if form not in FORMS:
        raise ValueError(f"CSC: got momentum correction {form!r}; wanted one of {', '.join(FORMS)}")
    if not 0 <= momentum < 1:
        raise ValueError(f"CSC: got momentum {momentum}; wanted 0 <= momentum < 1")
    if form in ("dgc", "dgc_masked"):
        return MomentumBefore(gradients, momentum, masked=form == "dgc_masked")
    return MomentumAfter(gradients, momentum if form == "history" else 1)
