"""The residual: what CSC keeps of gradients that were not sent, and what becomes of momentum.

    form         state   a chunk sends (a)   if it was sent       if it was not        momentum in
    dgc          u, v    v + (m u + g)       v = 0, u = m u + g   v = a, u = m u + g   the residual
    dgc_masked   u, v    v + (m u + g)       v = 0, u = 0         v = a, u = m u + g   the residual
    history      h       g + h               h = 0                h = m (g + h)        the optimiser
    none         h       g + h               h = 0                h = g + h            the optimiser

g is this step's gradient, m the momentum factor, u a momentum buffer, v and h residuals.

A gradient that waits T steps enters momentum SGD late. In dense training it would have moved the
weight by 1 + m + ... + m^T of itself by then; `none` only adds it up. Example, one number, m = 0.5,
g = 1 and then 0, sent in step 2: dense momentum has moved the weight by 1 + 0.5; `dgc` sends 1.5,
`none` sends 1. With `dgc` the sum of everything sent equals dense momentum SGD by linearity.
`history` multiplies the residual by m in each step, and momentum stays in the optimiser. Masking
(DGC, deep gradient compression, Lin et al. 2018) also clears the momentum of what was just sent,
but not in a dense step, where u is ordinary momentum (SPEC C3). GradientFlow's own formula is not
at hand; `dgc` is the default by our choice.

Weight decay: with momentum in the residual each rank adds its p-th part of decay * w to the
gradient, because the exchange sums. Otherwise decay is added to the sums, once for each step since
the chunk was last sent.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refgf.comm.slices import chunks
from refgf.device import Array, array_module
from refgf.exchange.chunk_choice import Density, add_norms
from refgf.exchange.pool import Pool

FORMS = ("dgc", "dgc_masked", "history", "none")
BEFORE = ("dgc", "dgc_masked")  # momentum and decay happen before the exchange


class Residual:
    """One rank's residual in plain NumPy; `engine/residual.py` has the same bits in fewer passes.

    pool        gradients (n,), multiplied by the loss scale; used as scratch
    parameters  (n,) for weight decay
    settings    a `CSCSettings`: form and chunk
    size        number of ranks

    Nothing in `state` changes before `update`, so a step that is not accepted leaves no trace.
    """

    def __init__(
        self,
        pool: Pool,
        parameters: Array,
        settings: "CSCSettings",
        momentum: float,
        decay: float,
        size: int,
    ) -> None:
        self.pool, self.parameters, self.form = pool, parameters, settings.form
        self.chunk, self.chunks = settings.chunk, chunks(pool.flat.size, settings.chunk)
        self.momentum, self.decay = float(momentum), float(decay)
        self.before = settings.form in BEFORE
        self.decay_share = decay / size if self.before else 0.0
        self.factor = self.momentum if settings.form == "history" else 1.0  # on h, if not sent
        xp = array_module(pool.flat)
        self.state = {name: xp.zeros_like(pool.flat) for name in ("uv" if self.before else "h")}
        self.norms = xp.zeros(len(self.chunks), np.float64)  # (C,) of this step
        self._decays = decay_mask(pool) if decay and not self.before else None

    def accumulate(self, index: int, scale: float, out: Array | None = None) -> None:
        """Gradient number `index` is final: unscale it, add decay, add its part of the norms.

        out (n,), if given (a dense step), takes what it sends, multiplied by the scale.
        """
        part = self.pool.elements(index)
        g = self.pool.flat[part]
        g *= 1 / scale
        if self.decay_share and self.pool.specs[index].decay:
            g += self.decay_share * self.parameters[part]
        sent = self.sends(part)
        if out is not None:
            out[part] = scale * sent
        magnitude = array_module(sent).absolute(sent)
        add_norms(self.norms, magnitude, part.start, self.chunk)

    def sends(self, part: slice) -> Array:
        """What these elements send if their chunk is chosen: a of the table."""
        g = self.pool.flat[part]
        if self.before:
            return self.state["v"][part] + (self.momentum * self.state["u"][part] + g)
        return g + self.state["h"][part]

    def pack(self, numbers: list[int], scale: float, out: Array) -> None:
        """What the chunks of these numbers send, multiplied by the scale, goes into `out`."""
        at = 0
        for part in (self.chunks[number] for number in numbers):
            sent = self.sends(part)
            out[at : at + sent.size] = scale * sent
            at += sent.size

    def update(self, sent: list[slice], dense: bool) -> None:
        """The step is accepted, and these slices of the pool were sent."""
        g = self.pool.flat
        if self.before:
            u, v = self.state["u"], self.state["v"]
            u *= self.momentum
            u += g
            v += u
        else:
            h = self.state["h"]
            h += g
            h *= self.factor
        for name, part in itertools.product(self.cleared(dense), sent):
            self.state[name][part] = 0

    def cleared(self, dense: bool) -> str:
        """Which arrays of `state` become zero where a chunk was sent."""
        if not self.before:
            return "h"
        return "uv" if self.form == "dgc_masked" and not dense else "v"

    def unpack(self, numbers: list[int], packed: Array, scale: float, gap: Array) -> None:
        """The sums of these chunks go into the pool, unscaled. gap (C,): steps since last sent."""
        at = 0
        for number in numbers:
            part = self.chunks[number]
            total = packed[at : at + part.stop - part.start]
            total *= 1 / scale  # a power of two: exact, unless it underflows
            if self._decays is not None:
                kind, xp = total.dtype.type, array_module(total)
                decays = self.parameters[part] * kind(self.decay * gap[number])
                total += xp.where(self._decays[part], decays, kind(-0.0))  # x + -0.0 is x
            self.pool.flat[part] = total
            at += total.size

    def current_state(self) -> dict[str, Array]:
        """`state` for a checkpoint. The engine first does what it has deferred to the next step."""
        return self.state


@dataclass(frozen=True)
class CSCSettings:
    """What CSC does; momentum and weight decay come from the model's optimiser.

    density   percent of the chunks, or a `Density` with a warm-up
    form      momentum correction, one of FORMS
    chunk     gradients in a chunk; the last one may be shorter
    after     rank chunks by what they would keep, not by what they would send
    residual  the class that holds the residual: `Residual`, or the engine's `FusedResidual`
    """

    density: float | Density = 10.0
    form: str = "dgc"
    chunk: int = 32_768
    after: bool = False
    residual: Callable[..., Residual] = Residual

    def __post_init__(self) -> None:
        if self.chunk < 1:
            got = f"CSC: got chunks of {self.chunk}"
            raise ValueError(f"{got}; wanted at least 1; next: chunk=32768")
        if self.form not in FORMS:
            got = f"CSC: got momentum correction {self.form!r}"
            raise ValueError(f"{got}; wanted one of {', '.join(FORMS)}; next: dgc")

    def described(self) -> dict[str, str]:
        """What all ranks must agree on."""
        return {name: str(getattr(self, name)) for name in ("density", "form", "chunk", "after")}


def decay_mask(pool: Pool) -> Array:
    """(n,) bool: does weight decay apply to this element? Not to biases and normalisation."""
    mask = array_module(pool.flat).zeros(pool.flat.size, bool)
    for index, spec in enumerate(pool.specs):
        mask[pool.elements(index)] = spec.decay
    return mask
