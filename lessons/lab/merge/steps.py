"""Lesson 09's measurement: eager calls, several thetas, one call and both merges, in turn.

measure(run, new_exchange) -> what the JSON holds. Timings are this machine's seconds; the table
shows the cluster's, divided by the dilation.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np

import kit
from kit import call_times, virtual
from kit.experiment import processor
from kit.replay import Size, replay_backward
from lab.lazy import grouped_steps, predicted_places
from lab.lazy.grouped_steps import SHORT, Bench
from lab.merge import far, greedy_misses, here, rotation
from refgf.comm import direct, ring
from refgf.comm.agreement import agree
from refgf.comm.schedule import collective
from refgf.exchange.lazy import Theta
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import ring_traffic
from refgf.papers.mgwfbp.merge import exact_merge, greedy_merge, theta_bounds
from refgf.papers.mgwfbp.merged import Groups, Profile, slowest
from refgf.papers.scaling.scaling import best_theta
from refgf.predict.cost import Line
from refgf.predict.timeline import lazy, predict

MI = 2**20
THETAS = {"resnet50": [4 * MI, 16 * MI, 64 * MI], "alexnet": [16 * MI]}  # bytes
THETAS_HERE = [2**14, 2**16, 2**18, 2**20, 2**22]  # for tensors of an eighth
LONGER, UNIT_S = 2, 0.02  # the counterexample's unit: so many latencies, at least so many seconds
EAGER, GREEDY, EXACT = "eager (WFBP)", "MG-WFBP, greedy", "MG-WFBP, exact"
PREDICTED = ("eager", "best theta", "one call", "greedy", "exact")  # in other places


def measure(run: kit.Run, new_exchange) -> dict:
    """Compare all groupings on the emulated cluster, or on this machine's links.

    new_exchange: (run, pool, grouping) -> the lesson's exchange.
    """
    emulated = run.regime.like is not None
    names = networks_of(run, emulated)
    make = (grouped_steps if emulated else here).bench
    networks = {name: measure_network(run, make(run, name), name, new_exchange) for name in names}
    line = Line(*(networks[names[0]]["fit"][key] for key in ("a_s", "b_s_per_byte")))
    return {
        "networks": networks,
        "counterexample": counterexample(run, line, new_exchange),
        "elsewhere": predicted_places.rows(run, PREDICTED),
        "misses": greedy_misses.count(run, line),
    }


def networks_of(run: kit.Run, emulated: bool) -> list[str]:
    """The network that --network names; by default resnet50, on this machine's links all."""
    options, known = run.options, virtual.FULL if emulated else here.NETWORKS
    agree(run.plain.Dup(), "network and share", f"{options.network} {options.share}")
    if not options.network:
        return ["resnet50"] if emulated else list(known)
    if options.network not in known:
        raise ValueError(
            f"--network {options.network}: got a network without a pace here; wanted one of "
            f"{', '.join(known)}; next: --like {'this-machine' if emulated else 'mgwfbp-10gbe'}"
        )
    return [options.network]


def profile(run: kit.Run, bench: Bench) -> tuple[list, kit.Timing]:
    """1. ([(ready_s on the slowest rank, bytes)], Timing of a step in which nothing is sent)."""
    watch = Profile(bench.pool, accept=True)

    def step() -> None:
        watch.start()
        bench.step(watch)

    off = run.time(step, run.quick(2, 2, 5))
    times_s = slowest(watch.ready_s(), collective(run.plain, direct.allreduce), run.rank, run.size)
    return [(t, view.nbytes) for t, view in zip(times_s, bench.pool.views)], off


