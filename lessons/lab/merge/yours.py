"""Lesson 09 with --mine: your greedy groups in a real step, your timeline, your search."""

from dataclasses import asdict
from functools import partial
from itertools import accumulate

import kit
from kit.experiment import in_turn
from kit.mine import CLUSTER_S, Yours, on
from kit.rows import scaled
from kit.words import count
from lab.lazy import grouped_steps
from lab.lazy.yours import YourCalls
from lab.merge import here
from lab.merge.steps import GREEDY
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.exchange.overlap import CommunicationThread

FEW = range(2, 9)  # gradients of which all groupings are tried


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series = run.mine, []
    for name, network in found["networks"].items():
        ready_s, nbytes = ([pair[i] for pair in network["gradients"]] for i in (0, 1))
        line = network["fit"]["a_s"], network["fit"]["b_s_per_byte"]
        greedy = mine.ours("greedy_counts")(ready_s, nbytes, *line)
        if "greedy_counts" in mine:
            series.append(greedy_steps(run, found, name, greedy))
        if "step_end" in mine:
            merges = {"eager": [1] * len(nbytes), "greedy": greedy, "one call": [len(nbytes)]}
            both = (
                [end(ready_s, nbytes, counts, *line) for counts in merges.values()]
                for end in mine.pair("step_end")
            )
            title = f"Predicted end of the last call, {network['title']}"
            series.append(mine.series("step_end", title, ("groups", merges), *both, unit=CLUSTER_S))
    if {"best_end", "groupings"} & set(mine.functions):
        series += searched(run, ready_s, nbytes, line)
    return series


def greedy_steps(run: kit.Run, found: dict, name: str, greedy: list[int]) -> dict:
    """The step with the definition's groups and with yours, in turn."""
    network = found["networks"][name]
    bench = (grouped_steps if run.regime.like else here).bench(run, name)
    ready_s, nbytes = ([pair[i] for pair in network["gradients"]] for i in (0, 1))
    line = network["fit"]["a_s"], network["fit"]["b_s_per_byte"]
    counts = {"ours": greedy, "yours": run.mine["greedy_counts"](ready_s, nbytes, *line)}
    allreduce = collective(grouped_steps.sleeping_comm(run), ring.allreduce)
    thread, steps = CommunicationThread(), {}
    for whose, each in counts.items():
        stops = [bench.pool.offsets[i] for i in accumulate(each)]
        calls = list(zip([0, *stops], stops))
        send = partial(thread.run, allreduce)
        steps[whose] = partial(bench.step, YourCalls(bench.pool, send, calls, thread.wait))
    timed = in_turn(run, steps, run.quick(2, 3, 7))
    thread.close()
    note = f"{count(len(counts['yours']), 'call')}, ours {len(greedy)}"
    at, both = ("network", [network["title"]]), ([timed[whose]["timing"]] for whose in steps)
    more = {"unit": CLUSTER_S, "note": note}
    bars = [row["name"] for row in network.get("rows", ())]
    if GREEDY in bars:
        figure = "" if name == next(iter(found["networks"])) else name
        shown = scaled(asdict(timed["yours"]["timing"]), 1e3 / run.regime.dilation)
        more["on"] = on(0, [bars.index(GREEDY)], [shown], figure, across=True)
    return run.mine.series("greedy_counts", "Step with greedy groups", at, *both, **more)


def searched(run: kit.Run, ready_s: list, nbytes: list, line: tuple) -> list[dict]:
    """The best end of the first gradients, and how many groupings were tried."""
    mine, at, series = run.mine, ("gradients", FEW), []
    if "best_end" in mine:
        both = (
            [best(ready_s[:n], nbytes[:n], *line) for n in FEW] for best in mine.pair("best_end")
        )
        series.append(mine.series("best_end", "Best end of all", at, *both, unit=CLUSTER_S))
    if "groupings" in mine:
        both = ([len(make(n)) for n in FEW] for make in mine.pair("groupings"))
        series.append(mine.series("groupings", "Groupings", at, *both))
    return series


YOURS = Yours(
    {
        "greedy_counts": "the groups of a step",
        "step_end": "the prediction of each grouping",
        "best_end": "the search",
        "groupings": "what it tries",
    },
    measure,
)
