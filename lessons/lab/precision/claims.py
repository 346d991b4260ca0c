"""What lesson 05 says of its numbers."""

from kit.claims import GAIN, LIMIT, NOISE, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at
from kit.words import percent
from lab.precision import blocks, loss_scales
from lab.precision.rounding import DIRECT, RING
from lab.precision.times import SHORT
from lab.precision.yours import YOURS

PAIRS = 10  # that an interval of accuracies needs
HALF, FULL = (("times", "steps", wire) for wire in ("float16", "float32"))
CALL = "times", "calls", str(SHORT)
ZERO = "scales", "rows"  # the share of the gradients that become zero with each loss scale
LOST = "learning", "lost", loss_scales.LOW


def growth(result: dict):
    """The growth of the ring's error, from the fewest ranks to the most, against direct's."""
    ranks = result["rounding"]["ranks"]
    few, many = (result["rounding"]["errors"][str(p)] for p in (ranks[0], ranks[-1]))
    predicted = ((ranks[-1] + 1) / (ranks[0] + 1)) ** 0.5
    return many[RING] / few[RING], ">", many[DIRECT] / few[DIRECT], 0.8 * predicted


def eight_bits(result: dict) -> tuple | None:
    """The 8-bit ring's error on the most ranks, against direct's and its root."""
    if not (found := result.get("blocks")):
        return None
    p = found["ranks"][-1]
    errors, grown = found["errors"][str(p)], blocks.GROWTH
    ring, direct = (errors[name] for name in (blocks.RING, blocks.DIRECT))
    return ring, ">", direct, 0.8 * grown[blocks.RING](p) / grown[blocks.DIRECT](p)


def of_largest_batch(name: str):
    """The noise of the largest batch, or a rounding error of its gradient."""
    return lambda result: largest_batch(result)[1][name]


def accuracy(name: str):
    """The interval of the final accuracy minus float32's, if there were enough pairs."""

    def points(result: dict) -> dict | None:
        enough = (at(result, "learning", "pairs") or 0) >= PAIRS
        return at(result, "learning", "differences", name) if enough else None

    return points


CLAIMS = (
    Claim(
        "The exchange of a step takes at most 0.65 times as long in float16.",
        ((*HALF, "exchange"), "<", (*FULL, "exchange"), 0.65),
        "casts that take longer than the bytes saved, or latency",
        kind=GAIN,
    ),
    Claim(
        f"In a call of {SHORT} gradients float16 saves less than a tenth.",
        ((*CALL, "float16"), ">", (*CALL, "float32"), 0.9),
        "a link on which even such a message takes longer than its latency",
        kind=LIMIT,
        expected=NOISE,
    ),
    Claim(
        "Without a network float16 loses: casts take longer than the copied bytes that they save.",
        ((*HALF, "own"), ">", (*FULL, "own")),
        "a processor that casts faster than it copies",
    ),
    Claim(
        "Next to direct's rounding error, the ring's grows with the root of p.",
        growth,
        "gradients that are not random numbers",
        timed=False,
    ),
    Claim(
        "So does the ring's next to direct's with 8 bits a number, for the same bytes.",
        eight_bits,
        "gradients that are not random numbers",
        timed=False,
    ),
    Claim(
        "One scale for all gradients makes more 8-bit numbers zero than one for each 32.",
        (("blocks", "zero", "0"), ">", ("blocks", "zero", str(blocks.BLOCK))),
        "gradients of equal size",
        timed=False,
    ),
    Claim(
        "The noise of the largest batch is over 100 times the ring's rounding error of its sum.",
        (of_largest_batch("noise"), ">", of_largest_batch(RING), 100),
        "more images in the batch, or more ranks in the ring",
        timed=False,
    ),
    Claim(
        "A loss scale of 2^12 loses less than a tenth of the gradients that no scale loses.",
        ((*ZERO, str(loss_scales.GOOD), "zero"), "<", (*ZERO, "1.0", "zero"), 0.1),
        "gradients all of which float16 can hold",
        timed=False,
    ),
    Claim(
        "float16 with a dynamic scale ends less than 1.5 points of accuracy below float32.",
        (accuracy(loss_scales.DYNAMIC), ">", -1.5),
        "more skipped steps, or fewer epochs",
        timed=False,
    ),
    Claim(
        "float16 with a scale of 2^-16 ends less than 1.5 points below float32, too.",
        (accuracy(loss_scales.LOW), ">", -1.5),
        "a scale so low that the lost gradients carry most of the norm",
        timed=False,
    ),
    Claim(
        "Without a loss scale gradients can be too small to train with: where they are 2^24 times "
        "as small, float16 ends at least 20 points below float32. A scale of 2^24 gives the same "
        "bits as here.",
        (accuracy(loss_scales.NONE), "<", -20.0),
        "gradients that are still large enough for float16",
        timed=False,
    ),
    Claim(
        "In training with a scale of 2^-16, the lost gradients' share of the norm is less than "
        "half their share of the count.",
        ((*LOST, "norm"), "<", (*LOST, "zero"), 0.5),
        "gradients of equal size, or a scale that loses nearly all",
        timed=False,
    ),
)


def largest_batch(r: dict) -> tuple[int, dict]:
    """(images, the row) of the largest batch whose noise was measured."""
    k, row = list(r["noise"]["rows"].items())[-1]
    return int(k) * r["noise"]["batch"], row


def rows(r: dict) -> list[Row]:
    """Both steps in the cluster's time; rounding errors of most ranks; noise of a batch."""
    dilation, found = r["regime"]["dilation"], []
    for name, row in r["times"]["steps"].items():
        predicted_s = row["predicted_s"] and row["predicted_s"] / dilation
        found.append(
            Row(f"step, {name} on the wire", row["step"]["median_s"] / dilation, predicted_s)
        )
    ranks = r["rounding"]["ranks"][-1]
    errors = (r["rounding"][key][str(ranks)][RING] for key in ("errors", "predicted"))
    found.append(Row(f"rounding error, {RING}, {ranks} ranks (replayed)", *errors, unit=percent))
    images, row = largest_batch(r)
    if computed := r["times"].get("computed"):  # on a GPU
        found.append(Row("step computed in float16, nothing sent", computed["float16"]))
    else:
        found.append(Row(f"rounding error, {RING}, real gradients", row[RING], unit=percent))
    what = f"noise of a batch of {images} images, real gradients"
    return [*found, Row(what, row["noise"], row["extrapolated"], unit=percent)]


def answer(r: dict) -> str:
    images, row = largest_batch(r)
    factor = row["noise"]["median_s"] / row[RING]["median_s"]
    if factor < 1:
        return f"the ring's error, {1 / factor:,.1f} times the noise of {images} images"
    return f"the noise of {images} images, {factor:,.0f} times the ring's error"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="Gradients of the largest batch: which is larger, by what factor, noise or the float16 "
    "ring's error?",
    guess=Guess("the noise, 2 times", ("noise", "ring"), timed=False),
    answer=answer,
    picture="Bars of a step with float32 and float16 on the wire, and the ratio of the two for "
    "calls of each length; rounding errors against ranks, next to the noise of a mini-batch; "
    "for each loss scale the share of the gradients, and of their norm, that is lost; differences "
    "in accuracy with intervals.",
    yours=YOURS,
)
