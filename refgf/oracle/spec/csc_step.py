"""C8 to C14: one whole step of coarse-grained sparse communication, all ranks at once.

state   w, velocity    (n,)
        kept           the residual of each rank
        chosen         chunk numbers, None if the step is dense
        gap            int64 (C,): steps since each chunk was last sent
        scale          float, the loss scale
        good_steps     int, accepted steps since the scale last changed
"""

from dataclasses import dataclass

import numpy as np

from refgf.oracle.spec.csc import (
    accumulated_gradient,
    choose,
    chunk_bounds,
    importance,
    next_residual,
    zero_residual,
)
from refgf.oracle.spec.lazy import bytes_per_gradient, lazy_allreduce
from refgf.oracle.spec.momentum import decayed_gradient, lars_ratio
from refgf.oracle.spec.numbers import on_wire
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.scaling import all_finite, next_scale


@dataclass(frozen=True)
class CSCRunSettings:
    """sizes: elements of each tensor, in the pool's order; decayed: bools per tensor, None: all."""

    sizes: tuple
    chunk: int = 32768
    form: str = "dgc"
    rate: float = 0.1
    momentum: float = 0.9
    decay: float = 0.0
    decayed: tuple | None = None
    trust: float | None = None  # LARS, with the form `history` only
    wire: str | None = None
    order: str = "direct"
    theta_bytes: float = float("inf")
    after: bool = False  # importance of the residual instead of the accumulated gradient
    scale: float = 1.0
    scale_interval: int = 2000

    def __post_init__(self):
        if self.trust is not None and self.form != "history":
            raise ValueError(
                f"CSC with LARS: got form {self.form!r}; wanted 'history'; next: trust=None"
            )


def csc_start(w: np.ndarray, p: int, s: CSCRunSettings) -> dict:
    """The state before the first step, which is dense."""
    return {
        "w": w.copy(),
        "velocity": np.zeros_like(w),
        "kept": [zero_residual(s.form, len(w), w.dtype)] * p,
        "chosen": None,
        "gap": np.ones(len(chunk_bounds(len(w), s.chunk)), np.int64),
        "scale": s.scale,
        "good_steps": 0,
    }


def csc_step(
    state: dict, gs: Arrays, s: CSCRunSettings, percent_next: float, dense_next: bool = False
) -> tuple[dict, dict]:
    """C8: one step. gs: p local gradients (n,) float32. -> (state, report)

    The accumulated gradients (C2) of chosen chunks are sent, packed in the order of the pool (C9).
    Then follow overflow (C10), the residual (C3), the update (C11), and the choice for the next
    step by this step's importance (C4, C5).

    report: {"accumulated": p arrays (n,), "sent": bool (n,), "total": (k,), "importance": (C,),
    "finite": bool}
    """
    chosen, residuals = state["chosen"], state["kept"]
    sent = sent_elements(chosen, len(state["w"]), s.chunk)
    gs = [local_gradient(state["w"], g, s, len(gs)) for g in gs]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = [accumulated_gradient(s.form, k, g, s.momentum) for k, g in zip(residuals, gs)]
        total = exchange_packed([a[sent] for a in sums], state, s)
    scaled = [on_wire(a[sent] * a.dtype.type(state["scale"]), s.wire) for a in sums]
    finite = all_finite([*sums, *scaled, total])
    scale, good_steps = next_scale(state["scale"], state["good_steps"], finite, s.scale_interval)
    report = {"accumulated": sums, "sent": sent, "total": total}
    report |= {"importance": None, "finite": finite}
    if not finite:
        return skip_step(state, scale), report
    dense = chosen is None
    residuals = [
        next_residual(s.form, k, g, s.momentum, sent, dense) for k, g in zip(residuals, gs)
    ]
    w, velocity = update(state, total, sent, s)
    judged = [k["h" if "h" in k else "v"] for k in residuals] if s.after else sums
    report["importance"] = importance(judged, s.chunk)
    return {
        "w": w,
        "velocity": velocity,
        "kept": residuals,
        "gap": next_gap(state["gap"], chosen),
        "chosen": None if dense_next else choose(report["importance"], percent_next),
        "scale": scale,
        "good_steps": good_steps,
    }, report


def csc_run(
    w: np.ndarray,
    gs: list[Arrays],
    s: CSCRunSettings,
    percents: list[tuple[float, bool]],
    lists: list | None = None,
) -> list[dict]:
    """C8 for T steps. gs[t][rank]: gradients of step t; percents: T + 1 pairs (percent, dense).

    lists: chosen chunks of each step from elsewhere, because C5 leaves room where norms differ by
    rounding only. -> T reports {"w": p arrays, "chosen": p lists or Nones, "kept": p residuals,
    "scale", "finite", "importance", "accumulated"}: what step t sent, and the state after it
    """
    state, reports = csc_start(w, len(gs[0]), s), []
    for t, step_gs in enumerate(gs):
        if lists is not None:
            state["chosen"] = lists[t]
        p, chosen = len(step_gs), state["chosen"]
        state, report = csc_step(state, step_gs, s, *percents[t + 1])
        after = {"w": [state["w"]] * p, "kept": state["kept"], "scale": state["scale"]}
        details = {key: report[key] for key in ("finite", "importance", "accumulated")}
        reports.append({**after, "chosen": [chosen] * p, **details})
    return reports


