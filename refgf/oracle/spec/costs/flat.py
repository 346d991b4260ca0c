"""E1 to E5: the time of a collective over p ranks. A case has many entries, a time for each."""

from collections.abc import Callable
from fractions import Fraction
from math import ceil, log2
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, select
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick
from refgf.oracle.spec.ring import slice_bounds
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

Link = tuple[float, float, float]
Rounds = list[tuple[int | Fraction, int | Fraction]]
ALEXNET = 62378344
RANKS = [*range(1, 10), 12, 16, 17, 31, 32, 33, 100]
FAST, SLOW = [3.0e-6, 6.0e-11, 2.5e-12], [4.5e-5, 8.7e-10, 2.5e-12]  # seconds; per byte, added byte
ALGORITHMS = ("ring", "tree", "recursive_doubling", "halving_doubling")

# ---- E1: rounds ----


def rounds_s(rounds: Rounds, itemsize: int, link: Link) -> float:
    """E1: a collective is a sequence of rounds; a round takes alpha + beta (bytes of its longest
    message) + gamma (bytes that its receiver adds).

    Source: usual model (Hockney).
    """
    alpha, beta, gamma = link
    return sum(
        (
            alpha + beta * float(itemsize * sent) + gamma * float(itemsize * added)
            for sent, added in rounds
        ),
        start=0.0,
    )


E1 = Statement("E1", rounds_s)
E1.given("additions cost nothing", link=lambda link: (*link[:2], 0.0))
E1.given("elements are counted as bytes", itemsize=lambda nbytes: 1)
E1.given(
    "a link carries one direction at a time: bytes cost twice",
    link=lambda link: (link[0], 2 * link[1], link[2]),
)


@E1.mistake("one latency for the whole collective")
def one_latency(rounds, itemsize, link):
    rest_s = rounds_s(rounds, itemsize, (0.0, *link[1:]))
    return rest_s + (link[0] if rounds else 0.0)


def seconds(
    definition: Callable[..., Any], statements: str, inputs: str, settings: str
) -> JudgedFunction:
    """The function is called for each entry of its inputs, and with these arguments."""

    def run(module: Any, case: Case) -> Outputs:
        more = [as_link(value) for value in select(case, *settings.split()).values()]
        rows = zip(*(case[f"in.{name}"].tolist() for name in inputs.split()))
        times = [getattr(module, definition.__name__)(*row, *more) for row in rows]
        return {"out.seconds": np.array(times, np.float64)}

    return JudgedFunction(
        definition, statements, {"seconds": ("entry",)}, inputs, run, bound=rounded
    )


def as_link(value: Any) -> Any:
    """A case's list of numbers as a tuple."""
    return tuple(value) if isinstance(value, list) else value


def rounded(case: Case) -> Outputs:
    """The bound of SPEC.md, E: 32 p u of the times themselves.

    No collective has more than 4 p rounds. A round's time is three products and their sum, and no
    term is negative: 6 u for each round, in a result and in the definition's. The rest is for forms
    that divide by p.
    """
    t = case.tensors
    ranks = t["in.p"] if "in.p" in t else t["in.nodes"] * t["in.ranks_per_node"]
    if "out.line" in t:
        return {"line": 32 * ranks[:, None] * 2.0**-53 * t["out.line"]}
    return {"seconds": 32 * ranks * 2.0**-53 * t["out.seconds"]}


def any_link(d: Draw) -> list[float]:
    """alpha, beta, gamma: over decades, and nothing now and then."""
    scales = [10 ** d.rng.uniform(low, low + 3) for low in (-7, -11, -13)]
    return [float(pick(d.rng, 0.0, 1.0, 1.0) * scale) for scale in scales]


def any_ranks(d: Draw) -> Given:
    """The drawn p and n, and a few smaller ones."""
    entries = [(d.n, d.p), (d.n, 1), *((d.integer(0, 9999), d.integer(2, 70)) for _ in range(4))]
    columns = zip(("n", "p"), zip(*entries))
    return {"itemsize": pick(d.rng, 2, 4, 8), "link": any_link(d), **dict(columns)}


