"""What lesson 13 says of its numbers."""

from kit.claims import GAIN, LIMIT, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at, factor_apart, summary
from lab.daso.learning import CYCLING, STALE
from lab.daso.rare import DILOCO, LOCAL
from lab.daso.scene import HALF, OVERLAPPED, SYNCHRONOUS
from lab.daso.yours import YOURS

EVERY, MAIN, BLOCKING = "B = 1, W = 1", "B = 4, W = 1", "blocking, bfloat16"
NAMES = {  # of the table's rows
    SYNCHRONOUS: "synchronous",
    HALF: "synchronous, overlapped, float16",
    EVERY: f"DASO, {EVERY}",
    MAIN: f"DASO, {MAIN}",
    DILOCO: DILOCO,
}


def measured(result: dict) -> list[dict]:
    """The rows of runs on virtual accelerators."""
    return result["times"]["rows"] if result["times"]["like"] else []


def batch(name: str):
    """The time of a batch in this run."""
    return lambda result: at(measured(result), {"name": name}, "batch")


def missed(result: dict) -> float | None:
    """The larger of prediction and batch over the smaller, at most."""
    return factor_apart((row["predicted_s"], row["batch"]["median_s"]) for row in measured(result))


def drift(name: str):
    """The largest distance of the nodes in this phase, over seeds."""

    def found(result: dict) -> dict | None:
        seeds = result["drift"].get(name)
        return summary(max(distances) for distances in seeds) if seeds else None

    return found


def training(result: dict) -> dict | None:
    """The mean time of a batch in the training whose accuracy is judged, at best.

    Its first and last epochs sum in every batch, as in the warm-up; between them B = 4, W = 1.
    """
    warm, main = batch(BLOCKING)(result), batch(MAIN)(result)
    ends, epochs = (at(result, "accuracy", key) for key in ("ends", "epochs"))
    if not warm or not main or not epochs:
        return None
    share = min(1.0, 2 * ends / epochs)
    return {key: share * warm[key] + (1 - share) * main[key] for key in warm if key != "repeats"}


PAIRED = "accuracy", "paired"  # differences in accuracy, with their intervals
SLOW = "links on which communication is much less than half of a synchronous step"
CLAIMS = (
    Claim(
        "With B = 4, W = 1, between DASO's warm-up and cool-down, a batch takes at most 0.75 times "
        "as long as in synchronous training.",
        (batch(MAIN), "<", batch(SYNCHRONOUS), 0.75),
        SLOW,
        kind=GAIN,
    ),
    Claim(
        "It is also faster than synchronous training that overlaps float32 sums with backward.",
        (batch(MAIN), "<", batch(OVERLAPPED)),
        SLOW,
    ),
    Claim(
        "Where overlapped float16 sums mostly hide behind backward, DASO gains little: its batch "
        "takes 0.85 to 1.2 times as long.",
        (batch(MAIN), ">", batch(HALF), 0.85),
        "links too slow for half of the bytes to hide behind backward",
        kind=LIMIT,
        control=(batch(MAIN), "<", batch(HALF), 1.2),
    ),
    Claim(
        "The training whose accuracy is shown, with its warm-up and cool-down, takes at most 0.75 "
        "times as long as synchronous training.",
        (training, "<", batch(SYNCHRONOUS), 0.75),
        SLOW,
    ),
    Claim(
        "Yet it takes at least 1.1 times as long as synchronous training whose float16 sums "
        "overlap backward: in so few epochs warm-up and cool-down cost more than the rest gains.",
        (training, ">", batch(HALF), 1.1),
        "a long training, of which warm-up and cool-down are a small share",
        kind=LIMIT,
    ),
    Claim(
        "A sum in the background is not free: B = 1, W = 1 takes longer than B = 4, W = 1, but "
        "less than synchronous training.",
        (batch(EVERY), ">", batch(MAIN)),
        "a processor that copies and merges in no time, and a sum shorter than a batch",
        control=(batch(EVERY), "<", batch(SYNCHRONOUS)),
    ),
    Claim(
        "Of predicted and measured batch time the larger is at most 1.15 times the smaller.",
        (missed, "<", 1.0, 1.15),
        "other programs on this machine, or ranks that share too few cores",
    ),
    Claim(
        "Nodes drift further apart with B = 8 than with B = 4.",
        (drift("B = 8, W = 1"), ">", drift(MAIN)),
        "a learning rate so small that nodes hardly move in 8 batches",
        timed=False,
    ),
    Claim(
        "With warm-up and cool-down, whose every batch waits for a sum, DASO costs less than one "
        "point of accuracy.",
        ((*PAIRED, CYCLING), ">", -1.0),
        "epochs and batches: the longer nodes train separately, the more it costs",
        timed=False,
    ),
    Claim(
        "B = 8, W = 8 throughout costs accuracy after as many epochs.",
        ((*PAIRED, STALE), "<", 0.0),
        "a learning rate so small that nodes hardly move in 8 batches",
        timed=False,
    ),
    Claim(
        f"With {DILOCO}, a batch takes at most 0.75 times as long as in synchronous training, "
        "though nothing hides its sums.",
        (batch(DILOCO), "<", batch(SYNCHRONOUS), 0.75),
        SLOW,
    ),
    Claim(
        f"Yet it takes longer than with DASO's {MAIN}, which sends more often but hides its sums.",
        (batch(DILOCO), ">", batch(MAIN)),
        "links so fast that a sum takes less than copying and merging",
    ),
    Claim(
        f"{LOCAL}, which takes the mean of the parameters, costs less than 5 points of accuracy "
        "after as many steps.",
        ((*PAIRED, LOCAL), ">", -5.0),
        "a learning rate with which nodes part too far in H steps",
        timed=False,
    ),
    Claim(
        "In the same seconds it reaches more than synchronous training that hides nothing.",
        (("rare", LOCAL, SYNCHRONOUS), ">", 0.0),
        SLOW,
    ),
    Claim(
        f"{DILOCO}, with the outer rate and momentum that are used with H = 500, costs more than 5 "
        "points after as many steps: there are few outer steps, and each moves by many.",
        ((*PAIRED, DILOCO), "<", -5.0),
        "a training with hundreds of outer steps, or less outer momentum",
        timed=False,
    ),
)


def rows(r: dict) -> list[Row]:
    """A batch of synchronous training and of DASO, in the cluster's time."""
    k = r["times"]["dilation"]
    by_name = {row["name"]: row for row in r["times"]["rows"]}
    found = []
    for name, what in NAMES.items():
        if name not in by_name:
            continue
        measured_s, predicted_s = by_name[name]["batch"]["median_s"], by_name[name]["predicted_s"]
        found.append(Row(what, measured_s / k, predicted_s and predicted_s / k))
    return found


def answer(r: dict) -> str:
    batches = {row["name"]: row["batch"]["median_s"] for row in r["times"]["rows"]}
    found = [change(batches[MAIN] / batches[SYNCHRONOUS])]
    if whole := training(r):
        ratio = whole["median_s"] / batches[HALF]
        found.append(f"the whole training {change(ratio)} than with overlapped float16 sums")
    return "; ".join(found)


def change(ratio: float) -> str:
    return f"{100 * abs(1 - ratio):.0f} % {'shorter' if ratio < 1 else 'longer'}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="How much shorter is a batch with B = 4, W = 1 than a synchronous one?",
    guess=Guess("25 %"),
    answer=answer,
    picture="Bars: the time of a batch, synchronous and by DASO, with the prediction through each; "
    "last, the mean batch of a whole training by DASO.",
    yours=YOURS,
)
