"""T7, T8: what each rank sends with top-k, and with both forms of HiTopKComm."""

import numpy as np

from refgf.oracle.spec.calls import node_traffic
from refgf.oracle.spec.case import Given
from refgf.oracle.spec.draw import Draw, pick, some_nodes
from refgf.oracle.spec.exercise import Arguments, Drawn, Exercise
from refgf.oracle.spec.hierarchy.nodes import Nodes
from refgf.oracle.spec.ring import slice_bounds
from refgf.oracle.spec.ring_steps import ring_traffic
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement
from refgf.oracle.spec.topk.choice import keep_count, rounded_down_to_none

BUDGET, AXES = ("n", "nodes", "percent"), {"traffic": ("rank", "messages, bytes")}

# ---- T7: pairs between ranks or nodes ----


def topk_traffic(
    n: int,
    nodes: Nodes,
    percent: float,
    rank: int,
    hierarchical: bool = False,
    itemsize: int = 4,
) -> tuple[int, int]:
    """T7: messages and bytes that each rank sends: values and indices of 4 bytes, in messages of
    their own, 2(p-1) or, with HiTopKComm on m nodes of g ranks, 2(m-1), and HiTopKComm's dense ring
    in the node, which ends with an allgather of the summed slices.

    Source: follows from T5, T6; dense slices in the last step: chosen, the public code has T8.
    """
    p, node = sum(map(len, nodes)), next(list(node) for node in nodes if rank in node)
    if not hierarchical:
        return 2 * (p - 1), (p - 1) * keep_count(n, percent) * (itemsize + 4)
    g, m, j = len(node), len(nodes), node.index(rank)
    start, stop = slice_bounds(n, g)[(j + 1) % g]
    messages, elements = ring_traffic(n, g, j)
    sparse_bytes = keep_count(stop - start, percent) * (itemsize + 4)
    return messages + 2 * (m - 1), itemsize * elements + (m - 1) * sparse_bytes


T7 = Statement("T7", topk_traffic)
TRAFFIC = JudgedFunction(
    topk_traffic,
    "T7",
    AXES,
    run=node_traffic("topk_traffic", *BUDGET, after=("hierarchical",)),
)


@TRAFFIC.fresh
def any_share(d: Draw) -> Given:
    nodes, percent = some_nodes(d.rng, d.p, True), pick(d.rng, 1, 1.1, 10, 100)
    return {"n": d.n, "nodes": nodes, "percent": percent, "hierarchical": pick(d.rng, False, True)}


@TRAFFIC.golden
def traffic_cases() -> Cases:
    for hierarchical, form in ((False, "flat"), (True, "nodes")):
        why = "values and indices; 1003 elements in uneven slices"
        for nodes in ([[0]], [[0, 1, 2]], [[0, 1], [2, 3]], [[4, 0], [1, 5], [3, 2]]):
            sizes = "-".join(str(len(node)) for node in nodes)
            given: Given = {"n": 1003, "nodes": nodes, "percent": 1, "hierarchical": hierarchical}
            yield TRAFFIC.case(f"topk-traffic-{form}-{sizes}", why, **given)
        why = "1 % of 1000 and of 500 are whole"
        given = {"n": 1000, "nodes": [[0, 1], [2, 3]], "percent": 1, "hierarchical": hierarchical}
        yield TRAFFIC.case(f"topk-traffic-{form}-whole-share", why, **given)
    why = "10 elements in slices of 4, 3 and 3, all of them sent: whose slice a rank sends shows"
    given = {"n": 10, "nodes": [[0, 1, 2], [3, 4, 5]], "percent": 100, "hierarchical": True}
    yield TRAFFIC.case("topk-traffic-nodes-uneven", why, **given)


@T7.mistake("indices are not counted")
def without_indices(n, nodes, percent, rank, hierarchical=False, itemsize=4):
    messages, nbytes = topk_traffic(n, nodes, percent, rank, hierarchical, itemsize)
    others = (len(nodes) if hierarchical else sum(map(len, nodes))) - 1
    return messages, nbytes - 4 * others * keep_count(n, percent) if not hierarchical else nbytes