def over_ranks(definition: Callable[..., Any], statements: str) -> JudgedFunction:
    """A function of n and p, with the same cases as its sisters."""
    function = seconds(definition, statements, "n p", "itemsize link")
    function.golden(lambda: over_ranks_cases(function))
    function.fresh(any_ranks)
    return function


def over_ranks_cases(function: JudgedFunction) -> Cases:
    entries = [(n, p) for p in RANKS for n in sizes(p)]
    n, p = (np.array(column, np.int64) for column in zip(*entries))
    why = "1 to 100 ranks; none, fewer elements than ranks, awkward sizes, and AlexNet"
    for itemsize, link in ((4, SLOW), (2, FAST)):
        form = function.name.removesuffix("_s").replace("_", "-")
        name = f"seconds-{form}-{8 * itemsize}-bit"
        case = function.within(function.case(name, why, itemsize=itemsize, link=link, n=n, p=p))
        yield case.shows((case["out.seconds"][p == 1] == 0).all(), "one rank takes no time")


def sizes(p: int) -> list[int]:
    """None, fewer than ranks, awkward ones, and a network."""
    return sorted({0, 1, p - 1, p, p + 1, 100 * p, 1003, ALEXNET})


# ---- E2: ring, its halves, direct ----


def longest_slice(n: int, p: int) -> int:
    """Elements of the longest of p slices (R1). In each round of a ring some rank sends it."""
    return max(stop - start for start, stop in slice_bounds(n, p))


def reduce_scatter_rounds(n: int, p: int) -> Rounds:
    """p - 1 rounds; each sends the longest slice and adds it."""
    return [(longest_slice(n, p), longest_slice(n, p))] * (p - 1)


def allgather_rounds(n: int, p: int) -> Rounds:
    """p - 1 rounds; each sends the longest slice."""
    return [(longest_slice(n, p), 0)] * (p - 1)


def reduce_scatter_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """Half of the ring."""
    return rounds_s(reduce_scatter_rounds(n, p), itemsize, link)


def allgather_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """The other half of the ring."""
    return rounds_s(allgather_rounds(n, p), itemsize, link)


def ring_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """E2: ring: 2(p-1) rounds of the longest slice (R1), of which the first p-1 add; reduce-scatter
    and allgather are its halves; direct costs the same.

    Source: R5, D4; Thakur, Rabenseifner, Gropp 2005.
    """
    return rounds_s(allreduce_rounds("ring", n, p), itemsize, link)


def direct_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """The rounds of the ring. All additions come after the last message of the first half."""
    length = longest_slice(n, p)
    rounds = 2 * allgather_rounds(n, p)
    return rounds_s(rounds, itemsize, link) + link[2] * itemsize * length * (p - 1)


E2 = Statement("E2", ring_s)
for definition in (reduce_scatter_s, allgather_s, ring_s, direct_s):
    over_ranks(definition, "E1 E2")


@E2.mistake("p rounds, not p - 1", allgather_rounds)
def p_gathers(n, p):
    return [(longest_slice(n, p), 0)] * p


@E2.mistake("p rounds, not p - 1", reduce_scatter_rounds)
def p_scatters(n, p):
    return [(longest_slice(n, p), longest_slice(n, p))] * p


@E2.mistake("n // p elements: the longer slices are forgotten", longest_slice)
def shortest_slice(n, p):
    return n // p


@E2.mistake("the allgather adds what it receives", allgather_rounds)
def gathers_add(n, p):
    return [(longest_slice(n, p), longest_slice(n, p))] * (p - 1)


@E2.mistake("two rounds of all slices: the other ranks' messages cost no latency", direct_s)
def two_rounds(n, p, itemsize, link):
    return direct_s(n, p, itemsize, (0.0, *link[1:])) + (2 * link[0] if p > 1 else 0.0)


