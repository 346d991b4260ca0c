"""Lesson 03 on the emulated cluster: steps for each theta, measured and predicted.

Timings are this machine's seconds, in tables divided by the dilation: the cluster's.
"""

import math
import re
from functools import partial

import kit
from kit import images
from lab.lazy import grouped_steps, predicted_places
from refgf.predict.timeline import lazy

MI = 2**20
OVERLAPPED = {  # thetas in bytes
    "resnet50": [0, MI, 4 * MI, 16 * MI, 64 * MI, math.inf],
    "alexnet": [0, 16 * MI, math.inf],
}
PLAIN = {"resnet50": [0, MI, 16 * MI, math.inf], "alexnet": [0, math.inf]}
UNITS = {"KiB": 2**10, "MiB": MI, "GiB": 2**30}
FINE = [0, *(2.0**k for k in range(14, 28)), math.inf]  # thetas that are only predicted
KINDS = {"plain": "no overlap", "overlapped": "overlap"}


def theta_bytes(text: str) -> float:
    """Parse theta, 16MiB or '16 MiB' as tables print it, or bytes: 0, 65536, 1e6, inf."""
    found = re.fullmatch(r"(.+?) ?([KMG]iB)", text)
    return UNITS[found[2]] * kit.threshold_bytes(found[1]) if found else kit.threshold_bytes(text)


def measure(run: kit.Run, new_exchange) -> dict:
    """new_exchange: (run, pool, theta, overlap) -> the lesson's exchange."""
    network, k = run.options.network, run.regime.dilation
    bench = grouped_steps.bench(run, network)
    tensors, nbytes = len(bench.gradients), kit.number_of_bytes(bench.pool.flat.nbytes)
    run.section(f"{bench.title}: {tensors} gradients, {nbytes}, a step for each theta")
    if run.options.quick:
        run.tell(f"--quick sends {bench.title} in place of {images.NETWORKS[network]}: so few")
        run.tell("bytes that latencies decide. Run it without --quick for the lesson's answer.")
    grouped_steps.show_sizes(run, bench.pool)
    off = grouped_steps.without_exchange(run, bench)
    run.say(f"A step without exchange takes {off.divided(k)} on the cluster,")
    run.say(f"{off} here.")
    costs = grouped_steps.costs(run, bench)
    update_s = max(0.0, off.median_s - bench.compute_s)

    def predicted_s(theta, overlap: bool) -> float:
        groups = lazy(bench.gradients, theta)
        return bench.predicted_s(groups, costs.call, overlap) + update_s

    given = run.options.theta
    thetas = {
        False: given or run.quick([0, math.inf], PLAIN[network]),
        True: given or run.quick([0, 2**16, math.inf], OVERLAPPED[network]),
    }
    agreed = [(overlap, theta) for overlap in thetas for theta in thetas[overlap]]
    new = partial(new_exchange, run, bench.pool)
    exchanges = {(o, theta): new(theta, overlap=o) for o, theta in agreed}
    found = grouped_steps.in_turn(run, bench, exchanges, run.quick(2, 2, 7))
    rows = []
    for theta in sorted({theta for _, theta in agreed}):
        row = {"theta": theta, "own_share": {}}
        row["predicted"] = {kind: predicted_s(theta, kind == "overlapped") for kind in KINDS}
        for kind in KINDS:
            one = found.get((kind == "overlapped", theta))
            row[kind] = one and one["timing"]
            if one:
                made = len(exchanges[kind == "overlapped", theta].lazy.calls)  # in the last step
                row |= {"calls": made, "messages": one["messages"], "bytes": one["bytes"]}
                groups, step_s = lazy(bench.gradients, theta), one["timing"].median_s
                share = grouped_steps.own_share(groups, bench.gradients, costs.own, step_s)
                row["own_share"][kind] = share
        rows.append(row)
    for exchange in exchanges.values():
        exchange.close()
    best = report(run, rows)
    fine = {kind: [predicted_s(t, kind == "overlapped") for t in FINE] for kind in KINDS}
    return {
        "network": bench.title,
        "rows": rows,
        "best": best,
        "fine": {"thetas": FINE} | fine,
        "without_exchange": off,
        "compute_s": bench.compute_s,
        "costs": {name: vars(line) for name, line in vars(costs).items()},
        "elsewhere": predicted_places.rows(run, ("eager", "best theta", "one call")),
    }


def report(run: kit.Run, rows: list[dict]) -> dict:
    """Print the rows in the cluster's time. -> the best theta of each kind, measured, predicted"""
    k = run.regime.dilation

    def cells(row):
        times = []
        for kind in KINDS:
            times.append(row[kind].divided(k) if row[kind] else "-")
            times.append(kit.seconds(row["predicted"][kind] / k))
        mark = grouped_steps.marked(max(row["own_share"].values()))
        return [kit.threshold(row["theta"]), row["calls"], *times, mark]

    run.say("A step in the cluster's time; calls: allreduce calls in a step, 2(p-1) messages each.")
    header = ["theta", "calls", "no overlap", "predicted", "overlap", "predicted", "note"]
    run.table(header, [cells(row) for row in rows])
    best = {}
    for kind, name in KINDS.items():
        timed = [row for row in rows if row[kind]]
        pairs = [(row["predicted"][kind], row[kind].median_s) for row in timed]
        run.say(f"{name}: {kit.errors_in_words(pairs)}")
        measured = min(timed, key=lambda row: row[kind].median_s)
        predicted = min(timed, key=lambda row: row["predicted"][kind])
        best[kind] = {"measured": measured["theta"], "predicted": predicted["theta"]}
        names = [kit.threshold(theta) for theta in best[kind].values()]
        ratio = timed[0][kind].median_s / measured[kind].median_s
        run.say(f"    best theta: {names[0]} measured, {names[1]} predicted;")
        first = kit.threshold(timed[0]["theta"])
        run.say(f"    theta = {first} takes {ratio:.2f} times as long")
    slowest = max(row[kind].median_s for row in rows for kind in KINDS if row[kind])
    run.say(f"The slowest of these steps took {kit.seconds(slowest)} on this machine.")
    return best


# ---- what claims compare: values of a result, None where this run has not measured them ----


def timing(result: dict, kind: str, theta="best", network: str = "ResNet-50"):
    """The timing of a step with this theta, or of the fastest step."""
    if theta == "predicted":
        theta = result.get("best", {kind: {"predicted": 0}})[kind]["predicted"]
    rows = [row for row in result.get("rows", []) if row[kind] and result["network"] == network]
    if theta == "best":
        return min((row[kind] for row in rows), key=lambda t: t["median_s"], default=None)
    return next((row[kind] for row in rows if float(row["theta"]) == float(theta)), None)


def sent_bytes(result: dict, theta):
    """Bytes that rank 0 sends in a step."""
    rows = result.get("rows", [])
    return next((row["bytes"] for row in rows if float(row["theta"]) == float(theta)), None)
