"""Public benchmarks next to predictions: 108 throughputs on three networks, and 12 on K80.

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

The same for the authors' first measurements: nodes with a K80, 10 Gbit/s Ethernet, MPI (K80_*).
Those on 4 nodes are left out, because published.K80 has no line for them. compute_s is read as the
script reads it, with 64 and 32 images. Of the 12 throughputs 11 are right within 11 %. WFBP of
GoogLeNet on 8 nodes is predicted 1.3 times too fast, because the model hides all of its 128 short
calls behind backward. The script says "ResNet": ResNet-50 is inferred.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from refgf.arguments import checked
from refgf.papers.scaling import tables
from refgf.papers.scaling.published import (
    INFINIBAND,
    INFINIBAND_EXTENDED,
    INFINIBAND_LATER,
    K80,
    TEN_GIGABIT,
    TEN_GIGABIT_EXTENDED,
)
from refgf.papers.scaling.rows import AS_PUBLISHED, Factors, Merge, steps_s, varied
from refgf.papers.scaling.shapes import Workload
from refgf.papers.scaling.transformer import bert_large
from refgf.papers.scaling.workloads import googlenet, resnet50
from refgf.predict.cost import Line, Link, ring_line

GPUS = (4, 8, 16, 32)
METHODS = ("BSP-A2A", "WFBP-A2A", "MG-WFBP")
GPUS_A_NODE, NODES = 4, (2, 8)  # NODES: with a K80
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


def throughputs(table: str, makers: dict[str, Callable[[], Workload]]) -> dict[str, Throughputs]:
    """{network: its rows} of a file in tables/."""
    found = {}
    for name, data in tables.read(table).items():
        each = {
            connection: tuple(tuple(rates[method]) for method in METHODS)
            for connection, rates in data["measured"].items()
        }
        found[name] = Throughputs(makers[name], data["batch"], data["single"], each)
    return found


NETWORKS = throughputs(
    "ddl_benchmarks", {"ResNet-50": resnet50, "BERT-Large": bert_64, "BERT-Base": bert_base}
)
K80_NETWORKS = throughputs("b_caffe", {"GoogLeNet": googlenet, "ResNet-50": resnet50})


def predicted(network: Throughputs, ranks: int, line: Line, merge: Merge) -> list[float]:
    """Samples per second of METHODS on this many ranks."""
    gradients = network.make().step_gradients(network.batch / network.single)
    wfbp_s, one_call_s, merged_s = steps_s(gradients, line, merge)
    return [ranks * network.batch / step_s for step_s in (one_call_s, wfbp_s, merged_s)]


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


def k80_errors(merge: Merge, factors: Factors = AS_PUBLISHED) -> dict[tuple[str, str, int], float]:
    """{(network, method, nodes): predicted / measured - 1}"""
    return errors(K80.name, K80.lines, merge, K80_NETWORKS, NODES, factors)


def gains_on_8_nodes(merge: Merge) -> list[tuple[float, float]]:
    """MG-WFBP's throughput over WFBP's on K80, for each network: (published, predicted)."""
    off, found = k80_errors(merge), []
    for name, network in K80_NETWORKS.items():
        _, wfbp, merged = (rates[-1] for rates in network.measured[K80.name])
        ours = (1 + off[name, "MG-WFBP", 8]) / (1 + off[name, "WFBP-A2A", 8])
        found.append((merged / wfbp, ours * merged / wfbp))
    return found
