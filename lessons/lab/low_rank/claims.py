"""What lesson 17 says of its numbers: bytes as p grows, and the accuracy that they buy."""

from kit.claims import GAIN, LIMIT, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at
from kit.words import number_of_bytes
from lab.low_rank.methods import CSC, DENSE, DROPPED, RANK_1, RANK_4, SIGNS, TOPK, VOTE
from lab.low_rank.yours import YOURS

LATER = "more epochs, another network, or rates chosen for each exchange"


def off_share(r: dict) -> float:
    """By what share counted bytes and formulas differ, at most."""
    sent = r["sent"]
    pairs = [
        (nbytes, sent["bytes"][name][sent["ranks"].index(p)])
        for name, counted in sent["counted"].items()
        for p, nbytes in zip(sent["sizes"], counted)
    ]
    return max(abs(counted / formula - 1) for counted, formula in pairs)


def growth(name: str):
    """Counted bytes with 8 ranks over those with 2."""

    def times(r: dict) -> float | None:
        at = dict(zip(r["sent"]["sizes"], r["sent"]["counted"][name]))
        return at[8] / at[2] if 8 in at else None

    return times


def at_ranks(name: str, p: int):
    """Bytes with p ranks, by formula."""
    return lambda r: r["sent"]["bytes"][name][r["sent"]["ranks"].index(p)]


def lost(name: str, key: str = "dense") -> tuple:
    """The paired difference in accuracy from dense, or from the same with its error fed back."""
    return "learning", "differences", key, name


CLAIMS = (
    Claim(
        "Counted bytes equal the formulas, to 1 %.",
        (off_share, "<", 0.01),
        unless="few gradients, where the scale that signs and votes need counts",
        timed=False,
    ),
    Claim(
        "From 2 to 8 ranks, what a rank sends grows less than twice if it is summed (PowerSGD).",
        (growth(RANK_1), "<", 2.0),
        unless="nothing: 2 (p-1)/p is below 2",
        timed=False,
    ),
    Claim(
        "From 2 to 8 ranks, gathered bytes (top-k) grow more than 6 times.",
        (growth(TOPK), ">", 6.0),
        unless="nodes that add up inside first, as HiTopKComm (lesson 12)",
        kind=LIMIT,
        timed=False,
    ),
    Claim(
        "On 128 ranks gathered signs send more than the dense ring.",
        (at_ranks(SIGNS, 128), ">", at_ranks(DENSE, 128)),
        unless="64 ranks or fewer",
        kind=LIMIT,
        timed=False,
    ),
    Claim(
        "PowerSGD of rank 1 sends at most 5 % of the dense ring's bytes, on any number of ranks.",
        (at_ranks(RANK_1, 256), "<", at_ranks(DENSE, 256), 0.05),
        unless="matrices with few rows or columns, or many vectors",
        kind=GAIN,
        timed=False,
    ),
    Claim(
        "PowerSGD of rank 4 loses at most 6 points of the dense accuracy.",
        (lost(RANK_4), ">", -6.0),
        unless=LATER,
        kind=GAIN,
        timed=False,
    ),
    Claim(
        "PowerSGD of rank 1 loses more than 10 points in so short a training.",
        (lost(RANK_1), "<", -10.0),
        unless=LATER,
        kind=LIMIT,
        timed=False,
    ),
    Claim(
        "With fewer bytes than CSC at 10 %, PowerSGD of rank 4 is more accurate.",
        (lost(RANK_4), ">", lost(CSC)),
        unless="a warm-up of CSC's density, or more epochs (lesson 12)",
        timed=False,
        control=(at_ranks(RANK_4, 8), "<", at_ranks(CSC, 8)),
    ),
    Claim(
        "Without its error PowerSGD of rank 1 ends with a lower accuracy.",
        (lost(RANK_1 + DROPPED, "fed"), "<", 0.0),
        unless=LATER,
        timed=False,
    ),
    Claim(
        "Top-k at 1 % with momentum after the sum is the reverse: here it ends higher without.",
        (lost(TOPK + DROPPED, "fed"), ">", 0.0),
        unless=f"{LATER}, or momentum before the choice (lesson 12)",
        kind=LIMIT,
        timed=False,
    ),
    Claim(
        "The majority vote, which feeds nothing back, beats signs with their error fed back.",
        (lost(VOTE), ">", lost(SIGNS)),
        unless=LATER,
        timed=False,
    ),
)


def rows(r: dict) -> list[Row]:
    """Counted bytes next to the formulas, on the most ranks that are counted; points lost."""
    sent = r["sent"]
    p = sent["sizes"][-1]
    place = sent["ranks"].index(p)
    found = []
    for name in (VOTE, SIGNS, RANK_1):
        counted, formula = sent["counted"][name][-1], sent["bytes"][name][place]
        found.append(Row(f"{name}, {p} ranks", counted, formula, number_of_bytes))
    for name in (RANK_1, RANK_1 + DROPPED):
        if difference := at(r, *lost(name)):
            found.append(Row(f"{name}: points lost", -difference["median_s"], None, points))
    return found


def points(x: float) -> str:
    return f"{x:.1f}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="From how many ranks on do gathered signs send more bytes than summed votes?",
    guess=Guess("20 ranks", timed=False),
    answer=lambda r: f"from {r['sent']['first_above']} ranks on",
    picture="Lines: bytes that a rank sends against the number of ranks, of what is summed and of "
    "what is gathered. Points: accuracy against bytes, with and without the error fed back.",
    yours=YOURS,
)
