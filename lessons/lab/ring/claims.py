"""What lesson 01 says of its numbers: latency, then bandwidth; a node that shares memory."""

from kit.claims import GAIN, LIMIT, NOISE, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at, factor_apart
from kit.rows import ratio as ratio_of
from kit.words import number_of_bytes, seconds, times
from lab.ring.yours import NAIVE, OWN, RING, SHARED, TREE, YOURS


def curve(result: dict) -> dict:
    """The curve of the last place that was measured."""
    return list(result["curves"].values())[-1]


def point(result: dict, index: int) -> dict:
    """The shortest (0) or the longest (-1) vector."""
    return curve(result)["points"][index]


def bytes_per_latency(result: dict):
    """A vector 16 times as long takes less than four times as long, where latency decides."""
    points = curve(result)["points"]
    first = points[0]
    later = [p for p in points if first["bytes"] < p["bytes"] <= 16 * first["bytes"]]
    if not later:
        return None
    return later[-1]["measured"][RING], "<", first["measured"][RING], 4.0


def bytes_at_the_end(result: dict):
    """The control: 16 times the bytes of a long vector take more than four times as long."""
    points = curve(result)["points"]
    last = points[-1]
    before = [p for p in points if last["bytes"] >= 16 * p["bytes"]]
    return (last["measured"][RING], ">", before[-1]["measured"][RING], 4.0) if before else None


def fewer_steps(other: str):
    """The control: what this gains over the ring at the shortest vector, and at the longest."""

    def compare(result: dict):
        both = (point(result, i)["measured"] for i in (0, -1))
        short, long = (ratio_of(timings[RING], to=timings[other]) for timings in both)
        return short, ">", long, 2.0

    return compare


def measured(name: str, index: int):
    """The timing of this call for the shortest (0) or the longest (-1) vector."""
    return lambda result: at(point(result, index), "measured", name)


def against(other: str, index: int, relation: str, factor: float = 1.0):
    """The ring against this sum, which sends something."""
    compared = measured(RING, index), relation, measured(other, index), factor
    return lambda result: compared if curve(result)["ranks"] > 1 else None


def shared_memory(result: dict):
    """Ranks of one node without messages against the ring, for the shortest vector."""
    shortest = [each["points"][0]["measured"] for each in result["curves"].values()]
    found = [timings for timings in shortest if SHARED in timings]
    return (found[-1][SHARED], "<", found[-1][RING]) if found else None


def busy_beta(result: dict):
    """Time of a byte between all neighbours at once against that between two ranks, over links."""
    for place, links in result["curves"].items():
        if not place.startswith("shared memory") and links["ranks"] > 1:
            return links["busy"]["beta_s_per_byte"], "<", links["pair"]["beta_s_per_byte"], 1.5
    return None


def naive(result: dict):
    """The sum through rank 0 against the ring, for the longest vector that both sum."""
    points = [p["measured"] for p in curve(result)["points"] if NAIVE in p["measured"]]
    return (points[-1][NAIVE], ">", points[-1][RING], 2.0) if points else None


def missed(result: dict):
    """The larger of prediction and measurement over the smaller, at most, over links."""
    *_, (place, links) = result["curves"].items()
    if place.startswith("shared memory") or links["ranks"] == 1:
        return None
    return factor_apart(
        (p["predicted_s"], p["measured"][RING]["median_s"]) for p in links["points"]
    )


CLAIMS = (
    Claim(
        "For short vectors latency decides: 16 times the bytes take less than four times as long, "
        "for the longest ones more.",
        bytes_per_latency,
        "the latency next to the bytes",
        control=bytes_at_the_end,
    ),
    Claim(
        "MPI's own Allreduce is faster for the shortest vector. For the longest one its lead is "
        "less than half of that, or it loses.",
        against(OWN, 0, ">"),
        "which algorithm MPI chooses",
        kind=LIMIT,
        expected=NOISE,
        control=fewer_steps(OWN),
    ),
    Claim(
        "Where the link's latency is waited for, a tree of 2 log2 p steps sums the shortest vector "
        "faster: there it gains more than twice what it gains for the longest one.",
        against(TREE, 0, ">"),
        "the number of ranks: a ring of two has as few steps",
        here=True,
        control=fewer_steps(TREE),
    ),
    Claim(
        "For the longest vector the ring is faster than the tree, whose ranks send whole vectors.",
        against(TREE, -1, "<"),
        "the number of ranks: a ring of two sends as much",
        here=True,
    ),
    Claim(
        "A sum through rank 0 takes more than twice as long as the ring, for the longest vector "
        "that both sum.",
        naive,
        "the number of ranks, and whether ranks share a link or memory",
    ),
    Claim(
        "For the longest vector the ring takes at most 1.5 times as long as MPI's own.",
        against(OWN, -1, "<", 1.5),
        "which algorithm MPI chooses, and whether it knows which ranks share a node",
        kind=GAIN,
    ),
    Claim(
        "Over links alpha and beta predict the ring within a factor of two, for every vector.",
        (missed, "<", 1.0, 2.0),
        "whether a link sends short messages at its rate",
    ),
    Claim(
        "Over links a byte takes at most 1.5 times as long when all neighbours send at once as "
        "between two ranks alone: each node has its own.",
        busy_beta,
        "whether nodes share a link",
    ),
    Claim(
        "Ranks of one node sum the shortest vector faster without messages than by the ring.",
        shared_memory,
        "memory that the ranks share",
    ),
)


def rows(r: dict) -> list[Row]:
    """The ring, and what has fewer steps, for shortest and longest vector; the ring's ratio."""
    short, long = point(r, 0), point(r, -1)
    k = r["regime"]["dilation"]
    found = []
    for name in (RING, OWN, TREE):
        for p in (short, long):
            if name in p["measured"]:
                what = f"{name}, {number_of_bytes(p['bytes'])}"
                predicted_s = p["predicted_s"] / k if name == RING and p["predicted_s"] else None
                found.append(Row(what, p["measured"][name]["median_s"] / k, predicted_s))
    predicted = long["predicted_s"] / short["predicted_s"] if short["predicted_s"] else None
    what = f"ring, {number_of_bytes(long['bytes'])} over {number_of_bytes(short['bytes'])}"
    return [*found, Row(what, ratio(r), predicted, times)]


def ratio(r: dict) -> float:
    """The ring's time for the longest vector over that for the shortest."""
    short, long = (point(r, i)["measured"][RING]["median_s"] for i in (0, -1))
    return long / short


def answer(r: dict) -> str:
    if curve(r)["ranks"] == 1:
        return "nothing, because there is one rank"
    short, long = (point(r, i)["bytes"] for i in (0, -1))
    sizes = f"{number_of_bytes(long)} over {number_of_bytes(short)}"
    alpha, beta = curve(r)["busy"]["alpha_s"], curve(r)["busy"]["beta_s_per_byte"]
    slope = f"beta {beta * 1e9:.2g} ns a byte" if beta else "beta too small for these sizes"
    line = f"alpha {seconds(alpha)}, {slope}"
    return f"{ratio(r):.3g} times ({sizes}); {line}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="How many times as long as 1 KiB does the longest vector take (64 MiB)?",
    guess=Guess("1000 times"),
    answer=answer,
    picture="Time of an allreduce against the bytes of each rank's vector: the ring, measured and "
    "predicted, MPI's own Allreduce or a tree, a naive sum, and memory without messages.",
    yours=YOURS,
)
