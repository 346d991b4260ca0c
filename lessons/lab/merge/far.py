"""Lesson 09: the same step with the latency of a ring on many more ranks, which is slept.

A ring has 2(p-1) latencies. Each call sleeps those that RANKS ranks have more than these ranks.
Bytes take as long as here: 2(p-1)/p of them are sent, hardly more on more ranks.
"""

from functools import partial

import kit
from kit.rows import at
from lab.lazy import grouped_steps
from lab.merge import rotation
from refgf.exchange.lazy import Theta
from refgf.papers.mgwfbp.merge import exact_merge, greedy_merge
from refgf.papers.mgwfbp.merged import Groups
from refgf.predict.cost import Line
from refgf.predict.timeline import lazy

RANKS = 128


def measure(
    run: kit.Run, bench, line: Line, swept: list[dict], update_s: float, names, new_exchange
) -> dict:
    """{"ranks", "late_s", "rows"}; {} where no link is emulated. bench: with measured gradients.

    swept  rows of thetas; the one that is predicted best here is tried again
    names  of the greedy and of the exact merge
    """
    if run.regime.like is None or not 1 < run.size < RANKS:
        return {}
    late_s = grouped_steps.link_here(run).a_s * ((RANKS - 1) / (run.size - 1) - 1)
    run.section(f"The latency of a ring on {RANKS} ranks (slept in each call)")
    line, gradients = Line(line.a_s + late_s, line.b_s_per_byte), bench.gradients
    row = min(swept, key=lambda row: row["predicted_s"])
    merges = zip(names, (greedy_merge(gradients, line), exact_merge(gradients, line)))
    tried = {row["name"]: (Theta(row["theta"]), lazy(gradients, row["theta"]))}
    tried |= {name: (Groups(tuple(groups)), groups) for name, groups in merges}
    exchanges = {name: new_exchange(run, bench.pool, how) for name, (how, _) in tried.items()}
    steps = {name: partial(bench.step, exchange) for name, exchange in exchanges.items()}
    found, rows = rotation.measure(run, steps, exchanges, run.quick(1, 4, 7), late_s), []
    for name, (_, groups) in tried.items():
        exchanges[name].close()
        end_s = bench.predicted_s(groups, line) + update_s
        about = {"name": name, "calls": len(groups), "predicted_s": end_s}
        about["theta"] = row["theta"] if name == row["name"] else None
        rows.append(about | found[name])
    k = run.regime.dilation
    table = [
        [r["name"], r["calls"], r["timing"].divided(k), kit.seconds(r["predicted_s"] / k)]
        for r in rows
    ]
    run.table(["exchange", "calls", "step", "predicted"], table)
    run.say(f"{row['name']} is the best of these thetas on {run.size} ranks, by prediction.")
    return {"ranks": RANKS, "late_s": late_s, "rows": rows}


def timing(result: dict, name: str) -> dict | None:
    """The timing of a step with this exchange; of a theta's for "theta". None: not measured."""
    network = next(iter(result["networks"].values()))
    rows = network.get("far", {}).get("rows", [])
    if name == "theta":
        return rows[0]["timing"] if rows else None
    return at(rows, {"name": name}, "timing")
