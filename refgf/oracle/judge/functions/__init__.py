"""How each judged function is called with a case. There is a module per family.

    FUNCTIONS["ring_allreduce"].run(module, case)  ->  {"out.x": array (p, n)}

`module` is anything that has functions of the names and arguments in SPEC.md: the definitions, the
definitions with a seeded mistake, or an implementation. One array per rank becomes one array with a
first axis `rank`.
"""

import refgf.oracle.definitions  # noqa: F401  makes all records
from refgf.oracle.spec.statement import FUNCTIONS, JudgedFunction

__all__ = ["FUNCTIONS", "JudgedFunction"]
