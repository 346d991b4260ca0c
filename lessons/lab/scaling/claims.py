"""What lesson 08 says of its numbers."""

import math

from kit.claims import GAIN, LIMIT, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import where
from lab.scaling.far import IB
from lab.scaling.models import CONTENTION, IN_ORDER, ROUND_ROBIN, TCP
from lab.scaling.points import efficiency, short
from lab.scaling.yours import YOURS
from lab.stack.bars import CSC, HALF, LAZY, OVERLAP, RING
from refgf.papers.scaling.confronted import SHARP

PERCENT, TIMES = "{:.3g} %".format, "{:.3g} x".format
SHARP_HEADLINE = "GradientFlow, ResNet-50: throughput of 512 GPUs over one GPU"
SHARED = "computing that shares the cores with the exchange (--like this-machine)"


def steps(result: dict, back: int = 1) -> dict:
    """{technique: measured step} on all ranks, in the order of the stack. back 2: on half of them.

    Empty where nothing was measured.
    """
    points = result.get("points", [])
    rows = points[-back]["rows"] if len(points) >= back else []
    return {short(row["name"]): row["timing"] for row in rows}


def technique(name: str, relation: str = "<", factor: float = 1.0):
    """The comparison of the step with this technique with the step of the stack before it."""

    def compare(result: dict):
        found = steps(result)
        before = dict(zip(list(found)[1:], found.values()))
        return found.get(name), relation, before.get(name), factor

    return compare


def eager(back: int):
    """The step without overlap on all ranks (1) or on half of them (2)."""
    return lambda result: steps(result, back).get(RING)


def on_2048(result: dict) -> dict:
    """{technique: (low, high)}: efficiency predicted for ResNet-50 on 2048 GPUs, InfiniBand."""
    systems = result["far"]["ResNet-50"][IB]["systems"]
    return {short(name): ends[-1] for name, ends in systems.items()}


def largest_gain(result: dict) -> float:
    """There, the largest efficiency over that of the stack before, lazy allreduce left out."""
    found = on_2048(result)
    pairs = [(found[a], found[b]) for a, b in zip(found, list(found)[1:]) if b != LAZY]
    return max(new / old for before, after in pairs for old, new in zip(before, after))


def gains(result: dict, place: int) -> dict:
    """{technique: by how many times it raises that efficiency}: place 0 on 4 GPUs, -1 on 2048.

    Of the middles of the intervals, on a scale of ratios.
    """
    systems = result["far"]["ResNet-50"][IB]["systems"]
    middles = {short(name): math.prod(ends[place]) ** 0.5 for name, ends in systems.items()}
    before = list(middles.values())
    return {name: middles[name] / old for name, old in zip(list(middles)[1:], before)}


def like_on_few(result: dict) -> float:
    """Of the technique that gains most on 2048 GPUs: its gain there over that on 4."""
    few, many = gains(result, 0), gains(result, -1)
    best = max(many, key=many.get)
    return many[best] / few[best]


def headline(result: dict, name: str = SHARP_HEADLINE) -> dict | None:
    return next(iter(where(result.get("headlines", []), name=name)), None)


def inside(result: dict):
    """Is the published number inside its interval? How many times it is off the nearer end."""
    found = headline(result)
    if found is None:
        return None
    return min(found["published"] / found["low"], found["high"] / found["published"]), ">", 1


def narrow(result: dict):
    """Is that interval narrower than a factor of SHARP?"""
    found = headline(result)
    return found and (found["high"], "<", found["low"], SHARP)


def simgrid(group: str, name: str):
    """SimGrid's seconds on its largest number of ranks over those of the closed form."""

    def over(result: dict) -> float | None:
        seconds = result.get("models", {}).get(group, {}).get(name)
        p = max(seconds, key=int) if seconds else None
        return seconds and seconds[p] / result["models"]["closed_s"][p]

    return over


