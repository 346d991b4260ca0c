"""Lesson 10: hierarchical allreduce - fast links inside a node, slow ones between.

    mpiexec -n 8 python lessons/10_hierarchical_allreduce.py          (--ranks-per-node K, --quick, --plot, ...)
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- python lessons/10_hierarchical_allreduce.py

QUESTION    A flat ring takes 2(p-1) steps, and every step is as slow as its slowest link. Ranks of one node could talk
            much faster. Does it pay to treat them differently, and from which size on not any more?
IDEA        Sum inside each node first, let one rank of each node, its master, sum over the nodes, and spread the result
            inside the nodes again (Jia et al. 2018). Besch & Pohl (1995) use a tree; others pair ranks that differ in one
            bit. All are schedules, lists of messages, and can be put together: a tree in the node and halving-doubling
            between masters are three phases in the fewest steps, "log phases". (papers/jia/hierarchical.py, tree.py, doubling.py)
PREDICTION  p ranks on m nodes with k ranks each:

                flat ring       2(p-1) steps, all at the pace of the slow links           2(p-1)/p n bytes a rank
                three phases    4(k-1) fast steps + 2(m-1) slow ones                      2(m-1)/m n between masters
                log phases      2 log2 k fast steps of all n, 2 log2 m slow ones          the same
                two-level ring  2(k-1) fast steps + 2(m-1) slow ones                      the same, from all ranks
                tree            2 log2 p steps of all n elements
                doubling        log2 p exchanges of all elements, or 2 log2 p of ever smaller parts
                anything        no allreduce sends fewer than 2(m-1)/m n bytes through the busiest link between nodes

            The time of any of them is that of its messages, each alpha + beta m of the link that it takes, in the order
            of the schedule (refgf/papers/scaling/simulate.py, wires.py).

Before you run it, write down: with 4 nodes of 2 ranks, how many times as fast as the flat ring is the sum of 1 KiB in
three phases? And of 16 MiB? From which size on can nobody be 1.5 times as fast as the ring, however clever?

This is weak scaling: each rank brings a vector of n elements, whatever p is.

WHAT YOU SHOULD SEE    On slow links between nodes: for short vectors the fewest slow steps win, and three phases beat the
            flat ring by up to 2(p-1) / 2(m-1), less as far as steps inside a node cost time too; log phases by more. For
            long ones the bytes on the slow link decide: the flat ring sends hardly more than anyone must, and does not wait
            while masters work alone. The grey line in the middle picture is what those bytes allow; the lower the rate, the
            earlier it comes down. Where ranks share cores, as on an emulated cluster, every message of anyone takes time
            from all: whoever sends few, like the tree, gains more than predicted. Where all links are alike (shared memory
            of one machine) nodes are pretended, and hierarchies that need more steps than they save lose.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/10_hierarchical_allreduce.py)
    1. For p = 1024, which k makes three phases shortest, counted in steps? Is it the paper's 16?
    2. Four hierarchies come from `three_phase(nodes, inside, between)`: ring_to_master or tree.reduce, ring or
       halving-doubling. How many steps in the node does the tree save for k = 8, what does it cost, up to which size does
       that pay? And is recursive doubling between the masters ever better?
    3. A launcher deals ranks out round robin: 0, 4 on node 0, 1, 5 on node 1, ... What does the flat ring lose? Mend it.
"""

import refgf.launch  # noqa: F401  before MPI starts

from dataclasses import replace

import numpy as np

import kit
from kit import placement
from lab.hierarchy_picture import draw
from refgf.comm import ring, tree
from refgf.papers.jia import doubling
from refgf.papers.jia import hierarchical
from refgf.comm.replay import check, replay
from refgf.comm.schedule import collective
from refgf.engine.selection import crossover_bytes
from refgf.comm.slices import length
from refgf.oracle.definitions import exact_sum, same_bits, summation_bound
from refgf.predict.cost import Link
from refgf.predict.fit import fit_line
from refgf.papers.scaling.collectives import least_between_s
from refgf.papers.scaling.simulate import from_schedules
from refgf.papers.jia.wires import Wires

