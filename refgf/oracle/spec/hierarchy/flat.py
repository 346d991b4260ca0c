"""H1 to H3: a tree, and doubling, over all ranks."""

import numpy as np

from refgf.oracle.spec.calls import RANK_ELEMENT, allreduce, same_bits
from refgf.oracle.spec.direct import direct_fold
from refgf.oracle.spec.draw import random_source
from refgf.oracle.spec.hierarchy.nodes import any_flat, proving
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement, differs_with

SHAPES = [  # p, n, wire; p = 5 and 9 are those where tree and doubling pair the ranks differently
    (1, 5, "float16"),
    (2, 0, None),
    (3, 7, None),
    (4, 13, None),
    (5, 13, None),
    (6, 13, "float16"),
    (8, 21, "float16"),
    (9, 2, None),
    (9, 25, "float16"),
    (13, 9, None),
    (17, 21, None),
]

# ---- H1: the tree ----


def tree_allreduce(xs: Arrays, wire: str | None = None) -> Arrays:
    """H1: tree: at distance d = 1, 2, 4, ... rank r, a multiple of 2d, adds the partial sum of rank
    r + d; rank 0 finishes the sum.

    Source: Besch & Pohl 1995 name a logarithmic tree; binomial and rooted at 0: chosen.
    """
    held, d = list(xs), 1
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        while d < len(xs):
            for r in range(0, len(xs) - d, 2 * d):
                held[r] = held[r] + on_wire(held[r + d], wire)
            d *= 2
    return [on_wire(held[0], wire) for _ in xs]


H1 = Statement("H1", tree_allreduce)
TREE = JudgedFunction(
    tree_allreduce, "H1", RANK_ELEMENT, "x", run=allreduce("tree_allreduce", "wire")
)
TREE.fresh(any_flat)


@TREE.golden
def trees() -> Cases:
    for p, n, wire in SHAPES:
        for family in ("invariant", "sensitive")[n < 8 :]:
            name = f"tree-p{p}-n{n}-{family}" + (f"-wire-{wire}" if wire else "")
            case = proving(TREE, name, "H1", n, family, p=p, wire=wire)
            if p == 5 and family == "sensitive":
                other = not same_bits(case["out.x"][0], doubling_allreduce(list(case["in.x"]))[0])
                case.shows(other, "tree and doubling differ for p = 5")
            yield case


@H1.mistake("the root adds rank after rank")
def tree_in_rank_order(xs, wire=None):
    total = direct_fold(xs, wire)
    return [total.copy() for _ in xs]


@H1.mistake("floor(log2 p) rounds: ranks beyond the power of two are lost")
def tree_too_low(xs, wire=None):
    q = 1 << (len(xs).bit_length() - 1)
    return [tree_allreduce(xs[:q], wire)[0] for _ in xs]


@H1.mistake("the root's own sum is not rounded")
def tree_root_unrounded(xs, wire=None):
    held, d = list(xs), 1
    while d < len(xs):
        for r in range(0, len(xs) - d, 2 * d):
            held[r] = held[r] + on_wire(held[r + d], wire)
        d *= 2
    return [held[0], *tree_allreduce(xs, wire)[1:]]


# ---- H2: doubling ----


