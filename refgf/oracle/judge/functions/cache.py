"""Shards, batches and cache levels of a data set (K)."""

from typing import Any

import numpy as np

from refgf.oracle.judge.functions.before import JudgedFunction, Outputs, select
from refgf.oracle.spec.case import Case


def node_shards(module: Any, case: Case) -> Outputs:
    """How often each sample is in each shard: (nodes, n), 0 or 1 if all is well."""
    n, nodes = case.arguments["n"], case.arguments["nodes"]
    shards = [np.asarray(shard, np.int64) for shard in module.node_shards(n, nodes)]
    counts = [np.bincount(shard, minlength=n) for shard in shards]
    return {"out.count": np.array(counts, np.int64).reshape(len(nodes), n)}


def node_batches(module: Any, case: Case) -> Outputs:
    """How many samples each rank has in each step, and which: rank after rank, step after step."""
    nodes, order = case.arguments["nodes"], case["in.order"].tolist()
    steps = module.node_batches(order, nodes, case.arguments["batch_size"])
    lengths = np.array([[len(batch) for batch in step] for step in steps], np.int64)
    samples = [int(i) for step in steps for batch in step for i in batch]
    return {
        "out.length": lengths.reshape(len(steps), sum(map(len, nodes))),
        "out.samples": np.array(samples, np.int64),
    }


def cache_levels(module: Any, case: Case) -> Outputs:
    limits = select(case, "sample_bytes", "disk_limit", "memory_limit").values()
    requests, file_bytes = case["in.requests"].tolist(), case["in.file_bytes"].tolist()
    return {"out.level": np.array(module.cache_levels(requests, file_bytes, *limits), np.int64)}


FUNCTIONS = {
    "node_shards": JudgedFunction(node_shards, {"count": ("node", "sample")}),
    "node_batches": JudgedFunction(
        node_batches, {"length": ("step", "rank"), "samples": ("place",)}
    ),
    "cache_levels": JudgedFunction(cache_levels, {"level": ("request",)}),
}
