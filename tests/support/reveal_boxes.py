"""Black boxes for the tests of `reveal`: random trees, and sums with something odd about them."""

import math

import numpy as np

from refgf.comm.replay import replay
from refgf.oracle.definitions import slice_bounds
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
