"""K1, K2: which samples a node owns, and in which order its ranks take them."""

from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, random_source, some_nodes
from refgf.oracle.spec.exercise import Arguments, Exercise
from refgf.oracle.spec.hierarchy.nodes import Nodes
from refgf.oracle.spec.ring import slice_bounds
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement

NODES = {"one": [[0, 1, 2]], "even": [[0, 1], [2, 3]], "uneven": [[0, 3, 4], [1], [2, 5]]}

# ---- K1: shards ----


def node_shards(n: int, nodes: Nodes) -> list[list[int]]:
    """K1: sample i belongs to the node of rank i mod p, in every epoch: shards are disjoint and
    complete.

    Source: that nodes have shards is inferred (DataCache, Shi et al. 2021); how they are divided is
    chosen.

    nodes: the ranks of each node, [[0, 1], [2, 3]]. -> the samples of each node, ascending
    """
    p = sum(map(len, nodes))
    return [[i for i in range(n) if i % p in ranks] for ranks in nodes]


def run_shards(module: Any, case: Case) -> Outputs:
    """How often each sample is in each shard: (nodes, n), 0 or 1 if all is well."""
    n, nodes = case.arguments["n"], case.arguments["nodes"]
    shards = [np.asarray(shard, np.int64) for shard in module.node_shards(n, nodes)]
    counts = [np.bincount(shard, minlength=n) for shard in shards]
    return {"out.count": np.array(counts, np.int64).reshape(len(nodes), n)}


K1 = Statement("K1", node_shards)
SHARDS = JudgedFunction(node_shards, "K1", {"count": ("node", "sample")}, run=run_shards)
SHARDS.fresh(lambda d: {"n": min(d.n, 90), "nodes": some_nodes(d.rng, d.p)})


@SHARDS.golden
def shard_cases() -> Cases:
    why = (
        "disjoint and complete, also where p does not divide n and nodes have different "
        "numbers of ranks"
    )
    for name, nodes in NODES.items():
        for n in (0, 5, 23):
            case = SHARDS.case(f"shards-{name}-{n}", why, n=n, nodes=nodes)
            once = (case["out.count"].sum(axis=0) == 1).all()
            yield case.shows(once, "every sample is in one shard")


def several_nodes(random: np.random.Generator) -> list[Arguments]:
    return [(int(random.integers(20, 400)), [[0, 1], [2, 3]]), (23, [[0, 3], [1, 4], [2]])]


def one_node(random: np.random.Generator) -> list[Arguments]:
    drawn = int(random.integers(6, 400)), [[0, 1]]
    return [(5, [[0, 1]]), (1, [[0], [1]]), (0, [[0]]), drawn]


SHARDS_14 = Exercise("14.1", node_shards, "shards")
SHARDS_14.part("several nodes", 1, several_nodes)
SHARDS_14.part("one node, fewer samples than nodes, no samples", 1, one_node)


@K1.mistake("shards are blocks of neighbours")
def blocks(n, nodes):
    p = sum(map(len, nodes))
    bounds = slice_bounds(n, p)
    return [sorted(i for rank in ranks for i in range(*bounds[rank])) for ranks in nodes]


@K1.mistake(
    "assigned round robin to nodes, not to ranks: nodes with more ranks get no more samples"
)
def by_node(n, nodes):
    return [list(range(node, n, len(nodes))) for node in range(len(nodes))]


@K1.mistake("the n mod p last samples are lost")
def rest_lost(n, nodes):
    p = sum(map(len, nodes))
    return [[i for i in range(n - n % p) if i % p in ranks] for ranks in nodes]


# ---- K2: batches ----


