"""The phases of a collective: in which of them do wrong counts of messages or elements differ?

    phases_of(case)                      {"reduce-scatter": (p, 2) messages and elements, ...}
    in_words(case, values, index)        " (by phase: reduce-scatter 3, allgather 3; got these
                                         without the allgather)"

Phases are of the definitions' algorithms (R6, D4, H7, T7, T8). A program that sends the same counts
in other phases is right: only totals are judged, and phases explain a wrong one.
"""

from collections.abc import Callable

import numpy as np

from refgf.oracle.definitions import keep_count, slice_bounds
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.daso.traffic import tree_children
from refgf.oracle.spec.hierarchy.flat import hands_over

Count = tuple[int, int]  # messages, and elements or bytes
Phases = dict[str, Count]  # of one rank, in the order of time
INSIDE, BETWEEN = " in the node", " between nodes"


def lengths(n: int, p: int) -> list[int]:
    return [stop - start for start, stop in slice_bounds(n, p)]


def ring(n: int, p: int, rank: int, where: str = "") -> Phases:
    sent, steps = lengths(n, p), p - 1
    first, second = (n - sent[(rank + i) % p] if steps else 0 for i in (1, 2))
    return {"reduce-scatter" + where: (steps, first), "allgather" + where: (steps, second)}


def direct(n: int, p: int, rank: int) -> Phases:
    own = lengths(n, p)[rank]
    return {"reduce-scatter": (p - 1, n - own), "allgather": (p - 1, (p - 1) * own)}


def tree(n: int, p: int, rank: int, where: str = "") -> Phases:
    children = tree_children(rank, p)
    return {"reduce" + where: (int(rank > 0), n * (rank > 0))} | {
        "broadcast" + where: (children, children * n)
    }


def doubling(n: int, p: int, rank: int, halving: bool, where: str = "") -> Phases:
    """H2 and H7: extra ranks hand over, q exchange, and the extra ranks receive the sum."""
    q = 1 << (p.bit_length() - 1)
    extras, rounds = p - q, q.bit_length() - 1
    extra = rank < 2 * extras
    sends = extra and hands_over(rank)
    hand_over, back = (int(sends), n * sends), (int(extra and not sends), n * (extra and not sends))
    middle = {"exchange" + where: (0, 0) if sends else (rounds, rounds * n)}
    if halving:
        number = rank // 2 if extra else rank - extras
        first, second = (0, 0) if sends else halves(number, n, q)
        middle = {"reduce-scatter" + where: (0 if sends else rounds, first)}
        middle["allgather" + where] = (0 if sends else rounds, second)
    return {"hand-over" + where: hand_over, **middle, "return" + where: back}


def halves(number: int, n: int, q: int) -> Count:
    """Elements that participant `number` of halving-doubling sends away, and later returns."""
    sent, first, last, away, kept = lengths(n, q), 0, q, 0, 0
    for bit in range(q.bit_length() - 1):
        middle = (first + last) // 2
        low, high = sum(sent[first:middle]), sum(sent[middle:last])
        upper = number >> bit & 1
        away, kept = away + (low if upper else high), kept + (high if upper else low)
        first, last = (middle, last) if upper else (first, middle)
    return away, kept


def three_phase(n: int, k: int, j: int, m: int, i: int) -> Phases:
    """H4: rank j of node i; rank 0 of a node is its master."""
    sent, inside = lengths(n, k), ring(n, k, j)
    to_master = (1, sent[(j + 1) % k]) if j else (0, 0)
    scatter = (0, 0) if j else (k - 1, n - sent[1 % k])
    back = (k - 1, n - sent[j])
    phases = {
        "reduce-scatter" + INSIDE: inside["reduce-scatter"],
        "gather to the master": to_master,
    }
    between = ring(n, m, i, BETWEEN)
    phases |= {name: (0, 0) for name in between} if j else between
    return phases | {"scatter by the master": scatter, "reversed ring" + INSIDE: back}


def two_level(n: int, k: int, j: int, m: int, i: int) -> Phases:
    inside = ring(n, k, j, INSIDE)
    last = inside.popitem()
    return inside | ring(lengths(n, k)[(j + 1) % k], m, i, BETWEEN) | dict([last])


