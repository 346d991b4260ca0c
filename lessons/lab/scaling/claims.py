"""What lesson 08 says of its numbers."""

from math import inf, log

from kit.claims import GAIN, LIMIT, Claim
from kit.reveal import Reveal, Row
from lab.scaling.far import IB
from lab.scaling.points import efficiency, short
from refgf.papers.scaling.systems import stack

EAGER, OVERLAP, LAZY, HALF, CSC = (system.name for system in stack(inf))
PERCENT = "{:.3g} %".format
SHARED = "computing that shares the cores with the exchange (--like this-machine)"


def steps(result: dict, left, relation: str, right, factor: float = 1.0):
    """A comparison of measured steps. left, right: (technique, 1: all ranks; 2: half of them)."""
    points, found = result.get("points", []), []
    for name, back in (left, right):
        rows = points[-back]["rows"] if len(points) >= back else []
        found += [row["timing"] for row in rows if row["name"] == name]
    return (found[0], relation, found[1], factor) if len(found) == 2 else None


def on_2048(result: dict, name: str, end: int) -> float:
    """Scaling efficiency predicted for ResNet-50 on 2048 GPUs, InfiniBand. end: 0 low, 1 high."""
    return result["far"]["ResNet-50"][IB]["systems"][name][-1][end]


def gain(result: dict, new: str, old: str) -> float:
    """The same efficiency with technique `new` over that with `old`; the larger of both ends."""
    return max(on_2048(result, new, end) / on_2048(result, old, end) for end in (0, 1))


def inside(result: dict, number: int):
    """Is the published number inside its interval? On a scale of ratios.

    Compares twice its distance from the middle of the interval with the interval's width.
    """
    headline = result["headlines"][number]
    low, high, published = (headline[key] for key in ("low", "high", "published"))
    return abs(log(published**2 / (low * high))), "<", log(high / low)


CLAIMS = (
    Claim(
        "Overlap shortens the step of eager exchange on all ranks.",
        lambda r: steps(r, (OVERLAP, 1), "<", (EAGER, 1)),
        unless=SHARED,
    ),
    Claim(
        "Lazy allreduce gains less than 10 % on AlexNet: 26 tensors have few latencies to save.",
        lambda r: steps(r, (LAZY, 1), ">", (OVERLAP, 1), 0.9),
        unless="short messages or many ranks, whose latencies are most of a call",
    ),
    Claim(
        "Float16 shortens the step of lazy allreduce.",
        lambda r: steps(r, (HALF, 1), "<", (LAZY, 1)),
        unless="communication that is hidden already, or casts that share the cores",
    ),
    Claim(
        "CSC shortens the step of float16.",
        lambda r: steps(r, (CSC, 1), "<", (HALF, 1)),
        unless="communication that is hidden already, or a choice that shares the cores",
    ),
    Claim(
        "Without overlap a step on all ranks takes longer than on half of them.",
        lambda r: steps(r, (EAGER, 1), ">", (EAGER, 2)),
        unless="one rank more or less: a rank sends 2(p-1)/p of its gradients",
    ),
    Claim(
        "PREDICTED for ResNet-50 on 2048 GPUs and InfiniBand: lazy allreduce is more than 5 times "
        "as efficient as overlap alone, because eager exchange pays 161 x 2(p-1) latencies.",
        lambda r: (on_2048(r, LAZY, 0), ">", on_2048(r, OVERLAP, 1), 5),
        unless="the inputs of the formula",
        kind=GAIN,
    ),
    Claim(
        "PREDICTED there: overlap over eager exchange, and float16 with CSC over lazy allreduce, "
        "gain less than 10 % each, because bytes are not what the step waits for.",
        lambda r: (max(gain(r, OVERLAP, EAGER), gain(r, CSC, LAZY)), "<", 1.1),
        unless="the inputs of the formula",
        kind=LIMIT,
    ),
    Claim(
        "GradientFlow's 410.2 lies inside the interval predicted from independent inputs.",
        lambda r: inside(r, 0),
        unless="the range of a single GPU's rate",
    ),
)


def efficiencies(r: dict) -> tuple[int, dict]:
    """(all ranks, {technique: (measured, predicted)}): scaling efficiency in percent."""
    if "here" in r:
        point = r["here"]["points"][-1]
        both = {
            name: (point["measured"][name], point["predicted"][name]) for name in point["steps"]
        }
        return point["ranks"], both
    point, both = r["points"][-1], {}
    for row in point["rows"]:
        ends = row["timing"]["median_s"], row["predicted_s"]
        both[row["name"]] = [efficiency(point["off"]["median_s"], step_s) for step_s in ends]
    return point["ranks"], both


def rows(r: dict) -> list[Row]:
    """All techniques on all ranks; none on one rank, which sends nothing."""
    p, both = efficiencies(r)
    what = f"scaling efficiency on {p} ranks"
    return [Row(f"{what}: {short(name)}", *pair, PERCENT) for name, pair in both.items() if p > 1]


def answer(r: dict) -> str:
    p, both = efficiencies(r)
    if p == 1:
        return "100 %, because one rank sends nothing"
    eager, everything = (PERCENT(both[name][0]) for name in (EAGER, CSC))
    return f"{eager} eager and {everything} with everything, on {p} ranks"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="What is the scaling efficiency on all ranks, eager and with everything switched on?",
    answer=answer,
    picture="Bars: a step on all ranks for five techniques, with the prediction through each; "
    "scaling efficiency against ranks. More figures: bands up to 2048 GPUs, published numbers.",
)
