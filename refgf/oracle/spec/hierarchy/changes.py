"""Other rules for lesson 10: who is master and owner, how steps are listed, what a link counts."""

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.hierarchy.three_phases import PHASES_10
from refgf.oracle.spec.hierarchy.traffic import LINKS_10
from refgf.oracle.spec.hierarchy.two_levels import LEVELS_10

# ---- who is master and owner, how steps are listed ----


def from_the_last(function):
    return lambda xs, nodes: function(xs, [ranks[::-1] for ranks in nodes])


def rank_by_rank(function):
    return lambda *a: [list(of_rank) for of_rank in zip(*function(*a))]


LAST = "here the last rank of a node comes first"
MASTER = {
    "The master of a node is the first of its ranks.": (
        "The master of a node is the last of its ranks."
    ),
    "you take the ranks 0 to m-1 as masters, but a master is the first rank of its node": (
        "you take the ranks 0 to m-1 as masters, but a master is the last rank of its node"
    ),
}
OWNER = {
    "The j-th rank of a node is the owner of slice j.": (
        "The j-th rank from a node's end, j = 0 for the last one, is the owner of slice j."
    ),
    "the owner of slice j is the j-th rank in its node's list, not the rank r with r mod k = j": (
        "the owner of slice j is the j-th from the end of its node's list, whatever its number"
    ),
    "your owners are shifted by one: the j-th rank of a node is the owner of slice j": (
        "your owners are shifted by one: the last rank of a node is the owner of slice 0"
    ),
}
RANKS = "here lists are by rank, not by step"
OF_PHASES = {
    "what all ranks hold after each phase: 3 lists of p arrays (n,)": (
        "what each rank holds after each phase: p lists of 3 arrays (n,)"
    ),
    "Hint: begin each phase with a new list, or you change the phase before.": (
        "Hint: zip(*lists) turns three lists of p arrays round."
    ),
}
OF_LEVELS = {
    "what all ranks hold after each of 3 steps: 3 lists of p arrays": (
        "what each rank holds after each of 3 steps: p lists of 3 arrays"
    ),
}

# ---- what a link counts ----


def in_bytes(function):
    return lambda *a: [(messages, 4 * elements) for messages, elements in function(*a)]


def both_ways(function):
    def slow_links(sends, nodes):
        back = [(dest, source, elements) for source, dest, elements in sends]
        pairs = zip(function(sends, nodes), function(back, nodes))
        return [(a + c, b + d) for (a, b), (c, d) in pairs]

    return slow_links


def without_empty(function):
    return lambda sends, nodes: function([send for send in sends if send[2]], nodes)


LEAVE = "(messages, elements) that leave each node."
BYTES = {LEAVE: "(messages, bytes) that leave each node, of float32 elements."}
BOTH = {
    LEAVE: "(messages, elements) that leave or reach each node.",
    "you count what arrives at a node; wanted what leaves it": "",
    "you count each message twice, where it leaves and where it arrives": "",
}
EMPTY = {
    "are not counted, empty messages between nodes are.": "are not counted, nor empty ones.",
    "an empty message is a message: it costs a latency": "",
}

CHANGES["10"] = [
    [
        [
            Change(PHASES_10, LAST, from_the_last, words=MASTER),
            Change(LEVELS_10, LAST, from_the_last, words=OWNER),
        ],
        [
            Change(PHASES_10, RANKS, rank_by_rank, words=OF_PHASES),
            Change(LEVELS_10, RANKS, rank_by_rank, words=OF_LEVELS),
        ],
    ],
    [[], [Change(LINKS_10, "here empty messages do not count", without_empty, words=EMPTY)]],
    [
        [Change(LINKS_10, "here the bytes count", in_bytes, words=BYTES)],
        [Change(LINKS_10, "here both directions count", both_ways, words=BOTH)],
    ],
]
