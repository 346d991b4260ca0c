"""What lesson 12 says of its numbers."""

from kit.claims import GAIN, LIMIT, NOISE, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at, overlap, where
from kit.words import seconds
from lab.topk.yours import YOURS

SHOWN = ("dense ring", 100.0), ("CSC", 10.0), ("top-k", 10.0), ("HiTopKComm", 10.0), ("top-k", 1.0)


def choosing(name: str):
    """The timing of choosing 1 % of the longest vector."""

    def timing(r: dict) -> dict:
        rows = where(r["choice"], percent=1.0)
        return max(rows, key=lambda row: row["n"])["times"][name]

    return timing


def exchange(key: str, name: str, percent: float = 1.0) -> tuple:
    """Where a result has this value of the exchange of this name and density."""
    return "exchange", "rows", {"name": name, "percent": percent}, key


def messages(name: str, relation: str, other: str, percent: float = 1.0):
    """Compares the messages at 1 % with another exchange's. One rank sends none."""
    both = exchange("messages", name), relation, exchange("messages", other, percent)
    return lambda r: both if r["ranks"] > 1 else None


def in_nodes(key: str, percent: float, relation: str):
    """Compares HiTopKComm with top-k, if there are several nodes of several ranks."""
    both = exchange(key, "HiTopKComm", percent), relation, exchange(key, "top-k", percent)
    return lambda r: both if 1 not in (at(r, *NODES), at(r, *PER_NODE)) else None


def counted(r: dict) -> float | None:
    """By what part the bytes that left a node differ from the formula's; None for one node."""
    between, formula = (at(r, *exchange(key, "HiTopKComm")) for key in ("between", "formula"))
    return abs(between / formula - 1) if formula else None


NODES, PER_NODE = ("exchange", "nodes"), ("exchange", "ranks_per_node")
CLAIMS = (
    Claim(
        "MSTopK's threshold search takes less than twice as long as an exact selection of 1 %.",
        (choosing("MSTopK"), "<", choosing("exact selection"), 2.0),
        unless="the processor: the search reads more often, the selection moves more; on a GPU "
        "each round of the search waits for a count (docs/gpu.md)",
    ),
    Claim(
        "CSC's norms take less time than MSTopK's search: here top-k loses.",
        (choosing("CSC's norms"), "<", choosing("MSTopK")),
        unless="chunks of few elements",
    ),
    Claim(
        "At 1 %, the messages of top-k take less time than those of the dense ring.",
        messages("top-k", "<", "dense ring", 100.0),
        unless="100 ranks or more, or messages so short that latency decides",
    ),
    Claim(
        "At equal density (1 %), the messages of top-k take longer than CSC's: here top-k loses.",
        messages("top-k", ">", "CSC"),
        unless="messages so short that latency decides: CSC sends more of them",
        kind=LIMIT,
    ),
    Claim(
        "At 10 %, the messages of HiTopKComm take less time than those of top-k.",
        in_nodes("messages", 10.0, "<"),
        unless="links in a node that are no faster than those between nodes",
        kind=GAIN,
    ),
    Claim(
        "Inside a node, HiTopKComm sends more bytes than top-k at 1 %: here it loses.",
        in_nodes("inside", 1.0, ">"),
        unless="100 ranks or more",
        timed=False,
    ),
    Claim(
        "The bytes of HiTopKComm that leave a node, counted, equal the formula (1 %).",
        (counted, "<", 1e-9),
        unless="nothing: otherwise it is a bug",
        timed=False,
    ),
    Claim(
        "From 101 ranks on, but not on 100, top-k at 1 % sends more bytes than the dense ring.",
        (("traffic", "share_there"), ">", ("traffic", "share_before"), 1.005),
        unless="another density: the limit is 100 / d ranks",
        timed=False,
    ),
    Claim(
        "In so short a training, and without a warm-up of CSC's density, top-k of equal density "
        "ends with a higher accuracy than CSC.",
        (("learning", "differences", "top-k, same density"), ">", 0.0),
        unless="more epochs, or a warm-up of CSC's density",
        timed=False,
    ),
    Claim(
        "A warm-up of CSC's density buys accuracy with bytes: over 10 points above CSC without.",
        (("learning", "differences", "CSC, warm-up"), ">", 10.0),
        unless="more epochs",
        timed=False,
    ),
    Claim(
        "With as many bytes as CSC (a density p times smaller), top-k is as accurate or better.",
        (("learning", "differences", "top-k, same bytes"), ">", 0.0),
        unless="so few elements a rank that most gradients wait too long",
        timed=False,
    ),
)


def rows(r: dict) -> list[Row]:
    """The messages of each exchange, in the cluster's time."""
    k, found = r["regime"]["dilation"], []
    for name, percent in SHOWN:
        title = f"messages of {name}" + (f", {percent:g} %" if percent < 100 else "")
        row = at(r, *exchange("messages", name, percent)[:-1])
        found.append(Row(title, row["messages"]["median_s"] / k, row["predicted_s"] / k))
    return found


def answer(r: dict) -> str:
    """The fastest of the first four, and top-k next to the dense ring."""
    if r["ranks"] == 1:
        return "one rank sends no messages"
    times_s = {name: at(r, *exchange("messages", name, percent)) for name, percent in SHOWN[:4]}
    times_s = {name: t["median_s"] / r["regime"]["dilation"] for name, t in times_s.items()}
    best = min(times_s, key=times_s.get)
    share = times_s["top-k"] / times_s["dense ring"]
    topk, ring = (at(r, *exchange("messages", *SHOWN[i])) for i in (2, 0))
    text = f"{best}, {seconds(times_s[best])}; top-k takes {share:.3g} times the dense ring's"
    return f"{text}, {NOISE}" if overlap(topk, ring) else text


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="Whose messages take the least time at 10 %: dense ring, CSC, top-k or HiTopKComm?",
    guess=Guess("top-k", ("dense ring", "CSC", "top-k", "HiTopKComm")),
    answer=answer,
    picture="Bars: time of the messages of dense ring, CSC, top-k and HiTopKComm. Lines: bytes out "
    "of a node against ranks. The other figures show the time to choose and the accuracy.",
    yours=YOURS,
)
