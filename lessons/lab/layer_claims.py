"""Lesson 02's claims: which layers take the time, which hold the bytes, which are predicted."""

from kit.claims import GAIN, LIMIT, Claim

SHORT = ("norm", "pool")


def rows(result: dict, *kinds: str) -> list[dict]:
    """The layers of these kinds."""
    return [row for row in result["layers"]["rows"] if row["kind"] in kinds]


def total(result: dict, key, *kinds: str) -> float:
    """The sum of key(layer) over the layers of these kinds; over all layers without a kind."""
    chosen = rows(result, *kinds) if kinds else result["layers"]["rows"]
    return sum(key(row) for row in chosen)


def seconds(row: dict) -> float:
    return sum(row["seconds"])


def over_prediction(row: dict) -> float:
    """Measured over predicted seconds of a layer."""
    return seconds(row) / sum(row["predicted_s"])


def ready_share(result: dict) -> float:
    """The share of backward after which nine tenths of the gradients' bytes are ready."""
    layers, together = result["layers"], 0
    nbytes = [size for _, size in layers["tensors"]]
    for size, at_s in zip(nbytes, layers["ready_s"]):
        together += size
        if together >= 0.9 * sum(nbytes):
            return at_s / total(result, lambda row: row["seconds"][1])
    raise AssertionError("nine tenths of the bytes are never ready")


SMALL = "the size: in a small network the cost lies in the calls"
CLAIMS = (
    Claim(
        "The convolutions take more than two thirds of the time.",
        lambda r: (total(r, seconds, "conv"), ">", total(r, seconds), 2 / 3),
        SMALL,
    ),
    Claim(
        "The fully connected layers hold more than 90 % of the bytes.",
        lambda r: (
            total(r, lambda row: row["parameters"], "fc"),
            ">",
            total(r, lambda row: row["parameters"]),
            0.9,
        ),
        "the network",
    ),
    Claim(
        "Nine tenths of the bytes are ready before a third of backward: the rest can hide them.",
        lambda r: (ready_share(r), "<", 1 / 3),
        SMALL,
        kind=GAIN,
    ),
    Claim(
        "Every convolution takes at most 1.5 times its prediction.",
        lambda r: (max(map(over_prediction, rows(r, "conv"))), "<", 1.5),
        SMALL,
    ),
    Claim(
        "Every fully connected layer takes more than twice its prediction: for few images BLAS "
        "first copies the weights into another order, which the prediction leaves out.",
        lambda r: (min(map(over_prediction, rows(r, "fc"))), ">", 2.0),
        "the number of images and the BLAS",
        kind=LIMIT,
    ),
    Claim(
        "Normalisation and pooling together take more than twice their prediction: they pass over "
        "their data several times.",
        lambda r: (
            total(r, seconds, *SHORT),
            ">",
            total(r, lambda row: sum(row["predicted_s"]), *SHORT),
            2.0,
        ),
        "how many passes over memory a layer makes",
    ),
    Claim(
        "The same step on all ranks differs from one rank's by less than the bound on rounding.",
        lambda r: (
            r["ranks_against_one"]["largest_difference"],
            "<",
            r["ranks_against_one"]["largest_bound"],
        ),
        "nothing: beyond the bound it is a bug",
    ),
)
