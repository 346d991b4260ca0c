"""How often MG-WFBP's greedy rule misses the exact best merge, for lesson 09: arithmetic only.

    network = greedy_misses.KINDS[...]              a function of a random number generator
    greedy_misses.misses(run, 2000, kind)           -> {"networks": 2000, "missed": 0.31, ...}
    greedy_misses.real_misses(run, line, ...)       -> the same for the networks of the papers, on
                                                       published and measured lines
    greedy_misses.count(run, line)                  -> all of these, printed

The networks are divided among the ranks. A network is ([(ready_s, bytes)] in order of generation, a
line a + b bytes). Backward times and sizes are spread evenly over four decades, latencies and
slopes so that both matter. Nothing was tuned to make the rule look good or bad.
"""

import itertools
import random

from refgf.predict.cost import Line
from refgf.papers.mgwfbp.merge import compare
from refgf.papers.scaling.published import (
    INFINIBAND,
    INFINIBAND_EXTENDED,
    K80,
    TEN_GIGABIT,
    TEN_GIGABIT_EXTENDED,
)
from refgf.papers.scaling.workloads import WORKLOADS

MACHINES = (TEN_GIGABIT, TEN_GIGABIT_EXTENDED, INFINIBAND, INFINIBAND_EXTENDED, K80)
FEWEST_GPUS = 8  # fewer GPUs are one node
ROUNDING = 1e-9  # both step times are sums of some hundred floats


def random_network(rng, fewest=1, most=14):
    ready_s, gradients = 0.0, []
    for _ in range(rng.randint(fewest, most)):
        ready_s += 10 ** rng.uniform(-4, 0)
        gradients.append((ready_s, round(10 ** rng.uniform(0, 4))))
    return gradients, Line(10 ** rng.uniform(-4, 0), 10 ** rng.uniform(-7, -3))


def within_one_latency(rng):
    """All gradients are ready before one latency has passed."""
    gradients, line = random_network(rng)
    return gradients, Line(
        max(line.a_s, 1.01 * (gradients[-1][0] - gradients[0][0])), line.b_s_per_byte
    )


def sent_before_the_next(rng):
    """Each gradient is ready only after the one before it has been sent: backward is the slower."""
    (_, *later), line = random_network(rng, fewest=2)
    gradients = [(1.0, round(10 ** rng.uniform(0, 4)))]
    for _, nbytes in later:
        before_s, before = gradients[-1]
        gradients.append((before_s + line(before) * rng.uniform(1.01, 2), nbytes))
    return gradients, line


def without(latency: bool):
    """Networks on which a call costs no latency, or else no time for its bytes."""

    def network(rng):
        gradients, line = random_network(rng)
        return gradients, Line(0.0, line.b_s_per_byte) if latency else Line(line.a_s, 0.0)

    return network


KINDS = {
    "any": random_network,
    "any, 100 to 200 gradients": lambda rng: random_network(rng, 100, 200),
    "two gradients": lambda rng: random_network(rng, 2, 2),
    "no latency (a = 0)": without(latency=True),
    "bytes cost nothing (b = 0)": without(latency=False),
    "all ready within one latency": within_one_latency,
    "each sent before the next is ready": sent_before_the_next,
}
BEST_FOR = list(KINDS)[2:]  # kinds for which the rule is optimal


def misses(run, count: int, kind: str) -> dict:
    """Greedy against exact on `count` networks of a kind. Every network has its own seed."""
    seeds = [f"{kind} {number}" for number in range(run.rank, count, run.size)]
    return summary(
        run, kind, [(compare(*KINDS[kind](random.Random(seed)))["excess"], seed) for seed in seeds]
    )


def real_misses(run, line, names, backwards_s, itemsizes) -> dict:
    """The papers' networks, on each published line and on this run's, at several paces.

    A layer's share of the backward time is its share of the flops.
    """
    lines = {
        f"{machine.name}, {p} ranks": machine.lines[p]
        for machine in MACHINES
        for p in machine.lines
        if p >= FEWEST_GPUS
    }
    lines["this run's line"] = line
    networks, mine = {name: WORKLOADS[name]() for name in names}, []
    every = list(itertools.product(names, lines, backwards_s, itemsizes))
    for name, place, backward_s, itemsize in every[run.rank :: run.size]:
        gradients = networks[name].gradients(backward_s, backward_s / 2, itemsize)
        case = f"{name}, {itemsize} bytes per gradient, backward {backward_s} s\n    {place}"
        mine.append((compare(gradients, lines[place])["excess"], case))
    return summary(run, f"{len(names)} real networks, {len(lines)} clusters", mine)


def count(run, line) -> list[dict]:
    """Greedy against exact by arithmetic: random networks, special kinds, the papers' networks."""
    run.section("How often does the greedy rule miss the best merge? (computed, not measured)")
    number = run.quick(64, 2000, 20_000)
    rows = [misses(run, number // (20 if "100" in kind else 1), kind) for kind in KINDS]
    paces = run.quick([0.2], [0.2], [0.1, 0.2, 0.4]), run.quick([4], [4], [2, 4])
    names = run.quick(["AlexNet", "ResNet-50"], list(WORKLOADS))
    rows.append(real_misses(run, line, names, *paces))
    cells = [
        [
            row["kind"],
            row["networks"],
            *(f"{100 * row[key]:.2g} %" for key in ("missed", "mean", "worst")),
        ]
        for row in rows
    ]
    run.table(["networks", "number", "missed", "mean excess", "largest excess"], cells)
    wrong = [row["kind"] for row in rows if row["kind"] in BEST_FOR and row["missed"]]
    if wrong:
        raise AssertionError(f"greedy rule: got misses where it is optimal, for {wrong}")
    if rows[-1]["missed"]:
        run.say(f"largest excess of a real network:\n    {rows[-1]['worst_at']}")
    return rows


def summary(run, kind: str, mine: list[tuple[float, str]]) -> dict:
    """mine: (greedy step / best step - 1, network) of each network of this rank. Collective."""
    every = sorted(sum(run.plain.allgather(mine), []))
    missed = [excess for excess, _ in every if excess > ROUNDING]
    return {
        "kind": kind,
        "networks": len(every),
        "missed": len(missed) / len(every),
        "mean": sum(missed) / len(missed) if missed else 0.0,
        "worst": missed[-1] if missed else 0.0,
        "worst_at": every[-1][1] if missed else "",
        "excesses": missed[:: max(1, len(missed) // 200)],
    }


def missed_share(result: dict, kinds) -> float:
    """The share of these kinds' networks on which the greedy rule misses the best merge."""
    rows = [row for row in result["misses"] if row["kind"] in kinds]
    return sum(row["missed"] * row["networks"] for row in rows) / sum(r["networks"] for r in rows)
