"""E6, E7: the time of a collective over m nodes of k ranks, and of top-k."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from refgf.oracle.spec.case import Given
from refgf.oracle.spec.costs.flat import (
    ALEXNET,
    FAST,
    RANKS,
    SLOW,
    Link,
    allgather_rounds,
    any_link,
    halving_doubling_s,
    longest_slice,
    recursive_doubling_s,
    reduce_scatter_rounds,
    reduce_scatter_s,
    ring_s,
    rounds_s,
    seconds,
    tree_s,
)
from refgf.oracle.spec.draw import Draw, pick
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

PLACES = "n nodes ranks_per_node"
LINKS = "itemsize inside between"
NODES = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 5), (8, 4), (5, 8), (16, 4)]  # nodes, ranks on each
MANY = [(64, 16)]


def places(rounded: bool = False) -> Given:
    """Entries over nodes; rounded: every slice has the same length, in halves too."""
    entries = []
    for nodes, k in NODES if rounded else NODES + MANY:
        whole = nodes * k * 2 ** (nodes.bit_length() - 1)
        odd = [] if rounded else [1, nodes * k + 1, 1003]
        entries += [(n, nodes, k) for n in (0, whole, 40 * whole, *odd)]
    return dict(zip(PLACES.split(), (np.array(column, np.int64) for column in zip(*entries))))


def any_places(d: Draw, rounded: bool = False, sparse: bool = False) -> Given:
    """rounded: all slices, and their halves, have the same length."""
    columns: dict[str, list[int]] = {"n": [], "nodes": [], "ranks_per_node": []}
    for _ in range(4):
        nodes, k = d.integer(1, 6), d.integer(1, 6)
        whole = nodes * k * 2 ** (nodes.bit_length() - 1)
        n = d.n - d.n % whole if rounded else d.n
        for name, value in zip(columns, (n, nodes, k)):
            columns[name].append(value)
    if sparse:
        columns["chosen"] = [d.integer(0, n) for n in columns["n"]]
    links = {"itemsize": pick(d.rng, 2, 4), "inside": any_link(d), "between": any_link(d)}
    return {**links, **columns}


# ---- E6: dense ----


def three_phase_s(
    n: int, nodes: int, ranks_per_node: int, itemsize: int, inside: Link, between: Link
) -> float:
    """E6: over m nodes of k ranks, with a link inside and one between: three phases (H4) take
    4(k-1) rounds inside, each of the longest slice, of which k-1 add, and the ring over the
    masters; two levels (H5, the rounds of a 2D torus) the ring's rounds inside, and a ring of m
    over the longest slice between; log phases (H8) the tree inside, and halving-doubling over m.
    The hybrid (H6) takes three phases or the flat ring (E2), so it has no form of its own.

    Source: the rounds of H4, H5, H8. Every slice as the longest: chosen, an upper bound where
    slices differ.

    Inside there are k - 1 rounds each of reduce-scatter, gather, scatter, allgather.
    """
    there = reduce_scatter_rounds(n, ranks_per_node) + allgather_rounds(n, ranks_per_node)
    back = 2 * allgather_rounds(n, ranks_per_node)
    return rounds_s(there + back, itemsize, inside) + ring_s(n, nodes, itemsize, between)


def two_level_s(
    n: int, nodes: int, ranks_per_node: int, itemsize: int, inside: Link, between: Link
) -> float:
    """The rounds of H5: reduce-scatter in the node, a ring between nodes, allgather.

    The k rings between nodes run at the same time, each over the links of its own ranks.
    """
    own = longest_slice(n, ranks_per_node)
    inside_s = ring_s(n, ranks_per_node, itemsize, inside)
    return inside_s + ring_s(own, nodes, itemsize, between)


def log_phases_s(
    n: int, nodes: int, ranks_per_node: int, itemsize: int, inside: Link, between: Link
) -> float:
    """The rounds of H8: a tree in the node, halving-doubling over the masters, the tree back.

    p is no argument: only ceil(log2 k) and m count.
    """
    inside_s = tree_s(n, ranks_per_node, itemsize, inside)
    return inside_s + halving_doubling_s(n, nodes, itemsize, between)


def dense(definition: Callable[..., Any], title: str, rounded: bool) -> JudgedFunction:
    function = seconds(definition, "E1 E6", PLACES, LINKS)
    function.fresh(partial(any_places, rounded=rounded))

    @function.golden
    def cases() -> Cases:
        length = "the same" if rounded else "any"
        why = f"one node, nodes of one rank, and both; slices of {length} length"
        links: Given = {"itemsize": 4, "inside": FAST, "between": SLOW}
        yield function.within(function.case(f"seconds-{title}", why, **links, **places(rounded)))

    return function


E6 = Statement("E6", three_phase_s)
dense(three_phase_s, "three-phase", rounded=False)
dense(two_level_s, "two-level", rounded=True)
dense(log_phases_s, "log-phases", rounded=True)


@E6.mistake("2 (k - 1) rounds in the node: gather and scatter are forgotten")
@E6.mistake("one ring between nodes for the whole vector", two_level_s)
def ring_and_ring(n, nodes, ranks_per_node, itemsize, inside, between):
    inside_s = ring_s(n, ranks_per_node, itemsize, inside)
    return inside_s + ring_s(n, nodes, itemsize, between)


@E6.mistake("the masters' ring sends a slice only, not the whole vector")
def masters_send_slices(n, nodes, ranks_per_node, itemsize, inside, between):
    k = ranks_per_node
    rounds = reduce_scatter_rounds(n, k) + 3 * allgather_rounds(n, k)
    own = longest_slice(n, k)
    return rounds_s(rounds, itemsize, inside) + ring_s(own, nodes, itemsize, between)


@E6.mistake("the rings of a node wait for each other: k times the bytes", two_level_s)
def rings_in_turn(n, nodes, ranks_per_node, itemsize, inside, between):
    alpha, beta, gamma = between
    shared = (alpha, ranks_per_node * beta, gamma)
    return two_level_s(n, nodes, ranks_per_node, itemsize, inside, shared)


@E6.mistake("the tree in the node is not gone back", log_phases_s)
def node_tree_up_only(n, nodes, ranks_per_node, itemsize, inside, between):
    up_s = rounds_s([(n, n)] * (ranks_per_node - 1).bit_length(), itemsize, inside)
    return up_s + halving_doubling_s(n, nodes, itemsize, between)


@E6.mistake("a tree over the masters too", log_phases_s)
def tree_over_masters(n, nodes, ranks_per_node, itemsize, inside, between):
    inside_s = tree_s(n, ranks_per_node, itemsize, inside)
    return inside_s + tree_s(n, nodes, itemsize, between)


@E6.mistake("recursive doubling over the masters", log_phases_s)
def doubling_over_masters(n, nodes, ranks_per_node, itemsize, inside, between):
    inside_s = tree_s(n, ranks_per_node, itemsize, inside)
    return inside_s + recursive_doubling_s(n, nodes, itemsize, between)


@E6.mistake("nodes are ignored: log2 of all ranks, on the links between nodes", log_phases_s)
def one_tree(n, nodes, ranks_per_node, itemsize, inside, between):
    return log_phases_s(n, nodes * ranks_per_node, 1, itemsize, inside, between)


# ---- E7: top-k ----


def topk_s(p: int, chosen: int, itemsize: int, link: Link) -> float:
    """E7: top-k (T5): p-1 rounds of k values and p-1 of k indices of 4 bytes; no addition.
    HiTopKComm (T6): the ring inside, and these gathers between nodes; by pairs (T8): reduce-scatter
    inside, the gathers between nodes, and gathers of m k pairs inside.

    Source: follows from T5 to T8; choosing and adding values is not counted.
    """
    values_s = rounds_s([(chosen, 0)] * (p - 1), itemsize, link)
    return values_s + rounds_s([(chosen, 0)] * (p - 1), 4, link)


def hitopk_s(
    n: int,
    nodes: int,
    ranks_per_node: int,
    chosen: int,
    itemsize: int,
    inside: Link,
    between: Link,
) -> float:
    """The ring of the node, halved by the gathers of T6 between nodes.

    chosen: elements that the owner of a slice sends.
    """
    return ring_s(n, ranks_per_node, itemsize, inside) + topk_s(nodes, chosen, itemsize, between)


def hitopk_pairs_s(
    n: int,
    nodes: int,
    ranks_per_node: int,
    chosen: int,
    itemsize: int,
    inside: Link,
    between: Link,
) -> float:
    """The form of T8: reduce-scatter, gathers between nodes, gathers of all nodes' pairs."""
    inside_s = reduce_scatter_s(n, ranks_per_node, itemsize, inside)
    pairs_s = topk_s(ranks_per_node, nodes * chosen, itemsize, inside)
    return inside_s + topk_s(nodes, chosen, itemsize, between) + pairs_s