def sent_elements(chosen: list[int] | None, n: int, chunk: int) -> np.ndarray:
    """C9: chosen chunks are sent whole, packed in the order of the pool; None is all of them.

    -> bool (n,)
    """
    sent = np.full(n, chosen is None)
    for i, j in [chunk_bounds(n, chunk)[c] for c in chosen or []]:
        sent[i:j] = True
    return sent


def exchange_packed(packed: Arrays, state: dict, s: CSCRunSettings) -> np.ndarray:
    """The allreduce of the packed chunks, with the loss scale around the wire type (P4).

    theta applies to packed bytes. The rule of L1 is evaluated after each chunk, in a dense step
    after each tensor. p arrays (k,) -> (k,)
    """
    scale = packed[0].dtype.type(state["scale"])
    lengths = _lengths(len(state["w"]), s.chunk)
    sizes = s.sizes if state["chosen"] is None else [lengths[c] for c in state["chosen"]]
    scaled = [a * scale for a in packed]
    return lazy_allreduce(scaled, sizes, s.theta_bytes, s.wire, s.order)[0] / scale


def skip_step(state: dict, scale: float) -> dict:
    """C10: one non-finite value on any rank skips the step: only the loss scale changes (P6).

    It counts in any accumulated gradient, chosen or not, on the wire, and in the sum. w, velocity,
    the residuals, the gaps and the chosen list stay.
    """
    return {**state, "scale": scale, "good_steps": 0}


def local_gradient(w: np.ndarray, g: np.ndarray, s: CSCRunSettings, p: int) -> np.ndarray:
    """C12: weight decay. dgc: each rank adds (decay / p) w to g before momentum; the exchange sums.

    history, none: nothing is added here. After the exchange the update adds (decay * gap) w, with
    gap = steps since the chunk was last sent.
    """
    return decayed_gradient(w, g, s.decay / p, _per_element(s)) if s.form.startswith("dgc") else g


def update(
    state: dict, total: np.ndarray, sent: np.ndarray, s: CSCRunSettings
) -> tuple[np.ndarray, np.ndarray]:
    """C11: only sent elements are updated. -> (w, velocity)

    dgc: w <- w - rate total. history, none: momentum SGD (M1) on the total.
    With LARS (C13): v <- m v + (rate ratio)(total + decay); w <- w - v.
    """
    w, velocity, t = state["w"].copy(), state["velocity"].copy(), state["w"].dtype.type
    if s.form.startswith("dgc"):
        w[sent] = w[sent] - t(s.rate) * total
        return w, velocity
    old_w, old_velocity = w[sent], velocity[sent]
    change = total
    if s.decay != 0:
        gaps = np.repeat(state["gap"], _lengths(len(w), s.chunk))
        change = total + (s.decay * gaps).astype(w.dtype)[sent] * old_w
        decayed = _per_element(s)
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


def chosen_rates(
    w: np.ndarray, total: np.ndarray, sent: np.ndarray, s: CSCRunSettings
) -> np.ndarray:
    """C13: LARS ratios (M4) use the sent elements of each tensor only: all ranks hold these alike.

    -> (k,), rate times ratio of each sent element
    """
    tensor_of = np.repeat(np.arange(len(s.sizes)), s.sizes)[sent]
    rates = np.full(len(tensor_of), s.rate)
    for i in np.unique(tensor_of):
        if s.decayed is None or s.decayed[i]:
            own = tensor_of == i
            rates[own] = s.rate * lars_ratio(w[sent][own], total[own], s.trust, s.decay)
    return rates.astype(w.dtype)


def csc_payload_bytes(
    chosen: list[int] | None, n: int, chunk: int, dtype: str = "float32", wire: str | None = None
) -> int:
    """C14: what a step's allreduces are given, in bytes.

    These are the chosen elements on the wire, and C norms and one flag in float64.
    """
    sent = int(sent_elements(chosen, n, chunk).sum())
    return sent * bytes_per_gradient(dtype, wire) + 8 * (len(chunk_bounds(n, chunk)) + 1)


def next_gap(gap: np.ndarray, chosen: list[int] | None) -> np.ndarray:
    """Steps since each chunk was last sent: 1 for those just sent. int64 (C,) -> int64 (C,)"""
    gaps = [1 if chosen is None or c in chosen else old + 1 for c, old in enumerate(gap)]
    return np.array(gaps, np.int64)


def _lengths(n: int, chunk: int) -> list[int]:
    return [j - i for i, j in chunk_bounds(n, chunk)]


def _per_element(s: CSCRunSettings) -> np.ndarray | None:
    return None if s.decayed is None else np.repeat(np.array(s.decayed, bool), s.sizes)
