"""A public benchmark next to predictions: 108 throughputs on three networks.

HKBU-HPML/ddl-benchmarks, results/2020-05-29/README.md (verified): images or sentences per second of
ResNet-50, BERT-Base and BERT-Large on 1, 4, 8, 16 and 32 GPUs, 4 a node. 27 of its 63 rows are
here. The other 36 are of parameter servers and ByteScheduler, for which no system here stands.

    compute_s   batch over the throughput of one GPU, from the same table
    LINES       a, b of published.py: those with which the code of the same benchmark merges. On 100
                Gbit/s, with RDMA or TCP, it takes the lines of 56 Gbit/s InfiniBand, for 16 GPUs
                with three times the latency that MG-WFBP's code has
    WIRE        the same a for 10 Gbit/s; b of a ring whose nodes have one such link each
    merge       MG-WFBP's rule, as in rows.py

BSP-A2A is one call after backward, WFBP-A2A one call per tensor (verified: benchmarks.py).

10 Gbit/s. The fitted b of 16 GPUs is 0.74 ns a byte, but 10 Gbit/s allow a ring 1.5 ns at least. So
LINES, from messages of at most 2 MB, predict BERT, which is all bytes, up to twice too fast. WIRE
is right within 10 % for one call over several nodes. Both are far too slow for WFBP on 32 GPUs:
with a = 4 ms, scaled by hand, the latencies of ResNet-50's 161 calls alone exceed the measured
step.

100 Gbit/s. With RDMA all twelve throughputs of ResNet-50 are right within 11 %. BERT is predicted
up to 1.7 times too fast, most of all inside a node. TCP is slower than the lines, which are not
its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from refgf.arguments import checked
from refgf.papers.scaling.published import (
    INFINIBAND,
    INFINIBAND_EXTENDED,
    INFINIBAND_LATER,
    TEN_GIGABIT,
    TEN_GIGABIT_EXTENDED,
)
from refgf.papers.scaling.rows import AS_PUBLISHED, Factors, Merge, varied
from refgf.papers.scaling.shapes import Workload
from refgf.papers.scaling.transformer import bert_large
from refgf.papers.scaling.workloads import resnet50
from refgf.predict.cost import Line, Link, ring_line
from refgf.predict.timeline import eager, one_call, predict

GPUS = (4, 8, 16, 32)
METHODS = ("BSP-A2A", "WFBP-A2A", "MG-WFBP")
GPUS_A_NODE = 4
ETHERNET_10, INFINIBAND_100, ETHERNET_100 = (
    "10GbE with TCP/IP",
    "100GbIB with RDMA",
    "100GbE with TCP/IP",
)  # as the table spells them
FITTED_10 = TEN_GIGABIT.lines | TEN_GIGABIT_EXTENDED.lines
FITTED_56 = INFINIBAND.lines | INFINIBAND_LATER.lines | INFINIBAND_EXTENDED.lines
LINES = {ETHERNET_10: FITTED_10, INFINIBAND_100: FITTED_56, ETHERNET_100: FITTED_56}
WIRE = {
    p: Line(line.a_s, ring_line(p, Link(0.0, 8 / 10e9)).b_s_per_byte) if p > GPUS_A_NODE else line
    for p, line in FITTED_10.items()
}
bert_64 = partial(bert_large, tokens=64)  # (verified: mgwfbp/horovod_mpi_cj.sh, its default)
bert_base = partial(bert_64, layers=12, features=768)

Rates = tuple[float, ...]  # samples per second on each number of ranks


@checked
@dataclass(frozen=True)
class Throughputs:
    """single: samples per second on one GPU; measured: on each connection, of each of METHODS."""

    make: Callable[[], Workload]
    batch: int
    single: float
    measured: dict[str, tuple[Rates, Rates, Rates]]


NETWORKS = {
    "ResNet-50": Throughputs(
        resnet50,
        64,
        253.1,
        {
            ETHERNET_10: (
                (925.02, 1282.28, 2485.12, 4920.82),
                (1015.4, 1795.74, 3146.78, 5113.18),
                (1003.18, 1980.58, 3784.98, 6883.6),
            ),
            INFINIBAND_100: (
                (920.28, 1821.2, 3602.9, 7126.52),
                (1014.28, 2017.12, 3946.06, 7326.56),
                (1003.9, 2001.72, 3987.4, 7876.46),
            ),
            ETHERNET_100: (
                (926.0, 1601.36, 3087.16, 5744.76),
                (1015.1, 1985.74, 3650.74, 6141.38),
                (1002.68, 1990.68, 3945.96, 7540.94),
            ),
        },
    ),
    "BERT-Large": Throughputs(
        bert_64,
        8,
        49.0,
        {
            ETHERNET_10: (
                (53.04, 28.96, 54.3, 105.1),
                (56.04, 29.06, 53.42, 101.96),
                (57.34, 30.04, 54.26, 105.02),
            ),
            INFINIBAND_100: (
                (53.08, 99.18, 191.64, 375.22),
                (56.3, 101.68, 185.42, 339.82),
                (57.5, 106.78, 205.78, 400.16),
            ),
            ETHERNET_100: (
                (52.9, 55.8, 103.34, 187.0),
                (56.0, 54.82, 98.98, 174.78),
                (57.54, 62.02, 107.48, 191.46),
            ),
        },
    ),
    "BERT-Base": Throughputs(
        bert_base,
        64,
        212.8,
        {
            ETHERNET_10: (
                (555.52, 518.94, 984.88, 1926.64),
                (634.1, 582.26, 1069.48, 2013.38),
                (659.06, 611.44, 1153.18, 1925.78),
            ),
            INFINIBAND_100: (
                (555.7, 1082.42, 2112.96, 4184.38),
                (631.8, 1195.68, 2217.22, 4098.68),
                (660.42, 1235.04, 2515.3, 4940.08),
            ),
            ETHERNET_100: (
                (555.36, 804.62, 1504.62, 2815.72),
                (632.58, 933.2, 1671.62, 2987.48),
                (658.42, 1021.4, 1880.28, 3540.8),
            ),
        },
    ),
}


def predicted(network: Throughputs, ranks: int, line: Line, merge: Merge) -> list[float]:
    """Samples per second of METHODS on this many ranks."""
    workload, compute_s = network.make(), network.batch / network.single
    forward_s = compute_s * workload.forward_flops / workload.step_flops
    gradients = workload.gradients(compute_s - forward_s, forward_s, 4)
    every = one_call(gradients), eager(gradients), merge(gradients, line)
    return [ranks * network.batch / predict(gradients, groups, line).step_s for groups in every]


def errors(
    connection: str,
    lines: dict[int, Line],
    merge: Merge,
    networks: dict[str, Throughputs] = NETWORKS,
    sizes: tuple[int, ...] = GPUS,
    factors: Factors = AS_PUBLISHED,
) -> dict[tuple[str, str, int], float]:
    """{(network, method, ranks): predicted / measured - 1}; lines: LINES[connection] or WIRE."""
    (alpha, beta, pace), found = factors, {}
    for name, network in networks.items():
        paced = replace(network, single=network.single / pace)
        for ranks, *measured in zip(sizes, *network.measured[connection], strict=True):
            ours = predicted(paced, ranks, varied(lines[ranks], alpha, beta), merge)
            for method, mine, theirs in zip(METHODS, ours, measured):
                found[name, method, ranks] = mine / theirs - 1
    return found