E7 = Statement("E7", topk_s)
TOPK = seconds(topk_s, "E1 E7", "p chosen", "itemsize link")
INDICES = "values of {} bytes, and their indices"


@TOPK.fresh
def any_gathers(d: Draw) -> Given:
    columns = {"p": [d.p, 1, d.integer(2, 70)], "chosen": [d.n, d.n, d.integer(0, 9999)]}
    return {"itemsize": pick(d.rng, 2, 4, 8), "link": any_link(d), **columns}


@TOPK.golden
def gathers() -> Cases:
    entries = [(p, k) for p in RANKS for k in (0, 1, 1003, ALEXNET // 100)]
    p, chosen = (np.array(column, np.int64) for column in zip(*entries))
    for itemsize in (2, 4):
        name, why = f"seconds-topk-{8 * itemsize}-bit", INDICES.format(itemsize)
        yield TOPK.within(TOPK.case(name, why, itemsize=itemsize, link=SLOW, p=p, chosen=chosen))


def sparse(definition: Callable[..., Any], title: str) -> JudgedFunction:
    function = seconds(definition, "E1 E7", f"{PLACES} chosen", LINKS)
    function.fresh(partial(any_places, sparse=True))

    @function.golden
    def cases() -> Cases:
        entries: Given = places()
        entries["chosen"] = -(-entries["n"] // 50)
        for itemsize in (2, 4):
            name, why = f"seconds-{title}-{8 * itemsize}-bit", INDICES.format(itemsize)
            links: Given = {"itemsize": itemsize, "inside": FAST, "between": SLOW}
            yield function.within(function.case(name, why, **links, **entries))

    return function


sparse(hitopk_s, "hitopk")
sparse(hitopk_pairs_s, "hitopk-pairs")


@E7.mistake("indices cost nothing")
def free_indices(p, chosen, itemsize, link):
    return rounds_s([(chosen, 0)] * (p - 1), itemsize, link)


@E7.mistake("values and indices in one message: half of the latencies")
def one_message(p, chosen, itemsize, link):
    return rounds_s([(chosen, 0)] * (p - 1), itemsize + 4, link)


@E7.mistake("indices have the size of values")
def indices_like_values(p, chosen, itemsize, link):
    return 2 * rounds_s([(chosen, 0)] * (p - 1), itemsize, link)


@E7.mistake("a ring allreduce of k pairs: the bytes do not grow with p")
def sparse_ring(p, chosen, itemsize, link):
    return ring_s(chosen, p, itemsize + 4, (*link[:2], 0.0))


@E7.mistake("the gathers go over all ranks, not between nodes", hitopk_s)
def gathers_everywhere(n, nodes, ranks_per_node, chosen, itemsize, inside, between):
    gathers_s = topk_s(nodes * ranks_per_node, chosen, itemsize, between)
    return ring_s(n, ranks_per_node, itemsize, inside) + gathers_s


@E7.mistake("the node sends the chosen elements only", hitopk_s)
def sparse_in_the_node(n, nodes, ranks_per_node, chosen, itemsize, inside, between):
    inside_s = rounds_s([(chosen, 0)] * (2 * (ranks_per_node - 1)), itemsize, inside)
    return inside_s + topk_s(nodes, chosen, itemsize, between)


@E7.mistake("the node gathers the pairs of one node, not of all", hitopk_pairs_s)
def pairs_of_one_node(n, nodes, ranks_per_node, chosen, itemsize, inside, between):
    inside_s = rounds_s(reduce_scatter_rounds(n, ranks_per_node), itemsize, inside)
    pairs_s = topk_s(ranks_per_node, chosen, itemsize, inside)
    return inside_s + topk_s(nodes, chosen, itemsize, between) + pairs_s
