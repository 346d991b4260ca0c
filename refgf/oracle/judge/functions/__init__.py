"""How each judged function is called with a case. There is a module per family.

    FUNCTIONS["ring_allreduce"].run(module, case)  ->  {"out.x": array (p, n)}

`module` is anything that has functions of the names and arguments in SPEC.md: the definitions, the
definitions with a seeded mistake, or an implementation. One array per rank becomes one array with a
first axis `rank`.
"""

from refgf.oracle.judge.functions import (
    daso,
    network,
    topk,
    updates,
)
from refgf.oracle.judge.functions.before import JudgedFunction
from refgf.oracle.spec.statement import FUNCTIONS

MODULES = (updates, daso, topk, network)
for module in MODULES:
    FUNCTIONS.update(module.FUNCTIONS)

__all__ = ["FUNCTIONS", "JudgedFunction"]
