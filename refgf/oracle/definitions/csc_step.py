"""C8 to C14: one whole step of coarse-grained sparse communication, all ranks at once.

    state   {"w": (n,), "velocity": (n,), "kept": [of rank 0, ...], "chosen": [chunk numbers] or None when the step
            is dense, "gap": int64 (C,) steps since each chunk was last sent, "scale": float, "good_steps": int}
"""

from dataclasses import dataclass

import numpy as np

from refgf.oracle.definitions.csc import carried, choose, chunk_bounds, importance, keep, nothing_kept
from refgf.oracle.definitions.lazy import bytes_per_gradient, lazy_allreduce
from refgf.oracle.definitions.momentum import decayed_gradient, lars_ratio
from refgf.oracle.definitions.numbers import on_wire
from refgf.oracle.definitions.scaling import all_finite, next_scale


@dataclass(frozen=True)
class CSCSettings:
    """sizes: elements of each tensor, in the pool's order; decayed: one bool per tensor, None for all."""

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
    after: bool = False  # importance of what is kept instead of what would travel
    scale: float = 1.0
    scale_interval: int = 2000

    def __post_init__(self):
        if self.trust is not None and self.form != "history":
            raise ValueError(f"CSC with LARS: got form {self.form!r}; wanted 'history'; next: trust=None")


def csc_start(w, p, s):
    """The state before the first step, which is dense."""
    return {"w": w.copy(), "velocity": np.zeros_like(w), "kept": [nothing_kept(s.form, len(w), w.dtype)] * p,
            "chosen": None, "gap": np.ones(len(chunk_bounds(len(w), s.chunk)), np.int64),
            "scale": s.scale, "good_steps": 0}  # fmt: skip


def csc_step(state, gs, s, percent_next, dense_next=False):
    """C8: one step. gs: p local gradients (n,) float32. -> (state, report)

    Travel: what C2 says of the chosen chunks, packed in the order of the pool (C9). Then overflow (C10), what is kept
    (C3), the update (C11), and the choice for the next step from this step's importance (C4, C5).
    report: {"carried": p arrays (n,), "sent": bool (n,), "total": (k,), "importance": (C,), "finite": bool}
    """
    sent = sent_elements(state["chosen"], len(state["w"]), s.chunk)
    gs = [local_gradient(state["w"], g, s, len(gs)) for g in gs]
    with np.errstate(over="ignore", invalid="ignore"):
        would = [carried(s.form, kept, g, s.momentum) for kept, g in zip(state["kept"], gs)]
        total = exchange_packed([a[sent] for a in would], state, s)
    finite = all_finite([*would, *(on_wire(a[sent] * a.dtype.type(state["scale"]), s.wire) for a in would), total])
    scale, good_steps = next_scale(state["scale"], state["good_steps"], finite, s.scale_interval)
    report = {"carried": would, "sent": sent, "total": total, "importance": None, "finite": finite}
    if not finite:
        return skipped(state, scale), report
    kept = [keep(s.form, k, g, s.momentum, sent, state["chosen"] is None) for k, g in zip(state["kept"], gs)]
    w, velocity = update(state, total, sent, s)
    report["importance"] = importance([k["h" if "h" in k else "v"] for k in kept] if s.after else would, s.chunk)
    return {"w": w, "velocity": velocity, "kept": kept, "gap": next_gap(state["gap"], state["chosen"]),
            "chosen": None if dense_next else choose(report["importance"], percent_next),
            "scale": scale, "good_steps": good_steps}, report  # fmt: skip


def csc_run(w, gs, s, percents, lists=None):
    """C8 again and again. gs[t][rank]: gradients of step t; percents[t]: (percent, dense) of step t, T + 1 of them.

    lists: chosen chunks of each step when somebody else has chosen (C5 leaves room where norms are equal but for
    rounding).  -> T reports {"w": p arrays, "chosen": p lists or Nones, "kept": p dicts, "scale", "finite",
    "importance", "carried"}: what was sent in step t, and the state after it
    """
    state, reports = csc_start(w, len(gs[0]), s), []
    for t, step_gs in enumerate(gs):
        if lists is not None:
            state["chosen"] = lists[t]
        sent = state["chosen"]
        state, report = csc_step(state, step_gs, s, *percents[t + 1])
        told = {key: report[key] for key in ("finite", "importance", "carried")}
        reports.append({"w": [state["w"]] * len(step_gs), "chosen": [sent] * len(step_gs), "kept": state["kept"],
                        "scale": state["scale"], **told})  # fmt: skip
    return reports


