"""Lesson 03 on the emulated cluster: steps for each theta, measured and predicted.

Timings are this machine's seconds, in tables divided by the dilation: the cluster's.
"""

import math
import re
from functools import partial

import kit
from kit import images
from kit.experiment import in_turn, processor
from kit.rejected import reject
from kit.rows import overlap
from lab.lazy import grouped_steps, predicted_places
from lab.lazy.grouped_steps import Bench
from lab.lazy.predicted_places import HERE
from refgf.predict.timeline import lazy

MI = 2**20
OVERLAPPED = {  # thetas in bytes
    "resnet50": [0, 2**16, 4 * MI, 16 * MI, 64 * MI, math.inf],
    "alexnet": [0, 16 * MI, math.inf],
}
PLAIN = {"resnet50": [0, 16 * MI, math.inf], "alexnet": [0, math.inf]}
UNITS = {"KiB": 2**10, "MiB": MI, "GiB": 2**30}
KINDS = {"plain": "no overlap", "overlapped": "overlap"}
FINE = [0, *(2.0**k for k in range(14, 28)), math.inf]  # thetas that are only predicted


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
    off = grouped_steps.without_exchange(run, bench, repeats=2)
    run.say(f"A step without exchange takes {off.divided(k)} on the cluster,")
    run.say(f"{off} here.")
    costs = grouped_steps.costs(run, bench)
    update_s = max(0.0, off.median_s - bench.compute_s)

    def predicted_s(groups, kind: str) -> float:
        return bench.predicted_s(groups, costs.call, kind == "overlapped") + update_s

    given = run.options.theta
    thetas = {
        "plain": given or run.quick([0, math.inf], PLAIN[network]),
        "overlapped": given or run.quick([0, 2**16, math.inf], OVERLAPPED[network]),
    }
    rows = sweep(run, bench, thetas, new_exchange, predicted_s, run.quick(2, 2, 7))
    for row in rows:
        groups, timed = lazy(bench.gradients, row["theta"]), filter(row.get, KINDS)
        own_s = grouped_steps.own_s(groups, bench.gradients, costs.own)
        row["own_share"] = {kind: own_s / row[kind].median_s for kind in timed}
    best, groups = report(run, rows), [lazy(bench.gradients, theta) for theta in FINE]
    fine = {kind: [predicted_s(each, kind) for each in groups] for kind in KINDS}
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


# ---- a step for each theta, here and in lab/lazy/here.py ----


def sweep(
    run: kit.Run, bench: Bench, thetas: dict, new_exchange, predicted_s, rounds: int, warmup=0
) -> list[dict]:
    """A row for each theta: calls, messages, bytes, and times measured and predicted. Collective.

    thetas        {kind: its thetas}
    new_exchange  (run, pool, theta, overlap) -> exchange
    predicted_s   (groups, kind) -> seconds of a step
    """
    exchanges = {
        (kind, theta): new_exchange(run, bench.pool, theta, overlap=kind == "overlapped")
        for kind in KINDS
        for theta in thetas[kind]
    }
    steps = {name: partial(bench.step, exchange) for name, exchange in exchanges.items()}
    found, rows = in_turn(run, steps, rounds, warmup), []
    for theta in sorted({theta for _, theta in exchanges}):
        groups = lazy(bench.gradients, theta)
        row = {"theta": theta, "calls": len(groups)} | dict.fromkeys(KINDS)
        row["predicted"] = {kind: predicted_s(groups, kind) for kind in KINDS}
        for kind in KINDS:
            if (kind, theta) in found:
                one = found[kind, theta]
                row |= {kind: one["timing"], "messages": one["messages"], "bytes": one["bytes"]}
                calls = len(exchanges[kind, theta].lazy.calls)  # of the last step
                if calls != len(groups):
                    reject(f"theta {theta}: got {calls} calls; wanted {len(groups)}")
        rows.append(row)
    for exchange in exchanges.values():
        exchange.close()
    return rows


def report(run: kit.Run, rows: list[dict]) -> dict:
    """Print the rows in the cluster's time. -> the best theta of each kind, measured, predicted"""
    k, emulated = run.regime.dilation, run.regime.like is not None
    calls = "A step in the cluster's time; calls" if emulated else "calls"
    run.say(f"{calls}: allreduce calls in a step, 2(p-1) messages each.")
    run.say(f"predicted: from {HERE}.")
    table = []
    for row in rows:
        times = []
        for kind in KINDS:
            times.append(row[kind].divided(k) if row[kind] else "-")
            times.append(kit.seconds(row["predicted"][kind] / k))
        last = processor(*row["own_share"].values()) if emulated else row["bytes"]
        table.append([kit.threshold(row["theta"]), row["calls"], *times, last])
    times = ["no overlap", "predicted", "overlap", "predicted"]
    run.table(["theta", "calls", *times, "note" if emulated else "bytes of rank 0"], table)
    best = {kind: best_of(run, rows, kind) for kind in KINDS}
    if emulated:
        slowest_s = max(row[kind].median_s for row in rows for kind in KINDS if row[kind])
        run.say(f"The slowest of these steps took {kit.seconds(slowest_s)} on this machine.")
    return best


def best_of(run: kit.Run, rows: list[dict], kind: str) -> dict:
    """Print and return the best theta of this kind, as measured and as predicted."""
    timed = [row for row in rows if row[kind]]
    pairs = [(row["predicted"][kind], row[kind].median_s) for row in timed]
    run.say(f"{KINDS[kind]}: {kit.errors_in_words(pairs)}")
    measured = min(timed, key=lambda row: row[kind].median_s)
    predicted = min(timed, key=lambda row: row["predicted"][kind])
    names = [kit.threshold(row["theta"]) for row in (measured, predicted, timed[0])]
    ratio = timed[0][kind].median_s / measured[kind].median_s
    run.say(f"    best theta: {names[0]} measured, {names[1]} predicted;")
    run.say(f"    theta = {names[2]} takes {ratio:.2f} times as long")
    level = [row for row in timed if overlap(vars(row[kind]), vars(measured[kind]))]
    ties = [kit.threshold(row["theta"]) for row in level if row is not measured]
    if ties:
        run.say(f"    within its noise: {', '.join(ties)}")
    return {"measured": measured["theta"], "predicted": predicted["theta"]}