ITEMSIZE = 4
SHORT = {
    "three phases": hierarchical.three_phase,
    "log phases": hierarchical.log_phases,
}  # what a hybrid may begin with
BAR = 1.5  # times as fast as the flat ring: from which size on do bytes forbid it?


def measure(run: kit.Run) -> dict:
    nodes = placement.nodes(run)
    run.section("One step: who sends what")
    show_steps(run, nodes)
    check_against_oracle(run, nodes)
    link = measure_links(run, nodes)
    thresholds = {
        name: predicted_crossover(make(nodes), nodes, link) for name, make in SHORT.items()
    }
    hybrids = {
        f"hybrid, {name}": hierarchical.hybrid(nodes, thresholds[name] / ITEMSIZE, make)
        for name, make in SHORT.items()
    }
    points = sweep_sizes(run, nodes, link, candidates(nodes) | hybrids)
    for name, threshold in thresholds.items():
        tell(run, points, name, threshold)
    tell_bound(run, nodes, link, points)
    by_k = sweep_ranks_per_node(run, nodes, link)
    count_at_scale(run)
    return {
        "nodes": nodes,
        "link": {name: vars(fitted) for name, fitted in link.items()},
        "points": points,
        "by_k": by_k,
        "predicted_crossover_bytes": thresholds,
    }


def candidates(nodes) -> dict:
    """All algorithms that can run on these nodes."""
    found = {"flat ring": ring.allreduce} | {name: make(nodes) for name, make in SHORT.items()}
    if len({len(node) for node in nodes}) == 1:
        found["two-level ring"] = hierarchical.two_level_ring(nodes)
    return found | {
        "tree": tree.allreduce,
        "recursive doubling": doubling.recursive_doubling,
        "halving-doubling": doubling.halving_doubling,
    }


def node_of_rank(nodes) -> list[int]:
    return [i for _, i in sorted((rank, i) for i, node in enumerate(nodes) for rank in node)]


def show_steps(run: kit.Run, nodes) -> None:
    """Messages of every algorithm: how many in a row, and how many of them between nodes."""
    try:
        hierarchical.two_level_ring(nodes)
    except ValueError as error:
        run.say(f"left out: {error}")
    n, where, rows = 1000, node_of_rank(nodes), []
    for name, algorithm in candidates(nodes).items():
        schedules = [algorithm(rank, run.size, n) for rank in range(run.size)]
        check(schedules)
        sends = [
            (r, step)
            for r, schedule in enumerate(schedules)
            for step in schedule
            if step.send_to is not None
        ]
        slow = [step for r, step in sends if where[r] != where[step.send_to]]
        busiest = max(
            sum(s.send_to is not None or s.receive_from is not None for s in schedule)
            for schedule in schedules
        )
        rows.append(
            [
                name,
                busiest,
                len(sends),
                len(slow),
                f"{sum(length(step.send) for step in slow) / n:.4g}",
            ]
        )
    run.table(
        [
            "algorithm",
            "steps of the busiest rank",
            "messages, all ranks",
            "between nodes",
            "vectors between nodes",
        ],
        rows,
    )
    k, m = len(nodes[0]), len(nodes)
    three, logs = (
        [s for s in make(nodes)(nodes[0][0], run.size, n) if s.op != "finish"]
        for make in SHORT.values()
    )
    run.say(
        f"Rank {nodes[0][0]}, the master of node 0, k = {k}, m = {m}: three phases {len(three)} steps = 4(k-1) + 2(m-1), "
        f"log phases {len(logs)} (powers of two: 2 log2 k + 2 log2 m); flat ring: 2(p-1) = {2 * (run.size - 1)}"
    )


