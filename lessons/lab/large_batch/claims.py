"""What lesson 11 says of its numbers: what a large batch costs, what LARS and warm-up gain."""

from kit.claims import GAIN, LIMIT, NOISE, Claim, interval
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at, where
from kit.words import percent
from lab.large_batch.yours import YOURS


def gain(name: str, batch: int):
    """The paired difference in accuracy, in points, at the smallest (0) or largest (-1) batch."""

    def points(result: dict) -> dict | None:
        found = where(result["trained"]["gains"], name=name)
        row = at(sorted(found, key=lambda row: row["batch"]), batch)
        return row and interval(row["mean"], row["half"])

    return points


def at_batch(result: dict, optimizer: str, batch: int, warm: bool = False) -> dict:
    """The row of a method at the smallest (0) or largest (-1) batch."""
    found = where(result["trained"]["rows"], optimizer=optimizer, warm=warm)
    return sorted(found, key=lambda row: row["batch"])[batch]


def sgd(batch: int):
    """SGD's accuracy there, with its interval."""
    return lambda r: interval(*(at_batch(r, "SGD", batch)[key] for key in ("mean", "half")))


NORMS = "norms", -1
RUNS = "the number of runs, the epochs and the rates that were tried"
CLAIMS = (
    Claim(
        "In the same number of epochs the largest batch learns less than the smallest (SGD).",
        (sgd(-1), "<", sgd(0)),
        RUNS,
        kind=LIMIT,
        timed=False,
    ),
    Claim(
        "At the smallest batch LARS is more accurate than SGD, each at its best rate.",
        (gain("LARS, without warm-up", 0), ">", 0.0),
        RUNS,
        timed=False,
    ),
    Claim(
        "Without warm-up LARS is more accurate than SGD at the largest batch, each at its best "
        "rate.",
        (gain("LARS, without warm-up", -1), ">", 0.0),
        RUNS,
        kind=GAIN,
        timed=False,
    ),
    Claim(
        "Once every rate is tuned, warm-up gains accuracy for SGD at the smallest batch.",
        (gain("warm-up, for SGD", 0), ">", 0.0),
        RUNS,
        expected=NOISE,
        timed=False,
    ),
    Claim(
        "In so few steps warm-up costs SGD accuracy at the largest batch.",
        (gain("warm-up, for SGD", -1), "<", 0.0),
        RUNS,
        expected=NOISE,
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
    for optimizer, warm in (("SGD", False), ("SGD", True), ("LARS", False)):
        small, large = (at_batch(r, optimizer, batch, warm) for batch in (0, -1))
        name = f"{optimizer}{' with warm-up' if warm else ''}, batch {large['batch']}"
        promised = small["mean"] / 100 if small["batch"] < large["batch"] else None
        found.append(Row(f"accuracy of {name}", large["mean"] / 100, promised, percent))
    norms = r["norms"][-1]
    for by, predicted_s in norms["predicted_s"].items():
        found.append(Row(f"LARS step, norms by {by}", norms["times"][by], predicted_s))
    return found


def answer(r: dict) -> str:
    sgd, lars = (at_batch(r, optimizer, -1) for optimizer in ("SGD", "LARS"))
    after = f"after {sgd['steps']} steps of batch {sgd['batch']}"
    return f"{sgd['mean']:.1f} % {after}; LARS {lars['mean']:.1f} %"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="What accuracy, in percent, does SGD reach with the largest batch?",
    guess=Guess("70 %"),
    answer=answer,
    picture="Held-out accuracy of SGD and LARS against the batch; what LARS and warm-up gain.",
    yours=YOURS,
)
