"""What the theta explorer shows for one setting: the page runs this module in the browser.

It imports the standard library, and modules of this project that do the same, so that Pyodide's
core can run it. Times are in seconds, sizes in bytes.
"""

import json
from dataclasses import replace
from functools import lru_cache
from math import inf

from refgf.papers.mgwfbp.merge import exact_merge, greedy_merge
from refgf.papers.scaling.scaling import ready_of, thresholds
from refgf.papers.scaling.systems import System, chosen_chunks, scaling_efficiency, step
from refgf.papers.scaling.workloads import WORKLOADS
from refgf.predict.cost import Link, ring_line
from refgf.predict.timeline import PredictedStep

ITEMSIZES = {"float32": 4, "float16": 2}
DENSE = 100  # percent of the chunks
EXACT = 400  # gradients; above, the best merge takes seconds


@lru_cache(maxsize=8)
def ready_times(network: str, batch: int, samples_per_s: float) -> tuple[tuple[float, int], ...]:
    """((ready_s, elements), ...) of one step without exchange."""
    return tuple(ready_of(WORKLOADS[network](), batch, samples_per_s))


def answer(setting: str) -> str:
    """One setting of explorer.py as JSON -> the predicted steps as JSON; theta null: infinity."""
    given = json.loads(setting)
    ready = ready_times(given["network"], given["batch"], given["samples_per_s"])
    link = Link(1e-6 * given["latency_us"], 8e-9 / given["gbit"])
    line = ring_line(given["ranks"], link)
    percent = None if given["percent"] == DENSE else given["percent"]
    own_theta = inf if given["theta"] is None else given["theta"]
    system = System("explored", ITEMSIZES[given["wire"]], own_theta, percent=percent)
    gradients = [(ready_s, system.itemsize * elements) for ready_s, elements in ready]
    if percent is not None:
        gradients, _ = chosen_chunks(ready, system)
    sweep = [
        (theta, step(ready, replace(system, threshold_bytes=theta), line))
        for theta in thresholds(gradients)
    ]
    best, best_step = min(sweep, key=lambda pair: pair[1].step_s)
    merges = {"MG-WFBP": greedy_merge}
    if len(gradients) <= EXACT:
        merges["best merge"] = exact_merge
    steps = {
        "your theta": step(ready, system, line),
        "best theta": best_step,
        **{
            name: step(ready, replace(system, grouping=grouping), line)
            for name, grouping in merges.items()
        },
        "eager": sweep[0][1],
        "one call": sweep[-1][1],
    }
    return json.dumps(
        {
            "compute_s": ready[-1][0],
            "ready_s": [ready_s for ready_s, _ in ready],
            "best_theta": finite(best),
            "sweep": [[finite(theta), found.step_s] for theta, found in sweep],
            "steps": {name: described(found) for name, found in steps.items()},
        }
    )


def finite(theta: float) -> float | None:
    """JSON has no infinity."""
    return None if theta == inf else theta


def described(found: PredictedStep) -> dict:
    """calls: [start, end, bytes, first gradient, the one after its last]."""
    return {
        "step_s": found.step_s,
        "efficiency": scaling_efficiency(found),
        "calls": [
            [call.start_s, call.end_s, call.bytes, call.group.start, call.group.stop]
            for call in found.calls
        ],
    }
