"""MG-WFBP's first measurements next to predictions: nodes with a K80, 10 Gbit/s Ethernet, MPI.

hclhkbu/B-Caffe, scripts/gmwfbp.py, `realdata_speedup` (verified): images per second on 1, 2, 4 and
8 nodes. Those on 4 are left out, because published.K80 has no line for them.

    compute_s   batch over the throughput of one node, from the same table. The script reads it so,
                with 64 and 32 images
    lines       a, b of published.K80: fitted on the authors' log of MPI's allreduce
    merge       MG-WFBP's rule, as in rows.py

Of the 12 throughputs 11 are right within 11 %. WFBP of GoogLeNet on 8 nodes is predicted 1.3 times
too fast, because the model hides all of its 128 short calls behind backward. The script says
"ResNet": ResNet-50 is inferred.
"""

from refgf.papers.scaling.benchmark_rows import Throughputs, errors
from refgf.papers.scaling.published import K80
from refgf.papers.scaling.rows import AS_PUBLISHED, Factors, Merge
from refgf.papers.scaling.workloads import googlenet, resnet50

NODES = (2, 8)

# in the order of benchmark_rows.METHODS: SyncEASGD is one call
NETWORKS = {
    "GoogLeNet": Throughputs(
        googlenet,
        64,
        81.68 * 2,
        {
            K80.name: (
                (62.57 * 2 * 2, 2 * 55.58 * 8),
                (74.83 * 2 * 2, 2 * 62.9 * 8),
                (79.02 * 2 * 2, 2 * 75.68 * 8),
            )
        },
    ),
    "ResNet-50": Throughputs(
        resnet50,
        32,
        76.85,
        {K80.name: ((60.0 * 2, 50.8 * 8), (75.55 * 2, 58.2 * 8), (75.59 * 2, 70.8251 * 8))},
    ),
}


def k80_errors(merge: Merge, factors: Factors = AS_PUBLISHED) -> dict[tuple[str, str, int], float]:
    """{(network, method, nodes): predicted / measured - 1}"""
    return errors(K80.name, K80.lines, merge, NETWORKS, NODES, factors)


def gains_on_8_nodes(merge: Merge) -> list[tuple[float, float]]:
    """MG-WFBP's throughput over WFBP's, for each network: (published, predicted)."""
    off, found = k80_errors(merge), []
    for name, network in NETWORKS.items():
        _, wfbp, merged = (rates[-1] for rates in network.measured[K80.name])
        ours = (1 + off[name, "MG-WFBP", 8]) / (1 + off[name, "WFBP-A2A", 8])
        found.append((merged / wfbp, ours * merged / wfbp))
    return found
