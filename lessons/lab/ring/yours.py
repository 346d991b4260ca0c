"""Lesson 01 with --mine: your ring in the curve, its messages, your predictions."""

from dataclasses import asdict

import numpy as np

import kit
from kit.mine import Yours, on
from kit.oracle import vectors
from kit.rows import scaled
from kit.words import count, number_of_bytes
from refgf.oracle.definitions import ring_allreduce, ring_traffic
from refgf.predict.cost import Link, ring_allreduce_s

# names in the curve
RING, OWN, TREE, SHARED, YOUR_RING = "ring", "MPI's own", "tree", "no messages", "yours"
NAIVE = "rank 0"


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, curve, series = run.mine, found["curves"][run.place], []
    points, p = curve["points"], run.size
    at = "each rank's vector", [number_of_bytes(point["bytes"]) for point in points]
    elements = [point["bytes"] // 4 for point in points]
    if "allreduce" in mine:
        ours, yours = ([point["measured"][name] for point in points] for name in (RING, YOUR_RING))
        sent, wanted = curve["messages"], ring_traffic(elements[-1], p, run.rank)[0]
        note = count(sent, "message") + (", as predicted" if sent == wanted else f", not {wanted}")
        shown = [scaled(asdict(timing), 1e3) for timing in yours]
        place = on(len(found["curves"]) - 1, [point["bytes"] for point in points], shown)
        title, more = "Time of an allreduce", {"unit": "s", "note": note, "on": place}
        series.append(mine.series("allreduce", title, at, ours, yours, **more))
        series.append(other_bits(run))
    if "ring_cost" in mine:
        ours, yours = (
            [4 * cost(n, p, run.rank)[1] for n in elements]
            for cost in (ring_traffic, mine["ring_cost"])
        )
        title = "Bytes that rank 0 sends"
        series.append(mine.series("ring_cost", title, at, ours, yours, unit="bytes"))
    if "ring_seconds" in mine:
        link = Link(curve["busy"]["alpha_s"], curve["busy"]["beta_s_per_byte"])
        elements = [n // p * p for n in elements]  # slices of one length
        ours = [ring_allreduce_s(p, n, 4, link) for n in elements]
        line = link.alpha_s, link.beta_s_per_byte
        yours = [mine["ring_seconds"](4 * n, p, *line) for n in elements]
        measured = [point["measured"][RING] for point in points]
        title, more = "Predicted time of an allreduce", {"unit": "s", "measured": measured}
        series.append(mine.series("ring_seconds", title, at, ours, yours, **more))
    return series


def other_bits(run: kit.Run) -> dict:
    """How many sums have other bits than the definition's, on all ranks together."""
    sizes, counts = (1, run.size + 1, 1000), []
    for n in sizes:
        xs = vectors(run, n, n)
        x = xs[run.rank].copy()
        run.mine["allreduce"](run.comm, x)
        wanted = ring_allreduce(xs)[run.rank]
        counts.append(sum(run.gather(int((x.view(np.uint32) != wanted.view(np.uint32)).sum()))))
    at = "elements of each rank's vector", sizes
    return run.mine.series("allreduce", "Sums with other bits, of all ranks", at, [0] * 3, counts)


YOURS = Yours(
    {
        "allreduce": "a line in the curve",
        "ring_cost": "bytes",
        "ring_seconds": "predictions",
    },
    measure,
)