def check_against_oracle(run: kit.Run, nodes) -> None:
    """All ranks' bits equal, equal to replaying the schedules, within the bound; messages and bytes as planned."""
    run.section("The oracle")
    for name, algorithm in candidates(nodes).items():
        for n in (0, 1, run.size - 1, run.size + 1, 1000):
            everybody = [
                np.random.default_rng([n, r]).standard_normal(n).astype(np.float32)
                for r in range(run.size)
            ]
            schedules, x = (
                [algorithm(r, run.size, n) for r in range(run.size)],
                everybody[run.rank].copy(),
            )
            run.comm.reset()
            collective(run.comm, algorithm)(x)
            if not all(same_bits(x, other) for other in replay(schedules, everybody)):
                raise AssertionError(f"rank {run.rank}: {name}: not the replayed bits for n = {n}")
            if not (
                np.abs(x.astype(np.float64) - exact_sum(everybody)) <= summation_bound(everybody)
            ).all():
                raise AssertionError(
                    f"rank {run.rank}: {name}: further from the exact sum than rounding allows, n = {n}"
                )
            sends = [step.send for step in schedules[run.rank] if step.send_to is not None]
            planned = len(sends), ITEMSIZE * sum(map(length, sends))
            if (run.comm.messages, run.comm.bytes) != planned:
                raise AssertionError(
                    f"rank {run.rank}: {name}: sent {run.comm.messages}, {run.comm.bytes}, not {planned}"
                )
    run.say(
        "every algorithm, n = 0, 1, p-1, p+1, 1000: the same bits on all ranks, those of replaying the schedules; "
        "messages and bytes as in the schedules"
    )
    xs = [
        np.random.default_rng(r).standard_normal(1000).astype(np.float32) for r in range(run.size)
    ]
    results = {
        name: replay([algorithm(r, run.size, 1000) for r in range(run.size)], xs)[0]
        for name, algorithm in candidates(nodes).items()
    }
    differ = {name: int((result != results["flat ring"]).sum()) for name, result in results.items()}
    run.say(
        f"elements of 1000 that differ from the flat ring's, because the order differs: {differ}"
    )


# ---- the measurement ----


def measure_links(run: kit.Run, nodes) -> dict:
    """alpha and beta inside nodes, all ranks at once, and between nodes, masters only; gamma of an addition."""
    run.section("alpha and beta, inside and between nodes")
    i, j = next((i, node.index(run.rank)) for i, node in enumerate(nodes) if run.rank in node)
    groups = {"inside": nodes[i], "between": [node[0] for node in nodes] if j == 0 else [run.rank]}
    links, rows = {}, []
    gamma = addition_s_per_byte(run)
    for name, group in groups.items():
        points = [
            (b, around(run, group, b)) for b in run.quick([64, 65536], [64, 4096, 65536, 1 << 20])
        ]
        fit = (
            fit_line(points).link
            if all(t > 0 for _, t in points) and longest(nodes, name) > 1
            else Link(0, 0)
        )
        if (
            name == "between" and fit.beta_s_per_byte
        ):  # from messages longer than what a shaper lets through at once
            fit = replace(fit, beta_s_per_byte=fit_line(points[-2:]).link.beta_s_per_byte)
        links[name] = Link(fit.alpha_s, fit.beta_s_per_byte, gamma)
        told = f"{1e-9 / fit.beta_s_per_byte:.3g} GB/s" if fit.beta_s_per_byte else "-"
        rows.append([name, kit.seconds(fit.alpha_s), told])
    run.table(["", "alpha", "1 / beta"], rows)
    return links


def longest(nodes, name: str) -> int:
    return max(map(len, nodes)) if name == "inside" else len(nodes)


