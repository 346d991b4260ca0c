"""P7, P8: float32 master weights with working copies in the wire type, and a whole step."""

from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, per_step, same_bits, select, steps_of
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source
from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise, tenths
from refgf.oracle.spec.momentum.sgd import momentum_step
from refgf.oracle.spec.precision.scale import P5, all_finite, next_scale, scaled_allreduce
from refgf.oracle.spec.precision.wire import awkward_numbers, on_wire
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

# ---- P7: master weights ----


def working_copy(master: np.ndarray, wire: str | None = "float16") -> np.ndarray:
    """P7: forward and backward use master weights rounded to the wire type; updates are applied to
    the float32 master.

    Source: Micikevicius et al. 2018.
    """
    return on_wire(master, wire)


P7 = Statement("P7", working_copy)
COPY = JudgedFunction(working_copy, "P7", {"w": ("element",)}, "w")
COPY.fresh(lambda d: {"wire": "float16", "w": d.floats(40)})


@COPY.golden
def copy_cases() -> Cases:
    rng = random_source("scaling")
    rng.standard_normal((3, 17))  # the gradients of scaled-allreduce
    w = np.concatenate([awkward_numbers()[:10], rng.standard_normal(9).astype(np.float32)])
    yield COPY.case("working-copy", "rounded, not cut off", wire="float16", w=w)


@P7.mistake("the working copy is the master itself")
def master_itself(master, wire="float16"):
    return master


# ---- P8: a step ----


def scaled_run(
    w: np.ndarray,
    gs: list[Arrays],
    rate: float,
    momentum: float,
    scale: float,
    interval: int = 2000,
    wire: str | None = "float16",
) -> list[dict[str, Any]]:
    """P8: one step: P4; unless P5 skips it, M1 on the master; then P6.

    gs[t][rank]: unscaled gradients of step t. A step skipped by P5 has no M1.
    -> per step {"w", "v", "working", "scale", "finite"} after it
    """
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            w, v = momentum_step(w, v, total, rate, momentum)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        report = {"w": w, "v": v, "working": working_copy(w, wire)}
        reports.append({**report, "scale": scale, "finite": finite})
    return reports


SCALED_AXES = {"w": ("step", "element"), "scale": ("step",), "finite": ("step",)}


def run_steps(module: Any, case: Case) -> Outputs:
    settings = select(case, "rate", "momentum", "scale", "interval", "wire").values()
    return scaled_steps(module.scaled_run(case["in.w"].copy(), steps_of(case["in.g"]), *settings))


def scaled_steps(steps: list[dict[str, Any]]) -> Outputs:
    return {"out.w": np.stack([step["w"] for step in steps]), **per_step(steps, "scale", "finite")}


P8 = Statement("P8", scaled_run)
RUN = JudgedFunction(scaled_run, "P4 P5 P6 P7 P8", SCALED_AXES, "w g", run_steps)


@RUN.fresh
def any_run(d: Draw) -> Given:
    g = d.normal(5, d.p, d.n) * np.float32(2.0**-8)
    if d.n:
        value = pick(d.rng, np.inf, 999.0)
        g[d.integer(0, 4), d.integer(0, d.p - 1), d.integer(0, d.n - 1)] = value
    settings = {"rate": 0.1, "momentum": 0.9, "scale": 2.0**10, "interval": 2, "wire": "float16"}
    return {**settings, "w": d.normal(d.n), "g": g}


@RUN.golden
def run_cases() -> Cases:
    """Ten steps: one gradient overflows at the first scale, one is NaN; the scale recovers."""
    rng = random_source("scaling")
    rng.standard_normal((3, 17)), rng.standard_normal(9)  # of scaled-allreduce and working-copy
    w = rng.standard_normal(13).astype(np.float32)
    g = (rng.standard_normal((10, 3, 13)) * 0.01).astype(np.float32)
    g[2, 1, 5], g[6, 2, 0] = 40.0, np.nan
    why = "step 2 overflows on the wire, step 6 has a NaN on one rank: all ranks skip both, and w "
    why += "keeps its bits"
    settings: Given = {
        "rate": 0.1,
        "momentum": 0.9,
        "scale": 2048.0,
        "interval": 3,
        "wire": "float16",
    }
    case = RUN.case("scaled-run-overflow", why, **settings, w=w, g=g)
    wanted = [1, 1, 0, 1, 1, 1, 0, 1, 1, 1]
    case.shows(case["out.finite"].tolist() == wanted, "steps 2 and 6 are skipped")
    yield case.shows(same_bits(*case["out.w"][1:3]), "a skipped step leaves w")
    # gradients of 30 with a scale of 1024: each rank sends 30720, which float16 has
    rng = random_source("scaled-run-sum")
    w = rng.standard_normal(13).astype(np.float32)
    g = (rng.standard_normal((6, 4, 13)) * 0.01).astype(np.float32)
    g[2, :, 5] = 30
    why = "in step 2 every rank's numbers are finite on the wire, and only their sum is not"
    settings |= {"scale": 1024.0, "interval": 2}
    case = RUN.case("scaled-run-sum-overflow", why, **settings, w=w, g=g)
    yield case.shows(case["out.finite"].tolist() == [1, 1, 0, 1, 1, 1], "step 2 is skipped")


