"""Lesson 09: merged gradients - MG-WFBP computes which gradients are sent together.

    mpiexec -n 8 python lessons/09_merged_gradients.py     (--quick, --plot, --share N, ...)
    ... --network resnet50                                 (or densenet201; default: both)

QUESTION    Lesson 03 sweeps theta. Can you compute from measured times which gradients should be
            sent together?
IDEA        Measure when each gradient is ready and what an allreduce costs. Choose the groups whose
            last call ends first. Send each group when its last gradient is ready.
            (refgf/papers/mgwfbp/merged.py, merge.py)
PREDICTION  A call of m bytes takes T(m) = a + b m. Merging two calls saves one latency a, and costs
            waiting:

                start of a call = max(end of the call before, its last gradient ready)
                step            = end of the last call

                greedy rule     gradient i joins i+1 if ready(i+1) - start(i) < a; never revised
                                (Shi et al. 2019)
                exact, any T    F(j) = min over i < j of max(F(i), ready(j)) + T(bytes of i .. j-1)

            F(j) is the earliest end of all calls for the first j gradients. It takes L(L+1)/2
            values of T instead of 2^(L-1) merges.

Before you run it, write down: with 161 gradients and a latency of 2 ms, how many calls does the
best merge make? And does some theta of lesson 03 make the same groups?

This is weak scaling: each rank replays a backward pass of its own, whatever p is.

WHAT YOU SHOULD SEE    Eager pays a latency for each of hundreds of small gradients. One call hides
            nothing. The best merge is at least as fast as every theta (measured: within what two
            runs differ by). Its first group is sent early, so that the network has something to do.
            The later groups are large, because they wait for the network anyway. Usually no theta
            makes such groups, but the best theta comes close, if you know it. The greedy rule is
            sometimes as good. Where the latency costs more than each single wait, it waits, and
            waits again, until backward has ended, and makes one call.
            The smallest miss: ready after 1, 2, 4, one byte each, a = 2, b = 1. Greedy ends at 9,
            the best merge at 8.
            The authors call their rule optimal. Each of its decisions is right if what follows
            stays the same. So it is optimal for two gradients, for a = 0, for b = 0, if all
            gradients are ready within one latency, and if each is sent before the next is ready.
            Otherwise a gradient that waits may spoil a better group later, and many waits, each
            shorter than a, may add up to more than a.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/09_merged_gradients.py)
    1. Show that for two gradients the greedy rule gives the best merge, whatever a, b, times and
       sizes are.
    2. How many times as long as the best step can a greedy step take? Build a network that comes
       near this bound.
    3. Backward gets a quarter faster or slower than it was profiled. How much time do groups
       computed from the old times lose?
"""

import refgf.launch  # noqa: F401  before MPI starts

import math
from dataclasses import dataclass

import numpy as np

import kit
from kit import call_times
from lab import greedy_misses
from lab.merge_picture import draw
from kit.replay import replay_backward, sizes_of
from refgf.comm import direct, ring
from refgf.comm.agreement import agree
from refgf.comm.schedule import collective
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.papers.mgwfbp.merged import Groups, Profile, slowest
from refgf.exchange.overlap import CommunicationThread
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import direct_allreduce, ring_allreduce, ring_traffic, same_bits
from refgf.predict.cost import Line
from refgf.papers.mgwfbp.merge import compare, exact_merge, greedy_merge, theta_bounds
from refgf.papers.scaling.scaling import best_theta
from refgf.predict.timeline import eager, lazy, one_call, predict
from refgf.papers.scaling.workloads import WORKLOADS, densenet201, resnet50

THETAS = [2**14, 2**16, 2**18, 2**20, 2**22]  # bytes
SHARE = 8  # 1/8 of the bytes on 1 Gbit/s take as long as all bytes on 8 Gbit/s
COUNTEREXAMPLE = [(1.0, 1), (2.0, 1), (4.0, 1)], Line(2.0, 1.0)


@dataclass(frozen=True)
class Network:
    """A workload. backward_s: an assumption, two thirds of a step on a GPU of the papers."""

    workload: object
    backward_s: float


