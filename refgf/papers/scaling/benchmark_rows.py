"""A public benchmark next to predictions: 36 throughputs on 10 Gbit/s Ethernet.

HKBU-HPML/ddl-benchmarks, results/2020-05-29/README.md (verified): images or sentences per second of
ResNet-50, BERT-Base and BERT-Large on 1, 4, 8, 16 and 32 GPUs, 4 a node. Its rows of parameter
servers and ByteScheduler are left out, as no system here stands for them. So are those on 100
Gbit/s, for which no fitted line is public.

    compute_s   batch over the throughput of one GPU, from the same table
    FITTED      a, b of published.py: the code of the same benchmark holds these lines
    WIRE        the same a; b of a ring whose nodes have one 10 Gbit/s link each
    merge       MG-WFBP's rule, as in rows.py

BSP-A2A is one call after backward, WFBP-A2A one call per tensor (verified: benchmarks.py).

The fitted b of 16 GPUs is 0.74 ns a byte, but 10 Gbit/s allow a ring 1.5 ns at least. So FITTED,
from messages of at most 2 MB, predicts BERT, which is all bytes, up to twice too fast. WIRE is
right within 10 % for one call over several nodes. Both are far too slow for WFBP on 32 GPUs: with
a = 4 ms, scaled by hand, the latencies of ResNet-50's 161 calls alone exceed the measured step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from refgf.papers.scaling.published import TEN_GIGABIT, TEN_GIGABIT_EXTENDED
from refgf.papers.scaling.rows import Merge
from refgf.papers.scaling.shapes import Workload
from refgf.papers.scaling.transformer import bert_large
from refgf.papers.scaling.workloads import resnet50
from refgf.predict.cost import Line, Link, ring_line
from refgf.predict.timeline import eager, one_call, predict

GPUS = (4, 8, 16, 32)
METHODS = ("BSP-A2A", "WFBP-A2A", "MG-WFBP")
GPUS_A_NODE = 4
FITTED = TEN_GIGABIT.lines | TEN_GIGABIT_EXTENDED.lines
WIRE = {
    p: Line(line.a_s, ring_line(p, Link(0.0, 8 / 10e9)).b_s_per_byte) if p > GPUS_A_NODE else line
    for p, line in FITTED.items()
}
bert_base = partial(bert_large, layers=12, features=768)

Four = tuple[float, float, float, float]  # samples per second on each of GPUS


@dataclass(frozen=True)
class Throughputs:
    """single: samples per second on one GPU; measured: for each of METHODS."""

    make: Callable[[], Workload]
    batch: int
    single: float
    measured: tuple[Four, Four, Four]


NETWORKS = {
    "ResNet-50": Throughputs(
        resnet50,
        64,
        253.1,
        (
            (925.02, 1282.28, 2485.12, 4920.82),
            (1015.4, 1795.74, 3146.78, 5113.18),
            (1003.18, 1980.58, 3784.98, 6883.6),
        ),
    ),
    "BERT-Large": Throughputs(
        bert_large,
        8,
        49.0,
        (
            (53.04, 28.96, 54.3, 105.1),
            (56.04, 29.06, 53.42, 101.96),
            (57.34, 30.04, 54.26, 105.02),
        ),
    ),
    "BERT-Base": Throughputs(
        bert_base,
        64,
        212.8,
        (
            (555.52, 518.94, 984.88, 1926.64),
            (634.1, 582.26, 1069.48, 2013.38),
            (659.06, 611.44, 1153.18, 1925.78),
        ),
    ),
}


def predicted(network: Throughputs, gpus: int, line: Line, merge: Merge) -> list[float]:
    """Samples per second of METHODS on this many GPUs."""
    workload, compute_s = network.make(), network.batch / network.single
    forward_s = compute_s * workload.forward_flops / workload.step_flops
    gradients = workload.gradients(compute_s - forward_s, forward_s, 4)
    every = one_call(gradients), eager(gradients), merge(gradients, line)
    return [gpus * network.batch / predict(gradients, groups, line).step_s for groups in every]


def errors(lines: dict[int, Line], merge: Merge) -> dict[tuple[str, str, int], float]:
    """{(network, method, GPUs): predicted / measured - 1}; lines: FITTED or WIRE."""
    found = {}
    for name, network in NETWORKS.items():
        for gpus, *measured in zip(GPUS, *network.measured):
            ours = predicted(network, gpus, lines[gpus], merge)
            for method, mine, theirs in zip(METHODS, ours, measured):
                found[name, method, gpus] = mine / theirs - 1
    return found
