"""How the judged functions of hierarchies, top-k, caches and ResNet-50 are called with a case (see functions.py).

    PEERS[name] = (run, axes)        run(module, case) -> {"out.NAME": array}
"""

import numpy as np


def hierarchy(name, *arguments):
    """An allreduce over nodes: a list of p arrays in, a list of p arrays out."""

    def run(module, case):
        settings = {a: case.arguments[a] for a in arguments}
        return {"out.x": np.stack(getattr(module, name)([x.copy() for x in case["in.x"]], **settings))}

    return run, {"x": ("rank", "element")}


def traffic(name, *before, after=()):
    """(messages, elements or bytes) of every rank; the arguments stand before and after the rank's number."""

    def run(module, case):
        first, last = ([case.arguments[a] for a in names] for names in (before, after))
        ranks = range(sum(map(len, case.arguments["nodes"])))
        return {"out.traffic": np.array([getattr(module, name)(*first, r, *last) for r in ranks], np.int64)}

    return run, {"traffic": ("rank", "messages, elements or bytes")}


def sparse_run(name, *arguments):
    """-> the sum and what is kept, per step and rank."""

    def run(module, case):
        steps = getattr(module, name)([list(gs) for gs in case["in.g"]], *(case.arguments[a] for a in arguments))
        return {f"out.{key}": np.array([step[key] for step in steps]) for key in ("x", "kept")}

    return run, {key: ("step", "rank", "element") for key in ("x", "kept")}


def choice(name, *arguments):
    def run(module, case):
        chosen = getattr(module, name)(case["in.x"], **{a: case.arguments[a] for a in arguments})
        return {"out.chosen": np.asarray(chosen, np.int64)}

    return run, {"chosen": ("place",)}


def keep_count(module, case):
    percents, n = case["in.percent"], case.arguments["n"]
    return {"out.k": np.array([module.keep_count(n, float(percent)) for percent in percents], np.int64)}


def resnet50_step(module, case):
    tensors = [case[f"in.tensor{i:03}"] for i in range(161)]
    loss, gradients = module.resnet50_step(case["in.images"], case["in.labels"], tensors, case.arguments["global_batch"])
    return {"out.loss": np.float64(loss), **{f"out.gradient{i:03}": g for i, g in enumerate(gradients)}}


def node_shards(module, case):
    """-> how often each sample is in each shard (0 or 1, if all is well)"""
    n, nodes = case.arguments["n"], case.arguments["nodes"]
    counts = [np.bincount(np.asarray(shard, np.int64), minlength=n) for shard in module.node_shards(n, nodes)]
    return {"out.count": np.array(counts, np.int64).reshape(len(nodes), n)}


def node_batches(module, case):
    """-> how many samples each rank has in each step, and which: one rank's after the other's, step after step"""
    nodes = case.arguments["nodes"]
    steps = module.node_batches(case["in.order"].tolist(), nodes, case.arguments["batch_size"])
    lengths = np.array([[len(part) for part in step] for step in steps], np.int64)
    samples = [int(i) for step in steps for part in step for i in part]
    return {"out.length": lengths.reshape(len(steps), sum(map(len, nodes))), "out.samples": np.array(samples, np.int64)}


def cache_levels(module, case):
    limits = [case.arguments[a] for a in ("sample_bytes", "disk_limit", "memory_limit")]
    levels = module.cache_levels(case["in.requests"].tolist(), case["in.file_bytes"].tolist(), *limits)
    return {"out.level": np.array(levels, np.int64)}


PEERS = {
    "tree_allreduce": hierarchy("tree_allreduce", "wire"),
    "doubling_allreduce": hierarchy("doubling_allreduce", "wire"),
    "three_phase_allreduce": hierarchy("three_phase_allreduce", "nodes", "wire"),
    "two_level_allreduce": hierarchy("two_level_allreduce", "nodes", "wire"),
    "log_phases_allreduce": hierarchy("log_phases_allreduce", "nodes", "wire"),
    "hybrid_allreduce": hierarchy("hybrid_allreduce", "nodes", "threshold", "wire"),
    "schedule_traffic": traffic("schedule_traffic", "algorithm", "n", "nodes"),
    "keep_count": (keep_count, {"k": ("density",)}),
    "top_k": choice("top_k", "k"),
    "mstopk": choice("mstopk", "k", "start", "rounds"),
    "topk_run": sparse_run("topk_run", "percent"),
    "hitopk_run": sparse_run("hitopk_run", "nodes", "percent"),
    "node_shards": (node_shards, {"count": ("node", "sample")}),
    "node_batches": (node_batches, {"length": ("step", "rank"), "samples": ("place",)}),
    "cache_levels": (cache_levels, {"level": ("request",)}),
    "topk_traffic": traffic("topk_traffic", "n", "nodes", "percent", after=("hierarchical",)),
    "resnet50_step": (resnet50_step, {"loss": ()}),
}
