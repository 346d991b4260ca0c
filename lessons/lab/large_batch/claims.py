"""What lesson 11 says of its numbers: what a large batch costs, what LARS and warm-up gain."""

from kit.claims import GAIN, LIMIT, Claim, interval
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at, where
from kit.words import percent
from lab.large_batch.yours import YOURS


def same_epochs(rows: list[dict], result: dict) -> list[dict]:
    """Those after the lesson's number of epochs, from the smallest batch on."""
    epochs = result["trained"]["epochs"]
    return sorted(where(rows, epochs=epochs), key=lambda row: row["batch"])


def same_steps(rows: list[dict], result: dict) -> list[dict]:
    """Those after as many steps as the second batch takes in the lesson's epochs."""
    batches = sorted({row["batch"] for row in result["trained"]["rows"]})
    least, epochs = batches[min(1, len(batches) - 1)], result["trained"]["epochs"]
    later = [row for row in rows if row["epochs"] > epochs]
    first = where(rows, batch=least, epochs=epochs)
    return sorted([*first, *later], key=lambda row: row["batch"])


def gain(name: str, batch: int, alike=same_epochs):
    """The paired difference in accuracy, in points, at the smallest (0) or largest (-1) batch."""

    def points(result: dict) -> dict | None:
        row = at(alike(where(result["trained"]["gains"], name=name), result), batch)
        return row and interval(row["mean"], row["half"])

    return points


def at_batch(result: dict, optimizer: str, batch: int, alike=same_epochs) -> dict:
    """The row of a method without warm-up at the smallest (0) or largest (-1) batch."""
    rows = where(result["trained"]["rows"], optimizer=optimizer, warm=False)
    return alike(rows, result)[batch]


def accuracy(optimizer: str, batch: int, alike=same_epochs):
    """Its accuracy there, with its interval."""
    return lambda r: interval(
        *(at_batch(r, optimizer, batch, alike)[key] for key in ("mean", "half"))
    )


def lost(result: dict, optimizer: str) -> float:
    """Points of accuracy from the smallest to the largest batch, in the same epochs."""
    return at_batch(result, optimizer, 0)["mean"] - at_batch(result, optimizer, -1)["mean"]


NORMS = "norms", -1
RUNS = "the number of runs, the epochs and the rates that were tried"
CLAIMS = (
    Claim(
        "In the same number of epochs the largest batch learns less than the smallest (SGD).",
        (accuracy("SGD", -1), "<", accuracy("SGD", 0)),
        RUNS,
        kind=LIMIT,
        timed=False,
    ),
    Claim(
        "What it lacks is steps: after as many of them as a quarter of its batch takes, it ends "
        "within 3 points of that batch (SGD), or above.",
        lambda r: (
            at_batch(r, "SGD", -1, same_steps)["mean"],
            ">",
            at_batch(r, "SGD", 0, same_steps)["mean"] - 3.0,
        ),
        RUNS,
        kind=GAIN,
        timed=False,
    ),
    Claim(
        "LARS is more accurate than SGD at the largest batch in the same epochs, each at its best "
        "rate.",
        (gain("LARS", -1), ">", 0.0),
        RUNS,
        timed=False,
    ),
    Claim(
        "So it is at the smallest batch: what LARS gains here is not a matter of the batch alone.",
        (gain("LARS", 0), ">", 0.0),
        RUNS,
        timed=False,
    ),
    Claim(
        "Yet LARS moves the limit: from the smallest to the largest batch it loses fewer points.",
        lambda r: (lost(r, "LARS"), "<", lost(r, "SGD")),
        RUNS,
        timed=False,
    ),
    Claim(
        "Once every rate is tuned, warm-up costs SGD accuracy in so few steps.",
        (gain("warm-up, for SGD", -1), "<", 0.0),
        RUNS,
        timed=False,
    ),
    Claim(
        "In the larger network norms by slices take less time than all norms on each rank.",
        ((*NORMS, "times", "slices"), "<", (*NORMS, "times", "alone")),
        "the latency of the small allreduce, and cores that ranks share",
    ),
    Claim(
        "By whole layers the busiest rank has more than twice its fair share of the elements.",
        lambda r: (r["norms"][-1]["busiest"], ">", 1 / r["norms"][-1]["ranks"], 2.0),
        "the number of ranks next to the largest layer's share",
        timed=False,
    ),
)


def rows(r: dict) -> list[Row]:
    """Accuracy at the largest batch, predicted by linear scaling; steps of the largest pool."""
    found = []
    for optimizer, alike in (("SGD", same_epochs), ("LARS", same_epochs), ("SGD", same_steps)):
        small, large = (at_batch(r, optimizer, batch, alike) for batch in (0, -1))
        name = f"{optimizer}, batch {large['batch']}, {large['steps']} steps"
        promised = small["mean"] / 100 if small["batch"] < large["batch"] else None
        found.append(Row(f"accuracy of {name}", large["mean"] / 100, promised, percent))
    norms = r["norms"][-1]
    for by, predicted_s in norms["predicted_s"].items():
        found.append(Row(f"LARS step, norms by {by}", norms["times"][by], predicted_s))
    return found


def answer(r: dict) -> str:
    sgd, more = (at_batch(r, "SGD", -1, alike) for alike in (same_epochs, same_steps))
    after = f"after {sgd['steps']} steps of batch {sgd['batch']}"
    if more["steps"] == sgd["steps"]:
        return f"{sgd['mean']:.1f} % {after}"
    return f"{sgd['mean']:.1f} % {after}, {more['mean']:.1f} % after {more['steps']}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="What accuracy, in percent, does SGD reach with the largest batch, in the same epochs?",
    guess=Guess("70 %", timed=False),
    answer=answer,
    picture="Held-out accuracy of SGD and LARS against the batch, after the same number of epochs "
    "and after the same number of steps.",
    yours=YOURS,
)
