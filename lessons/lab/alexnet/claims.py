"""What lesson 02 says of its numbers: which layers take the time, which hold the bytes."""

from kit.claims import GAIN, LIMIT, Claim
from kit.guess import Guess
from kit.layers import backward_s
from kit.reveal import Reveal, Row
from kit.words import percent
from lab.alexnet.yours import YOURS

SHORT = ("norm", "pool")
MOST = 0.9  # of the gradients' bytes


def layers_of(result: dict, *kinds: str) -> list[dict]:
    """The layers of these kinds; all layers without a kind."""
    return [row for row in result["layers"]["rows"] if not kinds or row["kind"] in kinds]


def total(result: dict, key, *kinds: str) -> float:
    """The sum of key(layer) over the layers of these kinds; over all layers without a kind."""
    return sum(key(row) for row in layers_of(result, *kinds))


def seconds(row: dict) -> float:
    return sum(row["seconds"])


def predicted_s(row: dict) -> float:
    return sum(row["predicted_s"])


def parameters(row: dict) -> int:
    return row["parameters"]


def flops(row: dict) -> float:
    return row["flops"]


def over_prediction(row: dict) -> float:
    """Measured over predicted seconds of a layer."""
    return seconds(row) / predicted_s(row)


def of_convs(result: dict) -> float:
    """The largest of them, of the convolutions."""
    return max(map(over_prediction, layers_of(result, "conv")))


def ready_share(result: dict, predicted: bool = False) -> float:
    """The share of backward after which MOST of the gradients' bytes are ready."""
    layers, together = result["layers"], 0
    ready_s = layers["predicted_ready_s" if predicted else "ready_s"]
    whole_s = ready_s[-1] if predicted else backward_s(layers)
    nbytes = [size for _, size in layers["tensors"]]
    for size, at_s in zip(nbytes, ready_s):
        together += size
        if together >= MOST * sum(nbytes):
            return at_s / whole_s
    raise AssertionError(f"{MOST:.0%} of the bytes are never ready")


SMALL = "the size: in a small network the cost lies in the calls"
CLAIMS = (
    Claim(
        "The convolutions take more than two thirds of the time.",
        lambda r: (total(r, seconds, "conv"), ">", total(r, seconds), 2 / 3),
        SMALL,
    ),
    Claim(
        "The fully connected layers hold more than 90 % of the bytes.",
        lambda r: (total(r, parameters, "fc"), ">", total(r, parameters), 0.9),
        "the network",
        timed=False,
    ),
    Claim(
        "Nine tenths of the bytes are ready in less than 0.33 times the time of backward: the rest "
        "can hide them.",
        lambda r: (ready_share(r), "<", 1, 0.33),
        SMALL,
        kind=GAIN,
    ),
    Claim(
        "Every convolution takes at most twice its prediction.",
        lambda r: (of_convs(r), "<", 1, 2.0),
        "other work on the core, and " + SMALL,
    ),
    Claim(
        "Every fully connected layer takes more than twice its prediction, and is 1.5 times as far "
        "off as any convolution.",
        lambda r: (min(map(over_prediction, layers_of(r, "fc"))), ">", 1, 2.0),
        "the number of images and the BLAS",
        kind=LIMIT,
        control=lambda r: (min(map(over_prediction, layers_of(r, "fc"))), ">", of_convs(r), 1.5),
    ),
    Claim(
        "Normalisation and pooling together take more than twice their prediction, and are 1.5 "
        "times as far off as any convolution.",
        lambda r: (total(r, seconds, *SHORT), ">", total(r, predicted_s, *SHORT), 2.0),
        "how many passes over memory a layer makes",
        control=lambda r: (
            total(r, seconds, *SHORT) / total(r, predicted_s, *SHORT),
            ">",
            of_convs(r),
            1.5,
        ),
    ),
    Claim(
        "The same step on all ranks differs from one rank's by less than the bound on rounding.",
        (("ranks_against_one", "largest_difference"), "<", ("ranks_against_one", "largest_bound")),
        "nothing: beyond the bound it is a bug",
        timed=False,
    ),
)


def rows(r: dict) -> list[Row]:
    """Time of both kinds of layers, then what the lesson asks for."""
    titles = {"conv": "time of the convolutions", "fc": "time of the fully connected layers"}
    found = [
        Row(title, total(r, seconds, kind), total(r, predicted_s, kind))
        for kind, title in titles.items()
    ]
    for key, name in ((parameters, "parameters"), (flops, "flops")):
        share = total(r, key, "conv") / total(r, key)
        found.append(Row(f"convolutions' share of the {name}", share, unit=percent))
    late = ready_share(r), ready_share(r, predicted=True)
    return [
        *found,
        Row(f"share of backward until {percent(MOST)} of the bytes are ready", *late, percent),
    ]


def answer(r: dict) -> str:
    return f"after {percent(ready_share(r))} of backward"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="After what share of backward are nine tenths of the gradients' bytes ready?",
    guess=Guess("50 %"),
    answer=answer,
    picture="Each layer's share of the step's time, measured and predicted, next to its share of "
    "the gradients' bytes; the bytes that are ready against the time since backward began.",
    yours=YOURS,
)
