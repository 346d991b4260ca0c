"""Golden and fresh runs of coarse-grained sparse communication.

Numbers are small integers and momentum is 1/2, so that every norm is exact.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.csc.choice import choose, percent_of_step
from refgf.oracle.spec.csc.importance import nearly_twins
from refgf.oracle.spec.csc.residual import FORMS, conserved
from refgf.oracle.spec.csc.step import EVERY_RUN, RUN, csc_percents, csc_run, csc_settings
from refgf.oracle.spec.csc.update import (
    chosen_rates_rounded_first,
    decay_of_gaps_rounded_first,
    decay_rounded_first,
)
from refgf.oracle.spec.draw import Draw, pick, random_source, relative
from refgf.oracle.spec.momentum.lars import exact_ratios
from refgf.oracle.spec.statement import Cases, differs_with

CHUNK, SIZES = 8, [3, 1, 20, 2, 17, 9, 1]  # 53 elements: six chunks of 8 and one of 5
DECAYED = np.array([1, 0, 1, 0, 1, 1, 0], np.uint8)


@RUN.fresh
def any_run(d: Draw) -> Given:
    """Norms depend on the order of summation here, and any list close enough is accepted."""
    rng, p = d.rng, min(d.p, 12)
    tensors, steps = rng.integers(0, 25, 4).tolist() + [d.n % 25 + 1], 4
    warmup = [pick(rng, 100, 50) for _ in range(d.integer(0, 1))]
    percent, n = d.integer(1, 100), sum(tensors)
    return {
        **{"form": pick(rng, "dgc", "dgc_masked", "history", "none"), "chunk": d.integer(1, 30)},
        **{"wire": pick(rng, None, "float16"), "order": pick(rng, "ring", "direct")},
        **{"theta_bytes": pick(rng, 0, 50, "inf"), "decay": pick(rng, 0.0, 0.1)},
        **{"after": pick(rng, False, True), "scale": 8.0, "exact_norms": False},
        **{"rate": 0.1, "momentum": 0.9},
        "percents": [list(percent_of_step(t, 2, warmup, percent)) for t in range(steps + 1)],
        **{"w": d.normal(n), "g": d.normal(steps, p, n), "sizes": tensors},
        "decayed": rng.integers(0, 2, 5).astype(np.uint8),
    }


def run_case(
    name: str,
    why: str,
    statements: str = "",
    p: int = 3,
    steps: int = 20,
    plan: tuple[float, tuple[float, ...], int] = (30, (), 5),
    change: Callable[[np.ndarray], None] | None = None,
    **settings: Any,
) -> Case:
    """plan: percent, those of warm-up, steps of an epoch. change(g) alters the gradients (T, p, n).

    exact_norms=False: gradients are any numbers.
    """
    sizes, exact = settings.pop("sizes", SIZES), settings.get("exact_norms", True)
    rng, n = random_source("csc" + name), sum(sizes)
    w = rng.integers(-16, 17, n).astype(np.float32) / 4
    g = rng.integers(-4, 5, (steps, p, n)) if exact else rng.standard_normal((steps, p, n))
    arrays = {"w": w, "g": g.astype(np.float32), "sizes": sizes}
    if change:
        change(arrays["g"])
    if "decay" in settings:
        arrays["decayed"] = DECAYED
    percent, warmup, per_epoch = plan
    percents = [list(percent_of_step(t, per_epoch, [*warmup], percent)) for t in range(steps + 1)]
    usual = {"chunk": CHUNK, "form": "dgc", "rate": 0.125, "momentum": 0.5, "exact_norms": exact}
    arguments = {**usual, "percents": percents, **settings}
    return RUN.case(name, why, f"{EVERY_RUN} {statements}", **arguments, **arrays)


@RUN.golden
def form_cases() -> Cases:
    for form in FORMS:
        why = f"{form}: 20 steps, ties in the norms, the first list from the dense step 0"
        case = run_case(f"csc-{form}", why, change=twins, form=form)
        case.shows(ties_at_the_cut(case), "ties decide at least once")
        yield case.shows(norms_are_exact(case), "norms are exact in any order")
        why = "sent + kept is what came in, bit for bit"
        case = run_case(f"csc-{form}-conserved", why, "C7", steps=10, form=form)
        yield case.shows(is_conserved(case), "conservation")
        why = "two dense epochs, one at 60 %, then 20 %: no masking in dense steps"
        plan = (20, (100, 100, 60), 4)
        case = run_case(f"csc-{form}-warmup", why, "C6", plan=plan, form=form)
        counts = case["out.chosen"][:, 0].sum(axis=-1).tolist()
        yield case.shows(counts == [7] * 8 + [5] * 4 + [2] * 8, "dense, then 5 and 2 of 7 chunks")
        why, any_numbers = "weight decay, not on biases and normalisation", {"exact_norms": False}
        settings: Given = {"form": form, "decay": 0.25, **any_numbers}
        yield run_case(f"csc-{form}-decay", why, "C12", steps=8, **settings)


@RUN.golden
def other_cases() -> Cases:
    yield run_case("csc-one-rank", "one rank: the sum is its own", p=1, steps=6)
    yield run_case("csc-five-ranks", "five ranks share the decay and the norms", p=5, steps=6)
    why, everything = "100 % of the chunks without warm-up: lists of all chunks", (100, (), 5)
    yield run_case("csc-all-chunks", why, plan=everything, steps=6)
    why = "100 % with masking is SGD without momentum after the dense first step"
    yield run_case("csc-all-chunks-masked", why, plan=everything, steps=6, form="dgc_masked")
    why = "less than one chunk's share still sends one"
    yield run_case("csc-one-chunk", why, plan=(1, (), 5), steps=8)
    yield run_case("csc-after", "importance of what is kept after the step", steps=10, after=True)
    why = "norms are not exact: any list within the bound of C4 is accepted"
    yield run_case("csc-values", why, steps=8, exact_norms=False)
    why = "28 % of 25 chunks are 7, and neither 8 nor a rounding of 25 times 0.28"
    shape: Given = {"sizes": [3, 20, 17, 9, 1], "chunk": 2}
    case = run_case("csc-whole-share", why, plan=(28, (), 5), steps=6, **shape)
    yield case.shows((case["out.chosen"][1:].sum(axis=-1) == 7).all(), "7 of 25 chunks")
    why = "chunks 1 and 3 differ by less than float32 can add up: 3 is more important"
    case = run_case("csc-float64-norms", why, plan=(14, (), 5), steps=6, change=nearly_twins)
    case.shows(case["out.chosen"][1, 0].tolist() == [0, 0, 0, 1, 0, 0, 0], "3 comes first")
    yield case.shows(norms_are_exact(case), "norms are exact in any order")


@RUN.golden
def lars_cases() -> Cases:
    why = "LARS ratios above 1 and below, from norms in float64: the rates have these bits"
    settings: Given = {"form": "history", "trust": 64.0, "decay": 0.25}
    case = run_case("csc-lars-bits", why, "C12 C13", steps=6, change=large_and_small, **settings)
    yield case.shows(exact_ratios(case), "no order of summing the norms moves a rate")
    why, settings = "LARS from the sent elements of each tensor", settings | {"trust": 0.5}
    case = run_case("csc-lars", why, "C12 C13", steps=6, **settings)
    case.tensors["bound.w"] = relative(case["out.w"], 2.0**-20)
    yield case


@RUN.golden
def usual_cases() -> Cases:
    """With the usual rate, momentum and decay, in chunks of 7: powers of two hide roundings."""
    usual: Given = {"rate": 0.1, "momentum": 0.9, "decay": 0.3, "chunk": 7, "exact_norms": False}
    why = "a rate of 0.1, a momentum of 0.9 and a decay of 0.3: factors are rounded once"
    for form, p, steps, wrong in (
        ("dgc", 5, 3, {"local_gradient": decay_rounded_first}),
        ("history", 3, 8, {"update": decay_of_gaps_rounded_first}),
    ):
        case = run_case(f"csc-{form}-usual", why, "C12", p=p, steps=steps, form=form, **usual)
        yield case.shows(differs_with(case, **wrong), "decay rounded first has other bits")
    why = "rate times ratio is rounded once, from the sent elements of each tensor"
    lars: Given = usual | {"form": "history", "trust": 0.3, "decay": 0.03}
    case = run_case("csc-lars-rate-0.1-0", why, "C12 C13", steps=3, **lars)
    other = differs_with(case, chosen_rates=chosen_rates_rounded_first)
    yield case.shows(other and exact_ratios(case), "exact ratios that show the roundings")


@RUN.golden
def lazy_cases() -> Cases:
    why = "float16 on the wire, packed chunks sent lazily"
    lazily: Given = {"wire": "float16", "theta_bytes": 20, "scale": 64.0}
    usual: Given = {"p": 4, "steps": 6, "exact_norms": False}
    for order in ("ring", "direct"):
        yield run_case(f"csc-lazy-{order}", why, "P4 L1", **usual, order=order, **lazily)
    # three chunks of 8 float16: the second ends on theta, and the third is sent with them
    why = "two packed chunks are exactly theta bytes on the wire: they wait for the third"
    lazily["theta_bytes"] = 2 * CHUNK * 2
    case = run_case("csc-lazy-at-theta", why, "P4 L1 L2", **usual, order="ring", **lazily)
    at_theta = replace(case, arguments=case.arguments | {"theta_bytes": 2 * CHUNK * 2 - 1})
    other = np.array([step["w"][0] for step in reports(at_theta)])
    yield case.shows((case["out.w"][:, 0] != other).any(), "firing at theta would show")


@RUN.golden
def overflow_cases() -> Cases:
    why = "an infinity in an unchosen chunk of one rank: nothing changes on any rank"
    for form in FORMS:
        usual: Given = {"steps": 8, "form": form}
        chosen = run_case(f"csc-overflow-{form}", why, **usual)["out.chosen"][4, 0]
        change = planted((4, 1, np.flatnonzero(chosen == 0)[0] * CHUNK + 2), np.inf)
        case = run_case(f"csc-overflow-{form}", why, "C10", change=change, **usual)
        case.shows(case["out.finite"].tolist() == [1, 1, 1, 1, 0, 1, 1, 1], "step 4 is skipped")
        stays = (case["out.chosen"][4] == case["out.chosen"][5]).all()
        yield case.shows(stays, "the list stays")
    why = "finite gradients overflow on the wire: skipped, the scale drops, later ones fit"
    case = run_case("csc-overflow-wire", why, "C10 P6", steps=8, wire="float16", scale=2.0**15)
    yield case.shows(0 < case["out.finite"].sum() < 8, "some steps are skipped")
    # scaled, rank 1 adds 70000, which float16 lacks, to -10000, and sends 60000
    why = "the ring sends finite sums only, but one rank's own number is infinite on the wire"
    settings: Given = {"form": "none", "wire": "float16", "order": "ring", "scale_interval": 3}
    settings |= {"plan": (100, (100, 100), 4), "scale": 2.0}
    change = planted((1, slice(None), 0), [-5000, 35000, 0])
    with np.errstate(all="ignore"):
        case = run_case("csc-ring-own-overflow", why, "C10 P6", steps=6, change=change, **settings)
        sums = np.array(reports(case)[1]["accumulated"])[:, 0]
    case.shows(case["out.finite"].tolist() == [1, 0, 1, 1, 1, 1], "step 1 is skipped")
    wanted = [2.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    case.shows(case["out.scale"].tolist() == wanted, "the count begins again after it")
    yield case.shows(sums.tolist() == [-5000, 35000, 0], "only rank 1's own number is too large")


def twins(g: np.ndarray) -> None:
    """Chunks 1, 3 and 5 get the same gradients on all ranks: ties in the norms, also at the cut."""
    g[:, :, 24:32] = g[:, :, 40:48] = g[:, :, 8:16]


def large_and_small(g: np.ndarray) -> None:
    """The second tensor's gradients are far below its weights, the third's far above."""
    g[:, :, 3] *= 2.0**-8
    g[:, :, 4:24] *= 512


def planted(place: tuple[Any, ...], value: float | list[float]) -> Callable[[np.ndarray], None]:
    """place: step, rank, element."""

    def change(g: np.ndarray) -> None:
        g[place] = value

    return change


def reports(case: Case) -> list[dict[str, Any]]:
    return csc_run(case["in.w"], list(case["in.g"]), csc_settings(case), csc_percents(case))


def ties_at_the_cut(case: Case) -> bool:
    percents = case.arguments["percents"]
    for t, report in enumerate(reports(case)):
        chosen = choose(report["importance"], percents[t + 1][0])
        rest = np.delete(report["importance"], chosen)
        if len(rest) and rest.max() == report["importance"][chosen].min():
            return True
    return False


def norms_are_exact(case: Case) -> bool:
    """Multiples of 2^-26 that stay below 2^20 in sum add up exactly in float64, in any order."""
    states = np.concatenate(
        [case[name].ravel() for name in ("out.u", "out.v", "out.h") if name in case.tensors]
    )
    return bool(
        (states * 2.0**26 == np.rint(states * 2.0**26)).all() and np.abs(states).sum() < 2.0**20
    )


def is_conserved(case: Case) -> bool:
    """C7 on each rank, from the reports of the definition."""
    form, m, g = case.arguments["form"], np.float32(case.arguments["momentum"]), case["in.g"]
    for rank in range(g.shape[1]):
        sent_sums, g_sums, u_sums, u = (np.zeros(g.shape[2], np.float32) for _ in range(4))
        for t, report in enumerate(reports(case)):
            sent = np.repeat(case["out.chosen"][t, rank], CHUNK)[: g.shape[2]].astype(bool)
            g_sums, u = g_sums + g[t, rank], m * u + g[t, rank]
            u_sums = u_sums + u
            sent_sums = sent_sums + np.where(sent, report["accumulated"][rank], 0)
            u = report["kept"][rank].get("u", u)
            if not conserved(form, sent_sums, report["kept"][rank], g_sums, u_sums):
                return False
    return True
