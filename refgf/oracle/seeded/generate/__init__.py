"""Makes the golden cases. Each generator asserts that its case exercises what the case's `why` claims."""

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


def golden_cases():
    """All cases of refgf/oracle/golden. -> list of Case"""
    modules = (sums, hierarchy, updates, large_batch, sparse, topk, daso, cache, network, resnet50)
    return [case for module in modules for case in module.cases()]
