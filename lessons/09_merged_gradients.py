"""Lesson 09: merged gradients - MG-WFBP: which gradients travel together is computed, not guessed.

    mpiexec -n 8 python lessons/09_merged_gradients.py       (--network resnet50|densenet201, --share N, --quick, --plot, ...)

QUESTION    Lesson 03 sweeps theta. Can one compute from measured times which gradients should travel together?
IDEA        Measure when each gradient is ready and what an allreduce costs; choose the groups whose last call ends first;
            then send each group when its last gradient is ready. (refgf/papers/mgwfbp/merged.py, refgf/papers/mgwfbp/merge.py)
PREDICTION  A call of m bytes takes T(m) = a + b m. Merging two calls saves one start-up a, and costs waiting:

                start of a call = max(end of the one before, its last gradient ready)          step = end of the last call

                greedy rule (Shi et al. 2019)   gradient i joins i+1 if ready(i+1) - start(i) < a; never revised
                exact, for any T                F(j) = min over i < j of max(F(i), ready(j)) + T(bytes of i .. j-1)

            F(j) is the earliest end of all calls for the first j gradients: L(L+1)/2 values of T instead of 2^(L-1) merges.

Before you run it, write down: with 161 gradients and a start-up of 2 ms, how many calls does the best merge make? And does
some theta of lesson 03 make the same groups?

This is weak scaling: each rank replays a backward pass of its own, whatever p is.

WHAT YOU SHOULD SEE    Eager pays a start-up for each of hundreds of small gradients, one call hides nothing. The best merge
            is at least as fast as every theta (measured: within what two runs differ by): its first group goes early, so
            that the network has something to do, and the later ones are large, as they wait for the network anyway. As a
            rule no theta makes such groups, but the best theta comes close, if one knows it. The greedy rule is sometimes
            as good; where the start-up is dearer than each of the waits it waits, and waits again, until backward is over,
            and ends as one call.
            The smallest miss: ready after 1, 2, 4, one byte each, a = 2, b = 1: greedy ends at 9, the best merge at 8.
            The authors call their rule optimal. Each of its decisions is right if what follows stays as it is: so it is
            optimal for two gradients, for a = 0, for b = 0, if all gradients are ready within one start-up, and if each is
            sent before the next is ready. Otherwise a gradient that waits may spoil a better group later, and many waits,
            each shorter than a, may add up to more than a.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/09_merged_gradients.py)
    1. Show that for two gradients the greedy rule gives the best merge, whatever a, b, times and sizes.
    2. How many times as long as the best step can a greedy step take? Build a network that comes near it.
    3. Backward gets a quarter faster or slower than it was profiled. How much do groups made for the old times lose?
"""

import refgf.launch  # noqa: F401  before MPI starts

import math
from dataclasses import dataclass

import numpy as np

import kit
from kit import axes, call_times
from lab import greedy_misses
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
SHARE = 8  # on links of 1 Gbit/s an eighth of the bytes is what all of them are on 8 Gbit/s
COUNTEREXAMPLE = [(1.0, 1), (2.0, 1), (4.0, 1)], Line(2.0, 1.0)


@dataclass(frozen=True)
class Network:
    """A workload and the seconds of its backward pass: assumptions, two thirds of a step on a GPU of the papers."""

    workload: object
    backward_s: float


