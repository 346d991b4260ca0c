"""C11 to C13: how the sent elements move the weights; settings of a run."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refgf.oracle.spec.csc.importance import chunk_bounds
from refgf.oracle.spec.momentum.lars import lars_ratio
from refgf.oracle.spec.momentum.sgd import decayed_gradient
from refgf.oracle.spec.statement import Statement


@dataclass(frozen=True)
class CSCRunSettings:
    """sizes: elements of each tensor, in the pool's order; decayed: bools per tensor, None: all."""

    sizes: tuple[int, ...]
    chunk: int = 32768
    form: str = "dgc"
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 0.0
    decayed: tuple[bool, ...] | None = None
    trust: float | None = None  # LARS, with the form `history` only
    wire: str | None = None
    order: str = "direct"
    theta_bytes: float = float("inf")
    after: bool = False  # importance of the residual instead of the accumulated gradient
    scale: float = 1.0
    scale_interval: int = 2000

    def __post_init__(self) -> None:
        if self.trust is not None and self.form != "history":
            raise ValueError(
                f"CSC with LARS: got form {self.form!r}; wanted 'history'; next: trust=None"
            )

    def per_element(self) -> np.ndarray | None:
        """Is an element decayed? None: all are."""
        return None if self.decayed is None else np.repeat(np.array(self.decayed, bool), self.sizes)


# ---- C11: the update ----


def update(
    state: dict[str, Any], total: np.ndarray, sent: np.ndarray, s: CSCRunSettings
) -> tuple[np.ndarray, np.ndarray]:
    """C11: only sent elements are updated. `dgc`: w <- w - rate total; `history`, `none`: momentum
    SGD (M1) on the total.

    Source: as C2.

    With LARS (C13): v <- m v + (rate ratio)(total + decay); w <- w - v. -> (w, velocity)
    """
    w, velocity, t = state["w"].copy(), state["velocity"].copy(), state["w"].dtype.type
    if s.form.startswith("dgc"):
        w[sent] = w[sent] - t(s.rate) * total
        return w, velocity
    old_w, old_velocity = w[sent], velocity[sent]
    change = total
    if s.decay != 0:
        lengths = [j - i for i, j in chunk_bounds(len(w), s.chunk)]
        gaps = np.repeat(state["gap"], lengths)
        change = total + (s.decay * gaps).astype(w.dtype)[sent] * old_w
        decayed = s.per_element()
        if decayed is not None:
            change = np.where(decayed[sent], change, total)
    if s.trust is None:
        velocity[sent] = t(s.momentum) * old_velocity + change
        w[sent] = old_w - t(s.rate) * velocity[sent]
    else:
        rates = chosen_rates(w, total, sent, s)
        velocity[sent] = t(s.momentum) * old_velocity + rates * change
        w[sent] = old_w - velocity[sent]
    return w, velocity


C11 = Statement("C11", update)


@C11.mistake("unchosen weights are updated too, with their old velocity")
def all_weights_move(state, total, sent, s):
    w, velocity = update(state, total, sent, s)
    m, rate = w.dtype.type(s.momentum), w.dtype.type(s.rate)
    velocity = np.where(sent, velocity, m * velocity)
    return np.where(sent, w, w - rate * velocity), velocity


@C11.mistake("momentum twice: momentum SGD is applied to dgc's sum")
def momentum_twice(state, total, sent, s):
    w, velocity, t = state["w"].copy(), state["velocity"].copy(), state["w"].dtype.type
    velocity[sent] = t(s.momentum) * velocity[sent] + total
    w[sent] = w[sent] - t(s.rate) * velocity[sent]
    return (w, velocity) if s.form.startswith("dgc") else update(state, total, sent, s)


@C11.mistake("divided by the number of ranks")
def averaged(state, total, sent, s):
    return update(state, total / total.dtype.type(len(state["kept"])), sent, s)


@C11.mistake("divided by the number of ranks twice")
def averaged_twice(state, total, sent, s):
    return averaged(state, total / total.dtype.type(len(state["kept"])), sent, s)


# ---- C12: decay ----


def local_gradient(w: np.ndarray, g: np.ndarray, s: CSCRunSettings, p: int) -> np.ndarray:
    """C12: decay: with `dgc` each rank adds (decay / p) w to g before momentum; with `history`,
    `none` (decay gap) w is added to the total, gap = steps since the chunk was last sent, 1 in the
    first step; a skipped step does not count. Both factors are formed in float64 and rounded.

    Source: chosen.
    """
    return decayed_gradient(w, g, s.decay / p, s.per_element()) if s.form.startswith("dgc") else g


def next_gap(gap: np.ndarray, chosen: list[int] | None) -> np.ndarray:
    """Steps since each chunk was last sent: 1 for those just sent. int64 (C,) -> int64 (C,)"""
    gaps = [1 if chosen is None or c in chosen else old + 1 for c, old in enumerate(gap)]
    return np.array(gaps, np.int64)


C12 = Statement("C12", local_gradient)
C12.given("every rank adds the whole decay: p times too much", p=lambda p: 1)


@C12.mistake("decay / p is formed in float32")
def decay_rounded_first(w, g, s, p):
    if not s.form.startswith("dgc"):
        return g
    return local_gradient(w, g, replace(s, decay=float(np.float32(s.decay) / np.float32(p)) * p), p)


@C12.mistake("decay is rounded to float32 before it is multiplied by the gap", update)
def decay_of_gaps_rounded_first(state, total, sent, s):
    return update(state, total, sent, replace(s, decay=float(np.float32(s.decay))))


@C12.mistake("the decay of steps in which a chunk was not sent is lost", next_gap)
def gap_ignored(gap, chosen):
    return np.ones_like(gap)


# ---- C13: LARS ----


def chosen_rates(
    w: np.ndarray, total: np.ndarray, sent: np.ndarray, s: CSCRunSettings
) -> np.ndarray:
    """C13: LARS with `history` only; ratios come from the sent elements of each tensor.

    Source: chosen: all ranks hold these alike.

    The ratios are those of M4. -> (k,), rate times ratio of each sent element
    """
    assert s.trust is not None
    tensor_of = np.repeat(np.arange(len(s.sizes)), s.sizes)[sent]
    rates = np.full(len(tensor_of), s.rate)
    for i in np.unique(tensor_of):
        if s.decayed is None or s.decayed[i]:
            own = tensor_of == i
            rates[own] = s.rate * lars_ratio(w[sent][own], total[own], s.trust, s.decay)
    return rates.astype(w.dtype)


C13 = Statement("C13", chosen_rates)


@C13.mistake("LARS without a ratio: the rate alone")
def no_ratio(w, total, sent, s):
    return np.full(int(sent.sum()), s.rate).astype(w.dtype)


@C13.mistake("rate and ratio are rounded before their product")
def chosen_rates_rounded_first(w, total, sent, s):
    ratios = chosen_rates(w, total, sent, replace(s, rate=1.0))
    return w.dtype.type(s.rate) * ratios


@C13.mistake("norms of the whole layer's weights, not of the sent elements")
def whole_layer(w, total, sent, s):
    everything = np.zeros(len(w), w.dtype)
    everything[sent] = total
    return chosen_rates(w, everything, np.ones_like(sent), s)[sent]
