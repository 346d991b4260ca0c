"""Nodes, the sums of their slices, and cases. Lesson 10 asks for the ranks of each node."""

from typing import Any

import numpy as np

from refgf.oracle.spec.calls import same_bits
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source, some_nodes
from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise, not_in_float16
from refgf.oracle.spec.families import FAMILY_SAYS, any_vectors, inputs
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import Arrays, ring_allreduce, slice_bounds
from refgf.oracle.spec.statement import JudgedFunction

Nodes = list[list[int]]  # the ranks of each node, [[0, 1], [2, 3], ...], every rank once


def node_slices(xs: Arrays, wire: str | None = None) -> Arrays:
    """The sums of a node's slices: left folds as in R2, with R3's roundings except the last."""
    k, folds = len(xs), []
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for s, (i, j) in enumerate(slice_bounds(len(xs[0]), k)):
            total = xs[s][i:j]
            for t in range(1, k):
                total = xs[(s + t) % k][i:j] + on_wire(total, wire)
            folds.append(total)
    return folds


NODES = {
    "one-rank": [[0]],
    "one-node": [[0, 1, 2]],
    "alone": [[0], [1], [2]],
    "2-2": [[0, 1], [2, 3]],
    "uneven": [[0, 1], [2, 3, 4], [5]],
    "dealt": [[4, 0], [1, 5], [3, 2]],
    "3x3": [[0, 1, 2], [3, 4, 5], [6, 7, 8]],
    "4x3": [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]],
}
LONG_NODE = {  # a node whose tree and ring differ, and one node too many
    "5-1-1": [[0, 1, 2, 3, 4], [5], [6]]
}


def proving(
    function: JudgedFunction, name: str, statements: str, n: int, family: str, **arguments: Any
) -> Case:
    """A case whose numbers give other bits in ring order, if its family claims this."""
    wire = arguments["wire"]
    p = arguments.pop("p", 0) or sum(map(len, arguments["nodes"]))
    why = f"{FAMILY_SAYS[family]}; n = {n}, p = {p}"
    for seed in range(20):
        x = inputs(family, p, n, "float32", random_source(name, seed), wire)
        case = function.case(name, why, statements, family, **arguments, x=x)
        flat = ring_allreduce(list(x), wire)[0]
        if family != "sensitive" or p < 4 or n < 8 or not same_bits(flat, case["out.x"][0]):
            break
    else:
        case.shows(False, "the order shows")
    return case


def any_flat(d: Draw) -> Given:
    wire = pick(d.rng, None, "float16")
    return {"wire": wire, "x": any_vectors(d, "float32", wire)}


def any_nodes(d: Draw, equal: bool = False) -> Given:
    """equal: as many ranks on each node."""
    nodes = some_nodes(d.rng, d.p, equal)
    wire = pick(d.rng, None, "float16")
    return {"wire": wire, "nodes": nodes, "x": any_vectors(d, "float32", wire)}


# ---- nodes_of(hosts): given in the starter ----


def nodes_of(hosts: list[str]) -> Nodes:
    return [[r for r, h in enumerate(hosts) if h == host] for host in dict.fromkeys(hosts)]


def any_size(random: np.random.Generator) -> list[Arguments]:
    drawn = [f"n{i}" for i in sorted(random.integers(1, 20, 9).tolist())]
    return [(list("aabb"),), (list("abbbcc"),), (drawn,)]


def any_order(random: np.random.Generator) -> list[Arguments]:
    drawn = [f"n{i}" for i in random.integers(0, 4, 12)]
    return [(list("baba"),), (["n7"],), (drawn,)]


NODES_10 = Exercise("10.1", nodes_of)
NODES_10.part("nodes of any size", 1, any_size)
NODES_10.part("ranks in any order, one rank", 1, any_order)

# ---- cases of the other exercises. Numbers are whole: every order gives the same bits ----


def vectors(random: np.random.Generator, p: int, n: int) -> Arrays:
    """Whole numbers, one of them not in float16. -> p float32 arrays (n,)"""
    xs = [random.integers(1, 100, n).astype(np.float32) for _ in range(p)]
    xs[-1][:1] = not_in_float16(random, 1)
    return xs


def consecutive(m: int, k: int) -> Nodes:
    """m nodes of k neighbouring ranks."""
    return [list(range(i * k, i * k + k)) for i in range(m)]


def round_robin(m: int, k: int) -> Nodes:
    return [list(range(i, m * k, m)) for i in range(m)]


def with_nodes(*shapes: tuple[Nodes, int]) -> Drawn:
    """Cases (xs, nodes), from (nodes, n) each."""
    return lambda random: [
        (vectors(random, sum(map(len, nodes)), n), nodes)
        for nodes, n in [*shapes, (shapes[0][0], shapes[0][1] * int(random.integers(1, 5)))]
    ]