CLAIMS = (
    Claim(
        "Overlap shortens the step on all ranks.",
        technique(OVERLAP),
        unless=SHARED,
    ),
    Claim(
        "On few ranks AlexNet's 26 tensors have few latencies to save: with lazy allreduce a step "
        "still takes 0.9 to 1.15 times as long.",
        technique(LAZY, ">", 0.9),
        unless="short messages or many ranks, whose latencies are most of a call",
        control=technique(LAZY, "<", 1.15),
    ),
    Claim(
        "Mixed precision shortens the step on all ranks.",
        technique(HALF),
        unless="communication that is hidden already, or casts that share the cores",
    ),
    Claim(
        "CSC shortens the step on all ranks.",
        technique(CSC),
        unless="communication that is hidden already, or a choice that shares the cores",
    ),
    Claim(
        "Without overlap a step on all ranks takes longer than on half of them.",
        (eager(1), ">", eager(2)),
        unless="one rank more or less: a rank sends 2(p-1)/p of its gradients",
    ),
    Claim(
        "PREDICTED for ResNet-50 on 2048 GPUs and InfiniBand: with lazy allreduce the efficiency "
        "is more than 5 times as high, even its lowest against the highest without it, because "
        "eager exchange pays 161 x 2(p-1) latencies.",
        lambda r: (on_2048(r)[LAZY][0], ">", on_2048(r)[OVERLAP][1], 5),
        unless="the inputs of the formula",
        kind=GAIN,
        timed=False,
    ),
    Claim(
        "PREDICTED there: with any other technique it is less than 1.1 times as high, because "
        "bytes are not what the step waits for.",
        lambda r: (largest_gain(r), "<", 1.0, 1.1),
        unless="the inputs of the formula",
        kind=LIMIT,
        timed=False,
    ),
    Claim(
        "PREDICTED there: no technique gains on 2048 GPUs what it gains on 4. The one that gains "
        "most gains more than 5 times what it gains on 4, all others less than 1.1 on 2048.",
        (like_on_few, ">", 1.0, 5),
        unless="the inputs of the formula",
        timed=False,
        control=(largest_gain, "<", 1.0, 1.1),
    ),
    Claim(
        "GradientFlow's 434.1 of 512 (ResNet-50) lies inside the interval predicted from "
        "independent inputs. It could have missed: the interval is narrower than a factor of 2.",
        inside,
        unless="the range of a single GPU's rate",
        timed=False,
        control=narrow,
    ),
    Claim(
        "PREDICTED: calibrated TCP takes more than 1.2 times the formula on the most ranks, fair "
        "links less than 1.01 times.",
        (simgrid("links", TCP), ">", 1.0, 1.2),
        unless="few ranks, whose latencies are little of an allreduce",
        timed=False,
        control=(simgrid("links", CONTENTION), "<", 1.0, 1.01),
    ),
    Claim(
        "PREDICTED on a fat tree with half the links up: round robin over the switches the ring "
        "takes more than 1.2 times the formula, in the order of the nodes less than 1.05 times.",
        (simgrid("tree", ROUND_ROBIN), ">", 1.0, 1.2),
        unless="as many links up as down",
        timed=False,
        control=(simgrid("tree", IN_ORDER), "<", 1.0, 1.05),
    ),
)


def efficiencies(r: dict) -> tuple[int, dict]:
    """(all ranks, {technique: (measured, predicted)}): scaling efficiency in percent."""
    if "here" in r:
        point = r["here"]["points"][-1]
        both = {
            short(name): (point["measured"][name], point["predicted"][name])
            for name in point["steps"]
        }
        return point["ranks"], both
    point, both = r["points"][-1], {}
    for row in point["rows"]:
        ends = row["timing"]["median_s"], row["predicted_s"]
        both[short(row["name"])] = [efficiency(point["off"]["median_s"], step_s) for step_s in ends]
    return point["ranks"], both


def rows(r: dict) -> list[Row]:
    """First, middle and last stack on all ranks; what lazy allreduce gains on few and on many.

    None of the measured ones on one rank, which sends nothing.
    """
    p, both = efficiencies(r)
    what = f"scaling efficiency on {p} ranks"
    found = [Row(f"{what}: {name}", *pair, PERCENT) for name, pair in both.items() if p > 1]
    sizes = r["far"]["ResNet-50"][IB]["sizes"]
    few, many = (
        Row(f"ResNet-50, {sizes[place]} GPUs: gain of {LAZY.strip('+ ')}", None, gain, TIMES)
        for place, gain in ((place, gains(r, place)[LAZY]) for place in (0, -1))
    )
    return [*found[:: max(1, len(found) // 2)], few, many]


def answer(r: dict) -> str:
    p, both = efficiencies(r)
    if p == 1:
        return "100 %, because one rank sends nothing"
    eager, everything = (PERCENT(both[name][0]) for name in (RING, CSC))
    return f"{eager} eager and {everything} with everything, on {p} ranks"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="What is the scaling efficiency on all ranks, eager and with everything switched on?",
    guess=Guess("50 % and 90 %"),
    answer=answer,
    picture="Bars: a step on all ranks for five techniques, with the prediction through each; "
    "scaling efficiency against ranks. More figures: bands up to 2048 GPUs and what each technique "
    "gains there, published numbers.",
    yours=YOURS,
)