def around(run: kit.Run, group: list[int], nbytes: int) -> float:
    """One Sendrecv round the group's ring, all groups at once, averaged over eight; groups of one rank wait."""
    outgoing, incoming, place = (
        np.zeros(nbytes, np.uint8),
        np.zeros(nbytes, np.uint8),
        group.index(run.rank),
    )
    right, left = group[(place + 1) % len(group)], group[place - 1]

    def eight():
        for _ in range(8 if len(group) > 1 else 0):
            run.comm.Sendrecv(outgoing, right, 0, incoming, left, 0)

    return run.time(eight, run.quick(5, 15), warmup=2).median_s / 8


def addition_s_per_byte(run: kit.Run) -> float:
    """Seconds per byte of adding one vector to another, all ranks at once."""
    x, y = np.zeros(1 << 18, np.float32), np.ones(1 << 18, np.float32)
    return run.time(lambda: np.add(x, y, out=x), 5).median_s / x.nbytes


def predicted_s(algorithm, nodes, link, n: int) -> float:
    """The time of the schedules' messages on these links."""
    where = node_of_rank(nodes)
    schedules = [algorithm(rank, len(where), n) for rank in range(len(where))]
    return from_schedules(schedules, ITEMSIZE, Wires(where, link["inside"], link["between"]))


def predicted_line(algorithm, nodes, link, far: int = 1 << 22) -> tuple[float, float]:
    """Its time as (a_s, b_s_per_byte)."""
    start_s = predicted_s(algorithm, nodes, link, 0)
    return start_s, (predicted_s(algorithm, nodes, link, far) - start_s) / (far * ITEMSIZE)


def predicted_crossover(algorithm, nodes, link) -> float:
    """Bytes from which the flat ring should be faster than this algorithm."""
    return crossover_bytes(
        predicted_line(algorithm, nodes, link), predicted_line(ring.allreduce, nodes, link)
    )


