"""Cases of shards, their batches, and cache levels."""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.seeded.generate.families import make, random_source, require
from refgf.oracle.spec.case import Case

NODES = {"one": [[0, 1, 2]], "even": [[0, 1], [2, 3]], "uneven": [[0, 3, 4], [1], [2, 5]]}


def shard_cases() -> Iterator[Case]:
    why = (
        "disjoint and complete, also where p does not divide n and nodes have different "
        "numbers of ranks"
    )
    for name, nodes in NODES.items():
        for n in (0, 5, 23):
            case = make(f"shards-{name}-{n}", "node_shards", "K1", why, {"n": n, "nodes": nodes})
            require(
                (case["out.count"].sum(axis=0) == 1).all(), case, "every sample is in one shard"
            )
            yield case


def batch_cases() -> Iterator[Case]:
    why = "every sample once an epoch, on its node, in the epoch's order; the last batch is short"
    for name, nodes in NODES.items():
        for batch_size in (6, 11):
            order = random_source(f"batches-{name}").permutation(23)
            arguments = {"nodes": nodes, "batch_size": batch_size}
            case = make(
                f"batches-{name}-{batch_size}", "node_batches", "K1 K2", why, arguments, order=order
            )
            require(sorted(case["out.samples"]) == list(range(23)), case, "every sample once")
            yield case
    order = np.array([1, 0])
    yield make(
        "batches-more-ranks-than-samples",
        "node_batches",
        "K2",
        "some ranks have no sample in any step",
        {"nodes": NODES["uneven"], "batch_size": 6},
        order=order,
    )


def level_cases() -> Iterator[Case]:
    rng, n = random_source("levels"), 13
    requests = np.concatenate([rng.permutation(n) for _ in range(3)])
    file_bytes = rng.integers(60, 140, n)
    half = int(np.cumsum(file_bytes[requests[:n]])[5])  # six files fill it exactly
    limits = {
        "nothing": (0, 0),
        "memory": (0, 4 * 30),
        "a-byte-less": (half - 1, 4 * 30 - 1),
        "both": (half, 4 * 30),
        "everything": (10**6, 10**6),
        "a-sample-too-large": (half, 29),
    }
    for name, (disk, memory) in limits.items():
        why = f"three epochs, each in another order: {name.replace('-', ' ')}"
        arguments = {"sample_bytes": 30, "disk_limit": disk, "memory_limit": memory}
        case = make(
            f"levels-{name}",
            "cache_levels",
            "K3 K4",
            why,
            arguments,
            requests=requests,
            file_bytes=file_bytes,
        )
        last = case["out.level"][2 * n :]
        require(
            (last == 0).sum() == min(n, memory // 30),
            case,
            "from the second epoch on memory serves all that it holds",
        )
        yield case


def cases() -> Iterator[Case]:
    for group in (shard_cases, batch_cases, level_cases):
        yield from group()
