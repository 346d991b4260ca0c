"""Generators of the golden cases. Each asserts that its case exercises what `why` claims."""

from refgf.oracle.judge.case import Case
from refgf.oracle.seeded.generate import (
    cache,
    daso,
    hierarchy,
    large_batch,
    network,
    resnet50,
    sparse,
    sums,
    topk,
    updates,
)


def golden_cases() -> list[Case]:
    """All cases of refgf/oracle/golden."""
    modules = (sums, hierarchy, updates, large_batch, sparse, topk, daso, cache, network, resnet50)
    return [case for module in modules for case in module.cases()]
