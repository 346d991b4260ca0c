"""What lesson 06 says of its numbers."""

from kit.claims import GAIN, LIMIT, NOISE, Claim, interval
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at
from kit.rows import ratio as ratio_of
from kit.trials import mean_and_half
from kit.words import percent
from lab.csc.study import LARGE_RATE, SMALL_RATE
from lab.csc.yours import YOURS


STEPS = "times", "rows"
DENSE, SPARSE = (*STEPS, {"density": None}), (*STEPS, {"density": 10})
SMALL = "small", "rows"  # dense, and with as many chunks as AlexNet has
WHY = "study", "why"  # paired differences with their intervals


def remains(what: str):
    """What remains of a dense exchange at 10 %: "exchange", or "own", which is without a network.

    None where an exchange is within the noise of a step without one.
    """

    def found(r: dict) -> dict | None:
        sparse, dense = (at(r, *steps, what) for steps in (SPARSE, DENSE))
        return ratio_of(sparse, to=dense) if sparse and dense["low_s"] > 0 else None

    return found


def largest_error(r: dict) -> float | None:
    """1.03 where a predicted step is off by at most 3 %."""
    return 1 + max(row["error"] for row in r["times"]["rows"]) if "times" in r else None


def better_control(r: dict) -> dict | None:
    """Of the choices that ignore importance, the one whose training loss is lower."""
    kinds = [at(r, "study", "choice", name, "loss") for name in ("at random", "in turn")]
    return None if None in kinds else min(kinds, key=lambda kind: kind["median_s"])


def sent_again(lists: list[list[int]]) -> float | None:
    """The share of the chunks sent that the step before has sent, too; None without two steps."""
    sparse = [set(numbers) for numbers in lists if numbers]
    pairs = list(zip(sparse, sparse[1:]))
    count = sum(len(now) for _, now in pairs)
    return sum(len(before & now) for before, now in pairs) / count if count else None


def sent_so_far(lists: list[list[int]], chunks: int) -> list[float]:
    """The share of all chunks that the first 1, 2, ... sparse steps have sent."""
    seen: set[int] = set()
    found = []
    for numbers in lists:
        if numbers:
            seen |= set(numbers)
            found.append(len(seen) / chunks)
    return found


def not_sent(r: dict, steps: int = 30) -> tuple[float, int] | None:
    """The share of the chunks that so many sparse steps, or all, have not sent; how many these are.

    None without sparse steps.
    """
    found = sent_so_far(r["chosen"]["lists"], len(r["chosen"]["norms"]))[:steps]
    return (1 - found[-1], len(found)) if found else None


def history_minus_none(r: dict) -> dict | None:
    """Points of accuracy in paired runs; None without two of them."""
    kinds = [at(r, "study", "forms", form, "runs") for form in ("history", "none")]
    if None in kinds or len(kinds[0]) < 2:
        return None
    pairs = zip(*kinds, strict=True)
    return interval(*mean_and_half([late["accuracy"] - none["accuracy"] for late, none in pairs]))


def again(name: str):
    """What `sent_again` finds in these lists: "lists", or "after"."""
    return lambda r: at(r, "chosen", name) and sent_again(r["chosen"][name])