# ---- E3: the whole vector in each round ----


def tree_rounds(n: int, p: int) -> Rounds:
    """ceil(log2 p) rounds up and as many down, each of the whole vector."""
    height = (p - 1).bit_length()
    return [*[(n, n)] * height, *[(n, 0)] * height]


def recursive_doubling_rounds(n: int, p: int) -> Rounds:
    """log2 q rounds of the whole vector, q the largest power of two up to p (H2).

    Where p > q, one more round before them and one after, which adds nothing.
    """
    return with_extras(n, p, [(n, n)] * (p.bit_length() - 1))


def with_extras(n: int, p: int, rounds: Rounds) -> Rounds:
    """Where p is no power of two, the p - q extra ranks send all first, and receive last."""
    is_power = p & (p - 1) == 0
    return rounds if is_power else [(n, n), *rounds, (n, 0)]


def tree_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """The tree of H1, and its reversal."""
    return rounds_s(allreduce_rounds("tree", n, p), itemsize, link)


def recursive_doubling_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """E3: the whole vector in each round: the tree takes ceil(log2 p) up, which add, and as many
    down; recursive doubling log2 q, q the largest power of two up to p; where p > q one round more
    before, which adds, and one after.

    Source: H1, H2; the usual tables write log p for all.
    """
    return rounds_s(allreduce_rounds("recursive_doubling", n, p), itemsize, link)


E3 = Statement("E3", recursive_doubling_s)
for definition in (tree_s, recursive_doubling_s):
    over_ranks(definition, "E1 E3")


@E3.mistake("floor(log2 p) rounds: ranks beyond the power of two are forgotten", tree_rounds)
def tree_too_short(n, p):
    height = p.bit_length() - 1
    return [(n, n)] * height + [(n, 0)] * height


@E3.mistake("the way down is forgotten", tree_rounds)
def tree_up_only(n, p):
    return tree_rounds(n, p)[: (p - 1).bit_length()]


@E3.mistake("the ranks beyond the power of two are forgotten", with_extras)
def no_extras(n, p, rounds):
    return rounds


@E3.mistake("the extra ranks' sums cost no addition", with_extras)
def extras_not_added(n, p, rounds):
    return rounds if p & (p - 1) == 0 else [(n, 0), *rounds, (n, 0)]


@E3.mistake("log2 p rounds, a fraction where p is no power of two")
def fraction_of_a_round(n, p, itemsize, link):
    return log2(p) * rounds_s([(n, n)], itemsize, link)


@E3.mistake("ceil(log2 p) rounds, as if extra ranks took part")
def rounded_up(n, p, itemsize, link):
    return rounds_s([(n, n)] * ceil(log2(p)), itemsize, link)


# ---- E4: halving-doubling ----


def halving_doubling_rounds(n: int, p: int) -> Rounds:
    """E4: halving-doubling: rounds of n/2, n/4, ... n/q, which add, then back; halves count as
    exact fractions; extra ranks as in E3.

    Source: MPICH's comments write p for q in the fractions; exact fractions: chosen. Real messages
    of a phase are at most q-1 elements longer.
    """
    halves = [Fraction(n, 2**i) for i in range(1, p.bit_length())]
    there, back = [(half, half) for half in halves], [(half, 0) for half in reversed(halves)]
    return with_extras(n, p, [*there, *back])


def halving_doubling_s(n: int, p: int, itemsize: int, link: Link) -> float:
    """Rabenseifner's algorithm."""
    return rounds_s(allreduce_rounds("halving_doubling", n, p), itemsize, link)


E4 = Statement("E4", halving_doubling_rounds)
over_ranks(halving_doubling_s, "E1 E3 E4")


@E4.mistake("the whole vector in each round")
def never_halved(n, p):
    rounds = recursive_doubling_rounds(n, p)
    return rounds + [(n, 0)] * (p.bit_length() - 1)


