"""Black boxes for the tests of `reveal`: random trees, and sums with something odd about them."""

import math

import numpy as np

from refgf.comm.replay import replay
from refgf.oracle.definitions import on_wire, ring_allreduce, slice_bounds
from refgf.oracle.reveal import report
from refgf.oracle.reveal.orders import Symbol, down, fold, merged, up
from refgf.oracle.reveal.search import reveal
from refgf.oracle.reveal.trees import canonical, node


def random_tree(random, ranks):
    """A binary tree over these ranks; any shape and any order may come."""
    if len(ranks) == 1:
        return ranks[0]
    cut = int(random.integers(1, len(ranks)))
    ranks = random.permutation(ranks).tolist()
    return node((random_tree(random, ranks[:cut]), random_tree(random, ranks[cut:])))


def random_runs(random, p, n):
    """Runs of random lengths, each with a random tree."""
    cuts = sorted({0, n, *random.integers(0, n + 1, int(random.integers(0, 5))).tolist()})
    return merged([(i, j, random_tree(random, list(range(p)))) for i, j in zip(cuts, cuts[1:])])


def typed(dtype):
    """Rounds to a type; what is too large becomes infinite."""

    def rounded(x):
        with np.errstate(over="ignore"):
            return x.astype(dtype).astype(np.float64)

    return rounded


def sums(runs, dtype="float32", accumulator=None, rows=1):
    """A black box that adds in these orders; the accumulator's type is the input's by default."""
    rounded = typed(accumulator or dtype)

    def reduce(xs):
        out = np.empty(len(xs[0]))
        for start, stop, tree in runs:
            out[start:stop] = summed(tree, [x[start:stop] for x in xs], rounded)
        return [typed(dtype)(out)] * rows

    return reduce


def summed(tree, xs, rounded):
    """Any tree: more than two terms are added exactly and rounded once."""
    if isinstance(tree, int):
        return xs[tree]
    terms = [summed(child, xs, rounded) for child in tree]
    with np.errstate(over="ignore"):
        return rounded(terms[0] + terms[1] if len(terms) == 2 else exactly(terms))


def exactly(terms):
    return np.array([math.fsum(column) for column in zip(*terms)])


def truncating(xs):
    """A sum at once as in a matrix unit: each term loses what is far below the largest."""
    largest = np.max(np.abs(xs), axis=0)
    with np.errstate(all="ignore"):
        step = 2.0 ** (np.floor(np.log2(largest)) - 23)
    return np.sum([np.trunc(x / step) * step for x in xs], axis=0)


class Shared(Symbol):
    """Equal sums are one object: the trees of 100,000 elements in a second."""

    def __init__(self, tree):
        super().__init__(tree)
        self.sums = {}

    def __add__(self, other):
        if other not in self.sums:
            self.sums[other] = Shared(node((self.tree, other.tree)))
        return self.sums[other]


def replayed(algorithm, p, n):
    """The runs that the schedules of an algorithm give, and its sums of numbers."""
    schedules = [algorithm(r, p, n) for r in range(p)]
    found = replay(schedules, [np.full(n, Shared(r)) for r in range(p)])[0]
    trees = {x: canonical(x.tree) for x in set(found)}
    runs = merged([(e, e + 1, trees[x]) for e, x in enumerate(found)])
    return runs, lambda xs: [
        x.astype(np.float64) for x in replay(schedules, [x.astype(np.float32) for x in xs])
    ]


def by_ranks(runs, other_runs, rank, p):
    """All ranks add in one order, one of them in another."""
    usual, other = sums(runs), sums(other_runs)
    return lambda xs: [(other if r == rank else usual)(xs)[0] for r in range(p)]


def in_rank_order(p):
    return fold(range(p))


P, N, SINGLE = 4, 40, np.float32
FOLD, BACK = [(0, N, in_rank_order(P))], [(0, N, down(P - 1, P))]  # runs of P ranks, N elements


def ring_runs(p, n):
    return [(i, j, up(s, p)) for s, (i, j) in enumerate(slice_bounds(n, p))]


def one(reduce, p, n=40, dtype="float32", repeats=2):
    """What is found for one size."""
    return next(reveal(reduce, p, dtype, [n], repeats))


def printed(found):
    return "\n".join([*report.lines_of(found), *report.closing_lines([found])])


# ---- boxes whose reports are approved ----

single = typed(SINGLE)


def half(x):
    return typed(np.float16)(x)


def short(x):
    return on_wire(x.astype(SINGLE), "bfloat16").astype(np.float64)


def in_turn(*boxes):
    """Another box in each call."""
    count = iter(range(10**9))
    return lambda xs: boxes[next(count) % len(boxes)](xs)


