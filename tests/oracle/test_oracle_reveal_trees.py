"""`reveal` finds the tree of every element, and names the orders that it knows."""

import re
import time

import numpy as np
import pytest

from refgf.comm import direct, ring, tree
from refgf.oracle.definitions import ring_allreduce
from refgf.oracle.judge.orders import ORDERS
from refgf.oracle.reveal import report
from refgf.oracle.reveal.orders import down, up
from refgf.oracle.reveal.search import reveal, same_order
from refgf.oracle.reveal.trees import from_lost, from_sizes, sizes_of, text
from refgf.papers.jia import doubling, hierarchical
from tests.support.reveal_boxes import (
    P,
    in_rank_order,
    one,
    printed,
    random_runs,
    replayed,
    ring_runs,
    summed,
    sums,
    typed,
)


def blocks(p, k):
    return hierarchical.consecutive_nodes(p, k)


ALGORITHMS = {
    "ring": lambda p: ring.allreduce,
    "direct": lambda p: direct.allreduce,
    "tree": lambda p: tree.allreduce,
    "recursive doubling": lambda p: doubling.recursive_doubling,
    "halving-doubling": lambda p: doubling.halving_doubling,
    "three phases": lambda p: hierarchical.three_phase(blocks(p, 3)),
    "log phases": lambda p: hierarchical.log_phases(blocks(p, 3)),
    "two-level ring": lambda p: hierarchical.two_level_ring(blocks(p, 2 if p % 2 == 0 else 1)),
    "hybrid": lambda p: hierarchical.hybrid(blocks(p, 2), 10),
}


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("p", [2, 5, 6])
def test_the_tree_of_every_element_is_that_of_the_schedule(name, p):
    for n in (1, p - 1, p + 1, 200):
        runs, reduce = replayed(ALGORITHMS[name](p), p, n)
        found = one(reduce, p, n)
        assert found.runs == runs and found.right and found.arithmetic.random == 0


def check_random_trees(seeds, sizes):
    for seed in seeds:
        random = np.random.default_rng(seed)
        p = int(random.integers(2, 10))
        n = sizes[seed % len(sizes)](p)
        runs = random_runs(random, p, n)
        found = one(sums(runs), p, n, repeats=1)
        assert found.runs == runs and found.arithmetic.random == 0, (seed, p, n)


def test_random_trees():
    check_random_trees(range(60), [lambda p: 1, lambda p: p - 1, lambda p: p + 1, lambda p: 1000])


@pytest.mark.long
@pytest.mark.parametrize("part", range(6))
def test_300_random_trees(part):
    sizes = [lambda p: 1, lambda p: p - 1, lambda p: p + 1, lambda p: 1000, lambda p: 100_000]
    check_random_trees(range(50 * part, 50 * part + 50), sizes)


def test_sizes_and_their_tree_are_inverse():
    random = np.random.default_rng(0)
    for p in range(2, 14):
        ((_, _, tree),) = random_runs(random, p, 1)
        assert from_sizes(sizes_of(tree, p), p) == tree
    assert from_sizes([2, 2, 2], 3) is None and from_sizes([2, 3, 4], 3) is None


@pytest.mark.parametrize(
    "tree",
    [(0, 1, 2), ((2, 3), 0, 1), ((0, 1), 2, 3), ((0, 1, 4), (2, 3)), ((0, 3), (1, 4), 2, 5)],
)
def test_more_than_two_at_once_are_found_though_their_sizes_are_ambiguous(tree):
    """((2, 3), 0, 1) and ((0, 1), 2, 3) have the same sizes."""
    p = 1 + max(int(r) for r in re.findall(r"\d+", str(tree)))
    found = one(lambda xs: [summed(tree, xs, typed("float32"))], p, 3)
    assert found.runs == ((0, 3, tree),) and found.right
    assert "sum(" in text(tree) and "at once" in printed(found)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_all_types(dtype):
    p, n = 6, 50
    if dtype == "bfloat16":

        def reduce(xs):
            rows = ring_allreduce([x.astype(np.float32) for x in xs], "bfloat16")
            return [row.astype(np.float64) for row in rows]
    else:

        def reduce(xs):
            return [row.astype(np.float64) for row in ring_allreduce([x.astype(dtype) for x in xs])]

    found = one(reduce, p, n, dtype)
    assert found.right and "ring" in found.names and found.arithmetic.random == 0
    assert f"bits: {dtype}" in printed(found)


def test_one_element_names_no_algorithm_that_divides_a_vector():
    found = one(sums([(0, 1, up(0, P))]), P, 1)
    assert "ring" in found.names
    lines = printed(found).splitlines()
    assert lines[0].startswith("n = 1: rank order") and "cannot tell it from a ring" in lines[0]
    assert lines[1].startswith("  element 0: ((0+1)+2)+3 "), "no library's order is named"


def test_an_order_that_changes_with_the_size_is_told():
    def reduce(xs):
        n = len(xs[0])
        return sums([(0, n, in_rank_order(P))] if n < 100 else ring_runs(P, n))(xs)

    found = list(reveal(reduce, P, "float32", [1, 50, 100, 200]))
    assert same_order(found) == ([], 100)
    assert "sizes differ: at n = 100 " in "\n".join(report.closing_lines(found))
    same = list(reveal(lambda xs: sums(ring_runs(P, len(xs[0])))(xs), P, "float32", [1, 7, 200]))
    assert "all sizes: the same order: ring" in "\n".join(report.closing_lines(same))


@pytest.mark.parametrize("name", ORDERS)
def test_known_orders_are_named(name):
    order = ORDERS[name]

    def reduce(xs):
        return [order([x.astype(np.float32) for x in xs], np.add).astype(np.float64)]

    for p in (2, 3, 7, 8):
        for n in (1, p - 1, p + 1, 100):
            assert name in one(reduce, p, n, repeats=1).names


def test_eight_ranks_take_less_than_thirty_seconds():
    start = time.process_time()  # of this process: other work on the machine does not count
    runs = [(0, 10_000, down(3, 8)), (10_000, 100_000, up(5, 8))]
    assert one(sums(runs, rows=8), 8, 100_000).runs == tuple(runs)
    assert time.process_time() - start < 30


def test_from_lost_refuses_what_is_no_tree():
    assert from_lost([0b011, 0b101, 0b011], 3) is None
