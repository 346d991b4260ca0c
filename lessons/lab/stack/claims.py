"""What lesson 07 says of its numbers."""

from kit.claims import GAIN, LIMIT, NOISE, Claim, interval
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at, factor_apart, where
from kit.words import count, seconds
from lab.stack.bars import CSC, FUSED, HALF, LAZY, NATIVE, OVERLAP, RING, gains_s, median_s
from lab.stack.yours import YOURS

ALEXNET, RESNET = ("alexnet", "v100-56gbit"), ("resnet50", "mgwfbp-10gbe")
OFF = "off"  # the step without exchange
LEVEL = 0.9  # of the largest gain, at least


def scene(result: dict, network: str, like: str) -> dict | None:
    """The bars of this network on this cluster, on the most ranks; None if not measured."""
    found = where(result["places"].values(), network=network, like=like)
    return max(found, key=lambda here: here["ranks"], default=None)


def in_the_figure(here: dict) -> list[dict]:
    """The bars of the stack, without MPI's own calls, whose messages wait for no latency."""
    return [row for row in here["rows"] if row["name"] not in (FUSED, NATIVE)]


def longest(result: dict) -> float | None:
    """The largest of a bar of AlexNet over the one above it."""
    here = scene(result, *ALEXNET)
    steps_s = [median_s(row["step"]) for row in in_the_figure(here)] if here else []
    return max((below / above for above, below in zip(steps_s, steps_s[1:])), default=None)


def missed(result: dict) -> float | None:
    """The larger of prediction and bar over the smaller, at most; all bars of the figure."""
    places = [here for here in (scene(result, *place) for place in (ALEXNET, RESNET)) if here]
    bars = [row for here in places for row in in_the_figure(here)]
    return factor_apart((row["predicted_s"], median_s(row["step"])) for row in bars)


def bar(place: tuple, name: str):
    """The step of a bar; OFF: without exchange."""

    def step(result: dict) -> dict | None:
        here = scene(result, *place)
        return at(here, "alone") if name == OFF else at(here, "rows", {"name": name}, "step")

    return step


def between(place: tuple, later: str, relation: str, earlier: str, factor: float = 1.0):
    """The comparison of two bars."""
    return bar(place, later), relation, bar(place, earlier), factor


def with_interval(*path):
    """A mean and half of its interval in what was learned, as a claim compares them."""

    def found(r: dict) -> dict | None:
        pair = at(r, "learning", *path)
        return pair and interval(*pair)

    return found


CORES = "a core for each rank, and links slower than this machine's own copies"
CLAIMS = (
    Claim(
        "AlexNet, 56 Gbit/s: summing each gradient by a ring of its own, after backward, leaves "
        "less than 0.45 times the pace without exchange.",
        between(ALEXNET, OFF, "<", RING, 0.45),
        "the ratio of computing to bytes: an efficient network needs a slower link to show it",
    ),
    Claim(
        "AlexNet: a step with the ring takes at most 1.02 times as long as with MPI's own call, "
        "which waits for no latency.",
        between(ALEXNET, RING, "<", NATIVE, 1.02),
        "which algorithm MPI chooses",
    ),
    Claim(
        "AlexNet: with half the bytes a step takes less than 0.8 times as long, and not less than "
        "half.",
        between(ALEXNET, HALF, "<", RING, 0.8),
        CORES,
        control=between(ALEXNET, HALF, ">", RING, 0.5),
    ),
    Claim(
        "AlexNet: with overlap the step takes less than 0.8 times as long again, and not less than "
        "0.95 times as long as without exchange.",
        between(ALEXNET, OVERLAP, "<", HALF, 0.8),
        CORES,
        control=between(ALEXNET, OVERLAP, ">", OFF, 0.95),
    ),
    Claim(
        "On few ranks AlexNet's 26 tensors leave little to lazy allreduce: with it a step still "
        "takes 0.9 to 1.1 times as long.",
        between(ALEXNET, LAZY, ">", OVERLAP, 0.9),
        "the latency of a call next to the bytes of a tensor",
        kind=LIMIT,
        control=between(ALEXNET, LAZY, "<", OVERLAP, 1.1),
    ),
    Claim(
        "AlexNet, 56 Gbit/s: each technique's step takes at most 1.1 times as long as the bar "
        "above.",
        (longest, "<", 1.0, 1.1),
        CORES,
    ),
    Claim(
        "AlexNet, 56 Gbit/s: the whole stack keeps at least 0.8 times the pace without exchange.",
        between(ALEXNET, OFF, ">", CSC, 0.8),
        CORES,
        kind=GAIN,
    ),
    Claim(
        "ResNet-50, 10 Gbit/s: with overlap, a step of 161 eager calls takes at least 1.3 times as "
        "long as one of lazy calls.",
        between(RESNET, OVERLAP, ">", LAZY, 1.3),
        "the latency of the network and the number of ranks",
    ),
    Claim(
        "Every bar is predicted within 15 %, on both networks.",
        (missed, "<", 1.0, 1.15),
        "other work on the cores while the lesson runs",
    ),
    Claim(
        "In a training of a few epochs CSC gains no time to an accuracy; it comes later, or level.",
        (with_interval("later_s"), ">", 0.0),
        "the number of epochs after the warm-up, and the share of a step that CSC saves",
        expected=NOISE,
        kind=LIMIT,
    ),
    Claim(
        "At the end CSC is as accurate as dense training, to within 3 points.",
        (with_interval("points"), ">", -3.0),
        "the length of the training, the density and its warm-up",
        timed=False,
    ),
    Claim(
        "All parts of the 1.5-minute system together train a small network: at a large batch, with "
        "LARS, warm-up, half weights and CSC it gets more than 80 % of held-out images right.",
        (("learning", "assembled", "accuracy"), ">", 0.8),
        "the data, the number of epochs and the peak rate",
        timed=False,
    ),
)


