"""Generators of the golden cases. Each asserts that its case exercises what `why` claims."""

from refgf.oracle.seeded.generate import (
    daso,
    daso_heat,
    edges,
    network,
    resnet50,
    roundings,
    topk,
)
from refgf.oracle.spec import statement
from refgf.oracle.spec.case import Case


def golden_cases() -> list[Case]:
    """All cases of refgf/oracle/golden."""
    modules = (topk, daso)
    modules += (daso_heat, network, resnet50, roundings, edges)
    return [*statement.golden_cases(), *(case for module in modules for case in module.cases())]