def measure_allreduce(run: kit.Run, elements: int):
    """2. T(m) = a + b m through a short and a long ring allreduce. -> (Line, points)

    Merged groups are long. Calls of sizes between may take longer than the line: 21 % at 6 MB.
    """
    run.section("What one call costs here")
    sizes = [SHORT, max(2 * SHORT, elements // 4)]
    allreduce = collective(grouped_steps.sleeping_comm(run), ring.allreduce)
    curve = call_times.queued(run, sizes, allreduce, repeats=run.quick(3, 3, 5))
    line = call_times.line_of(run, curve)
    slope = f"{1e-6 / line.b_s_per_byte:.3g} MB/s" if line.b_s_per_byte else "nothing"
    run.say(f"T(m) = a + b m in this machine's time: a = {kit.seconds(line.a_s)}, 1/b = {slope}.")
    if run.regime.like:
        link = grouped_steps.link_here(run)
        slope = f"{1e-6 / link.b_s_per_byte:.3g} MB/s" if link.b_s_per_byte else "nothing"
        run.say(f"By the link alone: a = {kit.seconds(link.a_s)}, 1/b = {slope}.")
    return line, curve.points


def strategies(gradients, line, thetas) -> list[tuple]:
    """[(name, theta or None, groups)]. 3. Merge: the last two."""
    names = {0: EAGER, math.inf: "one call"}
    swept = [
        (names.get(theta, f"lazy {kit.number_of_bytes(theta)}"), theta, lazy(gradients, theta))
        for theta in (0, *thetas, math.inf)
    ]
    merged = {GREEDY: greedy_merge(gradients, line), EXACT: exact_merge(gradients, line)}
    return swept + [(name, None, groups) for name, groups in merged.items()]


def measure_network(run: kit.Run, bench: Bench, name: str, new_exchange) -> dict:
    """All groupings of one network's gradients."""
    run.section(f"{bench.title}: {len(bench.gradients)} gradients")
    gradients, off = profile(run, bench)
    bench = replace(bench, gradients=gradients)
    line, points = measure_allreduce(run, bench.pool.flat.size)
    own = grouped_steps.own_line(run, bench.pool, points[0][1])
    update_s = max(0.0, off.median_s - bench.compute_s)
    thetas = THETAS[name] if run.regime.like else THETAS_HERE
    tried = strategies(gradients, line, run.quick(thetas[1::2], thetas))
    exchanges = {
        kind: new_exchange(run, bench.pool, Theta(theta) if theta is not None else Groups(tuple(g)))
        for kind, theta, g in tried
    }
    tries = {kind: partial(bench.step, exchange) for kind, exchange in exchanges.items()}
    found, rows = rotation.measure(run, tries, exchanges, run.quick(1, 4, 7)), []
    for kind, theta, groups in tried:
        require_calls(run, bench.pool, exchanges[kind], groups, found[kind])
        exchanges[kind].close()
        step_s = found[kind]["timing"].median_s
        row = {"name": kind, "theta": theta, "calls": len(groups)} | found[kind]
        row["predicted_s"] = bench.predicted_s(groups, line) + update_s
        row["calls_predicted_s"] = sum(
            line(sum(gradients[i][1] for i in group)) for group in groups
        )
        row["own_share"] = grouped_steps.own_s(groups, gradients, own) / step_s
        rows.append(row)
    report(run, rows, off)
    swept = [row for row in rows if row["theta"] is not None]
    merges = GREEDY, EXACT
    return {
        "title": bench.title,
        "gradients": gradients,
        "compute_s": bench.compute_s,
        "without_exchange": off,
        "fit": vars(line) | {"points": points},
        "rows": rows,
        "theta": which_theta(run, gradients, line, update_s),
        "far": far.measure(run, bench, line, swept, update_s, merges, new_exchange),
    }


def require_calls(run: kit.Run, pool, exchange, groups, found: dict) -> None:
    """AssertionError unless the last step had one ring allreduce for each group."""
    bounds = [(pool.offsets[group[0]], pool.offsets[group[-1] + 1]) for group in groups]
    traffic = [ring_traffic(stop - start, run.size, run.rank) for start, stop in bounds]
    messages, elements = (sum(column) for column in zip(*traffic))
    assert [(call.start, call.stop) for call in exchange.lazy.calls] == bounds
    assert (found["messages"], found["bytes"]) == (messages, 4 * elements)


def report(run: kit.Run, rows: list[dict], off: kit.Timing) -> None:
    """Print the rows in the cluster's time."""
    k = run.regime.dilation
    if k != 1:
        run.say("A step in the cluster's time:")
    table = [
        [
            row["name"],
            row["calls"],
            row["timing"].divided(k),
            kit.seconds(row["predicted_s"] / k),
            f"{100 * (row['predicted_s'] / row['timing'].median_s - 1):+.0f} %",
            f"{row['calls_s'] / row['calls_predicted_s']:.2f} x",
            processor(row["own_share"]),
        ]
        for row in rows
    ]
    run.table(["exchange", "calls", "step", "predicted", "error", "in calls", ""], table)
    run.say("in calls: their time, over a + b m of each. Above 1, the calls themselves are longer.")
    run.say(f"A step without exchange takes {off.divided(k)}.")
    pairs = [(row["predicted_s"], row["timing"].median_s) for row in rows]
    run.say(kit.errors_in_words(pairs))
    slowest_s = max(row["timing"].median_s for row in rows)
    run.say(f"The slowest of these steps took {kit.seconds(slowest_s)} on this machine.")


def counterexample(run: kit.Run, line: Line, new_exchange) -> list[dict]:
    """Rows of both merges of the lesson's question; none where a call or a byte takes no time.

    The unit is longer than half of this run's latency, so that two units are far apart: each call
    sleeps the rest of a latency of two units. A gradient has the bytes that take one unit.
    """
    run.section("Three gradients for which the greedy rule is wrong")
    if not (line.a_s and line.b_s_per_byte):
        return []
    units, cost = [(1, 1), (2, 1), (4, 1)], Line(2, 1)
    unit_s = run.quick(line.a_s / 2, max(LONGER * line.a_s, UNIT_S))
    elements = max(1, round(unit_s / line.b_s_per_byte / 4))
    pool = Pool([Size(f"g{i}", (elements,)) for i in range(3)], np.float32, run.xp.zeros)
    merges = {GREEDY: greedy_merge(units, cost), EXACT: exact_merge(units, cost)}
    exchanges = {name: new_exchange(run, pool, Groups(tuple(g))) for name, g in merges.items()}
    ready_s = [unit_s * ready for ready, _ in units]
    tries = {name: partial(replay_backward, each, ready_s) for name, each in exchanges.items()}
    late_s = max(0.0, 2 * unit_s - line.a_s)
    found, rows = rotation.measure(run, tries, exchanges, run.quick(2, 7, 15), late_s), []
    for name, groups in merges.items():
        exchanges[name].close()
        end_s = unit_s * predict(units, groups, cost).step_s
        rows.append({"name": name, "calls": len(groups), "predicted_s": end_s} | found[name])
    table = [[row["name"], row["timing"], kit.seconds(row["predicted_s"])] for row in rows]
    run.table(["this machine's time", "last call ends", "predicted"], table)
    return rows


def which_theta(run: kit.Run, gradients, line, update_s: float) -> dict:
    """Which theta makes the groups of the best merge, and the best theta by prediction."""
    groups = exact_merge(gradients, line)
    low, high = theta_bounds(gradients, groups)
    counts = [len(group) for group in groups]
    listed = ", ".join(map(str, counts[:15])) + ", ..." * (len(counts) > 15)
    calls = f"{len(groups)} call{'s' * (len(groups) > 1)}"
    run.say(f"The best merge: {calls} of {listed} gradients.")
    lower, upper = kit.number_of_bytes(low), kit.number_of_bytes(high)
    if low < high:
        run.say(f"theta from {lower} to just below {upper} would make the same groups.")
    else:
        run.say(f"No theta makes these groups: {lower} have to wait in one group, and {upper} have")
        run.say("to be sent in another.")
    theta, timeline = best_theta(gradients, line)
    best_s, exact_s = timeline.step_s, predict(gradients, groups, line).step_s
    steps_s = [(s + update_s) / run.regime.dilation for s in (best_s, exact_s)]
    best, merged = map(kit.seconds, steps_s)
    run.say(f"Predicted: with theta = {kit.number_of_bytes(theta)}, the best of many, a step takes")
    run.say(f"{best}, with the best merge {merged}.")
    return {
        "low": low,
        "high": high,
        "best": theta,
        "best_s": best_s,
        "exact_s": exact_s,
        "counts": counts,
    }
