"""P4 to P6: loss scaling."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import RANK_ELEMENT, Outputs, allreduce
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.direct import direct_allreduce
from refgf.oracle.spec.draw import Draw, pick, random_source
from refgf.oracle.spec.exercise import Arguments, Exercise
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement, differs_with

# ---- P4: scaled sums ----


def scaled_allreduce(
    gs: Arrays,
    scale: float,
    wire: str | None = "float16",
    allreduce: Callable[..., Any] = direct_allreduce,
) -> Arrays:
    """P4: gradients are multiplied by the loss scale in float32, summed with the wire's roundings
    (of D2; with the ring those of R3), and divided by the scale in float32. Each rank's loss is its
    samples' sum divided by the global batch, so nothing is divided by p.

    Source: Micikevicius et al. 2018 for the scale; the average is chosen.

    By a power of two both are exact, unless something underflows; by any other scale the quotient
    is rounded, and is not the product with 1 / scale. p arrays (n,) -> p arrays (n,)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = [g * np.float32(scale) for g in gs]
        return [total / np.float32(scale) for total in allreduce(scaled, wire)]


P4 = Statement("P4", scaled_allreduce)
run_sum = allreduce("scaled_allreduce", "scale", "wire")
SUM = JudgedFunction(scaled_allreduce, "P4", RANK_ELEMENT, "x", run_sum)


@SUM.fresh
def any_sum(d: Draw) -> Given:
    scale = pick(d.rng, 2.0 ** d.integer(0, 12), 1000.0, 0.3)
    return {"scale": scale, "wire": "float16", "x": d.normal(d.p, d.n) * np.float32(2.0**-12)}


@SUM.golden
def sum_cases() -> Cases:
    g = (random_source("scaling").standard_normal((3, 17)) * 2.0**-20).astype(np.float32)
    for power, why in (
        (0, "unscaled most of these underflow"),
        (12, "scaled they survive"),
        (38, "scaled too far"),
    ):
        given: Given = {"scale": 2.0**power, "wire": "float16", "x": g}
        case = SUM.case(f"scaled-allreduce-2-to-{power}", why, **given)
        finite = np.isfinite(case["out.x"]).all()
        yield case.shows(finite == (power < 20), "only the largest scale overflows")
    for scale in (1000.0, 0.3):
        x = random_source(f"scale-{scale}").standard_normal((3, 40)) / 100
        why = f"divided by a scale of {scale:g}: its reciprocal is rounded, and has other bits"
        given = {"scale": scale, "wire": "float16", "x": x.astype(np.float32)}
        case = SUM.case(f"scaled-allreduce-{scale:g}", why, **given)
        other = differs_with(case, scaled_allreduce=times_the_reciprocal)
        yield case.shows(other, "the reciprocal has other bits")


@P4.mistake("the scale is applied after the cast")
def scaled_too_late(gs, scale, wire="float16", allreduce=direct_allreduce):
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = [on_wire(g, wire) * np.float32(scale) for g in gs]
        return [total / np.float32(scale) for total in allreduce(scaled, wire)]


@P4.mistake("never divided by the scale")
def never_unscaled(gs, scale, wire="float16", allreduce=direct_allreduce):
    with np.errstate(over="ignore", invalid="ignore"):
        return allreduce([g * np.float32(scale) for g in gs], wire)


@P4.mistake("divided by the scale before the exchange: small gradients underflow")
def unscaled_too_early(gs, scale, wire="float16", allreduce=direct_allreduce):
    return allreduce(gs, wire)


@P4.mistake("divided by p as well")
def averaged_as_well(gs, scale, wire="float16", allreduce=direct_allreduce):
    return [total / np.float32(len(gs)) for total in scaled_allreduce(gs, scale, wire, allreduce)]


@P4.mistake("multiplied by the scale's reciprocal, not divided by the scale")
def times_the_reciprocal(gs, scale, wire="float16", allreduce=direct_allreduce):
    s = np.float32(scale)
    with np.errstate(over="ignore", invalid="ignore"):
        return [total * (np.float32(1) / s) for total in allreduce([g * s for g in gs], wire)]


# ---- P5: what is skipped ----


