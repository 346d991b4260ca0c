"""What lesson 00 says of its numbers."""

from kit.claims import Claim
from kit.reveal import Reveal, Row
from kit.words import number_of_bytes, seconds


def half_the_delay(r: dict) -> float:
    """Half of what the receiver comes later."""
    return r["late_s"] / 2


CLAIMS = (
    Claim(
        "Ranks that step with the mean of their gradients end with the weights of one rank with "
        "all samples: the difference is below the bound of rounding.",
        (("one_rank",), "<", ("rounding",)),
        unless="a step that is not that of the mean",
    ),
    Claim(
        "With the mean, all ranks hold the same weights to the bit.",
        (("between",), "<", 1e-300),
        unless="ranks that add in different orders",
    ),
    Claim(
        "Ranks that step with their own gradients differ by more than a thousandth.",
        lambda r: (r["without"], ">", 1e-3) if r["sends"] else None,
        unless="ranks that have the same samples",
    ),
    Claim(
        "Send returns before the receiver calls Recv if the message is short (8 bytes).",
        (("sends", 0, "timing"), "<", half_the_delay),
        unless="an MPI that copies nothing, or threads instead of MPI",
    ),
    Claim(
        "Send waits for the receiver's Recv if the message is long (8 MiB).",
        (("sends", -1, "timing"), ">", half_the_delay),
        unless="an MPI with very large buffers",
    ),
)


def rows(r: dict) -> list[Row]:
    """Differences of weights, and Send's times; on one rank only the former."""
    small = "{:.1e}".format
    found = [
        Row("weights: p ranks with the mean, from one rank", r["one_rank"], unit=small),
        Row("weights: between ranks with the mean", r["between"], 0.0, small),
        Row("weights: between ranks without messages", r["without"], unit=small),
    ]
    for place, predicted_s in ((0, None), (-1, r["late_s"])) if r["sends"] else ():
        nbytes = number_of_bytes(r["sends"][place]["bytes"])
        name = f"Send of {nbytes}, Recv comes {seconds(r['late_s'])} later"
        found.append(Row(name, r["sends"][place]["timing"], predicted_s))
    return found


def answer(r: dict) -> str:
    if not r["sends"]:
        return "nothing, because there is one rank"
    ends = [row["bytes"] for row in r["sends"] if not row["waits"]]
    waits = [row["bytes"] for row in r["sends"] if row["waits"]]
    if not ends or not waits:
        return "at every size tried" if ends else "at no size"
    return f"up to {number_of_bytes(max(ends))}, no longer at {number_of_bytes(min(waits))}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="Up to how many bytes may two ranks both call Send first?",
    answer=answer,
    picture="How far the weights of the ranks are apart, with the mean of gradients and without "
    "messages; the time that Send takes against the size of the message, while the receiver comes "
    "late.",
)
