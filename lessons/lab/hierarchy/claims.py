"""What lesson 10 says of its numbers."""

from collections import Counter

from kit.claims import GAIN, LIMIT, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import factor_apart, ratio
from kit.words import number_of_bytes
from lab.hierarchy.times import ITEMSIZE, RING
from lab.hierarchy.yours import YOURS
from refgf.papers.scaling.collectives import in_network_s
from refgf.predict.cost import Link

PHASES = "three phases"


SHORTEST, LONGEST = ("points", 0, "measured"), ("points", -1, "measured")
FREE = "free", -1, "measured"  # the longest vector on a bus that is not slowed down


def on_nodes(*compared):
    """A comparison that is decided only where ranks share the nodes of an emulated cluster."""
    return lambda r: compared if r["free"] else None


def emulated(*compared):
    """A comparison that is decided wherever links of a cluster are emulated or waited for."""
    return lambda r: compared if r["emulated"] else None


def crossing_error(r: dict) -> float | None:
    """The larger of measured / predicted size and its inverse, for the worse of two algorithms."""
    sizes = [r["crossings"][name] for name in (PHASES, "recursive doubling")]
    if any(None in pair.values() for pair in sizes):
        return None
    return factor_apart((pair["measured"], pair["predicted"]) for pair in sizes)


def first_places(r: dict) -> int:
    """At how many sizes three phases have the shortest median of all algorithms."""
    medians = [{name: t["median_s"] for name, t in p["measured"].items()} for p in r["points"]]
    return sum(min(found, key=found.get) == PHASES for found in medians)


def other_trends(r: dict) -> float | None:
    """The share of the predicted trends that were measured the other way round."""
    return None if r["trends_predicted"] is None else 1 - r["trends_predicted"]


def repeated(r: dict) -> float:
    """The largest ratio of two times of one case: against size, and against k."""
    sizes, ranks_per_node = {p["bytes"]: p["measured"] for p in r["points"]}, len(r["nodes"][0])
    same = {(row["algorithm"], ranks_per_node): row["algorithm"] for row in r["by_k"]}
    same |= {("two-level ring", 1): RING}
    pairs = [
        (row["measured"][i]["median_s"], sizes[nbytes][name]["median_s"])
        for row in r["by_k"]
        if (name := same.get((row["algorithm"], row["k"])))
        for i, nbytes in enumerate(row["bytes"])
        if name in sizes.get(nbytes, {})
    ]
    return factor_apart(pairs) or 1.0


def gain_over(r: dict, index: int, than: str, name: str) -> dict:
    """How many times as fast as `than` this algorithm sums the shortest (0) or longest vector."""
    found = r["points"][index]["measured"]
    return ratio(found[than], to=found[name])


def loss(r: dict, bus: str) -> dict:
    """Three phases over the flat ring, longest vector; bus: "points" slowed down, or "free"."""
    found = r[bus][-1]["measured"]
    return ratio(found[PHASES], to=found[RING])


def switches_could_sum(r: dict) -> bool:
    """Is there a link of known rate between several nodes?"""
    known = r["emulated"] and r["link"]["between"]["beta_s_per_byte"] > 0
    return bool(known) and len(set(r["node_of_rank"])) > 1


def in_switch_s(r: dict, index: int) -> float:
    """Predicted seconds of a sum in the switches, in this machine's time, of a point."""
    inside, between = (Link(**r["link"][where]) for where in ("inside", "between"))
    ranks_per_node = max(Counter(r["node_of_rank"]).values())
    elements = r["points"][index]["bytes"] // ITEMSIZE
    return in_network_s(ranks_per_node, elements, ITEMSIZE, inside, between)


def in_switches(r: dict) -> tuple | None:
    """In the switches and by the fastest of these, both predicted, for the shortest vector."""
    if not switches_could_sum(r):
        return None
    return in_switch_s(r, 0), "<", min(r["points"][0]["predicted_s"].values())


def long_in_switches(r: dict) -> tuple:
    """In the switches and by the flat ring, both predicted, for the longest vector."""
    return r["points"][-1]["predicted_s"][RING], "<", in_switch_s(r, -1), 1.5


