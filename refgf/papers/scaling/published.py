"""Published machines, each with its source and how well it is known.

The lines are whole allreduces, T(bytes) = a + b bytes, for each number of GPUs. The clusters have 4
GPUs per node, so lines of 2 and 4 GPUs are inside one node. A line holds for the sizes on which it
was fitted; beyond, it is an extrapolation. The authors' code fits lines to 32 kB to 2 MB
(`_benchmark_communication`); that its stored lines come from these sizes, too, is inferred. So is
that the GPUs of MG-WFBP's two clusters are V100: comments elsewhere in its code name P102-100 and
V100 (utils.py), but it names no GPU next to these lines.
"""

from refgf.papers.scaling.machine import Machine
from refgf.predict.cost import Line, Link

_ONE_NODE = {2: Line(2.555e-6, 9.838e-11), 4: Line(4.204e-5, 2.059e-10)}
_AUTHORS = "HKBU-HPML/MG-WFBP, distributed_optimizer.py (the two clusters of the TPDS paper)"
_LATER = (
    "HKBU-HPML/ddl-benchmarks, mgwfbp/hv_distributed_optimizer.py; factors scaled by hand appear "
    "in its code"
)

TEN_GIGABIT = Machine(
    "MG-WFBP, 10 Gbit/s Ethernet",
    _AUTHORS,
    "verified",
    lines=_ONE_NODE | {8: Line(5.230e-4, 8.571e-10), 16: Line(9.081e-4, 7.396e-10)},
)

INFINIBAND = Machine(
    "MG-WFBP, 56 Gbit/s InfiniBand",
    _AUTHORS,
    "verified",
    lines=_ONE_NODE | {8: Line(9.754e-5, 3.057e-10), 16: Line(2.358e-4, 4.059e-10)},
)

TEN_GIGABIT_EXTENDED = Machine(
    "ddl-benchmarks, 10 Gbit/s Ethernet, 32 and 64 GPUs",
    _LATER,
    "verified",
    lines={32: Line(4.043e-3, 8.643e-10), 64: Line(7.043e-3, 9.643e-10)},
)

INFINIBAND_EXTENDED = Machine(
    "ddl-benchmarks, 56 Gbit/s InfiniBand, 32 and 64 GPUs",
    _LATER,
    "verified",
    lines={32: Line(4.063e-4, 4.907e-10), 64: Line(8.063e-4, 5.888e-10)},
)

INFINIBAND_LATER = Machine(
    "ddl-benchmarks, 56 Gbit/s InfiniBand, 16 GPUs",
    _LATER,
    "verified",
    lines={16: Line(7.075e-4, 4.059e-10)},  # MG-WFBP's, with three times the latency
)

# beta = 1.2 / B with B = 9 * 2**30 / 8 bytes/s; gamma = 160 / 64e9 s per byte
SIMULATION = Machine(
    "MG-WFBP simulations, 10 Gbit/s Ethernet",
    "hclhkbu/B-Caffe, scripts/gmwfbp.py, and the authors' plotting script (the former has 2 N "
    "alpha where 2 (N-1) alpha is meant)",
    "verified",
    links={"between": Link(45.25e-6, 1.2 / (9 * 2**30 / 8), 160 / 64e9)},
)

K80 = Machine(
    "B-Caffe, K80, 10 Gbit/s Ethernet, MPI",
    "hclhkbu/B-Caffe, logdata/allreduce{2,8}.log: lines through the points of 8 kB to 500 kB",
    "computed",
    lines={2: Line(99e-6, 1.69e-9), 8: Line(961e-6, 2.41e-9)},
)

PYDTNN = Machine(
    "PyDTNN defaults, 1 Gbit/s network",
    "hpca-uji/PyDTNN, pydtnn/parser.py: 0.5 us, 1 Gbit/s, additions of 4-byte numbers at 4 Tflop/s "
    "(formulas: performance_models.py)",
    "verified",
    links={"between": Link(0.5e-6, 8e-9, 1 / (4e12 * 4))},
)

MACHINES = (
    TEN_GIGABIT,
    INFINIBAND,
    TEN_GIGABIT_EXTENDED,
    INFINIBAND_EXTENDED,
    INFINIBAND_LATER,
    SIMULATION,
    K80,
    PYDTNN,
)