CLAIMS = (
    Claim(
        "At a density of 10 % the exchange takes at most a third of the dense one.",
        ((*SPARSE, "exchange"), "<", (*DENSE, "exchange"), 1 / 3),
        unless="the norms of all gradients, which are computed at any density",
        kind=GAIN,
    ),
    Claim(
        "Each step is predicted within 20 %.",
        (largest_error, "<", 1.0, 1.2),
        unless="other work on the cores while the lesson runs",
    ),
    Claim(
        "Without a network, as in shared memory, CSC gains less: at 10 % a larger share of a dense "
        "exchange's time remains than with the network.",
        (remains("own"), ">", remains("exchange")),
        unless="a processor to which casts and sums of all gradients cost more than their norms",
        expected=NOISE,
        kind=LIMIT,
    ),
    Claim(
        "In a small network the exchange with CSC takes longer than the dense one, in AlexNet not.",
        ((*SMALL, 1, "timing"), ">", (*SMALL, 0, "timing")),
        unless="a link so slow that its bytes cost more than one more call and the choice",
        kind=LIMIT,
        control=((*SPARSE, "exchange"), "<", (*DENSE, "exchange")),
    ),
    Claim(
        "About half of the chunks sent were sent in the step before: importance is taken before "
        "they are cleared, so each important chunk is chosen twice.",
        (again("lists"), ">", 1.0, 0.4),
        unless="gradients so uneven that the same chunks are chosen in every step",
        timed=False,
        control=(again("after"), "<", again("lists"), 0.5),
    ),
    Claim(
        "Ranked by what stays after sending, less than a tenth of them is sent again.",
        (again("after"), "<", 1.0, 0.1),
        unless="gradients so uneven that the same chunks are chosen in every step",
        timed=False,
    ),
    Claim(
        "In the form `none` a gradient that waits is late, not lost: in all it moves the weight as "
        "far as in dense training.",
        (("forms", {"form": "none"}, "in_all"), ">", ("forms", {"form": "dense"}, "in_all"), 0.999),
        unless="a training that ends earlier",
        timed=False,
        control=(
            ("forms", {"form": "none"}, "in_all"),
            "<",
            ("forms", {"form": "dense"}, "in_all"),
            1.001,
        ),
    ),
    Claim(
        "What a form makes of one gradient does not say what it learns: `history` passes on less "
        "than half as much as `none`, and ends within 1.5 points of it.",
        (history_minus_none, ">", -1.5),
        unless="a longer training, or a larger learning rate",
        timed=False,
        control=(
            ("forms", {"form": "history"}, "in_all"),
            "<",
            ("forms", {"form": "none"}, "in_all"),
            0.5,
        ),
    ),
    Claim(
        "Chunks chosen by importance learn faster than as many chosen at random or in turn.",
        (better_control, ">", 0.0),
        unless="gradients of equal size in all chunks, or a training long enough for any choice",
        kind=GAIN,
        timed=False,
    ),
    Claim(
        "In so short a training CSC costs accuracy (form `none`), though the first epochs "
        "send more than 10 %.",
        (("study", "forms", "none", "accuracy"), "<", 0.0),
        unless="a longer training, or a larger learning rate",
        kind=LIMIT,
        timed=False,
    ),
    Claim(
        "The larger the learning rate, the better none learns compared with dgc.",
        ((*WHY, SMALL_RATE, "loss"), ">", (*WHY, LARGE_RATE, "loss")),
        unless="rates so small that dgc is stable at all of them",
        timed=False,
    ),
)


def in_steps(r: dict) -> list[Row]:
    """Exchanges of AlexNet, dense and sparse: steps minus the step without exchange."""
    found, no_exchange_s, k = [], r["times"]["alone"]["median_s"], r["regime"]["dilation"]
    for row in r["times"]["rows"]:
        if row["density"] in (None, r["options"]["density"]):
            name = "dense" if row["density"] is None else f"{row['density']:g} %"
            times_s = row["exchange"]["median_s"], row["predicted_s"] - no_exchange_s
            found.append(Row(title(r["times"], name), *(t / k for t in times_s)))
    return found


def without_steps(r: dict, network: dict) -> list[Row]:
    """Exchanges of a network without computing: dense, then sparse."""
    k, found = r["regime"]["dilation"], network["rows"][:2]
    return [
        Row(title(network, row["name"]), row["timing"]["median_s"] / k, row["predicted_s"] / k)
        for row in found
    ]


def title(network: dict, name: str) -> str:
    return f"exchange of {network['elements']:,} gradients, {name}"


def rows(r: dict) -> list[Row]:
    """Dense and sparse exchanges of a large and of a small network; chunks that still wait."""
    if "times" in r:
        found = in_steps(r) + without_steps(r, r["small"])
    else:
        found = without_steps(r, r["here"]["large"]) + without_steps(r, r["here"]["small"])
    if waiting := not_sent(r):
        share, steps = waiting
        found.append(Row(f"chunks not sent after {steps} sparse steps", share, None, percent))
    return found


def answer(r: dict) -> str:
    """Dense over sparse exchange of the large network."""
    dense, sparse = (row.measured for row in rows(r)[:2])
    share = f"at {r['options']['density']:g} %"
    if r["ranks"] == 1:
        return "one rank exchanges nothing"
    if min(dense, sparse) <= 0:
        return f"too short to compare {share}"
    return f"{dense / sparse:.3g} times, {share}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="How many times as fast as dense is the exchange at a density of 10 %?",
    guess=Guess("10 times"),
    answer=answer,
    picture="Which chunks each step sends; the share of chunks sent at least once against steps, "
    "by importance, by what stays after sending, and in turn. Further figures: bars of a step of "
    "AlexNet and of a small exchange, and paired differences of training loss and accuracy.",
    yours=YOURS,
)
