"""What lesson 11 says of its numbers: what a large batch costs, its rate, what LARS gains."""

from kit.claims import GAIN, LIMIT, Claim, interval
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at, where
from kit.trials import mean_and_half
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


def gains_more(result: dict) -> dict:
    """LARS's points over SGD at the largest batch minus those at the smallest, in pairs of runs."""
    gains = same_epochs(where(result["trained"]["gains"], name="LARS"), result)
    pairs = zip(gains[-1]["values"], gains[0]["values"], strict=True)
    return interval(*mean_and_half([large - small for large, small in pairs]))


def rate(result: dict, optimizer: str, batch: int) -> float:
    """The best peak rate that was found, at the smallest (0) or largest (-1) batch."""
    return at_batch(result, optimizer, batch)["rate"]


def scaled(result: dict, optimizer: str) -> float:
    """Linear scaling: the rate of the smallest batch, times how many times the largest has."""
    small, large = (at_batch(result, optimizer, batch) for batch in (0, -1))
    return small["rate"] * large["batch"] / small["batch"]


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
        "Linear scaling does not hold here: at the largest batch SGD's best rate is less than half "
        "of what it says, in the same epochs.",
        lambda r: (rate(r, "SGD", -1), "<", scaled(r, "SGD"), 0.5),
        RUNS,
        kind=LIMIT,
        timed=False,
    ),
    Claim(
        "With LARS the best rate grows with the batch, by more than half.",
        lambda r: (rate(r, "LARS", -1), ">", rate(r, "LARS", 0), 1.5),
        RUNS,
        timed=False,
    ),
    Claim(
        "After as many steps as a quarter of its batch takes, so in more epochs, the largest batch "
        "ends within 3 points of the smaller one (SGD), or above.",
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
        "Yet LARS gains more points at the largest batch than at the smallest (pairs of runs).",
        lambda r: (gains_more(r), ">", 0.0),
        RUNS,
        timed=False,
    ),
    Claim(
        "Once every rate is tuned, warm-up gains SGD less than a point at the largest batch.",
        (gain("warm-up, for SGD", -1), "<", 1.0),
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
    """Best rates and accuracy at the largest batch.

    Predicted by linear scaling: a rate that grows with the batch, the accuracy of a small one.
    """
    found = []
    for optimizer in ("SGD", "LARS"):
        large = at_batch(r, optimizer, -1)["batch"]
        both = rate(r, optimizer, -1), scaled(r, optimizer)
        found.append(Row(f"best rate of {optimizer}, batch {large}", *both, "{:.3g}".format))
    for alike in (same_epochs, same_steps):
        small, large = (at_batch(r, "SGD", batch, alike) for batch in (0, -1))
        what = f"accuracy of SGD, batch {large['batch']}, {large['steps']} steps"
        promised = small["mean"] / 100 if small["batch"] < large["batch"] else None
        found.append(Row(what, large["mean"] / 100, promised, percent))
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
    "and after the same number of steps. More figures: the best rates, next to linear scaling.",
    yours=YOURS,
)