NETWORKS = {
    "resnet50": Network(resnet50(), 0.16),  # 250 images/s, batch 64, as in lesson 03
    # a step of 0.361 s at batch 64 (refgf/papers/scaling/rows.py)
    "densenet201": Network(densenet201(), 0.24),
}


def measure(run: kit.Run) -> dict:
    names = [run.options.network] if run.options.network else list(NETWORKS)
    share = run.options.share or run.quick(256, SHARE)
    agree(run.plain.Dup(), "networks and share", f"{names} {share}")
    pools = {name: Pool(sizes_of(NETWORKS[name].workload, share)) for name in names}
    check_against_oracle(run, pools[names[0]])
    line, points = measure_allreduce(run, max(pool.flat.size for pool in pools.values()))
    results = {
        name: compare_exchanges(run, name, pool, line, share) for name, pool in pools.items()
    }
    missed = count_misses(run, line)
    return {
        "fit": vars(line) | {"points": points},
        "share": share,
        "networks": results,
        "misses": missed,
    }


# ---- one step: profile, fit, merge, run ----


def profile(run: kit.Run, pool: Pool, ready_s: list[float]) -> list[tuple[float, int]]:
    """1. Measure when each gradient is ready on the slowest rank: [(seconds, bytes)]."""
    watch = Profile(pool)
    for _ in range(run.quick(2, 4)):
        run.plain.Barrier()
        watch.start()
        replay_backward(watch, ready_s)
    times_s = slowest(watch.ready_s(), collective(run.plain, direct.allreduce), run.rank, run.size)
    return [(t, view.nbytes) for t, view in zip(times_s, pool.views)]


class Exchange:
    """4. pool -> merged or lazy -> communication thread -> ring."""

    def __init__(self, run: kit.Run, pool: Pool, grouping) -> None:
        """grouping: a Theta, or Groups."""
        self.allreduce = collective(run.comm.Dup(), ring.allreduce)
        self.thread = CommunicationThread()
        self.lazy = LazyAllreduce(pool, self.send, grouping)

    def ready(self, i: int) -> None:
        self.lazy.ready(i)

    def send(self, x) -> None:
        self.thread.run(self.allreduce, x)

    def finish(self) -> None:
        self.lazy.finish()
        self.thread.wait()


# ---- the oracle ----


def check_against_oracle(run: kit.Run, pool: Pool) -> None:
    """One call per group: the bits of ring and direct allreduce as defined, for any groups."""
    run.section("The oracle")
    pool = Pool(pool.specs[:40])
    everybody = [
        np.random.default_rng(r).standard_normal(pool.flat.size).astype(np.float32)
        for r in range(run.size)
    ]
    gradients = [(float(i), view.nbytes) for i, view in enumerate(pool.views)]
    line = Line(2.0, 1 / np.median([nbytes for _, nbytes in gradients]))
    algorithms = (ring.allreduce, ring_allreduce), (direct.allreduce, direct_allreduce)
    merged = greedy_merge(gradients, line), exact_merge(gradients, line)
    for groups in (eager(gradients), one_call(gradients), *merged):
        bounds = [(pool.offsets[group[0]], pool.offsets[group[-1] + 1]) for group in groups]
        for algorithm, define in algorithms:
            pool.flat[:] = everybody[run.rank]
            exchange = LazyAllreduce(pool, collective(run.comm, algorithm), Groups(tuple(groups)))
            replay_backward(exchange, [0.0] * len(gradients))
            wanted = np.concatenate(
                [define([x[i:j] for x in everybody])[run.rank] for i, j in bounds]
            )
            place = f"merged allreduce on rank {run.rank}, {len(groups)} groups"
            if [(c.start, c.stop) for c in exchange.calls] != bounds:
                raise AssertionError(f"{place}: got other calls; wanted one for each group")
            if not same_bits(pool.flat, wanted):
                raise AssertionError(f"{place}: got other bits than defined")
    got = compare(*COUNTEREXAMPLE)
    if (got["greedy"], got["exact"]) != (9, 8):
        raise AssertionError(f"counterexample: got {got}; wanted greedy 9, exact 8")
    run.say("eager, one call, greedy and exact groups: one ring or direct allreduce per group")
    run.say("each bit for bit as defined; the direct allreduce gives the same bits for all groups")
    run.say("counterexample (ready after 1, 2, 4; one byte each; a = 2, b = 1): greedy 9, exact 8")


