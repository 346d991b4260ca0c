"""Times of allreduce algorithms on nodes, for lesson 10: over size, and over ranks per node.

A point is one size:

    {"bytes", "measured": {name: Timing}, "predicted_s": {name: s}, "own_share": {name: share},
     "least_s": s}

Times are this machine's. The tables show the cluster's time: divided by the dilation.
"""

import statistics
from itertools import pairwise
from math import exp, log

import numpy as np

import kit
from kit.experiment import MOST_OWN, is_own
from lab.hierarchy import node_links
from lab.hierarchy.node_links import NodeLinks
from refgf.comm.schedule import Algorithm, collective
from refgf.machine.accelerator import InstantComm
from refgf.papers.jia import hierarchical
from refgf.papers.scaling.collectives import least_between_s

ITEMSIZE = 4
RING = "flat ring"
SPLITS = {
    "three phases": hierarchical.three_phase,
    "log phases": hierarchical.log_phases,
    "two-level ring": hierarchical.two_level_ring,
}


def measure(run: kit.Run, nodes, algorithms: dict) -> dict:
    """Time against size, with a bus that is slowed down and one that is not; against k."""
    place = node_links.find(run, nodes)
    run.section("Time against size")
    exponents = 10, 12, 14, 16, 18, 20, 22, 24
    sizes = [1 << k for k in run.quick((10, 16), exponents, (*exponents, 26))]
    points = sweep(run, place, algorithms, sizes)
    found, free = crossings(run, points), []
    if place.free:
        run.section("The same with a bus that is not slowed down")
        some = {name: algorithms[name] for name in (RING, *SPLITS) if name in algorithms}
        free = sweep(run, place.free, some, [sizes[0], sizes[-1]])
    by_k = sweep_ranks_per_node(run, nodes, place)
    return {
        "nodes": nodes,
        "node_of_rank": place.node_of_rank,
        "inside": run.options.inside if free else None,
        "link": {"inside": vars(place.inside), "between": vars(place.between)},
        "emulated": run.regime.like is not None and run.size > 1,
        "points": points,
        "free": free,
        "by_k": by_k,
        "crossings": found,
        "trends_predicted": agreement(by_k),
    }


