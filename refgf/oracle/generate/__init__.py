"""Makes the golden cases. Each generator asserts that its case exercises what the case's `why` claims."""

from refgf.oracle.generate import daso, large_batch, network, sparse, sums, updates


def golden_cases():
    """All cases of refgf/oracle/golden. -> list of Case"""
    return [case for module in (sums, updates, large_batch, sparse, daso, network) for case in module.cases()]