def all_finite(arrays: Arrays) -> bool:
    """P5: an infinity or NaN on any rank, before or after the sum, makes all ranks skip the step.

    Source: Micikevicius et al. 2018 for one process; that any rank's makes all skip: chosen.
    """
    return all(bool(np.isfinite(x).all()) for x in arrays)


P5 = Statement("P5", all_finite)
P5.given("only rank 0 is checked", arrays=lambda arrays: arrays[:1])
FINITE = JudgedFunction(all_finite, "P5", {"finite": ()}, "x")


@FINITE.golden
def finite_cases() -> Cases:
    for name, bad in (("finite", 1.0), ("inf", np.inf), ("nan", np.nan)):
        x = np.array([[1.0, 65504.0], [2.0, bad]], np.float32)
        yield FINITE.case(f"all-finite-{name}", "one rank's element decides for all", x=x)
    x = np.array([[3e38, 3e38, 0.1], [1.0, -3e38, -0.3]], np.float32)
    yield FINITE.case("all-finite-large", "finite elements whose sum overflows", x=x)


@P5.mistake("only infinities are checked, not NaN")
def only_infinities(arrays):
    return not any(bool(np.isinf(x).any()) for x in arrays)


@P5.mistake("a sum, square or cast of the elements is checked: it overflows where none does")
def sum_is_finite(arrays):
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite([x.sum() for x in arrays]).all())


@P5.mistake("no step is ever skipped")
def never_skipped(arrays):
    return True


# ---- P6: the dynamic scale ----


def next_scale(
    scale: float,
    good_steps: int,
    finite: bool,
    interval: int = 2000,
    factor: float = 2.0,
    smallest: float = 1.0,
    largest: float = 2.0**24,
) -> tuple[float, int]:
    """P6: a skipped step divides the dynamic scale by 2 and restarts the count; 2000 good steps in
    a row multiply it by 2; it stays within 1 .. 2^24; all four numbers are arguments.

    Source: usual practice; numbers chosen.

    -> (scale, good_steps) for the next step
    """
    if not finite:
        return max(scale / factor, smallest), 0
    if good_steps + 1 == interval:
        return min(scale * factor, largest), 0
    return scale, good_steps + 1


def run_scale(module: Any, case: Case) -> Outputs:
    """The loss scale after each of a run of finite and non-finite steps."""
    scale, good, scales = case.arguments["scale"], 0, []
    for finite in case["in.finite"]:
        scale, good = module.next_scale(scale, good, bool(finite), case.arguments["interval"])
        scales.append(scale)
    return {"out.scale": np.array(scales, np.float64)}


P6 = Statement("P6", next_scale)
SCALE = JudgedFunction(next_scale, "P6", {"scale": ("step",)}, "finite", run_scale)


@SCALE.fresh
def any_steps(d: Draw) -> Given:
    finite = (d.rng.random(30) < 0.8).astype(np.uint8)
    return {"scale": 2.0 ** d.integer(0, 23), "interval": d.integer(1, 4), "finite": finite}


@SCALE.golden
def scale_cases() -> Cases:
    for name, scale, interval, steps, why in (
        (
            *("", 4.0, 3, "111101100011111111111"),
            "grows after 3 good steps, halves at once and counts again, stays at least 1",
        ),
        ("-largest", 2.0**22, 2, "1" * 9, "does not grow beyond 2^24"),
        (
            *("-1000", 1000.0, 2, "0011000000000011"),
            "a scale of 1000 is halved down to 1, and not below",
        ),
        (
            *("-largest-1000", 1000.0 * 2**13, 1, "1111011111"),
            "a scale of 1000 grows to 2^24, between two of its doublings, and is halved from there",
        ),
    ):
        finite = np.array([int(step) for step in steps], np.uint8)
        given: Given = {"scale": scale, "interval": interval, "finite": finite}
        case = SCALE.case(f"next-scale{name}", why, **given)
        at_limit = "largest" not in name or 2.0**24 in case["out.scale"]
        yield case.shows(at_limit, "it is at the limit")


@P6.mistake("the count of good steps is not reset by a skipped one")
def count_goes_on(
    scale, good_steps, finite, interval=2000, factor=2.0, smallest=1.0, largest=2.0**24
):
    after = next_scale(scale, good_steps, finite, interval, factor, smallest, largest)
    return after if finite else (after[0], good_steps)


