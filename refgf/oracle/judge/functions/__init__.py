"""How each judged function is called with a case. There is a module per family.

    FUNCTIONS["ring_allreduce"].run(module, case)  ->  {"out.x": array (p, n)}

`module` is anything that has functions of the names and arguments in SPEC.md: the definitions, the
definitions with a seeded mistake, or an implementation. One array per rank becomes one array with a
first axis `rank`.
"""

from refgf.oracle.judge.functions import (
    cache,
    costs,
    daso,
    hierarchy,
    merge,
    network,
    sparse,
    sums,
    topk,
    updates,
)
from refgf.oracle.judge.functions.judged import JudgedFunction
from refgf.oracle.judge.functions.sums import PLAIN_SUMS

MODULES = (sums, updates, sparse, daso, hierarchy, topk, cache, network, merge, costs)
FUNCTIONS: dict[str, JudgedFunction] = {
    name: function for module in MODULES for name, function in module.FUNCTIONS.items()
}

__all__ = ["FUNCTIONS", "PLAIN_SUMS", "JudgedFunction"]