CLAIMS = (
    Claim(
        "For the shortest vector three phases beat the flat ring: 2(m-1) slow steps, not 2(p-1). "
        "For the longest they gain less.",
        on_nodes((*SHORTEST, PHASES), "<", (*SHORTEST, RING)),
        unless="steps inside a node that take as long as those between nodes",
        kind=GAIN,
        control=lambda r: (gain_over(r, 0, RING, PHASES), ">", gain_over(r, -1, RING, PHASES)),
    ),
    Claim(
        "For the shortest vector recursive doubling beats three phases: log2 m slow steps, not "
        "2(m-1). For the longest it gains less.",
        emulated((*SHORTEST, "recursive doubling"), "<", (*SHORTEST, PHASES)),
        unless="the processor's work for each message",
        control=lambda r: (
            gain_over(r, 0, PHASES, "recursive doubling"),
            ">",
            gain_over(r, -1, PHASES, "recursive doubling"),
        ),
    ),
    Claim(
        "Of all algorithms measured here three phases are the fastest at no size: for short "
        "vectors others have still fewer slow steps. For long ones the bus of a node costs more "
        "than the fewer bytes between nodes save.",
        on_nodes(first_places, "<", 0.5),
        unless="nodes of many more ranks, or a bus that is much faster than the link",
        kind=LIMIT,
        control=lambda r: (loss(r, "points"), ">", loss(r, "free"), 1.2) if r["free"] else None,
    ),
    Claim(
        "For the longest vector the flat ring beats three phases, which send all bytes over the "
        "bus of a node. If it is not slowed down, they take at most 1.1 times as long as the ring.",
        on_nodes((*LONGEST, RING), "<", (*LONGEST, PHASES)),
        unless="a bus that is much faster than the link between nodes",
        kind=LIMIT,
        control=on_nodes((*FREE, PHASES), "<", (*FREE, RING), 1.1),
    ),
    Claim(
        "With a bus that is not slowed down, the two-level ring beats the flat ring for the "
        "longest vector.",
        on_nodes((*FREE, "two-level ring"), "<", (*FREE, RING)),
        unless="the processor's work inside a node",
    ),
    Claim(
        "For the longest vector no allreduce can be 1.5 times as fast as the flat ring.",
        emulated((*LONGEST, RING), "<", ("points", -1, "least_s"), 1.5),
        unless="few nodes: the ring sends (p-1)/p m/(m-1) times the least bytes",
    ),
    Claim(
        "The bytes that leave a node, counted, equal the formulas.",
        (("counted_by_formula",), "<", 1, 1.0001),
        unless="p or m that is not a power of two",
        timed=False,
    ),
    Claim(
        "The sizes from which the flat ring beats three phases and recursive doubling were "
        "predicted within a factor of 3.",
        on_nodes(crossing_error, "<", 1, 3),
        unless="times that are almost equal over a range of sizes",
    ),
    Claim(
        "Where the prediction changes with k by more than a tenth, the time changes in the same "
        "direction, or within noise.",
        on_nodes(other_trends, "<", 0.01),
        unless="the processor's work, which falls with the number of messages",
    ),
    Claim(
        "Predicted: where switches sum, the shortest vector takes less time than by any of these. "
        "The longest gains less than 1.5 times over the flat ring.",
        in_switches,
        unless="two nodes, or a bus that takes longer than the latency between nodes",
        control=long_in_switches,
    ),
    Claim(
        "Cases that are measured twice, against size and against k, take the same time both times: "
        "at most 1.25 times as long.",
        emulated(repeated, "<", 1.0, 1.25),
        unless="other work on the cores for a part of the run",
    ),
)


def rows(r: dict) -> list[Row]:
    """The shortest and the longest vector, in the cluster's time."""
    k, (first, *_, last) = r["regime"]["dilation"], r["points"]
    short = [(first, name) for name in (RING, PHASES, "recursive doubling")]
    return [
        Row(
            f"{name}, {number_of_bytes(point['bytes'])}",
            point["measured"][name]["median_s"] / k,
            point["predicted_s"][name] / k,
        )
        for point, name in [*short, (last, RING), (last, PHASES)]
    ]


def answer(r: dict) -> str:
    if r["ranks"] == 1:
        return "nothing, because one rank sends no message"
    gains = []
    for point in (r["points"][0], r["points"][-1]):
        ring_s, phases_s = (point["measured"][name]["median_s"] for name in (RING, PHASES))
        gains.append(f"{ring_s / phases_s:.2f} x ({number_of_bytes(point['bytes'])})")
    crossing = r["crossings"][PHASES]["measured"]
    end = f"; the ring is faster than they from {number_of_bytes(crossing)} on" if crossing else ""
    return ", ".join(gains) + end


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="How many times as fast as the flat ring are three phases, for short and long vectors?",
    guess=Guess("3 x and 1 x"),
    answer=answer,
    picture="Time of allreduce algorithms against the size of the vector, and their gain over the "
    "flat ring. More figures: time against the ranks that are taken to share a node, and the cost "
    "of a node's bus.",
    yours=YOURS,
)
