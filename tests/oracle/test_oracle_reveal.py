"""`reveal` finds the tree of every element, and names what is odd about a sum."""

import re
import time

import numpy as np
import pytest
from reveal_boxes import (
    by_ranks,
    exactly,
    in_rank_order,
    random_runs,
    replayed,
    summed,
    sums,
    truncating,
    typed,
)

from refgf.comm import direct, ring, tree
from refgf.oracle.__main__ import main
from refgf.oracle.definitions import on_wire, ring_allreduce, slice_bounds
from refgf.oracle.judge.orders import ORDERS
from refgf.oracle.judge.report import SPEC
from refgf.oracle.reveal import report
from refgf.oracle.reveal.orders import down, up
from refgf.oracle.reveal.search import reveal, same_order
from refgf.oracle.reveal.trees import from_lost, from_sizes, sizes_of, text
from refgf.papers.jia import doubling, hierarchical


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


def told(found):
    return "\n".join([*report.lines_of(found), *report.closing_lines([found])])


def one(reduce, p, n=40, dtype="float32", repeats=2):
    return next(reveal(reduce, p, dtype, [n], repeats))


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("p", [2, 5, 6])
def test_the_tree_of_every_element_is_that_of_the_schedule(name, p):
    for n in (1, p - 1, p + 1, 200):
        runs, reduce = replayed(ALGORITHMS[name](p), p, n)
        found = one(reduce, p, n)
        assert found.runs == runs and found.right and found.arithmetic.random == 0


@pytest.mark.long
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("p", [*range(2, 10), 12])
def test_the_tree_of_every_element_for_all_ranks_and_sizes(name, p):
    for n in (1, p - 1, p + 1, 1000, 100_000):
        runs, reduce = replayed(ALGORITHMS[name](p), p, n)
        assert one(reduce, p, n, repeats=1).runs == runs, n


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
@pytest.mark.parametrize("part", range(20))
def test_a_thousand_random_trees(part):
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
    assert "sum(" in text(tree) and "at once" in told(found)


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
    assert f"bits: {dtype}" in told(found)


def ring_runs(p, n):
    return [(i, j, up(s, p)) for s, (i, j) in enumerate(slice_bounds(n, p))]


def calls_in_turn(*boxes):
    """Another box in each call."""
    count = iter(range(10**9))
    return lambda xs: boxes[next(count) % len(boxes)](xs)


def first_then(first, other, calls):
    count = iter(range(10**9))
    return lambda xs: (first if next(count) < calls else other)(xs)


P, N = 4, 40
FOLD, BACK = [(0, N, in_rank_order(P))], [(0, N, down(P - 1, P))]
SINGLE = np.float32


def mean_first(xs):
    return sums(FOLD)([typed(SINGLE)(x / P) for x in xs])


def mean_after(xs):
    return [typed(SINGLE)(sums(FOLD)(xs)[0] / P)]


def mean_at_each_level(xs):
    low, high = (typed(SINGLE)(typed(SINGLE)(a + b) / 2) for a, b in (xs[:2], xs[2:]))
    return [typed(SINGLE)(typed(SINGLE)(low + high) / 2)]


def wide_mean_first(xs):
    return sums(FOLD, accumulator="float64")([typed(SINGLE)(x / P) for x in xs])


def float16_hops(xs):
    return [ring_allreduce([x.astype(SINGLE) for x in xs], "float16")[0].astype(np.float64)]


def rounded_inputs(xs):
    return sums(FOLD)([on_wire(x.astype(SINGLE), "bfloat16").astype(np.float64) for x in xs])


def rank_lost(xs):
    return sums(FOLD)([*xs[:2], xs[2] * (np.arange(N) < 10), *xs[3:]])


def rank_twice(xs):
    return sums(FOLD)([xs[0], 2 * xs[1], *xs[2:]])


def tail_not_summed(xs):
    return [np.concatenate([sums(FOLD)(xs)[0][:30], x[30:]]) for x in xs]


