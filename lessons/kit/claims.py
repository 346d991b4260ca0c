"""What a lesson says you should see, as data: each claim is decided by the numbers of the run.

    CLAIMS = (
        Claim(
            "Overlap shortens the step of eager calls.",
            (("steps", "overlapped"), "<", ("steps", "sequential")),
            unless="computing that shares the cores with the exchange",
        ),
    )
    lesson = kit.Lesson(__file__, __doc__, REVEAL)      a Reveal of these claims

A comparison is a value, one of < and >, another value, and if wanted a factor by which the first
must be below or above. A value is where the lesson's result has it (a path, see kit/rows.py), a
function of the result, or a number; the whole comparison may be a function of the result as well.
What is found is a number, or a timing {"median_s", "low_s", "high_s"}, whose spread decides what is
noise:

    holds               the medians compare as the claim says, by the factor, beyond the noise
    within noise        the spreads overlap, of the comparison or of its control
    does not hold here  the medians compare otherwise; `unless` says what decides
    not judged          `caveat` says why: with --quick nothing is, on a busy machine no time is

A verdict names how far: "(by 1.8 x)", the larger number over the smaller; where the claim has a
factor, "(1.49 times, wanted above 1.3)", the first number over the second.

None instead of a comparison or of a value: this run has not measured it (kit/rows.py). A test
evaluates all claims on the committed figures, so a sentence and its figure cannot disagree.
"""

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kit.rows import at
from kit.verdict import FAILS, HOLDS, NOISE, NOT_JUDGED, NOT_MEASURED, Verdict

GAIN, LIMIT = "gain", "limit"
RELATIONS = {"<": operator.lt, ">": operator.gt}
REVERSED = {"<": ">", ">": "<"}
NOTHING = None, "<", None  # a comparison that was not measured
UNDECIDED = "The comparison holds, its control is within noise"


@dataclass(frozen=True)
class Claim:
    """A sentence, what decides it, and why it may not hold elsewhere.

    expected: the verdict on the committed figure. FAILS is for a technique's losing scene that the
    sentence states the other way round elsewhere; NOISE for a tie.
    here: only `--like this-machine` measures it, which the committed figures do not.
    control: a second comparison that must hold, too: the other bound, or where the sentence names
    a cause, that the effect is absent without it.
    timed: does a measured time decide it? False for bytes, messages, bits, what is learned, and
    what is only computed: such a claim is judged on a busy machine, too.
    kind: GAIN or LIMIT puts it into docs/results.md: what the technique gains, and when not.
    """

    text: str
    compare: Callable[[dict], tuple | None] | tuple
    unless: str
    expected: str = HOLDS
    kind: str = ""
    here: bool = False
    timed: bool = True
    control: Callable[[dict], tuple | None] | tuple | None = None


def decide(claim: Claim, result: dict, reverse: bool = False) -> Verdict:
    """The verdict on a claim. reverse: with its relation turned round, for the test of the test."""
    found = compared(claim, claim.compare, result, reverse)
    if claim.control is None or found.verdict != HOLDS:
        return found
    control = compared(claim, claim.control, result)
    if control.verdict == HOLDS:
        return found
    if control.verdict == NOISE:
        return replace(found, verdict=NOISE, ratio=None, reason=UNDECIDED)
    reason = "the control: what the sentence gives as the cause does not explain it here"
    return replace(found, verdict=control.verdict, reason=f"{reason} ({claim.unless})")


def compared(claim: Claim, compare: Any, result: dict, reverse: bool = False) -> Verdict:
    """The verdict on one comparison of a claim."""
    left, relation, right, *factor = (compare(result) if callable(compare) else compare) or NOTHING
    left, right = value(left, result), value(right, result)
    if left is None or right is None:
        return Verdict(claim.text, NOT_MEASURED, kind=claim.kind)
    relation = REVERSED[relation] if reverse else relation
    factor = factor[0] if factor else 1.0
    shown = f"{factor:.3g}" if abs(factor - 1) > 0.005 else f"{factor:.6g}"  # 1.001 is no 1
    wanted = f"{'above' if relation == '>' else 'below'} {shown}" if factor != 1.0 else ""
    more = {"kind": claim.kind, "times": bool(wanted), "wanted": wanted}
    (low, middle, high), (least, centre, most) = spread(left), spread(right)
    ratio = middle / centre if min(middle, centre) > 0 else None
    if ratio and factor == 1.0:
        ratio = max(ratio, 1 / ratio)
    limit = [factor * x for x in (least, centre, most)]
    if high >= limit[0] and low <= limit[2] and (low, limit[0]) != (high, limit[2]):
        return Verdict(claim.text, NOISE, ratio, **more)
    holds = RELATIONS[relation](middle, limit[1]) or (middle == limit[1] and factor != 1.0)
    decision = HOLDS if holds else FAILS
    return Verdict(claim.text, decision, ratio, claim.unless, **more)


def value(of: Any, result: dict) -> float | dict | None:
    """What this path or function finds in the result; a number or a timing as it is."""
    if callable(of):
        return of(result)
    return at(result, *of) if isinstance(of, tuple) else of


def spread(value: Any) -> tuple[float, float, float]:
    """(low, median, high) of a number or of a timing."""
    if isinstance(value, dict):
        return value["low_s"], value["median_s"], value["high_s"]
    return (float(value),) * 3


def interval(mean: float, half: float | None) -> dict:
    """A mean with its 95 % interval, as a claim compares it. half None: a single run shows nothing.

    Called seconds because timings have this form; the unit is that of `mean`.
    """
    half = math.inf if half is None else half
    return {"median_s": mean, "low_s": mean - half, "high_s": mean + half}


def verdicts(claims, result: dict) -> list[Verdict]:
    """One verdict for each claim, on a result as the JSON holds it."""
    quick, busy = at(result, "options", "quick"), at(result, "load", "busy")
    found = [decide(claim, result) for claim in claims]
    return [
        Verdict(claim.text, NOT_JUDGED, kind=claim.kind)
        if quick or (busy and claim.timed and decided.verdict != NOT_MEASURED)
        else decided
        for claim, decided in zip(claims, found)
    ]


def caveat(result: dict, claims) -> str:
    """Why this result's times, or all of it, judge nothing; "" where they do or none is timed."""
    if at(result, "options", "quick"):
        return "--quick shows that the lesson runs. Its sizes are too small to judge anything."
    if at(result, "load", "busy") and any(claim.timed for claim in claims):
        return f"BUSY MACHINE. {result['load']['said']}."
    return ""