@P8.mistake("a skipped step still applies the old momentum")
def skipped_step_moves(w, gs, rate, momentum, scale, interval=2000, wire="float16"):
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        finite = all_finite([*step_gs, total])
        w, v = momentum_step(w, v, total if finite else np.zeros_like(w), rate, momentum)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        reports.append({"w": w, "v": v, "scale": scale, "finite": finite})
    return reports


@P8.mistake("the working copy is updated, not the master")
def updates_the_copy(w, gs, rate, momentum, scale, interval=2000, wire="float16"):
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        finite = all_finite([*step_gs, total])
        if finite:
            w, v = momentum_step(working_copy(w, wire), v, total, rate, momentum)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        reports.append({"w": w, "v": v, "scale": scale, "finite": finite})
    return reports


@P5.mistake("the ranks' gradients are checked, but not their sum", scaled_run)
def sum_is_not_checked(w, gs, rate, momentum, scale, interval=2000, wire="float16"):
    v, good_steps, reports = np.zeros_like(w), 0, []
    for step_gs in gs:
        total = scaled_allreduce(step_gs, scale, wire)[0]
        factor = w.dtype.type(scale)
        finite = all_finite([on_wire(g * factor, wire) for g in step_gs])
        if finite:
            w, v = momentum_step(w, v, total, rate, momentum)
        scale, good_steps = next_scale(scale, good_steps, finite, interval)
        reports.append({"w": w, "v": v, "scale": scale, "finite": finite})
    return reports


# ---- exercise update ----


def update(
    master: np.ndarray, total: np.ndarray, scale: float, rate: float
) -> tuple[np.ndarray, np.ndarray]:
    if np.isfinite(total).all():
        master = master - np.float32(rate) * (total.astype(np.float32) / np.float32(scale))
    return master, working_copy(master).astype(np.float16)


def sums_for(scales: tuple[Any, ...], broken: tuple[Any, ...] | None = None) -> Drawn:
    """Cases of update: weights near 1, sums that float16 holds."""

    def cases(random: np.random.Generator) -> list[Arguments]:
        found: list[Arguments] = []
        for n, factor, scale in zip((3, 3, 20), (1e-3, 1e-2, 0.1), scales):
            master = 1 + tenths(random, n) / 10
            total = (tenths(random, n) * factor * max(1.0, scale / 1000)).astype(np.float16)
            if broken is not None:
                total[int(random.integers(n))] = broken[len(found) % len(broken)]
            found.append((master, total, scale, int(random.integers(1, 10)) / 10))
        return found

    return cases


UPDATE_05 = Exercise("05.4", update)
UPDATE_05.part("scale 1", 2, sums_for((1.0, 1.0, 1.0)))
UPDATE_05.part("a large scale", 2, sums_for((2.0**10, 2.0**16, 2.0**16)))
UPDATE_05.part(
    "an infinity or NaN in the sum",
    1,
    sums_for((2.0**10, 2.0**16, 2.0**10), (np.inf, np.nan, -np.inf)),  # float16 has no 2**16
)


@UPDATE_05.mistake(
    "you update the float16 weights: small updates are lost when they are rounded, so keep the "
    "float32 master weights and update these"
)
def no_master(master, total, scale, rate):
    w = update(master.astype(np.float16).astype(np.float32), total, scale, rate)[1]
    return w.astype(np.float32), w


@UPDATE_05.mistake(
    "you divide by the scale in float16, where small gradients become zero and 2**16 is infinite: "
    "convert the sum to float32 first"
)
def divides_in_float16(master, total, scale, rate):
    return update(master, total / scale, 1.0, rate)


def in_float16(total, scale, rate):
    """rate times gradients, all in float16."""
    return np.float16(rate) * (total / np.float16(scale))


@UPDATE_05.mistake(
    "you divide by the scale and multiply by the rate in float16, where small gradients become "
    "zero and 2**16 is infinite: convert the sum to float32 first"
)
def multiplies_in_float16(master, total, scale, rate):
    if np.isfinite(total).all():
        master = master - in_float16(total, scale, rate)
    return master, master.astype(np.float16)


@UPDATE_05.mistake(
    "you skip only the elements that are not finite: the whole step is skipped; and you compute in "
    "float16, where small gradients become zero and 2**16 is infinite: convert the sum to float32 "
    "first"
)
def skips_elements_in_float16(master, total, scale, rate):
    step = in_float16(total, scale, rate)
    master = master - np.where(np.isfinite(step), step, np.float16(0))
    return master, master.astype(np.float16)


@UPDATE_05.mistake("a NaN in the sum skips the step too, not only an infinity")
def sees_no_nan(master, total, scale, rate):
    return (never_skips if not np.isinf(total).any() else update)(master, total, scale, rate)


@UPDATE_05.mistake("you do not divide the sum by the loss scale")
def left_scaled(master, total, scale, rate):
    return update(master, total, 1.0, rate)


@UPDATE_05.mistake("you apply a sum that is not finite: such a step is skipped")
def never_skips(master, total, scale, rate):
    master = master - np.float32(rate) * (total.astype(np.float32) / np.float32(scale))
    return master, master.astype(np.float16)


@UPDATE_05.mistake("you skip only the elements that are not finite: the whole step is skipped")
def skips_elements(master, total, scale, rate):
    return update(master, np.where(np.isfinite(total), total, np.float16(0)), scale, rate)


@UPDATE_05.mistake("your working copy must be a float16 array")
def float32_working(master, total, scale, rate):
    master, working = update(master, total, scale, rate)
    return master, working.astype(np.float32)