@T7.mistake("a rank of a node sends its own slice, not the next one")
def own_slice(n, nodes, percent, rank, hierarchical=False, itemsize=4):
    messages, nbytes = topk_traffic(n, nodes, percent, rank, hierarchical, itemsize)
    node = next(list(node) for node in nodes if rank in node)
    kept = [keep_count(stop - start, percent) for start, stop in slice_bounds(n, len(node))]
    j = node.index(rank)
    more = (len(nodes) - 1) * (kept[j] - kept[(j + 1) % len(node)]) * (itemsize + 4)
    return messages, nbytes + more * hierarchical


# ---- T8: pairs in the node, too ----


def hitopk_pairs_traffic(
    n: int, nodes: Nodes, percent: float, rank: int, itemsize: int = 4
) -> tuple[int, int]:
    """T8: HiTopKComm by pairs, where g divides n: after the gather between nodes the g ranks of a
    node gather the m k values, and the m k indices, that each has of its slice, and each adds up
    all slices: T6's results. A rank sends 3(g-1) + 2(m-1) messages.

    Source: public code of others (`hitopkcomm` on BytePS), which sends other n, and short arrays,
    uncompressed.

    g ranks on each of m nodes. In the node a ring passes the pairs on, values and indices apart.
    """
    g, m = len(nodes[0]), len(nodes)
    k = keep_count(n // g, percent)
    pairs = (m - 1) * k + (g - 1) * m * k
    messages = (g - 1) + 2 * (m - 1) + 2 * (g - 1)  # reduce-scatter, between nodes, in the node
    return messages, itemsize * (n - n // g) + pairs * (itemsize + 4)


T8 = Statement("T8", hitopk_pairs_traffic)
PAIRS = JudgedFunction(
    hitopk_pairs_traffic, "T8", AXES, run=node_traffic("hitopk_pairs_traffic", *BUDGET)
)


@PAIRS.fresh
def divided_by_nodes(d: Draw) -> Given:
    """Every node divides n."""
    nodes, percent = some_nodes(d.rng, d.p, True), pick(d.rng, 1, 1.1, 10, 100)
    return {"n": d.n - d.n % len(nodes[0]), "nodes": nodes, "percent": percent}


@PAIRS.golden
def pairs_cases() -> Cases:
    """Nodes that divide n; at 10 % the pairs outweigh the dense slices of T7."""
    why = "pairs are sent in the node too; k is that of a slice"
    for nodes in ([[0]], [[0, 1, 2]], [[0], [1], [2]], [[0, 1], [2, 3]], [[4, 0, 2], [1, 5, 3]]):
        sizes = "-".join(str(len(node)) for node in nodes)
        for n, percent in ((1002, 1), (1002, 10), (0, 1)):
            name = f"hitopk-pairs-traffic-{sizes}-n{n}-{percent}"
            yield PAIRS.case(name, why, n=n, nodes=nodes, percent=percent)


@T8.mistake("in the node each rank passes on its own pairs alone")
def own_pairs(n, nodes, percent, rank, itemsize=4):
    messages, nbytes = hitopk_pairs_traffic(n, nodes, percent, rank, itemsize)
    g, m, k = len(nodes[0]), len(nodes), keep_count(n // len(nodes[0]), percent)
    return messages, nbytes - (g - 1) * (m - 1) * k * (itemsize + 4)


@T8.mistake("the dense slices are gathered in the node")
def dense_in_the_node(n, nodes, percent, rank, itemsize=4):
    return topk_traffic(n, nodes, percent, rank, True, itemsize)


@T8.mistake("the indices stay with their owner in the node")
def indices_stay(n, nodes, percent, rank, itemsize=4):
    messages, nbytes = hitopk_pairs_traffic(n, nodes, percent, rank, itemsize)
    g, m, k = len(nodes[0]), len(nodes), keep_count(n // len(nodes[0]), percent)
    return messages - (g - 1), nbytes - (g - 1) * m * k * 4


@T8.mistake("k of the whole vector, not of the slice")
def pairs_of_all(n, nodes, percent, rank, itemsize=4):
    messages, nbytes = hitopk_pairs_traffic(n, nodes, percent, rank, itemsize)
    g, m = len(nodes[0]), len(nodes)
    more = keep_count(n, percent) - keep_count(n // g, percent)
    return messages, nbytes + more * (g * m - 1) * (itemsize + 4)


# ---- exercise: the bytes of a step ----


def step_bytes(n: int, percent: float, p: int, value_bytes: int) -> tuple[float, float]:
    """(dense, top-k), as floats, so that a student's may be whole numbers or not."""
    dense = value_bytes * ring_traffic(n, p, 0)[1]
    sparse = topk_traffic(n, [list(range(p))], percent, 0, itemsize=value_bytes)[1]
    return float(dense), float(sparse)


def pools(value_bytes: int) -> Drawn:
    """p divides n, and k is whole. p is not 2, where a ring sends as much as an allgather."""

    def cases(random: np.random.Generator) -> list[Arguments]:
        ps = [4, int(random.integers(5, 20))]
        return [
            (100 * p * int(random.integers(1, 999)), percent, p, value_bytes)
            for p, percent in zip(ps, (1, 10))
        ]

    return cases


def rounded_up(random: np.random.Generator) -> list[Arguments]:
    drawn = 100 * int(random.integers(9, 999)) + 50
    return [(250, 1, 5, 4), (900, 0.5, 3, 4), (drawn, 1, 5, 4)]


# 2 (p-1) / p may be rounded before it is multiplied
BYTES_12 = Exercise("12.5", step_bytes, relative=1e-12)
BYTES_12.part("float32 values", 1, pools(4))
BYTES_12.part("16-bit values", 1, pools(2))
BYTES_12.part("k is rounded up", 1, rounded_up)
BYTES_12.part(
    "one rank sends nothing", 1, lambda random: [(int(random.integers(1, 999)) * 100, 1, 1, 4)]
)


@BYTES_12.mistake("you forget the indices: 4 bytes for each value that is sent")
def values_alone(n, percent, p, value_bytes):
    dense, sparse = step_bytes(n, percent, p, value_bytes)
    return dense, sparse * value_bytes / (value_bytes + 4)


@BYTES_12.mistake("an index has 4 bytes, whatever the bytes of a value")
def indices_as_wide_as_values(n, percent, p, value_bytes):
    dense, sparse = step_bytes(n, percent, p, value_bytes)
    return dense, sparse * 2 * value_bytes / (value_bytes + 4)


@BYTES_12.mistake("a rank sends its pairs to the p-1 other ranks, not to itself")
def pairs_to_itself_too(n, percent, p, value_bytes):
    dense, _ = step_bytes(n, percent, p, value_bytes)
    return dense, float(p * keep_count(n, percent) * (value_bytes + 4))


@BYTES_12.mistake(
    "you count pairs as a ring's slices: they cannot be summed on the way, so all p-1 other "
    "ranks need all of a rank's pairs"
)
def pairs_summed_like_slices(n, percent, p, value_bytes):
    dense, sparse = step_bytes(n, percent, p, value_bytes)
    return dense, 2 * sparse / p


@BYTES_12.mistake("you count one phase of the dense ring: reduce-scatter and allgather make two")
def one_phase(n, percent, p, value_bytes):
    dense, sparse = step_bytes(n, percent, p, value_bytes)
    return dense / 2, sparse


@BYTES_12.mistake("a step of the dense ring sends one of p slices, not all elements")
def whole_vectors(n, percent, p, value_bytes):
    dense, sparse = step_bytes(n, percent, p, value_bytes)
    return dense * p, sparse


@BYTES_12.mistake("you round k down; wanted up: call keep_count")
def k_rounded_down(n, percent, p, value_bytes):
    dense, _ = step_bytes(n, percent, p, value_bytes)
    return dense, float((p - 1) * rounded_down_to_none(n, percent) * (value_bytes + 4))