# ---- the measurement ----


def measure_allreduce(run: kit.Run, elements: int):
    """2. Fit T(m) = a + b m to the times of ring allreduces of this run's sizes."""
    run.section("What one call costs here")
    sizes = sorted({max(1, elements // share) for share in (1, 4, 16, 64, 1024, 65536)})
    times = call_times.measure(run, collective(run.comm, ring.allreduce), sizes, run.quick(3, 5, 9))
    points = [(4 * n, timing.median_s) for n, timing in times.items()]
    fit = call_times.fit(run, times)
    run.say(f"T(m) = a + b m, a and b: {fit}")
    return fit.line, points


def compare_exchanges(run: kit.Run, name: str, pool: Pool, line, share: int) -> dict:
    """Eager, lazy, one call and both merges: counts asserted, step times measured and predicted."""
    network = NETWORKS[name]
    backward_s = run.quick(0.02, network.backward_s)
    size = f"each 1/{share} of its size" if share > 1 else "at full size"
    total = kit.number_of_bytes(pool.flat.nbytes)
    run.section(f"{network.workload.name}: {len(pool.specs)} gradients, {size}: {total}")
    run.say(f"The ranks sleep instead of computing: {backward_s} s of backward, an assumption,")
    run.say("divided among the layers in proportion to flops.")
    ready_s = [t for t, _ in network.workload.gradients(backward_s)]
    gradients = profile(run, pool, ready_s)
    rows = []
    for kind, theta, groups in strategies(run, gradients, line):
        predicted_s = predict(gradients, groups, line).step_s
        row = time_exchange(run, pool, ready_s, groups, theta, repeats_of(run, predicted_s))
        rows.append({"name": kind, "theta": theta, "predicted_s": predicted_s} | row)
    run.table(
        ["exchange", "calls", "messages", "bytes sent", "step", "predicted", "error"],
        [
            [
                r["name"],
                r["calls"],
                r["messages"],
                r["bytes"],
                r["measured"],
                kit.seconds(r["predicted_s"]),
                f"{100 * error_of(r):+.0f} %",
            ]
            for r in rows
        ],
    )
    run.say(kit.errors_in_words([(row["predicted_s"], row["measured"].median_s) for row in rows]))
    return {
        "title": network.workload.name,
        "gradients": gradients,
        "backward_s": gradients[-1][0],
        "rows": rows,
        "theta": which_theta(run, gradients, line, rows),
    }


def repeats_of(run: kit.Run, predicted_s: float) -> int:
    """Fewer repeats of long steps. The prediction is the same on all ranks, so the number is."""
    most, budget_s = run.quick(1, 5, 15), run.quick(1, 6, 40)
    return max(1, min(most, int(budget_s / predicted_s)))


def error_of(row: dict) -> float:
    """Relative error of the predicted step."""
    return row["predicted_s"] / row["measured"].median_s - 1


def strategies(run: kit.Run, gradients, line):
    """[(name, theta or None, groups)]. 3. Merge: the last two."""
    thetas = [0, *run.quick(THETAS[1:4:2], THETAS), math.inf]
    names = {0: "eager (WFBP)", math.inf: "one call"}
    swept = [
        (names.get(theta, f"lazy {kit.number_of_bytes(theta)}"), theta, lazy(gradients, theta))
        for theta in thetas
    ]
    merged = {
        "MG-WFBP, greedy": greedy_merge(gradients, line),
        "MG-WFBP, exact": exact_merge(gradients, line),
    }
    return swept + [(name, None, groups) for name, groups in merged.items()]


def time_exchange(run: kit.Run, pool: Pool, ready_s, groups, theta, repeats: int) -> dict:
    """Counts and time of one exchange. Asserts one call per group, and the rings' traffic."""
    exchange = Exchange(run, pool, Groups(tuple(groups)) if theta is None else Theta(theta))
    run.comm.reset()
    measured = run.time(lambda: replay_backward(exchange, ready_s), repeats)
    exchange.thread.close()
    bounds = [(pool.offsets[group[0]], pool.offsets[group[-1] + 1]) for group in groups]
    traffic = [ring_traffic(stop - start, run.size, run.rank) for start, stop in bounds]
    messages, nbytes = (sum(column) for column in zip(*traffic))
    assert [(call.start, call.stop) for call in exchange.lazy.calls] == bounds
    steps = repeats + 1  # and the warm-up
    assert (run.comm.messages, run.comm.bytes) == (steps * messages, steps * 4 * nbytes)
    return {"calls": len(groups), "messages": messages, "bytes": 4 * nbytes, "measured": measured}


def which_theta(run: kit.Run, gradients, line, rows) -> dict:
    """Which theta makes the groups of the best merge, and how near the best theta comes."""
    groups = exact_merge(gradients, line)
    low, high = theta_bounds(gradients, groups)
    counts = [len(group) for group in groups]
    listed = ", ".join(map(str, counts[:15])) + ", ..." * (len(counts) > 15)
    run.say(f"the best merge: {len(groups)} calls of {listed} gradients")
    lower, upper = kit.number_of_bytes(low), kit.number_of_bytes(high)
    if low < high:
        run.say(f"theta from {lower} to just below {upper} would make the same groups")
    else:
        run.say("no theta makes these groups:")
        run.say(f"    {lower} had to wait in one group, and {upper} had to be sent in another")
    theta, timeline = best_theta(gradients, line)
    exact_s = predict(gradients, groups, line).step_s
    best = f"{kit.number_of_bytes(theta)}, a step of {kit.seconds(timeline.step_s)}"
    run.say(f"predicted: best theta of a fine sweep {best}; best merge {kit.seconds(exact_s)}")
    sweep = [row for row in rows if row["theta"] is not None]
    swept = min(sweep, key=lambda row: row["measured"].median_s)
    run.say(f"measured: best of the sweep {swept['name']}, {swept['measured']};")
    run.say(f"    best merge {rows[-1]['measured']}")
    return {
        "low": low,
        "high": high,
        "best": theta,
        "best_s": timeline.step_s,
        "exact_s": exact_s,
        "counts": counts,
    }


def count_misses(run: kit.Run, line) -> list[dict]:
    """Greedy against exact by arithmetic: random networks, special kinds, the papers' networks."""
    run.section("How often does the greedy rule miss the best merge? (computed, not measured)")
    count = run.quick(64, 2000, 20_000)
    rows = [
        greedy_misses.misses(run, count // (20 if "100" in kind else 1), kind)
        for kind in greedy_misses.KINDS
    ]
    paces = run.quick([0.2], [0.2], [0.1, 0.2, 0.4]), run.quick([4], [4], [2, 4])
    names = run.quick(["AlexNet", "ResNet-50"], list(WORKLOADS))
    rows.append(greedy_misses.real_misses(run, line, names, *paces))
    run.table(
        ["networks", "number", "missed", "mean excess", "largest excess"],
        [
            [
                r["kind"],
                r["networks"],
                f"{100 * r['missed']:.1f} %",
                f"{100 * r['mean']:.2g} %",
                f"{100 * r['worst']:.2g} %",
            ]
            for r in rows
        ],
    )
    wrong = [row["kind"] for row in rows if row["kind"] in greedy_misses.BEST_FOR and row["missed"]]
    if wrong:
        raise AssertionError(f"greedy rule: got misses where it is optimal, for {wrong}")
    if rows[-1]["missed"]:
        run.say(f"largest excess of a real network:\n    {rows[-1]['worst_at']}")
    run.say("No network of these kinds is missed. For them the claim of optimality holds:")
    run.say("\n".join(f"    {kind}" for kind in greedy_misses.BEST_FOR))
    return rows


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    lesson.argument("--network", choices=list(NETWORKS), help="only this network (default: both)")
    lesson.argument(
        "--share",
        type=kit.positive,
        metavar="N",
        help=f"tensors N times smaller (default {SHARE}; 1: full size)",
    )
    lesson.main(measure, draw)
