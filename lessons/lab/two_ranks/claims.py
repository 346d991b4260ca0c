"""What lesson 00 says of its numbers."""

from kit.claims import GAIN, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at
from kit.words import number_of_bytes, seconds
from lab.two_ranks.yours import YOURS

EIGHT = "worth", {"ranks": 8}
TWO_SENDS = 2**11, 2**23  # bytes, both measured: 4 KiB ends under MPICH and hangs under Open MPI


def half_the_delay(r: dict) -> float:
    """Half of what the receiver comes later."""
    return r["late_s"] / 2


CLAIMS = (
    Claim(
        "Ranks that step with the mean of their gradients end with the weights of one rank with "
        "all samples: the difference is below the bound of rounding.",
        (("one_rank",), "<", ("rounding",)),
        unless="a step that is not that of the mean",
        timed=False,
    ),
    Claim(
        "With the mean, all ranks hold the same weights to the bit.",
        (("between",), "<", 1e-300),
        unless="ranks that add in different orders",
        timed=False,
    ),
    Claim(
        "Messages are worth something: 8 ranks that step with the mean end at least twice as close "
        "to the true weights as 8 ranks that each step with their own gradient.",
        ((*EIGHT, "mean"), "<", (*EIGHT, "own"), 0.5),
        unless="samples with hardly any noise, so that one rank's are enough",
        kind=GAIN,
        timed=False,
    ),
    Claim(
        "They end within 20 % of 1/sqrt(8) of one rank's distance.",
        (lambda r: abs(at(r, *EIGHT, "mean") / at(r, *EIGHT, "predicted") - 1), "<", 0.2),
        unless="ranks whose samples resemble each other",
        timed=False,
    ),
    Claim(
        "Ranks that step with their own gradients differ by more than a thousandth.",
        lambda r: (r["without"], ">", 1e-3) if r["sends"] else None,
        unless="ranks that have the same samples",
        timed=False,
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
    """Distances of weights, and the time of a long Send; on one rank only the former."""
    small = "{:.2g}".format
    eight = at(r, *EIGHT)
    found = [
        Row("8 ranks, own gradients: from the true weights", eight["own"], unit=small),
        Row("8 ranks, mean: from the true weights", eight["mean"], eight["predicted"], small),
        Row("p ranks, mean: from one rank with all samples", r["one_rank"], unit=small),
        Row("p ranks, mean: from each other", r["between"], 0.0, small),
    ]
    for place, predicted_s in ((-1, r["late_s"]),) if r["sends"] else ():
        nbytes = number_of_bytes(r["sends"][place]["bytes"])
        name = f"Send of {nbytes}, Recv comes {seconds(r['late_s'])} later"
        found.append(Row(name, r["sends"][place]["timing"], predicted_s))
    return found


def answer(r: dict) -> str:
    eight = at(r, *EIGHT)
    return f"{eight['own'] / eight['mean']:.2g} times; sqrt(8) is 2.8{both_send_first(r)}"


def both_send_first(r: dict) -> str:
    """Does the program with two Sends end? Only if Send returns before the receiver calls Recv."""
    waits = [at(r["sends"], {"bytes": nbytes}, "waits") for nbytes in TWO_SENDS]
    if None in waits:
        return ""
    each = [
        f"{nbytes // 8:,} numbers {'hang' if wait else 'end'}"
        for nbytes, wait in zip(TWO_SENDS, waits)
    ]
    return f"; two Sends: {', '.join(each)}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="How many times closer to the true weights do 8 ranks get by the mean of their gradients?",
    guess=Guess("8 times", timed=False),
    answer=answer,
    picture="How far training ends from the true weights against the number of ranks, with the "
    "mean of their gradients and with each rank's own; the time that Send takes against the size "
    "of the message, while the receiver comes late.",
    yours=YOURS,
)
