"""What lesson 08 says of its numbers."""

from kit.claims import GAIN, LIMIT, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at
from lab.scaling.far import IB
from lab.scaling.models import CONTENTION, IN_ORDER, ROUND_ROBIN, TCP
from lab.scaling.points import efficiency, short
from lab.scaling.yours import YOURS
from lab.stack.bars import CSC, HALF, LAZY, OVERLAP, RING
from refgf.papers.scaling.headlines import SPEEDUP

PERCENT = "{:.3g} %".format
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


def inside(result: dict, number: int):
    """Is the published number inside its interval? How many times it is off the nearer end."""
    found = at(result, "headlines", number)
    if found is None:
        return None
    return min(found["published"] / found["low"], found["high"] / found["published"]), ">", 1


def simgrid(group: str, name: str):
    """SimGrid's seconds on its largest number of ranks over those of the closed form."""

    def over(result: dict) -> float | None:
        seconds = at(result, "models", group, name)
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
        f"GradientFlow's {SPEEDUP} lies inside the interval predicted from independent inputs. "
        "That says little, because the interval is wide: the share of the chunks is not stated.",
        lambda r: inside(r, 0),
        unless="the share of the chunks, and the range of a single GPU's rate",
        timed=False,
    ),
    Claim(
        "PREDICTED: with a link for each node, contention adds less than 1 % to the formula.",
        (simgrid("links", CONTENTION), "<", 1.0, 1.01),
        unless="a ring whose neighbours share a link",
    ),
    Claim(
        "PREDICTED: calibrated TCP takes more than 1.2 times the formula on the most ranks.",
        (simgrid("links", TCP), ">", 1.0, 1.2),
        unless="few ranks, whose latencies are little of an allreduce",
    ),
    Claim(
        "PREDICTED on a fat tree with half the links up: in the order of the nodes the ring takes "
        "less than 1.05 times the formula, because one message leaves each switch.",
        (simgrid("tree", IN_ORDER), "<", 1.0, 1.05),
        unless="the routes of the tree",
    ),
    Claim(
        "PREDICTED there: with the ranks dealt round robin over the switches the formula is more "
        "than 20 % too low, because all nodes of a switch share half as many links up.",
        (simgrid("tree", ROUND_ROBIN), ">", 1.0, 1.2),
        unless="as many links up as down",
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
    """All techniques on all ranks; none on one rank, which sends nothing."""
    p, both = efficiencies(r)
    what = f"scaling efficiency on {p} ranks"
    return [Row(f"{what}: {name}", *pair, PERCENT) for name, pair in both.items() if p > 1]


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
    "scaling efficiency against ranks. More figures: bands up to 2048 GPUs, published numbers.",
    yours=YOURS,
)