def predicted_s(algorithm: Algorithm, place: NodeLinks, nbytes: int) -> float:
    """Predicted seconds of the schedules' messages on these links."""
    size = len(place.node_of_rank)
    schedules = [algorithm(rank, size, nbytes // ITEMSIZE) for rank in range(size)]
    return place.predicted_s(schedules, ITEMSIZE)


def sweep(run: kit.Run, place: NodeLinks, algorithms: dict, sizes) -> list[dict]:
    """One point for each size."""
    calls = {name: collective(place.comm, algorithm) for name, algorithm in algorithms.items()}
    points = []
    for nbytes in sizes:
        x = run.xp.zeros(nbytes // ITEMSIZE, np.float32)
        functions = {name: (lambda call=call, x=x: call(x)) for name, call in calls.items()}
        measured = alternate(run, functions, nbytes)
        own_s = own_work(run, algorithms, x)
        forecast = {name: predicted_s(a, place, nbytes) for name, a in algorithms.items()}
        shares = {name: own_s[name] / timing.median_s for name, timing in measured.items()}
        least_s = least_between_s(place.nodes, x.size, ITEMSIZE, place.between)
        points.append(
            {
                "bytes": nbytes,
                "measured": measured,
                "predicted_s": forecast,
                "own_share": shares,
                "least_s": least_s,
            }
        )
    show(run, points)
    return points


def alternate(run: kit.Run, functions: dict, nbytes: int) -> dict[str, kit.Timing]:
    """{name: Timing} of functions called in turn; a repeat is the median of some calls.

    Short vectors get more calls, because they are shorter than the processor's disturbances.
    """
    repeats = run.quick(2, 5, 15)
    calls = run.quick(1, 7 if nbytes <= 1 << 16 else 3 if nbytes <= 1 << 20 else 1)
    mine = {name: [] for name in functions}
    for _ in range(repeats + 1):
        for name, function in functions.items():
            mine[name].append(statistics.median(run.timed(function) for _ in range(calls)))
    return {name: run.slowest(times_s[1:]) for name, times_s in mine.items()}


def own_work(run: kit.Run, algorithms: dict, x: np.ndarray) -> dict[str, float]:
    """{name: seconds of a call without a network}, all ranks at once on the cores they share."""
    comm = InstantComm(run.rank, run.size)
    calls = {name: collective(comm, algorithm) for name, algorithm in algorithms.items()}
    return {name: run.time(lambda f=f: f(x), 3).median_s for name, f in calls.items()}


def show(run: kit.Run, points: list[dict], columns: int = 4) -> None:
    """One column for each size, one row for each algorithm."""
    scale = run.regime.dilation
    for i in range(0, len(points), columns):
        few = points[i : i + columns]
        rows = [[name, *(cell(p, name, scale) for p in few)] for name in few[0]["measured"]]
        run.table(["", *(kit.number_of_bytes(point["bytes"]) for point in few)], rows)
    marked = any(is_own(share) for point in points for share in point["own_share"].values())
    run.say("measured median (predicted)" + in_whose_time(run))
    if marked:
        run.say(f"*: more than {MOST_OWN:.0%} is this processor's own work, which is not to scale")


def in_whose_time(run: kit.Run) -> str:
    if run.regime.dilation == 1:
        return ""
    return f" in the cluster's time; this machine takes {run.regime.dilation:.4g} times as long"


def cell(point: dict, name: str, scale: float) -> str:
    measured_s, forecast_s = point["measured"][name].median_s, point["predicted_s"][name]
    mark = "*" * is_own(point["own_share"][name])
    return f"{kit.seconds(measured_s / scale)}{mark} ({kit.seconds(forecast_s / scale)})"


def crossing(sizes, ring_s, other_s) -> float | None:
    """Bytes from which the ring stays faster, between two sizes on a logarithmic scale; or None."""
    if min(*ring_s, *other_s) <= 0:
        return None
    gains = [log(ring / other) for ring, other in zip(ring_s, other_s)]
    for (n, gain), (more, less) in reversed(list(pairwise(zip(sizes, gains)))):
        if gain > 0 >= less:
            return exp(log(n) + gain / (gain - less) * log(more / n))
    return None


def crossings(run: kit.Run, points: list[dict]) -> dict[str, dict]:
    """{name: {"predicted", "measured"}}: the bytes from which the flat ring is faster."""
    run.section("Where the flat ring overtakes")
    sizes, found, rows = [point["bytes"] for point in points], {}, []
    for name in (name for name in points[0]["measured"] if name != RING):
        times = {
            "predicted": [[p["predicted_s"][key] for p in points] for key in (RING, name)],
            "measured": [[p["measured"][key].median_s for p in points] for key in (RING, name)],
        }
        found[name] = {kind: crossing(sizes, *pair) for kind, pair in times.items()}
        cells = [
            "not in these sizes" if n is None else kit.number_of_bytes(n)
            for n in found[name].values()
        ]
        rows.append([name, *cells, loss_of_hybrid(points, name, found[name]["predicted"])])
    run.table(["", "predicted from", "measured from", "hybrid / faster of two, at most"], rows)
    run.say("A hybrid takes the algorithm below its predicted size, and the flat ring above.")
    return found


def loss_of_hybrid(points: list[dict], name: str, threshold: float | None) -> str:
    """The hybrid's largest time / that of the faster of the two, from the measured times."""
    losses = []
    for point in points:
        both = {key: point["measured"][key].median_s for key in (RING, name)}
        chosen = name if threshold is None or point["bytes"] < threshold else RING
        losses.append(both[chosen] / min(both.values()))
    return f"{max(losses):.2f}"


def sweep_ranks_per_node(run: kit.Run, nodes, place: NodeLinks) -> list[dict]:
    """Hierarchies in which k ranks are *taken* to share a node. The links do not change."""
    run.section("Time against the ranks that are taken to share a node")
    order = [rank for node in nodes for rank in node]
    divisors = [k for k in range(1, run.size + 1) if run.size % k == 0]
    splits = {k: [order[i : i + k] for i in range(0, run.size, k)] for k in divisors}
    algorithms = {(k, name): make(splits[k]) for k in divisors for name, make in SPLITS.items()}
    rows = {
        (k, name): {"k": k, "algorithm": name, "bytes": [], "measured": [], "predicted_s": []}
        for k, name in algorithms
    }
    calls = {key: collective(place.comm, algorithm) for key, algorithm in algorithms.items()}
    for nbytes in run.quick([1 << 10, 1 << 16], [1 << 12, 1 << 20]):
        x = run.xp.zeros(nbytes // ITEMSIZE, np.float32)
        functions = {key: (lambda call=call, x=x: call(x)) for key, call in calls.items()}
        for key, timing in alternate(run, functions, nbytes).items():
            rows[key]["bytes"].append(nbytes)
            rows[key]["measured"].append(timing)
            rows[key]["predicted_s"].append(predicted_s(algorithms[key], place, nbytes))
    show_ranks_per_node(
        run, rows, {key: a(order[0], run.size, run.size) for key, a in algorithms.items()}
    )
    return list(rows.values())


def show_ranks_per_node(run: kit.Run, rows: dict, schedules: dict) -> None:
    scale, table = run.regime.dilation, []
    for (k, name), row in rows.items():
        steps = sum(step.op != "finish" for step in schedules[k, name])
        cells = [
            f"{kit.seconds(timing.median_s / scale)} ({kit.seconds(s / scale)})"
            for timing, s in zip(row["measured"], row["predicted_s"])
        ]
        table.append([k, name, steps, *cells])
    sizes = next(iter(rows.values()))["bytes"]
    run.table(["k", "algorithm", "steps", *map(kit.number_of_bytes, sizes)], table)
    run.say("measured median (predicted)" + in_whose_time(run))
    run.say("k = 1: the rings are the flat ring, log phases are halving-doubling.")
    run.say("k = p: the two-level ring is the flat ring, log phases are the tree,")
    run.say("       and three phases take twice its steps.")


def agreement(by_k: list[dict]) -> float | None:
    """The share of measured changes with k whose direction was predicted; None without any.

    A change: two k of an algorithm whose measured spreads are disjoint and whose predictions differ
    by more than a tenth.
    """
    same = [
        (after["predicted_s"][i] > before["predicted_s"][i]) == (change > 0)
        for before in by_k
        for after in by_k
        if after["algorithm"] == before["algorithm"] and after["k"] > before["k"]
        for i in range(len(before["bytes"]))
        if (change := direction(before["measured"][i], after["measured"][i]))
        and abs(after["predicted_s"][i] / before["predicted_s"][i] - 1) > 0.1
    ]
    return sum(same) / len(same) if same else None


def direction(before: kit.Timing, after: kit.Timing) -> int:
    """1 if the time rises, -1 if it falls, 0 if the spreads overlap."""
    return (after.low_s > before.high_s) - (after.high_s < before.low_s)