@E4.mistake("the way back adds too")
def back_adds(n, p):
    halves = [Fraction(n, 2**i) for i in range(1, p.bit_length())]
    return with_extras(n, p, [(half, half) for half in halves + halves])


@E4.mistake("half the vector in each round: it is halved only once")
def halved_once(n, p):
    half, count = Fraction(n, 2), p.bit_length() - 1
    return with_extras(n, p, [(half, half)] * count + [(half, 0)] * count)


@E4.mistake("the slope of a ring of p ranks, where only q take part", halving_doubling_s)
def slope_of_p(n, p, itemsize, link):
    latencies_s = halving_doubling_s(0, p, itemsize, link)
    return latencies_s + allreduce_line("ring", p, link)[1] * itemsize * n


# ---- E5: a + b bytes ----


def allreduce_rounds(algorithm: str, n: int, p: int) -> Rounds:
    """algorithm: ring, tree, recursive_doubling or halving_doubling."""
    if algorithm == "ring":
        return reduce_scatter_rounds(n, p) + allgather_rounds(n, p)
    if algorithm == "tree":
        return tree_rounds(n, p)
    if algorithm == "recursive_doubling":
        return recursive_doubling_rounds(n, p)
    return halving_doubling_rounds(n, p)


def allreduce_line(algorithm: str, p: int, link: Link) -> tuple[float, float]:
    """E5: a + b bytes of an allreduce, for slices of equal length: a has an alpha for each round, b
    what one byte of the vector costs in all rounds.

    Source: follows from E2 to E4.
    """
    alpha, beta, gamma = link
    rounds = allreduce_rounds(algorithm, p, p)  # a vector of p: each slice is exactly 1 / p of it
    sent, added = (sum(Fraction(pair[i]) for pair in rounds) / p for i in (0, 1))
    return alpha * len(rounds), beta * float(sent) + gamma * float(added)


def run_line(module: Any, case: Case) -> Outputs:
    a = case.arguments
    sizes, link = case["in.p"].tolist(), as_link(a["link"])
    lines = [module.allreduce_line(a["algorithm"], p, link) for p in sizes]
    return {"out.line": np.array(lines, np.float64).reshape(len(sizes), 2)}


E5 = Statement("E5", allreduce_line)
LINE = JudgedFunction(
    allreduce_line, "E5", {"line": ("entry", "a, b")}, "p", run_line, bound=rounded
)
E5.given(
    "an addition for each message, also for those that are copied",
    link=lambda link: (link[0], link[1] + link[2], 0.0),
)


@LINE.fresh
def any_line(d: Draw) -> Given:
    ranks = [d.p, *(d.integer(2, 70) for _ in range(4))]
    return {"algorithm": pick(d.rng, *ALGORITHMS), "link": any_link(d), "p": ranks}


@LINE.golden
def lines() -> Cases:
    p = np.array(RANKS, np.int64)
    why = "a is the latencies, b the bytes and additions"
    for algorithm in ALGORITHMS:
        name = f"line-{algorithm.replace('_', '-')}"
        yield LINE.within(LINE.case(name, why, algorithm=algorithm, link=SLOW, p=p))


@E5.mistake("one latency, however many rounds")
def line_of_one_latency(algorithm, p, link):
    return link[0], allreduce_line(algorithm, p, link)[1]


@E5.mistake("2 p latencies and 2 n bytes a link: (p - 1) / p is left out")
def line_of_many_ranks(algorithm, p, link):
    if algorithm == "ring":
        return 2 * p * link[0], 2 * link[1] + link[2]
    return allreduce_line(algorithm, p, link)


@E5.mistake("b is per element: of a vector of one, each slice is all of it")
def line_of_one_element(algorithm, p, link):
    alpha, beta, gamma = link
    rounds = allreduce_rounds(algorithm, 1, p)
    b_s = beta * float(sum(r[0] for r in rounds)) + gamma * float(sum(r[1] for r in rounds))
    return alpha * len(rounds), b_s