def log_phases(n: int, k: int, j: int, m: int, i: int) -> Phases:
    inside, between = tree(n, k, j, INSIDE), doubling(n, m, i, True, BETWEEN)
    last = inside.popitem()
    between = {name: (0, 0) for name in between} if j else between
    return inside | between | dict([last])


def schedule(arguments: dict, rank: int) -> Phases:
    """Of schedule_traffic (H7)."""
    n, nodes, algorithm = (arguments[name] for name in ("n", "nodes", "algorithm"))
    p = sum(map(len, nodes))
    flat = {
        "tree": lambda: tree(n, p, rank),
        "recursive_doubling": lambda: doubling(n, p, rank, halving=False),
        "halving_doubling": lambda: doubling(n, p, rank, halving=True),
    }
    over_nodes = {"three_phase": three_phase, "two_level": two_level, "log_phases": log_phases}
    if algorithm in flat:
        return flat[algorithm]()
    return over_nodes[algorithm](n, *place(nodes, rank))


def place(nodes: list[list[int]], rank: int) -> tuple[int, int, int, int]:
    """(ranks of its node, its place there, nodes, number of its node)"""
    i = next(i for i, node in enumerate(nodes) if rank in node)
    return len(nodes[i]), list(nodes[i]).index(rank), len(nodes), i


def sparse(arguments: dict, rank: int, pairs: bool = False) -> Phases:
    """Of topk_traffic and hitopk_pairs_traffic (T7, T8), in messages and bytes."""
    n, nodes, percent = (arguments[name] for name in ("n", "nodes", "percent"))
    size = arguments.get("itemsize", 4)
    if not pairs and not arguments["hierarchical"]:
        others = sum(map(len, nodes)) - 1
        return gathered(others, others * keep_count(n, percent), size, "")
    k, j, m, _ = place(nodes, rank)
    chosen = keep_count(lengths(n, k)[(j + 1) % k], percent)
    dense = {name: (c, size * e) for name, (c, e) in ring(n, k, j, INSIDE).items()}
    last = dense.popitem()
    last = gathered(k - 1, (k - 1) * m * chosen, size, INSIDE) if pairs else dict([last])
    return dense | gathered(m - 1, (m - 1) * chosen, size, BETWEEN) | last


def gathered(messages: int, pairs: int, size: int, where: str) -> Phases:
    return {"values" + where: (messages, size * pairs), "indices" + where: (messages, 4 * pairs)}


OF_A_RANK: dict[str, Callable[[dict, int], Phases]] = {
    "ring_traffic": lambda a, rank: ring(a["n"], a["p"], rank),
    "direct_traffic": lambda a, rank: direct(a["n"], a["p"], rank),
    "schedule_traffic": schedule,
    "topk_traffic": sparse,
    "hitopk_pairs_traffic": lambda a, rank: sparse(a, rank, pairs=True),
}


def phases_of(case: Case) -> dict[str, np.ndarray]:
    """{phase: (p, 2)}; {} unless they add up to what the case wants."""
    wanted = case["out.traffic"]
    try:
        ranks = [OF_A_RANK[case.function](case.arguments, r) for r in range(len(wanted))]
    except (KeyError, StopIteration, TypeError, IndexError):
        return {}  # a case of others, with other arguments
    if not ranks:
        return {}
    found = {name: np.array([of[name] for of in ranks], np.int64) for name in ranks[0]}
    return found if np.array_equal(sum(found.values()), wanted) else {}


def in_words(case: Case, values: tuple[np.ndarray, np.ndarray], index: tuple[int, ...]) -> str:
    """What this count consists of, and the phase that all ranks' counts lack or have twice.

    values: got and wanted, (p, 2). Empty where nothing is known of the phases.
    """
    if case.function not in OF_A_RANK or not (phases := phases_of(case)):
        return ""
    shown = ", ".join(f"{name} {each[index]}" for name, each in phases.items() if each[index])
    off = values[0] - values[1]
    for sign, how in ((-1, "without the {}"), (1, "with the {} twice")):
        same = [name for name, each in phases.items() if each.any() and (off == sign * each).all()]
        if same:
            return f" (by phase: {shown}; got these {how.format(' or the '.join(same))})"
    return f" (by phase: {shown})"