@P6.mistake("the scale never grows again")
def never_grows(
    scale, good_steps, finite, interval=2000, factor=2.0, smallest=1.0, largest=2.0**24
):
    return (scale, good_steps + 1) if finite else (max(scale / factor, smallest), 0)


@P6.mistake("the scale has no limits")
def no_limits(scale, good_steps, finite, interval=2000, factor=2.0, smallest=1.0, largest=2.0**24):
    return next_scale(scale, good_steps, finite, interval, factor, 0.0, float("inf"))


@P6.mistake("the scale is halved below 1")
def halved_below_one(
    scale, good_steps, finite, interval=2000, factor=2.0, smallest=1.0, largest=2.0**24
):
    if not finite and scale > smallest:
        return scale / factor, 0
    return next_scale(scale, good_steps, finite, interval, factor, smallest, largest)


@P6.mistake("the scale does not grow where its double is above 2^24")
def stays_below_the_largest(
    scale, good_steps, finite, interval=2000, factor=2.0, smallest=1.0, largest=2.0**24
):
    if finite and good_steps + 1 >= interval and scale * factor > largest:
        return scale, 0
    return next_scale(scale, good_steps, finite, interval, factor, smallest, largest)


# ---- exercise next_scale ----


def with_interval(scale: float, good_steps: int, finite: bool, interval: int) -> tuple[float, int]:
    return next_scale(scale, good_steps, finite, interval)


def good_scales(random: np.random.Generator) -> list[Arguments]:
    """Before, at and after the step that doubles."""
    rows = [(2.0**16, 1999, 2000), (2.0**16, 1998, 2000), (1024.0, 0, 2000), (8.0, 0, 1)]
    interval = int(random.integers(3, 3000))
    rows += [(2.0 ** int(random.integers(1, 23)), interval - k, interval) for k in (1, 2)]
    return [(scale, good_steps, True, interval) for scale, good_steps, interval in rows]


def limits(random: np.random.Generator) -> list[Arguments]:
    """At the limits, and one factor of 2 from each, which reaches it."""
    found = []
    for interval in (10, int(random.integers(3, 3000))):
        found += [(2.0**k, interval - 1, True, interval) for k in (23, 24)]
        found += [(scale, 0, False, interval) for scale in (1.0, 2.0)]
    return found


SCALE_05 = Exercise("05.3", with_interval, "next_scale")
SCALE_05.part("good steps", 2, good_scales)
SCALE_05.part(
    "skipped steps",
    1,
    lambda random: [
        (2.0**16, 7, False, 2000),
        (2.0**16, 1999, False, 2000),
        (2.0 ** int(random.integers(2, 24)), int(random.integers(99)), False, 100),
    ],
)
SCALE_05.part("the scale stays within 1 and 2**24", 1, limits)


@SCALE_05.mistake(
    "you do not double after interval good steps: good_steps does not count this step yet"
)
def doubles_late(scale, good_steps, finite, interval):
    if finite and good_steps < interval:
        return scale, good_steps + 1
    return next_scale(scale, interval - 1, finite, interval)


@SCALE_05.mistake("after doubling, the count of good steps begins at 0 again")
def count_goes_on_after_doubling(scale, good_steps, finite, interval):
    after = next_scale(scale, good_steps, finite, interval)
    return (after[0], good_steps + 1) if finite else after


@SCALE_05.mistake("a skipped step ends the row of good steps: the count begins at 0 again")
def count_goes_on_after_a_skip(scale, good_steps, finite, interval):
    after = next_scale(scale, good_steps, finite, interval)
    return after if finite else (after[0], good_steps)


@SCALE_05.mistake("you double the scale in a step that was skipped: look at finite first")
def doubles_in_a_skipped_step(scale, good_steps, finite, interval):
    if good_steps + 1 == interval:
        return min(scale * 2, 2.0**24), 0
    return next_scale(scale, good_steps, finite, interval)


@SCALE_05.mistake("your scale leaves the range 1 to 2**24")
def without_limits(scale, good_steps, finite, interval):
    return next_scale(scale, good_steps, finite, interval, smallest=0, largest=2.0**99)