def this_run(r: dict) -> dict:
    """The bars that this run has measured; "places" holds those of earlier runs too."""
    ours = [
        here
        for title, here in r["places"].items()
        if here["network"] == r["options"]["network"] and title.endswith(r["place"])
    ]
    return ours[-1]


def rows(r: dict) -> list[Row]:
    """The five bars of the stack in the cluster's time: each gain is over the row above."""
    here = this_run(r)
    k, bars = here["dilation"], in_the_figure(here)
    return [Row(b["name"], median_s(b["step"]) / k, b["predicted_s"] / k) for b in bars]


def above_100(places: list[dict]) -> tuple[float, str]:
    """(the highest efficiency of a stack that updates all weights, whose); (0, "") if below 100 %.

    CSC updates only weights whose gradients were sent. This is the control: how far above 100 % a
    step comes without that.
    """
    found = [
        (median_s(here["alone"]) / median_s(row["step"]), row["name"].strip("+ "), here["ranks"])
        for here in places
        for row in here["rows"]
        if row["name"] != CSC
    ]
    most, name, ranks = max(found, default=(0.0, "", 0))
    return (most, f"{name} on {count(ranks, 'rank')}") if most > 1 else (0.0, "")


def answer(r: dict) -> str:
    """The largest gain, with those that are a tenth less at most, and the efficiency."""
    here = this_run(r)
    k, bars = here["dilation"], here["rows"]
    gains = {bar["name"].strip("+ "): gain_s or 0.0 for bar, gain_s in zip(bars, gains_s(bars))}
    least_s = LEVEL * max(gains.values())
    level = [f"{name} ({seconds(s / k)})" for name, s in gains.items() if s >= least_s > 0]
    most = ", ".join(level) or "none"
    kept = median_s(here["alone"]) / median_s(bars[-1]["step"])
    alike = where(r["places"].values(), network=here["network"], like=here["like"])
    control, _ = above_100(alike) if kept > 1 else (0.0, "")
    as_much = f" (without CSC up to {control:.0%})" if control else ""
    return f"{most}; in the end {kept:.0%} efficiency{as_much}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="Which technique shortens this network's step most, and what efficiency do all reach?",
    guess=Guess("overlap", tuple(name.strip("+ ") for name in (RING, HALF, OVERLAP, LAZY, CSC))),
    answer=answer,
    picture="Bars: the time of a step for each stack, with the prediction through each; "
    "efficiency against nodes; accuracy against time.",
    yours=YOURS,
)
