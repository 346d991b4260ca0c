"""Mistakes in top-k, MSTopK, error feedback and HiTopKComm."""

import numpy as np

from refgf.oracle.definitions import (
    hitopk_pairs_traffic,
    hitopk_run,
    keep_count,
    node_slices,
    sparsify,
    top_k,
    topk_run,
    topk_traffic,
)
from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("T1", "keep_count", "rounded down")
def rounded_down(n, percent):
    return min(n, max(1, int(n * percent / 100)))


@mistake("T1", "keep_count", "rounded up from a float, so that 1.1 % of 1000 is 12")
def float_ceiling(n, percent):
    return min(n, max(1, int(np.ceil(n * (percent / 100)))))


@mistake("T1", "keep_count", "rounded down, and one more: too many where the product is whole")
def one_more(n, percent):
    return min(n, int(n * percent / 100) + 1)


@mistake("T2", "top_k", "the largest values, not magnitudes")
def by_value(x, k):
    return np.array(sorted(sorted(range(len(x)), key=lambda i: (-x[i], i))[:k]), np.int64)


@mistake("T2", "top_k", "of equal magnitudes the last")
def last_of_equals(x, k):
    return np.array(sorted(sorted(range(len(x)), key=lambda i: (-abs(x[i]), -i))[:k]), np.int64)


@mistake("T2", "top_k", "not sorted by index")
def by_size(x, k):
    return np.array(sorted(range(len(x)), key=lambda i: (-abs(x[i]), i))[:k], np.int64)


@mistake("T3", "mstopk", "all elements above the last threshold, more than k")
def too_many(x, k, start=0.0, rounds=30):
    size = np.abs(x)
    return np.flatnonzero(size >= (np.sort(size)[-k] * 0.99 if k else np.inf))


@mistake("T3", "mstopk", "`start` is ignored: the neighbours are always the first ones")
def start_ignored(x, k, start=0.0, rounds=30):
    from refgf.oracle.definitions import mstopk

    return mstopk(x, k, 0.0, rounds)


@mistake("T3", "mstopk", "exact top-k in its place")
def exact(x, k, start=0.0, rounds=30):
    return top_k(x, k)


@mistake("T4", "sparsify", "the residual is dropped")
def dropped(kept, g, k):
    return sparsify(np.zeros_like(g), g, k)


@mistake("T4", "sparsify", "sent elements stay in the residual")
def not_cleared(kept, g, k):
    return sparsify(kept, g, k)[0], kept + g


@mistake("T4", "sparsify", "chosen by the new gradient alone")
def chosen_too_early(kept, g, k):
    chosen, accumulated, sent = top_k(g, k), kept + g, np.zeros_like(g)
    sent[chosen] = accumulated[chosen]
    accumulated[chosen] = 0
    return sent, accumulated


@mistake("T5", "topk_run", "divided by p")
def averaged(gs, percent):
    return [
        {"x": [x / np.float32(len(gs[0])) for x in step["x"]], "kept": step["kept"]}
        for step in topk_run(gs, percent)
    ]


@mistake("T5", "topk_run", "all ranks together send k, not each of them")
def shared_k(gs, percent):
    return topk_run(gs, percent / len(gs[0]))


@mistake("T6", "hitopk_run", "k of the whole vector, not of the slice")
def k_of_all(gs, nodes, percent):
    n, g = len(gs[0][0]), len(nodes[0])
    return hitopk_run(gs, nodes, min(100.0, 100.0 * keep_count(n, percent) / max(1, n // g)))


@mistake("T6", "hitopk_run", "every rank chooses before the node's sum")
def chosen_before_the_sum(gs, nodes, percent):
    kept, reports = [np.zeros_like(x) for x in gs[0]], []
    for step in gs:
        pairs = [sparsify(h, g, keep_count(len(g), percent)) for h, g in zip(kept, step)]
        total = np.zeros_like(step[0])
        for node in nodes:
            total = total + np.concatenate(node_slices([pairs[r][0] for r in node]))
        kept = [h for _, h in pairs]
        reports.append({"x": [total.copy() for _ in step], "kept": kept})
    return reports


@mistake("T7", "topk_traffic", "indices are not counted")
def without_indices(n, nodes, percent, rank, hierarchical=False, itemsize=4):
    messages, nbytes = topk_traffic(n, nodes, percent, rank, hierarchical, itemsize)
    others = (len(nodes) if hierarchical else sum(map(len, nodes))) - 1
    return messages, nbytes - 4 * others * keep_count(n, percent) if not hierarchical else nbytes


@mistake("T8", "hitopk_pairs_traffic", "in the node each rank passes on its own pairs alone")
def own_pairs(n, nodes, percent, rank, itemsize=4):
    messages, nbytes = hitopk_pairs_traffic(n, nodes, percent, rank, itemsize)
    g, m, k = len(nodes[0]), len(nodes), keep_count(n // len(nodes[0]), percent)
    return messages, nbytes - (g - 1) * (m - 1) * k * (itemsize + 4)


@mistake("T8", "hitopk_pairs_traffic", "the dense slices are gathered in the node")
def dense_in_the_node(n, nodes, percent, rank, itemsize=4):
    return topk_traffic(n, nodes, percent, rank, True, itemsize)


@mistake("T8", "hitopk_pairs_traffic", "the indices stay with their owner in the node")
def indices_stay(n, nodes, percent, rank, itemsize=4):
    messages, nbytes = hitopk_pairs_traffic(n, nodes, percent, rank, itemsize)
    g, m, k = len(nodes[0]), len(nodes), keep_count(n // len(nodes[0]), percent)
    return messages - (g - 1), nbytes - (g - 1) * m * k * 4


@mistake("T8", "hitopk_pairs_traffic", "k of the whole vector, not of the slice")
def pairs_of_all(n, nodes, percent, rank, itemsize=4):
    messages, nbytes = hitopk_pairs_traffic(n, nodes, percent, rank, itemsize)
    g, m = len(nodes[0]), len(nodes)
    more = keep_count(n, percent) - keep_count(n // g, percent)
    return messages, nbytes + more * (g * m - 1) * (itemsize + 4)