def sent_elements(chosen, n, chunk):
    """C9: chosen chunks travel whole, packed in the order of the pool; None is all of them. -> bool (n,)"""
    sent = np.full(n, chosen is None)
    for i, j in [chunk_bounds(n, chunk)[c] for c in chosen or []]:
        sent[i:j] = True
    return sent


def exchange_packed(packed, state, s):
    """The allreduce of the packed chunks, with the loss scale around the wire type (P4). p arrays (k,) -> (k,)

    theta applies to packed bytes; the waiting rule (L1) looks after each chunk, in a dense step after each tensor.
    """
    n, scale = len(state["w"]), packed[0].dtype.type(state["scale"])
    bounds = chunk_bounds(n, s.chunk)
    sizes = s.sizes if state["chosen"] is None else [bounds[c][1] - bounds[c][0] for c in state["chosen"]]
    return lazy_allreduce([a * scale for a in packed], sizes, s.theta_bytes, s.wire, s.order)[0] / scale


def skipped(state, scale):
    """C10: if any rank has a non-finite value to carry, in any chunk, or on the wire, or in the sum, nothing changes.

    Not w, velocity, what is kept, the gaps or the chosen list; only the scale drops (P6).
    """
    return {**state, "scale": scale, "good_steps": 0}


def local_gradient(w, g, s, p):
    """C12: weight decay. dgc: each rank adds its p-th part, (decay / p) w, to g before momentum, as the exchange sums.

    history, none: nothing here; after the exchange the update adds (decay * gap) w, gap = steps since last sent.
    """
    return decayed_gradient(w, g, s.decay / p, _per_element(s)) if s.form.startswith("dgc") else g


def update(state, total, sent, s):
    """C11: sent elements only. dgc: w <- w - rate total. history, none: momentum SGD (M1) on total. -> (w, velocity)

    With LARS (C13): v <- m v + (rate ratio)(total + decay); w <- w - v.
    """
    w, velocity, t = state["w"].copy(), state["velocity"].copy(), state["w"].dtype.type
    if s.form.startswith("dgc"):
        w[sent] = w[sent] - t(s.rate) * total
        return w, velocity
    here, there = w[sent], velocity[sent]
    change = total
    if s.decay != 0:
        decays = (s.decay * np.repeat(state["gap"], _lengths(len(w), s.chunk))).astype(w.dtype)[sent]
        decayed = _per_element(s)
        change = total + decays * here if decayed is None else np.where(decayed[sent], total + decays * here, total)
    if s.trust is None:
        velocity[sent] = t(s.momentum) * there + change
        w[sent] = here - t(s.rate) * velocity[sent]
    else:
        velocity[sent] = t(s.momentum) * there + chosen_rates(w, total, sent, s) * change
        w[sent] = here - velocity[sent]
    return w, velocity


def chosen_rates(w, total, sent, s):
    """C13: LARS ratios (M4) come from the sent elements of each tensor only: all ranks hold those alike. -> (k,)"""
    owner = np.repeat(np.arange(len(s.sizes)), s.sizes)[sent]  # which tensor each sent element belongs to
    adapted = [s.decayed is None or s.decayed[i] for i in range(len(s.sizes))]
    rates = np.full(len(owner), s.rate)
    for i in np.unique(owner):
        if adapted[i]:
            rates[owner == i] = s.rate * lars_ratio(w[sent][owner == i], total[owner == i], s.trust, s.decay)
    return rates.astype(w.dtype)


def csc_payload_bytes(chosen, n, chunk, dtype="float32", wire=None):
    """C14: what a step's allreduces are given: the chosen elements on the wire, and C norms and a flag, float64."""
    sent = int(sent_elements(chosen, n, chunk).sum())
    return sent * bytes_per_gradient(dtype, wire) + 8 * (len(chunk_bounds(n, chunk)) + 1)


def next_gap(gap, chosen):
    """Steps since each chunk was last sent: 1 for those just sent. int64 (C,) -> int64 (C,)"""
    return np.array([1 if chosen is None or c in chosen else old + 1 for c, old in enumerate(gap)], np.int64)


def _lengths(n, chunk):
    return [j - i for i, j in chunk_bounds(n, chunk)]


def _per_element(s):
    return None if s.decayed is None else np.repeat(np.array(s.decayed, bool), s.sizes)