def node_batches(order: list[int], nodes: Nodes, batch_size: int) -> list[list[list[int]]]:
    """K2: in each epoch a node takes its samples in the order of the epoch: up to step s
    floor(len(shard) min((s+1) B, n) / n) of them for a global batch B; its ranks divide those of a
    step as in R1. Every sample occurs once.

    Source: chosen: with one node these are the plain batches.

    order: a permutation. -> [step][rank] -> samples
    """
    n, steps = len(order), []
    for first in range(0, n, batch_size):
        step: list[list[int]] = [[]] * sum(map(len, nodes))
        for ranks, shard in zip(nodes, node_shards(n, nodes)):
            start, stop = (len(shard) * min(taken, n) // n for taken in (first, first + batch_size))
            samples = [i for i in order if i in shard][start:stop]
            for rank, (a, b) in zip(ranks, slice_bounds(len(samples), len(ranks))):
                step[rank] = samples[a:b]
        steps.append(step)
    return steps


def run_batches(module: Any, case: Case) -> Outputs:
    """How many samples each rank has in each step, and which: rank after rank, step after step."""
    nodes, order = case.arguments["nodes"], case["in.order"].tolist()
    steps = module.node_batches(order, nodes, case.arguments["batch_size"])
    lengths = np.array([[len(batch) for batch in step] for step in steps], np.int64)
    samples = [int(i) for step in steps for batch in step for i in batch]
    return {
        "out.length": lengths.reshape(len(steps), sum(map(len, nodes))),
        "out.samples": np.array(samples, np.int64),
    }


K2 = Statement("K2", node_batches)
AXES = {"length": ("step", "rank"), "samples": ("place",)}
BATCHES = JudgedFunction(node_batches, "K1 K2", AXES, "order", run_batches)


@BATCHES.fresh
def any_order(d: Draw) -> Given:
    nodes, batch_size = some_nodes(d.rng, d.p), d.p * d.integer(1, 3)
    return {"nodes": nodes, "batch_size": batch_size, "order": d.rng.permutation(min(d.n, 90))}


@BATCHES.golden
def batch_cases() -> Cases:
    why = "every sample once an epoch, on its node, in the epoch's order; the last batch is short"
    for name, nodes in NODES.items():
        for batch_size in (6, 11):
            order = random_source(f"batches-{name}").permutation(23)
            title, size = f"batches-{name}-{batch_size}", batch_size
            case = BATCHES.case(title, why, nodes=nodes, batch_size=size, order=order)
            yield case.shows(sorted(case["out.samples"]) == list(range(23)), "every sample once")
    name, why = "batches-more-ranks-than-samples", "some ranks have no sample in any step"
    yield BATCHES.case(name, why, "K2", nodes=NODES["uneven"], batch_size=6, order=[1, 0])


@K2.mistake("slices of the batch over all ranks: shards are ignored")
def without_shards(order, nodes, batch_size):
    p = sum(map(len, nodes))
    batches = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    return [[batch[a:b] for a, b in slice_bounds(len(batch), p)] for batch in batches]


@K2.mistake("each node takes batch_size k / p samples a step, and the remainder is lost")
def rest_of_a_shard_lost(order, nodes, batch_size):
    n, p = len(order), sum(map(len, nodes))
    steps = [[None] * p for _ in range(0, n, batch_size)]
    for ranks, shard in zip(nodes, node_shards(n, nodes)):
        mine, each = [i for i in order if i in shard], batch_size * len(ranks) // p
        for s, step in enumerate(steps):
            batch = mine[s * each : (s + 1) * each]
            for rank, (a, b) in zip(ranks, slice_bounds(len(batch), len(ranks))):
                step[rank] = batch[a:b]
    return steps


@K2.mistake("every epoch has the order of the data set")
def never_shuffled(order, nodes, batch_size):
    n, steps = len(order), []
    for first in range(0, n, batch_size):
        step: list[list[int]] = [[]] * sum(map(len, nodes))
        for ranks, shard in zip(nodes, node_shards(n, nodes)):
            start, stop = (len(shard) * min(taken, n) // n for taken in (first, first + batch_size))
            for rank, (a, b) in zip(ranks, slice_bounds(stop - start, len(ranks))):
                step[rank] = shard[start:stop][a:b]
        steps.append(step)
    return steps