ODD = {  # name: (black box, what the report says, is it one order of all ranks?)
    "two orders in one vector": (
        sums([(0, 7, in_rank_order(P)), (7, N, down(P - 1, P))]),
        "2 orders in one vector.*\n  elements 0..6: .*rank order.*\n  elements 7..39: .*backwards",
        True,
    ),
    "order changes with repeats": (
        first_then(sums(FOLD), sums(BACK), 30),
        "repeat 2 differs from the first, first in element 0(.|\n)*repeats differ, first at n = 40",
        False,
    ),
    "another order in each call": (
        calls_in_turn(sums(FOLD), sums(BACK), sums(ring_runs(P, N))),
        "calls contradict each other",
        False,
    ),
    "float64 accumulator": (
        sums(FOLD, accumulator="float64"),
        r"53 bits \(float64\), wider than the input",
        True,
    ),
    "mean before the sum": (mean_first, "a mean: divided by 4 before the sum", True),
    "mean after the sum": (mean_after, "a mean: divided by 4 after the sum", True),
    "mean at each level": (mean_at_each_level, "a mean: divided by 4 between the additions", True),
    "mean before a wide sum": (
        wide_mean_first,
        "wider than the input\n  a mean: divided by 4 before",
        True,
    ),
    "all at once, exactly": (
        lambda xs: [typed(SINGLE)(exactly(xs))],
        r"sum\(0, 1, 2, 3\)    all at once: exact",
        True,
    ),
    "all at once, truncated": (
        lambda xs: [typed(SINGLE)(truncating(xs))],
        r"sum\(0, 1, 2, 3\)    all at once",
        True,
    ),
    "one rank adds in another order": (
        by_ranks(FOLD, BACK, 2, P),
        "rank 2 adds in another order than rank 0, first in element 0: .*backwards",
        False,
    ),
    "float16 on the wire": (
        float16_hops,
        r"11 bits \(float16\), narrower(.|\n)*rounded to float16(.|\n)*2\^120 does not pass",
        True,
    ),
    "inputs rounded to bfloat16": (rounded_inputs, "rounded to bfloat16", True),
    "a rank is lost": (rank_lost, "elements 10..39: no sum of all ranks; .*rank 2: 0,", False),
    "a rank counts twice": (rank_twice, "elements 0..39: no sum of all .*rank 1: 2,", False),
    "the end is not communicated": (
        tail_not_summed,
        "elements 30..39: no sum of all ranks; each 1 counts as rank 0: 1, rank 1: 0",
        False,
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_oddities_are_named(name):
    reduce, says, right = ODD[name]
    found = one(reduce, P, N)
    assert re.search(says, told(found)), told(found)
    assert found.right == right


@pytest.mark.parametrize("name", ["mean before the sum", "float64 accumulator", "float16 on the"])
def test_a_plain_sum_is_not_odd(name):
    found = one(sums(FOLD), P, N)
    assert found.right and found.arithmetic.random == 0 and found.arithmetic.bits == [24]
    plain = told(found)
    assert not re.search("mean|wider|narrower|rounded|differ|at once|does not", plain), plain


@pytest.mark.parametrize("p", [3, 7, 12])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_a_mean_is_named_where_p_does_not_divide_exactly(p, dtype):
    def short(x):
        return on_wire(typed(SINGLE)(x).astype(SINGLE), dtype).astype(np.float64)

    to = short if dtype == "bfloat16" else typed(dtype)
    for when in ("before", "after"):

        def reduce(xs, when=when):
            total = summed(
                in_rank_order(p), [to(x / p) for x in xs] if when == "before" else xs, to
            )
            return [to(total / p) if when == "after" else total]

        found = one(reduce, p, 9, dtype)
        assert found.right and f"a mean: divided by {p} {when} the sum" in told(found)
        assert found.arithmetic.random == 0


def test_what_is_no_sum_has_no_tree():
    for reduce in (lambda xs: [np.max(xs, axis=0)], lambda xs: [x * np.nan for x in xs]):
        found = one(reduce, P, N)
        assert found.runs == ((0, N, None),) and not found.right and "no tree" in told(found)
        assert "does not pass" not in told(found), "a NaN is no overflow"
        assert "same order" not in told(found) and "no order is known at n = 40" in told(found)


def test_one_element_names_no_algorithm_that_divides_a_vector():
    found = one(sums([(0, 1, up(0, P))]), P, 1)
    assert "ring" in found.names
    lines = told(found).splitlines()
    assert lines[0].startswith("n = 1: rank order") and "cannot tell it from a ring" in lines[0]
    assert lines[1].startswith("  element 0: ((0+1)+2)+3 "), "no library's order is named"


def test_a_compensated_sum_has_other_bits_than_its_tree():
    def kahan(xs):
        total, rest = xs[0], 0 * xs[0]
        for x in xs[1:]:
            x = typed(SINGLE)(x - rest)
            larger = typed(SINGLE)(total + x)
            rest, total = typed(SINGLE)(typed(SINGLE)(larger - total) - x), larger
        return [total]

    found = one(kahan, P, 200)
    assert not found.right and "of 200 elements have other bits than these trees" in told(found)
    assert "other bits than the trees give" in SPEC.read_text(), "it names why this is exit code 1"


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


FILE = """
import os, signal
import numpy as np
calls = []
def allreduce(xs):
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return [total] * len(xs)
def ranks(comm, x):
    total = x.copy()
    got = np.empty_like(x)
    for k in range(1, comm.Get_size()):
        step = k, comm.Get_size() - k
        to, source = ((comm.Get_rank() + s) % comm.Get_size() for s in step)
        comm.Sendrecv(x, to, 0, got, source, 0)
        total = total + got
    x[...] = total
def reduce_scatter(xs):
    return np.array_split(allreduce(xs)[0], len(xs))
def broken(xs):
    raise KeyError("x")
def short(xs):
    return [x[:1] for x in xs]
def one_array(xs):
    return np.add.reduce(xs)
def in_place(xs):
    total = one_array(xs)
    for x in xs:
        x[...] = total
def slow(xs):
    while True: pass
def aborts(xs):
    os.abort()
def unstoppable(xs):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True: pass
def nothing(xs):
    pass
def to_rank_0(xs):
    xs[0][...] = np.add.reduce(xs)
def third(xs):
    calls.append(1)
    if len(calls) == 3:
        raise KeyError("the third call")
    return allreduce(xs)
def own_first(xs):
    return [allreduce(xs[r:] + xs[:r])[0] for r in range(len(xs))]
"""


@pytest.fixture
def command(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text(FILE)

    def run(*options):
        code = main(["reveal", *(str(path) if o == "FILE" else o for o in options)])
        out = capsys.readouterr()
        return code, out.out + out.err

    return run


def test_the_command(command):
    code, out = command("--python", "FILE", "--sizes", "1", "5")
    assert code == 0 and "n = 5: rank order" in out and "elements 0..4: ((0+1)+2)+3" in out
    code, out = command("--python", "FILE", "--function", "reduce_scatter", "--sizes", "9")
    assert code == 0 and "n = 9: rank order" in out
    code, out = command("--python", "FILE", "--function", "ranks", "--ranks", "3", "--sizes", "9")
    assert code == 1 and "rank 1 adds in another order than rank 0" in out, "each begins with own"
    for name in ("one_array", "in_place"):
        code, out = command("--python", "FILE", "--function", name, "--sizes", "1", "4", "9")
        assert code == 0 and "all sizes: the same order: rank order" in out, out
    pytest.importorskip("ml_dtypes", reason="bfloat16 of NumPy arrays needs ml_dtypes")
    code, out = command("--python", "FILE", "--dtype", "bfloat16", "--sizes", "5")
    assert code == 0 and "8 bits: bfloat16" in out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ((), "got 0 of --python, --mpi, --torch"),
        (("--python", "FILE", "--mpi"), "got 2 of --python, --mpi, --torch"),
        (("--python", "nowhere.py"), "reveal: got nowhere.py; wanted the name of a"),
        (("--python", "FILE", "--function", "none"), "without none; wanted a function"),
        (("--python", "FILE", "--ranks", "1"), "got 1 ranks and float32; wanted 2 to"),
        (("--python", "FILE", "--ranks", "257", "--dtype", "bfloat16"), "wanted 2 to 256, because"),
        (("--python", "FILE", "--sizes", "0"), "wanted at least 1 element"),
        (("--python", "FILE", "--repeats", "0"), "wanted at least 1 element and 1 repeat"),
        (("--python", "FILE", "--timeout", "0"), "wanted seconds, more than 0"),
        (("--python", "FILE", "--collective", "reduce_scatter"), "--function reduce_scatter"),
        (("--python", "FILE", "--function", "broken"), "broken raised KeyError"),
        (("--python", "FILE", "--function", "short", "--sizes", "3"), "results of shapes [(1,)]"),
        (
            ("--python", "FILE", "--function", "slow", "--timeout", "0.2"),
            "did not end within 0.2 s",
        ),
        (("--python", "FILE", "--function", "aborts"), "aborts: its process ended with signal SIG"),
        (
            ("--python", "FILE", "--function", "unstoppable", "--timeout", "0.2"),
            "unstoppable: did not end within 0.2 s, inside a call that Python cannot interrupt",
        ),
        (("--python", "FILE", "--function", "nothing"), "nothing returned None and left xs as it"),
        (("--python", "FILE", "--function", "third"), "third raised KeyError: 'the third call'"),
    ],
)
def test_wrong_input_gets_a_sentence(command, options, says):
    code, out = command(*options)
    assert code == 2 and says in out and "Traceback" not in out


def test_each_rank_is_compared_with_its_own_trees(command):
    code, out = command("--python", "FILE", "--function", "own_first", "--sizes", "9")
    assert code == 1 and "rank 2 adds in another order than rank 0" in out
    assert "random numbers: the bits that these trees give" in out, out


def test_a_sum_in_place_on_one_rank_is_not_taken_for_nothing(command):
    code, out = command("--python", "FILE", "--function", "to_rank_0", "--sizes", "9")
    assert code == 1 and "no sum of all ranks" in out, out


def test_from_lost_refuses_what_is_no_tree():
    assert from_lost([0b011, 0b101, 0b011], 3) is None


def test_a_random_order_is_no_pair_of_equal_texts():
    found = one(lambda xs: [xs[0]] * 3, 3, n=1)
    found.repeats = [(1, 0, None, None)]
    (line,) = [line for line in told(found).splitlines() if "repeat 2" in line]
    assert "look for a random order" in line and "contradict" not in line


@pytest.mark.parametrize("scale", (2, 1 / 3))
def test_a_sum_times_a_number_is_not_right(scale):
    (found,) = reveal(lambda xs: [np.float32(scale) * sum(xs)], 4, "float32", [7])
    assert "not a sum: a contribution of 1 counts as" in told(found) and not found.right


def test_partial_sums_rounded_on_the_wire_are_told_from_inputs():
    def ring(xs):
        total = xs[0].astype(np.float32)
        for x in xs[1:]:
            with np.errstate(over="ignore"):
                total = total.astype(np.float16).astype(np.float32) + x.astype(np.float32)
        return [total]

    (found,) = reveal(ring, 4, "float32", [7])
    assert "rounded to float16 on its way: what comes from ranks 0, 1, 2" in told(found)
    assert "random numbers: not compared" in told(found)


def test_ranks_that_keep_other_bits_are_wrong_though_rounding_hides_the_tree():
    def half(x):
        return typed(np.float16)(x)

    def owner_keeps_more(xs):
        total = typed(SINGLE)(sum(half(x) for x in xs))
        return [total] + [half(total)] * (P - 1)

    found = one(owner_keeps_more, P, N)
    assert found.arithmetic.apart > N / 2 and not found.ranks and not found.right
    assert f"ranks differ: {found.arithmetic.apart} of 40 random numbers have other bits" in told(
        found
    )
    assert "all ranks: the same order, but not the same bits at n = 40" in told(found)
    found = one(lambda xs: [half(owner_keeps_more(xs)[0])] * P, P, N)
    assert found.right and found.arithmetic.apart == 0 and "not the same bits" not in told(found)


@pytest.mark.parametrize("scale", ("1.001", "1.000001"))
def test_a_factor_near_1_is_told(scale):
    found = one(lambda xs: [typed(SINGLE)(float(scale) * x) for x in sums(FOLD)(xs)], P, N)
    assert f"not a sum: a contribution of 1 counts as {scale[:7]}" in told(found), told(found)
    assert not found.right


def test_results_of_a_wider_type_are_told():
    found = one(lambda xs: [sum(xs)], P, N)
    assert "results have more bits than float32, the type of the inputs" in told(found)
