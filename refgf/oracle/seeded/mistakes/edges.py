"""Mistakes at edges: nothing to divide by, no batch waited, exactly at a limit."""

from refgf.oracle.definitions import (
    daso_merge,
    daso_phases,
    heat_merge,
    heat_phases,
    keep_count,
    slice_bounds,
    topk_traffic,
)
from refgf.oracle.seeded.mistakes.registry import mistake


@mistake("A6", "daso_merge", "without a batch the own parameters do not count")
def daso_own_lost(w, total, nodes, waited):
    return daso_merge(w, total, nodes, waited) if waited else total / w.dtype.type(nodes)


@mistake("A15", "heat_merge", "without a batch the own parameters do not count")
def heat_own_lost(w, total, nodes, waited):
    return heat_merge(w, total, nodes, waited) if waited else total / w.dtype.type(nodes)


@mistake("A10", "daso_phases", "a loss exactly at the threshold counts as better")
def daso_at_the_threshold(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return daso_phases(losses, epochs, warmup, cooldown, largest, threshold - 1e-12, patience)


@mistake("A19", "heat_phases", "a loss exactly at the threshold counts as better")
def heat_at_the_threshold(losses, epochs, warmup, cooldown, largest=8, threshold=0.05, patience=2):
    return heat_phases(losses, epochs, warmup, cooldown, largest, threshold - 1e-12, patience)


@mistake("T7", "topk_traffic", "a rank of a node sends its own slice, not the next one")
def own_slice(n, nodes, percent, rank, hierarchical=False, itemsize=4):
    messages, nbytes = topk_traffic(n, nodes, percent, rank, hierarchical, itemsize)
    node = next(list(node) for node in nodes if rank in node)
    kept = [keep_count(stop - start, percent) for start, stop in slice_bounds(n, len(node))]
    j = node.index(rank)
    more = (len(nodes) - 1) * (kept[j] - kept[(j + 1) % len(node)]) * (itemsize + 4)
    return messages, nbytes + more * hierarchical