NETWORKS = {
    "resnet50": Network(resnet50(), 0.16),  # 250 images/s, batch 64, as in lesson 03
    "densenet201": Network(
        densenet201(), 0.24
    ),  # a step of 0.361 s at batch 64 (refgf/papers/scaling/rows.py)
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
    """1. When each gradient is ready, measured, on the slowest rank: [(seconds, bytes)]."""
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
    """One call a group: bits of ring and direct as defined, whatever the groups are."""
    run.section("The oracle")
    pool = Pool(pool.specs[:40])
    everybody = [
        np.random.default_rng(r).standard_normal(pool.flat.size).astype(np.float32)
        for r in range(run.size)
    ]
    gradients = [(float(i), view.nbytes) for i, view in enumerate(pool.views)]
    line = Line(2.0, 1 / np.median([nbytes for _, nbytes in gradients]))
    for groups in (
        eager(gradients),
        one_call(gradients),
        greedy_merge(gradients, line),
        exact_merge(gradients, line),
    ):
        bounds = [(pool.offsets[group[0]], pool.offsets[group[-1] + 1]) for group in groups]
        for algorithm, define in (
            (ring.allreduce, ring_allreduce),
            (direct.allreduce, direct_allreduce),
        ):
            pool.flat[:] = everybody[run.rank]
            exchange = LazyAllreduce(pool, collective(run.comm, algorithm), Groups(tuple(groups)))
            replay_backward(exchange, [0.0] * len(gradients))
            wanted = np.concatenate(
                [define([x[i:j] for x in everybody])[run.rank] for i, j in bounds]
            )
            if [(c.start, c.stop) for c in exchange.calls] != bounds or not same_bits(
                pool.flat, wanted
            ):
                raise AssertionError(
                    f"rank {run.rank}: {len(groups)} groups: not one allreduce for each of them"
                )
    got = compare(*COUNTEREXAMPLE)
    if (got["greedy"], got["exact"]) != (9, 8):
        raise AssertionError(f"the counterexample ends at {got}, not at 9 and 8")
    run.say(
        "eager, one call, greedy and exact groups: one ring and one direct allreduce for each, bit for bit; direct as lazy"
    )
    run.say("counterexample (ready after 1, 2, 4; one byte each; a = 2, b = 1): greedy 9, exact 8")


# ---- the measurement ----


def measure_allreduce(run: kit.Run, elements: int):
    """2. T(m) = a + b m through the times of ring allreduces of this run's sizes."""
    run.section("What one call costs here")
    sizes = sorted({max(1, elements // share) for share in (1, 4, 16, 64, 1024, 65536)})
    times = call_times.measure(run, collective(run.comm, ring.allreduce), sizes, run.quick(3, 5, 9))
    points, fit = (
        [(4 * n, timing.median_s) for n, timing in times.items()],
        call_times.fit(run, times),
    )
    run.say(f"T(m) = a + b m, a and b: {fit}")
    return fit.line, points


def compare_exchanges(run: kit.Run, name: str, pool: Pool, line, share: int) -> dict:
    """Eager, lazy, one call and both merges: counts asserted, step times measured and predicted."""
    network = NETWORKS[name]
    backward_s = run.quick(0.02, network.backward_s)
    told = f"each 1/{share} of its size" if share > 1 else "at full size"
    run.section(
        f"{network.workload.name}: {len(pool.specs)} gradients, {told}: {kit.number_of_bytes(pool.flat.nbytes)}"
    )
    run.say(
        f"The ranks sleep instead of computing ({backward_s} s of backward, an assumption, shared out by flops)."
    )
    ready_s = [t for t, _ in network.workload.gradients(backward_s)]
    gradients = profile(run, pool, ready_s)
    rows = []
    for kind, theta, groups in strategies(run, gradients, line):
        predicted_s = predict(gradients, groups, line).step_s
        row = one(run, pool, ready_s, groups, theta, repeats_of(run, predicted_s))
        rows.append({"name": kind, "theta": theta, "predicted_s": predicted_s} | row)
    run.table(
        ["exchange", "calls", "messages", "bytes sent", "step", "predicted", "miss"],
        [
            [
                r["name"],
                r["calls"],
                r["messages"],
                r["bytes"],
                r["measured"],
                kit.seconds(r["predicted_s"]),
                f"{100 * off(r):+.0f} %",
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
    """Fewer of what takes long; the prediction is the same on all ranks."""
    most, budget_s = run.quick(1, 5, 15), run.quick(1, 6, 40)
    return max(1, min(most, int(budget_s / predicted_s)))


def off(row: dict) -> float:
    return row["predicted_s"] / row["measured"].median_s - 1


def strategies(run: kit.Run, gradients, line):
    """[(name, theta, its groups)]; 3. merge: the last two."""
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


def one(run: kit.Run, pool: Pool, ready_s, groups, theta, repeats: int) -> dict:
    """Counts and time of one exchange; its calls must be the predicted groups, its traffic that of so many rings."""
    exchange = Exchange(run, pool, Groups(tuple(groups)) if theta is None else Theta(theta))
    run.comm.reset()
    measured = run.time(lambda: replay_backward(exchange, ready_s), repeats)
    exchange.thread.close()
    bounds = [(pool.offsets[group[0]], pool.offsets[group[-1] + 1]) for group in groups]
    traffic = [ring_traffic(stop - start, run.size, run.rank) for start, stop in bounds]
    messages, nbytes = (sum(column) for column in zip(*traffic))
    assert [(call.start, call.stop) for call in exchange.lazy.calls] == bounds
    assert (run.comm.messages, run.comm.bytes) == (
        (repeats + 1) * messages,
        (repeats + 1) * 4 * nbytes,
    )
    return {"calls": len(groups), "messages": messages, "bytes": 4 * nbytes, "measured": measured}


def which_theta(run: kit.Run, gradients, line, rows) -> dict:
    """What theta would have had to be to make the groups of the best merge, and how near the best theta comes."""
    groups = exact_merge(gradients, line)
    low, high = theta_bounds(gradients, groups)
    counts = [len(group) for group in groups]
    listed = ", ".join(map(str, counts[:20])) + ", ..." * (len(counts) > 20)
    run.say(f"the best merge: {len(groups)} calls of {listed} gradients")
    told = [kit.number_of_bytes(n) for n in (low, high)]
    if low < high:
        run.say(f"theta from {told[0]} to just below {told[1]} would have made the same groups")
    else:
        run.say(
            f"no theta makes these groups: {told[0]} had to wait in one group, and {told[1]} had to go in another"
        )
    theta, timeline = best_theta(gradients, line)
    exact_s = predict(gradients, groups, line).step_s
    run.say(
        f"best theta of a fine sweep (predicted): {kit.number_of_bytes(theta)}, {kit.seconds(timeline.step_s)} a step; "
        f"the best merge {kit.seconds(exact_s)}"
    )
    swept = min(
        (row for row in rows if row["theta"] is not None), key=lambda row: row["measured"].median_s
    )
    run.say(
        f"measured: best of the sweep {swept['name']}, {swept['measured']}; exact merge {rows[-1]['measured']}"
    )
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
    rows.append(
        greedy_misses.real_misses(
            run, line, run.quick(["AlexNet", "ResNet-50"], list(WORKLOADS)), *paces
        )
    )
    run.table(
        ["networks", "number", "missed", "in the mean by", "at worst by"],
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
        raise AssertionError(f"the greedy rule missed the best merge where it cannot: {wrong}")
    if rows[-1]["missed"]:
        run.say(f"worst real network: {rows[-1]['worst_at']}")
    run.say(
        f"Never for these kinds: {'; '.join(greedy_misses.BEST_FOR)}. There the claim of optimality holds."
    )
    return rows


# ---- the picture ----


def draw(result: dict):
    networks = result["networks"]
    title = (
        "Lesson 09: merged gradients. Groups computed from measured times, beside a sweep of theta"
    )
    figure, panels = axes.frame(title, 1, len(networks) + 1, (6.4 * (len(networks) + 1), 5.8))
    for axis, network in zip(panels, networks.values()):
        rows = network["rows"]
        labels = [f"{row['name']}\n({row['calls']})" for row in rows]
        axes.measured(
            axis, labels, [row["measured"] for row in rows], "o", color="tab:blue", label="measured"
        )
        axis.plot(
            labels,
            [1e3 * row["predicted_s"] for row in rows],
            "_",
            ms=16,
            mew=2,
            color="tab:red",
            label="predicted",
        )
        axis.axhline(1e3 * network["backward_s"], color="grey", lw=1, label="backward alone")
        axis.tick_params(axis="x", rotation=60, labelsize=7)
        axis.set(
            title=f"{network['title']}, 1/{result['share']} of its bytes (calls in brackets)",
            ylabel="ms",
            yscale="log",
        )
    for row in result["misses"]:
        excesses = [100 * excess for excess in row["excesses"]]
        shares = [100 * row["missed"] * (1 - i / len(excesses)) for i in range(len(excesses))]
        if excesses:
            panels[-1].plot(excesses, shares, marker=".", label=f"{row['kind']}: {row['networks']}")
    panels[-1].set(
        title="Greedy rule against best merge, computed",
        xlabel="step longer by at least, %",
        ylabel="share of networks, %",
        xscale="log",
        xlim=(1e-2, None),
    )
    return axes.finish(figure, *panels)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    lesson.argument("--network", choices=list(NETWORKS), help="only this one (default: both)")
    lesson.argument(
        "--share",
        type=kit.positive,
        metavar="N",
        help=f"tensors N times smaller (default {SHARE}; 1: full size)",
    )
    lesson.main(measure, draw)
