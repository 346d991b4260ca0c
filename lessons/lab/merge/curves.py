"""Lesson 09: MG-WFBP, WFBP and SyncEASGD from 4 to 2048 GPUs, predicted; nothing is measured.

    found = curves.predict(run)      on rank 0: arithmetic only

The GPUs are those of lesson 08's far curves: 64 images of ResNet-50 each, at a rate that others
have measured. So are the rings: alpha, beta and gamma of others, of which 56 Gbit/s has a range.
"""

import kit
from lab.scaling.far import CLUSTERS, IB, RESNET_BATCH, RESNET_RATE, TEN
from lab.scaling.points import FAR
from lab.scaling.published_tables import span
from refgf.papers.mgwfbp.merge import exact_merge, greedy_merge
from refgf.papers.scaling.scaling import curve
from refgf.papers.scaling.systems import System
from refgf.papers.scaling.workloads import resnet50
from refgf.predict.timeline import one_call

WFBP, SYNC, RULE, BEST = "WFBP", "SyncEASGD", "MG-WFBP", "best merge"
SYSTEMS = (
    System(WFBP),
    System(SYNC, grouping=lambda gradients, allreduce_s: one_call(gradients)),
    System(RULE, grouping=greedy_merge),
    System(BEST, grouping=exact_merge),
)


def predict(run: kit.Run) -> dict:
    """Scaling efficiency in percent: {cluster: {"sizes", "systems": {name: [(low, high)]}}}."""
    sizes, workload, found = run.quick([4, 64, 2048], FAR), resnet50(), {}
    run.section("PREDICTED: merged gradients on up to 2048 GPUs")
    for cluster in (TEN, IB):
        inputs = RESNET_RATE, RESNET_BATCH, *CLUSTERS[cluster]
        systems = {
            system.name: [*curve(workload, system, sizes, inputs).values()] for system in SYSTEMS
        }
        found[cluster] = {"sizes": sizes, "systems": systems}
        run.say(f"{workload.name} on {cluster}: scaling efficiency in percent")
        cells = [[p, *(span(ends[i]) for ends in systems.values())] for i, p in enumerate(sizes)]
        run.table(["GPUs", *systems], cells)
    run.say("Nothing is measured here. MG-WFBP: its greedy rule; two numbers: ends of a range.")
    return found


def efficiency(result: dict, cluster: str, name: str, size: int, end: int) -> float | None:
    """Percent at the low (0) or the high (1) end; None where this result has no such point."""
    at = result.get("curves", {}).get(cluster)
    if at and size in at["sizes"]:
        return at["systems"][name][at["sizes"].index(size)][end]
    return None
