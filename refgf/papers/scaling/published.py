"""Published machines (tables/machines.toml), each with its source and how well it is known.

The lines are whole allreduces, T(bytes) = a + b bytes, for each number of GPUs. The clusters have 4
GPUs per node, so lines of 2 and 4 GPUs are inside one node. A line holds for the sizes on which it
was fitted; beyond, it is an extrapolation. The authors' code fits lines to 32 kB to 2 MB
(`_benchmark_communication`); that its stored lines come from these sizes, too, is inferred. So is
that the GPUs of MG-WFBP's two clusters are V100: comments elsewhere in its code name P102-100 and
V100 (utils.py), but it names no GPU next to these lines.
"""

from refgf.papers.scaling import machine, tables

_NAMED = {name: machine.of(data) for name, data in tables.read("machines").items()}
MACHINES = tuple(_NAMED.values())
TEN_GIGABIT, INFINIBAND = _NAMED["TEN_GIGABIT"], _NAMED["INFINIBAND"]
TEN_GIGABIT_EXTENDED = _NAMED["TEN_GIGABIT_EXTENDED"]
INFINIBAND_EXTENDED = _NAMED["INFINIBAND_EXTENDED"]
INFINIBAND_LATER = _NAMED["INFINIBAND_LATER"]
SIMULATION, K80, PYDTNN = _NAMED["SIMULATION"], _NAMED["K80"], _NAMED["PYDTNN"]