def sweep_sizes(run: kit.Run, nodes, link, algorithms) -> list[dict]:
    run.section("Time against size")
    calls = {name: collective(run.comm, algorithm) for name, algorithm in algorithms.items()}
    points, rows = [], []
    exponents = 10, 12, 14, 15, 16, 18, 20, 22, 24
    for nbytes in (1 << k for k in run.quick((10, 16), exponents[:-1], exponents)):
        x = np.zeros(nbytes // ITEMSIZE, np.float32)
        times = run.alternate(
            {name: (lambda f=f, x=x: f(x)) for name, f in calls.items()}, repeats(run, nbytes)
        )
        forecast = {
            name: predicted_s(algorithm, nodes, link, x.size)
            for name, algorithm in algorithms.items()
        }
        points.append(
            {
                "bytes": nbytes,
                "measured": times,
                "predicted_s": forecast,
                "least_s": least_between_s(len(nodes), x.size, ITEMSIZE, link["between"]),
            }
        )
        rows.append(
            [kit.number_of_bytes(nbytes)]
            + [
                f"{kit.seconds(times[name].median_s)} ({kit.seconds(forecast[name])})"
                for name in algorithms
            ]
        )
    run.table(["bytes"] + list(algorithms), rows)
    run.say("measured median (predicted)")
    return points


def repeats(run: kit.Run, nbytes: int) -> int:
    """Short vectors take less than the processors' moods last: the more calls of them."""
    if nbytes <= 1 << 16:
        return run.quick(2, 31, 61)
    return run.quick(2, 5 if nbytes >= 1 << 20 else 9, 7 if nbytes >= 1 << 22 else 15)


def ratio(point: dict, name: str, other: str) -> float:
    return point["measured"][name].median_s / point["measured"][other].median_s


def tell(run: kit.Run, points: list[dict], name: str, threshold: float) -> None:
    """Gains of a hierarchy for short vectors, where the flat ring overtakes it, and whether its hybrid found out."""
    gains = ", ".join(
        f"{ratio(point, 'flat ring', name):.2f}" for point in points if point["bytes"] <= 1 << 16
    )
    crossed = [point["bytes"] for point in points if ratio(point, "flat ring", name) <= 1]
    measured = kit.number_of_bytes(crossed[0]) if crossed else "beyond these sizes"
    worst = max(
        ratio(point, f"hybrid, {name}", other) for point in points for other in ("flat ring", name)
    )
    run.say(f"flat ring / {name} up to 64 KiB: {gains}")
    run.say(
        f"    the flat ring is as fast from {measured}; predicted: {kit.number_of_bytes(threshold)}; the hybrid changes "
        f"there, and took at most {worst:.2f} of the better of the two"
    )


def tell_bound(run: kit.Run, nodes, link, points: list[dict]) -> None:
    """The bytes between nodes alone: 2(m-1)/m n through the busiest link, whatever the algorithm."""
    if points[-1]["least_s"] <= 0:
        return
    most = [point["measured"]["flat ring"].median_s / point["least_s"] for point in points]
    run.say(
        "The most that any allreduce can gain on the flat ring, its time over that of 2(m-1)/m n bytes at "
        f"{1e-6 / link['between'].beta_s_per_byte:.0f} MB/s: {', '.join(f'{gain:.2f}' for gain in most)}"
    )
    floor = 0.0, BAR * points[-1]["least_s"] / points[-1]["bytes"]
    predicted = kit.number_of_bytes(
        crossover_bytes(floor, predicted_line(ring.allreduce, nodes, link))
    )
    below = [point["bytes"] for point, gain in zip(points, most) if gain < BAR]
    measured = kit.number_of_bytes(below[0]) if below else "beyond these sizes"
    run.say(
        f"    {BAR} times as fast is out of anyone's reach from {measured} on; predicted, by the ring's line: {predicted}"
    )


def sweep_ranks_per_node(run: kit.Run, nodes, link) -> list[dict]:
    """Hierarchies when k ranks are *taken* to share a node; the links stay what they are."""
    run.section("Time against ranks a node")
    order = [rank for node in nodes for rank in node]
    sizes, rows, table = run.quick([1 << 10, 1 << 16], [1 << 12, 1 << 20]), [], []
    for k in (k for k in range(1, run.size + 1) if run.size % k == 0):
        split = [order[i : i + k] for i in range(0, run.size, k)]
        for name, make in (SHORT | {"two-level ring": hierarchical.two_level_ring}).items():
            row = {"k": k, "algorithm": name, "measured": [], "predicted_s": []}
            for nbytes in sizes:
                x, call = (
                    np.zeros(nbytes // ITEMSIZE, np.float32),
                    collective(run.comm, make(split)),
                )
                row["measured"].append(run.time(lambda x=x, call=call: call(x), run.quick(2, 9)))
                row["predicted_s"].append(predicted_s(make(split), nodes, link, x.size))
            rows.append(row)
            cells = [
                f"{kit.seconds(t.median_s)} ({kit.seconds(f)})"
                for t, f in zip(row["measured"], row["predicted_s"])
            ]
            steps = [
                step for step in make(split)(split[0][0], run.size, run.size) if step.op != "finish"
            ]
            table.append([k, name, len(steps), *cells])
    run.table(["k", "algorithm", "steps", *map(kit.number_of_bytes, sizes)], table)
    run.say(
        "k = 1: the rings are the flat ring, log phases halving-doubling. k = p: the two-level ring is the flat ring, log "
        "phases the tree, and three phases do everything twice over."
    )
    return [row | {"bytes": sizes} for row in rows]


def count_at_scale(run: kit.Run) -> None:
    run.section("Steps at the paper's scale")
    rows = [
        [p, k, 2 * (p - 1), 4 * (k - 1) + 2 * (p // k - 1), 2 * (p.bit_length() - 1)]
        for p, k in ((64, 8), (512, 8), (1024, 16), (2048, 16))
    ]
    run.table(
        [
            "p",
            "k",
            "flat ring 2(p-1)",
            "three phases 4(k-1) + 2(p/k-1)",
            "log phases 2 log2 k + 2 log2 p/k",
        ],
        rows,
    )


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    placement.argument(lesson)
    lesson.main(measure, draw)