def first_then(first, other, calls):
    count = iter(range(10**9))
    return lambda xs: (first if next(count) < calls else other)(xs)


PLAIN = sums(FOLD)


def then(change, box=PLAIN):
    """The box's sum, changed."""
    return lambda xs: [change(box(xs)[0])]


def of(change, box=PLAIN):
    """The sum of changed inputs: change(rank, x)."""
    return lambda xs: box([change(rank, x) for rank, x in enumerate(xs)])


def mean_at_each_level(xs):
    low, high = (single(single(a + b) / 2) for a, b in (xs[:2], xs[2:]))
    return [single(single(low + high) / 2)]


def float16_hops(xs):
    return [ring_allreduce([x.astype(SINGLE) for x in xs], "float16")[0].astype(np.float64)]


def float16_partial_sums(xs):
    total = xs[0]
    for x in xs[1:]:
        total = single(half(total) + x)
    return [total]


def end_not_summed(xs):
    return [np.concatenate([sums(FOLD)(xs)[0][:30], x[30:]]) for x in xs]


def compensated(xs):
    total, rest = xs[0], 0 * xs[0]
    for x in xs[1:]:
        x = single(x - rest)
        larger = single(total + x)
        rest, total = single(single(larger - total) - x), larger
    return [total]


def owner_keeps_more(xs):
    total = single(sum(half(x) for x in xs))
    return [total] + [half(total)] * (P - 1)


def by_exclusive_or(xs):
    """Recursive doubling by r xor d: where p is no power of two, contributions are lost."""
    values, d = [x.astype(SINGLE) for x in xs], 1
    with np.errstate(over="ignore"):
        while d < len(xs):
            pairs = [(values[r], values[r ^ d] if r ^ d < len(xs) else 0) for r in range(len(xs))]
            values, d = [a + b for a, b in pairs], 2 * d
    return [x.astype(np.float64) for x in values]


AT_ONCE = then(single, lambda xs: [exactly(xs)])
TWO_ORDERS = [(0, 7, in_rank_order(P)), (7, N, down(P - 1, P))]
BOXES = {
    "fold": PLAIN,
    "backwards, float64 inside": sums(BACK, accumulator="float64"),
    "float16 inside": sums(FOLD, accumulator="float16"),
    "random trees": sums(random_runs(np.random.default_rng(7), P, N)),
    "two orders in one vector": sums(TWO_ORDERS),
    "another order from call 30 on": first_then(sums(FOLD), sums(BACK), 30),
    "another order in each call": in_turn(sums(FOLD), sums(BACK), sums(ring_runs(P, N))),
    "rank 2 otherwise": by_ranks(FOLD, BACK, 2, P),
    "at once": AT_ONCE,
    "at once, wider": lambda xs: [exactly(xs)],
    "at once, truncated": then(single, lambda xs: [truncating(xs)]),
    "a mean, wider": then(lambda x: x / P),
    "a mean, before": of(lambda rank, x: single(x / P)),
    "a mean, after": then(lambda x: single(x / P)),
    "a mean at each level": mean_at_each_level,
    "a mean before a wide sum": of(
        lambda rank, x: single(x / P), sums(FOLD, accumulator="float64")
    ),
    "float16 on the wire": float16_hops,
    "partial sums in float16": float16_partial_sums,
    "inputs in bfloat16": of(lambda rank, x: short(x)),
    "rank 3 left out": of(lambda rank, x: x * (rank != 3)),
    "rank 2 left out of the end": of(lambda rank, x: x * ((np.arange(x.size) < 10) | (rank != 2))),
    "rank 1 twice": of(lambda rank, x: x * (1 + (rank == 1))),
    "the end is not summed": end_not_summed,
    "twice the sum": then(lambda x: 2 * x),
    "a third of the sum": then(lambda x: single(x / 3)),
    "1.001 times the sum": then(lambda x: single(1.001 * x)),
    "1.000001 times the sum": then(lambda x: single(1.000001 * x)),
    "the largest": lambda xs: [np.max(xs, axis=0)],
    "NaN": lambda xs: [x * np.nan for x in xs],
    "the owner keeps more bits": owner_keeps_more,
    "all round what the owner has": lambda xs: [half(owner_keeps_more(xs)[0])] * P,
    "a compensated sum": compensated,
}
WRONG = {  # what a sum becomes; no probe with whole numbers sees it
    "whole numbers": np.trunc,
    "quarters": lambda x: np.round(4 * x) / 4,
    "bfloat16 and quarters": lambda x: short(np.where(np.abs(x) < 1, np.round(4 * x) / 4, x)),
    "bfloat16 and 6 % of middle numbers": lambda x: short(
        np.where((np.abs(x) > 4) & (np.abs(x) < 9), 1.06 * x, x)
    ),
}
