"""C8 to C10, C14: one whole step of coarse-grained sparse communication, all ranks at once.

state   w, velocity    (n,)
        kept           the residual of each rank
        chosen         chunk numbers, None if the step is dense
        gap            int64 (C,): steps since each chunk was last sent
        scale          float, the loss scale
        good_steps     int, accepted steps since the scale last changed
"""

from functools import partial
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, number, per_step, steps_of
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.csc.choice import C5, choose, ties_to_higher
from refgf.oracle.spec.csc.importance import chunk_bounds, importance
from refgf.oracle.spec.csc.residual import accumulated_gradient, next_residual, zero_residual
from refgf.oracle.spec.csc.update import CSCRunSettings, local_gradient, next_gap, update
from refgf.oracle.spec.draw import Draw, pick
from refgf.oracle.spec.lazy.calls import L2, bytes_per_gradient
from refgf.oracle.spec.lazy.sums import lazy_allreduce, rest_stays_local
from refgf.oracle.spec.precision.scale import all_finite, next_scale
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement
from refgf.oracle.spec.variants import variant

# ---- C8: one step, and a run of them ----


def csc_start(w: np.ndarray, p: int, s: CSCRunSettings) -> dict[str, Any]:
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
    state: dict[str, Any],
    gs: Arrays,
    s: CSCRunSettings,
    percent_next: float,
    dense_next: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """C8: one step: accumulate, exchange (P4, in the settings' `order`), check, update the
    residual, update the weights, choose; the first sparse list comes from the last dense step.

    gs: p local gradients (n,) float32. The accumulated gradients (C2) of chosen chunks are sent,
    packed in the order of the pool (C9). Then follow overflow (C10), the residual (C3), the update
    (C11), and the choice for the next step by this step's importance (C4, C5). -> (state, report)

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
    report: dict[str, Any] = {"accumulated": sums, "sent": sent, "total": total}
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
    lists: list[list[int] | None] | None = None,
) -> list[dict[str, Any]]:
    """C8 for T steps. gs[t][rank]: gradients of step t; percents: T + 1 pairs (percent, dense).

    lists: chosen chunks of each step from elsewhere, because C5 leaves room where norms differ by
    rounding only. -> T reports {"w": p arrays, "chosen": p lists or Nones, "kept": p residuals,
    "scale", "finite", "importance", "accumulated"}: what step t sent, and the state after it
    """
    state, reports = csc_start(w, len(gs[0]), s), []
    for t, step_gs in enumerate(gs):
        if lists is not None:
            state["chosen"] = lists[t]
        chosen = state["chosen"]
        state, report = csc_step(state, step_gs, s, *percents[t + 1])
        reports.append(after_step(state, chosen, report))
    return reports


def after_step(
    state: dict[str, Any], chosen: list[int] | None, report: dict[str, Any]
) -> dict[str, Any]:
    """What each rank holds after a step that sent the chosen chunks."""
    p = len(state["kept"])
    held = {"w": [state["w"]] * p, "kept": state["kept"], "scale": state["scale"]}
    details = {key: report[key] for key in ("finite", "importance", "accumulated")}
    return {**held, "chosen": [chosen] * p, **details}


def run_csc(module: Any, case: Case, lists: list[list[int]] | None = None) -> Outputs:
    """w, the residual and the chosen chunks (1 or 0) per step and rank; scale and finite per step.

    lists: chunks to send in each step instead of the chosen ones.
    """
    s, w = csc_settings(case), case["in.w"]
    more = {} if lists is None else {"lists": lists}
    steps = module.csc_run(w.copy(), steps_of(case["in.g"]), s, csc_percents(case), **more)
    return csc_outputs(steps, len(chunk_bounds(len(w), s.chunk)))


def csc_settings(case: Case) -> CSCRunSettings:
    """The settings of a case: what it leaves out has its default."""
    a = case.arguments
    given: Given = {k: number(a[k]) for k in CSCRunSettings.__dataclass_fields__ if k in a}
    sizes, decayed = tuple(case["in.sizes"].tolist()), case.tensors.get("in.decayed")
    return CSCRunSettings(sizes, decayed=None if decayed is None else tuple(decayed), **given)


def csc_percents(case: Case) -> list[tuple[float, bool]]:
    """(percent, dense) of each step and of the one after the last (C6)."""
    return [(percent, dense) for percent, dense in case.arguments["percents"]]


def csc_outputs(steps: list[dict[str, Any]], chunks: int) -> Outputs:
    """The reports of T steps as arrays."""
    result = {
        "out.w": np.array([step["w"] for step in steps]),
        **per_step(steps, "scale", "finite"),
    }
    result["out.chosen"] = np.array([[mask(c, chunks) for c in step["chosen"]] for step in steps])
    for name in steps[0]["kept"][0]:
        result[f"out.{name}"] = np.array([[kept[name] for kept in step["kept"]] for step in steps])
    return result


def mask(chosen: list[int] | None, chunks: int) -> np.ndarray:
    """1 for each chosen chunk; all of them in a dense step (None)."""
    return np.array([chosen is None or c in chosen for c in range(chunks)], np.uint8)


C8 = Statement("C8", csc_step)
AXES: dict[str, tuple[str, ...]]
AXES = {name: ("step", "rank", "element") for name in ("w", "u", "v", "h")}
AXES |= {"chosen": ("step", "rank", "chunk"), "scale": ("step",), "finite": ("step",)}
EVERY_RUN = "C1 C2 C3 C4 C5 C8 C9 C11"
RUN = JudgedFunction(csc_run, f"{EVERY_RUN} C12", AXES, "w g sizes decayed", run_csc)


@C8.mistake("stale chunk list: that of the step before")
def stale_list(state, gs, s, percent_next, dense_next=False):
    after, report = csc_step(state, gs, s, percent_next, dense_next)
    if report["finite"]:
        fresh = after["chosen"]
        after["chosen"], after["fresh"] = state.get("fresh", fresh), fresh
    return after, report


@C8.mistake("importance is that of the residual, without the option `after`")
def importance_after(state, gs, s, percent_next, dense_next=False):
    state, report = csc_step(state, gs, s, percent_next, dense_next)
    if report["finite"]:
        kept = [k["h" if "h" in k else "v"] for k in state["kept"]]
        state["chosen"] = None if dense_next else choose(importance(kept, s.chunk), percent_next)
    return state, report


@C5.mistake("ties broken differently on each rank", csc_run)
def ties_per_rank(w, gs, s, percents, lists=None):
    reports = csc_run(w, gs, s, percents, lists)
    for before, report in zip(reports, reports[1:]):
        if before["importance"] is not None and report["chosen"][0] is not None:
            percent = 100 * len(report["chosen"][0]) / len(before["importance"])
            other = ties_to_higher(before["importance"], percent)
            lists = enumerate(report["chosen"])
            report["chosen"] = [other if r % 2 else chosen for r, chosen in lists]
    return reports


# ---- C9: the exchange ----


def sent_elements(chosen: list[int] | None, n: int, chunk: int) -> np.ndarray:
    """C9: chosen chunks are sent whole, packed in the order of the pool. theta applies to packed
    bytes, and is compared after each chunk (in a dense step after each tensor).

    Source: chosen.

    chosen: None is all of them. -> bool (n,)
    """
    sent = np.full(n, chosen is None)
    for i, j in [chunk_bounds(n, chunk)[c] for c in chosen or []]:
        sent[i:j] = True
    return sent


def exchange_packed(packed: Arrays, state: dict[str, Any], s: CSCRunSettings) -> np.ndarray:
    """The allreduce of the packed chunks, with the loss scale around the wire type (P4).

    p arrays (k,) -> (k,)
    """
    scale = packed[0].dtype.type(state["scale"])
    scaled = [a * scale for a in packed]
    return lazy_allreduce(scaled, packed_sizes(state, s), s.theta_bytes, s.wire, s.order)[0] / scale


def packed_sizes(state: dict[str, Any], s: CSCRunSettings) -> list[int]:
    """After how many elements the rule of L1 is evaluated: chunks, in a dense step tensors."""
    if state["chosen"] is None:
        return list(s.sizes)
    bounds = chunk_bounds(len(state["w"]), s.chunk)
    return [bounds[c][1] - bounds[c][0] for c in state["chosen"]]


C9 = Statement("C9", sent_elements)


@C9.mistake("chosen chunks are one chunk off")
def one_chunk_off(chosen, n, chunk):
    full = n // chunk
    if chosen is not None:
        chosen = [(c + 1) % full if c < full else c for c in chosen]
    return sent_elements(chosen, n, chunk)


@C9.mistake("packed chunks are sent in one call, whatever theta is", exchange_packed)
def sent_in_one_call(packed, state, s):
    scale = packed[0].dtype.type(state["scale"])
    scaled, sizes = [a * scale for a in packed], [len(packed[0])]
    return lazy_allreduce(scaled, sizes, float("inf"), s.wire, s.order)[0] / scale


@L2.mistake("last bucket forgotten: every rank updates with its own values", csc_run)
def rest_stays_local_per_rank(w, gs, s, percents, lists=None):
    """One run per rank, with what that rank holds after the exchange.

    This is right for momentum, but not for decay of weights that differ between ranks.
    """

    def held(packed, state, s, rank):
        sizes, scale = packed_sizes(state, s), packed[0].dtype.type(state["scale"])
        scaled = [a * scale for a in packed]
        return rest_stays_local(scaled, sizes, s.theta_bytes, s.wire, s.order)[rank] / scale

    runs = [
        variant(exchange_packed=partial(held, rank=r)).csc_run(w, gs, s, percents, lists)
        for r in range(len(gs[0]))
    ]
    return [{**reports[0], "w": [report["w"][0] for report in reports]} for reports in zip(*runs)]


# ---- C10: overflow ----


def skip_step(state: dict[str, Any], scale: float) -> dict[str, Any]:
    """C10: one non-finite value on any rank, in an accumulated gradient (of a chosen chunk or not)
    or on the wire, skips the step: only the scale changes. With the ring, too, each rank's own
    numbers are checked as rounded to the wire type. A skipped step reports the list that it had,
    and the next step has it again.

    Source: chosen: an infinity in a residual would poison v for ever.

    The loss scale changes by P6. w, velocity, the residuals, the gaps and the chosen list stay.
    """
    return {**state, "scale": scale, "good_steps": 0}


C10 = Statement("C10", skip_step)


@C10.mistake("a skipped step leaves the scale as it is")
def scale_stays(state, scale):
    return {**state, "good_steps": 0}


@C10.mistake("the count of good steps goes on after a skipped step")
def count_goes_on(state, scale):
    return skip_step(state, scale) | {"good_steps": state["good_steps"]}


@C10.mistake("the step after a skipped one is dense")
def dense_after_skip(state, scale):
    return {**skip_step(state, scale), "chosen": None}


@C10.mistake(
    "only sent elements are checked: an infinity in an unchosen chunk stays for ever", all_finite
)
def only_what_is_sent(arrays):
    return bool(np.isfinite(arrays[-1]).all())


# ---- C14: bytes ----


def csc_payload_bytes(
    chosen: list[int] | None, n: int, chunk: int, dtype: str = "float32", wire: str | None = None
) -> int:
    """C14: the allreduces of a step are given the chosen elements on the wire, and C norms and one
    flag in float64; a dense step sends all n elements, and for n = 0 there are 8 bytes.

    Source: follows from C4, C10.
    """
    sent = int(sent_elements(chosen, n, chunk).sum())
    return sent * bytes_per_gradient(dtype, wire) + 8 * (len(chunk_bounds(n, chunk)) + 1)


C14 = Statement("C14", csc_payload_bytes)
PAYLOAD = JudgedFunction(csc_payload_bytes, "C14", {"bytes": ()})


@PAYLOAD.fresh
def any_payload(d: Draw) -> Given:
    chunk = d.integer(1, 9)
    chosen = [c for c in range(-(-d.n // chunk)) if d.rng.random() < 0.3]
    chosen, wire = pick(d.rng, None, chosen or None), pick(d.rng, None, "float16")
    return {"chosen": chosen, "n": d.n, "chunk": chunk, "dtype": "float32", "wire": wire}


@PAYLOAD.golden
def payloads() -> Cases:
    why = "chosen elements on the wire, seven norms and a flag in float64"
    for wire, chosen in ((None, [0, 6]), ("float16", [1, 2]), ("float16", None)):
        name = f"csc-bytes-{wire or 'float32'}-{'list' if chosen else 'dense'}"
        pool: Given = {"n": 53, "chunk": 8, "dtype": "float32"}
        yield PAYLOAD.case(name, why, chosen=chosen, **pool, wire=wire)
    why, pool = "chosen chunks of 7 elements, the last one of 4", pool | {"chunk": 7}
    yield PAYLOAD.case("csc-bytes-chunk-7", why, chosen=[1, 7], **pool, wire="float16")


@C14.mistake("the norms and the flag are forgotten")
def norms_forgotten(chosen, n, chunk, dtype="float32", wire=None):
    return csc_payload_bytes(chosen, n, chunk, dtype, wire) - 8 * (len(chunk_bounds(n, chunk)) + 1)


@C14.mistake("every chosen chunk counted as a full one")
def full_chunks(chosen, n, chunk, dtype="float32", wire=None):
    chunks = len(chunk_bounds(n, chunk))
    count = chunks if chosen is None else len(chosen)
    itemsize = 2 if wire in ("float16", "bfloat16") else 4
    return count * chunk * itemsize + 8 * (chunks + 1)