def doubling_allreduce(xs: Arrays, wire: str | None = None) -> Arrays:
    """H2: doubling, with q the largest power of two up to p: of the ranks below 2(p-q) the odd ones
    send all their elements to the rank before them (variant `mpich`: the even ones to the rank
    after them); then partners whose numbers differ in bit 0, 1, 2, ... add each other's sums.
    Recursive doubling and halving-doubling have the same bits.

    Source: Thakur, Rabenseifner, Gropp 2005, and MPICH's code, which is the variant; the odd ones:
    chosen.
    """
    q = 1 << (len(xs).bit_length() - 1)
    extras, held = len(xs) - q, []
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for pair in ((2 * i, 2 * i + 1) for i in range(extras)):
            adds, sends = sorted(pair, key=hands_over)
            held.append(xs[adds] + on_wire(xs[sends], wire))
        held += xs[2 * extras :]
        bit = 1
        while bit < q:
            held = [add_partner(held[i], held[i ^ bit], wire) for i in range(q)]
            bit *= 2
    total = [on_wire(x, wire) for x in held]
    return [total[r // 2 if r < 2 * extras else r - extras].copy() for r in range(len(xs))]


def hands_over(rank: int) -> bool:
    """Does this rank of a pair of H2 send its array, and take no part?

    The odd one does: chosen. In MPICH's code the even one does. The judge accepts that as the
    variant `mpich`.
    """
    return rank % 2 == 1


H2 = Statement("H2", doubling_allreduce)
DOUBLING = JudgedFunction(
    doubling_allreduce, "H2 H3", RANK_ELEMENT, "x", run=allreduce("doubling_allreduce", "wire")
)
DOUBLING.fresh(any_flat)


@DOUBLING.golden
def doublings() -> Cases:
    for p, n, wire in SHAPES:
        for family in ("invariant", "sensitive")[n < 8 :]:
            name = f"doubling-p{p}-n{n}-{family}" + (f"-wire-{wire}" if wire else "")
            statements = "H2 H3" if wire and p > 1 else "H2"
            yield proving(DOUBLING, name, statements, n, family, p=p, wire=wire)


@DOUBLING.golden
def extra_ranks() -> Cases:
    """Numbers that the wire rounds: it shows who hands over, and who rounds before adding."""
    why = "of two ranks that pair up first only what is sent is rounded"
    for p, wire in ((3, "float16"), (7, "bfloat16")):
        name = f"doubling-extras-p{p}-wire-{wire}"
        x = random_source(name).standard_normal((p, 80)).astype(np.float32)
        case = DOUBLING.case(name, why, family="sensitive", wire=wire, x=x)
        for mistake in (extras_swapped, extras_rounded):
            case.shows(differs_with(case, doubling_allreduce=mistake), "pairing shows")
        yield case


def extras_swapped(xs: Arrays, wire: str | None = None) -> Arrays:
    """As if the even ones handed over."""
    first = 2 * (len(xs) - 2 ** (len(xs).bit_length() - 1))
    pairs = [x for i in range(0, first, 2) for x in (xs[i + 1], xs[i])]
    return doubling_allreduce([*pairs, *xs[first:]], wire)


@H2.mistake("ranks beyond the power of two are left out")
def extras_forgotten(xs, wire=None):
    q = 1 << (len(xs).bit_length() - 1)
    return [doubling_allreduce(xs[:q], wire)[0] for _ in xs]


@H2.mistake("the extra ranks add to the first ranks, not to their neighbours")
def extras_elsewhere(xs, wire=None):
    q = 1 << (len(xs).bit_length() - 1)
    held = [x + on_wire(xs[q + i], wire) if q + i < len(xs) else x for i, x in enumerate(xs[:q])]
    return [doubling_allreduce(held, wire)[0] for _ in xs]


@H2.mistake("a rank rounds its own array before it adds an extra rank's")
def extras_rounded(xs, wire=None):
    extras = len(xs) - (1 << (len(xs).bit_length() - 1))
    return doubling_allreduce([on_wire(x, wire) for x in xs[: 2 * extras]] + xs[2 * extras :], wire)


# ---- H3: roundings of doubling ----


def add_partner(own: np.ndarray, other: np.ndarray, wire: str | None = None) -> np.ndarray:
    """H3: with a wire type a partner rounds its own side as it rounds what it sends.

    Source: necessary: all ranks end with the same bits.
    """
    return on_wire(own, wire) + on_wire(other, wire)


H3 = Statement("H3", add_partner)


@H3.mistake("a partner does not round its own side")
def own_side_unrounded(own, other, wire=None):
    return own + on_wire(other, wire)
