"""Lesson 10: hierarchical allreduce - fast links inside a node, slow ones between.

    mpiexec -n 8 python lessons/10_hierarchical_allreduce.py          (--ranks-per-node K, --quick, --plot, ...)
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- python lessons/10_hierarchical_allreduce.py

QUESTION    A flat ring takes 2(p-1) steps, and every step is as slow as its slowest link. Ranks of one node could talk
            much faster. Does it pay to treat them differently, and from which size on not any more?
IDEA        Sum inside each node first, let one rank of each node, its master, sum over the nodes, and spread the result
            inside the nodes again (Jia et al. 2018). Besch & Pohl (1995) use a tree; others pair ranks that differ in one
            bit. All are schedules: a list of messages. (refgf/comm/hierarchical.py, tree.py, doubling.py)
PREDICTION  p ranks on m nodes with k ranks each:

                flat ring       2(p-1) steps, all at the pace of the slow links           2(p-1)/p n bytes a rank
                three phases    4(k-1) fast steps + 2(m-1) slow ones                      2(m-1)/m n between masters
                two-level ring  2(k-1) fast steps + 2(m-1) slow ones                      the same, from all ranks
                tree            2 log2 p steps of all n elements
                doubling        log2 p exchanges of all elements, or 2 log2 p of ever smaller parts

            The time of any of them is that of its messages, each alpha + beta m of the link that it takes, in the order
            of the schedule (refgf/predict/simulate.py, wires.py).

Before you run it, write down: with 4 nodes of 2 ranks, how many times as fast as the flat ring is the sum of 1 KiB in
three phases? And of 16 MiB?

This is weak scaling: each rank brings a vector of n elements, whatever p is.

WHAT YOU SHOULD SEE    On slow links between nodes: for short vectors the fewest slow steps win, and three phases beat the
            flat ring by about 2(p-1) / 2(m-1). For long ones the bytes on the slow link decide; the flat ring sends hardly
            more of them, and does not wait while masters work alone. Where all links are alike (shared memory of one
            machine) three phases only add steps, and nodes are pretended.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/10_hierarchical_allreduce.py)
    1. For p = 1024, which k makes three phases shortest, counted in steps? Is it the paper's 16?
    2. Reduce and broadcast inside the node along a tree instead. How many steps are that for k = 8, and what does it cost?
    3. A launcher deals ranks out round robin: 0, 4 on node 0, 1, 5 on node 1, ... What does the flat ring lose? Mend it.
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import axes, placement
from refgf.comm import doubling, hierarchical, ring, tree
from refgf.comm.schedule import check, collective, replay
from refgf.comm.select import crossover_bytes
from refgf.comm.slices import length
from refgf.oracle.definitions import exact_sum, same_bits, summation_bound
from refgf.predict.cost import Link
from refgf.predict.fit import fit_line
from refgf.predict.simulate import from_schedules
from refgf.predict.wires import Wires

ITEMSIZE = 4


def measure(run: kit.Run) -> dict:
    nodes = placement.nodes(run)
    run.section("One step: who sends what")
    show_steps(run, nodes)
    check_against_oracle(run, nodes)
    link = measure_links(run, nodes)
    threshold = predicted_crossover(nodes, link)
    algorithms = {**candidates(nodes), "hybrid": hierarchical.hybrid(nodes, threshold / ITEMSIZE)}
    points = sweep_sizes(run, nodes, link, algorithms)
    tell(run, points, threshold)
    by_k = sweep_ranks_per_node(run, nodes, link)
    count_at_scale(run)
    return {"nodes": nodes, "link": {name: vars(fitted) for name, fitted in link.items()}, "points": points, "by_k": by_k,
            "predicted_crossover_bytes": threshold}  # fmt: skip


def candidates(nodes) -> dict:
    """All algorithms that can run on these nodes."""
    found = {"flat ring": ring.allreduce, "three phases": hierarchical.three_phase(nodes)}
    if len({len(node) for node in nodes}) == 1:
        found["two-level ring"] = hierarchical.two_level_ring(nodes)
    return found | {"tree": tree.allreduce, "recursive doubling": doubling.recursive_doubling,
                    "halving-doubling": doubling.halving_doubling}  # fmt: skip


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
        sends = [(r, step) for r, schedule in enumerate(schedules) for step in schedule if step.send_to is not None]
        slow = [step for r, step in sends if where[r] != where[step.send_to]]
        busiest = max(sum(s.send_to is not None or s.receive_from is not None for s in schedule) for schedule in schedules)
        rows.append([name, busiest, len(sends), len(slow), f"{sum(length(step.send) for step in slow) / n:.4g}"])
    run.table(["algorithm", "steps of the busiest rank", "messages, all ranks", "between nodes", "vectors between nodes"], rows)
    master, k, m = hierarchical.three_phase(nodes)(nodes[0][0], run.size, n), len(nodes[0]), len(nodes)
    run.say(f"Three phases on rank {nodes[0][0]}, the master of node 0: {len([s for s in master if s.op != 'finish'])} steps "
            f"= 4(k-1) + 2(m-1) with k = {k}, m = {m}; flat ring: 2(p-1) = {2 * (run.size - 1)}")  # fmt: skip


def check_against_oracle(run: kit.Run, nodes) -> None:
    """All ranks' bits equal, equal to replaying the schedules, within the bound; messages and bytes as planned."""
    run.section("The oracle")
    for name, algorithm in candidates(nodes).items():
        for n in (0, 1, run.size - 1, run.size + 1, 1000):
            everybody = [np.random.default_rng([n, r]).standard_normal(n).astype(np.float32) for r in range(run.size)]
            schedules, x = [algorithm(r, run.size, n) for r in range(run.size)], everybody[run.rank].copy()
            run.comm.reset()
            collective(run.comm, algorithm)(x)
            if not all(same_bits(x, other) for other in replay(schedules, everybody)):
                raise AssertionError(f"rank {run.rank}: {name}: not the replayed bits for n = {n}")
            if not (np.abs(x.astype(np.float64) - exact_sum(everybody)) <= summation_bound(everybody)).all():
                raise AssertionError(f"rank {run.rank}: {name}: further from the exact sum than rounding allows, n = {n}")
            sends = [step.send for step in schedules[run.rank] if step.send_to is not None]
            planned = len(sends), ITEMSIZE * sum(map(length, sends))
            if (run.comm.messages, run.comm.bytes) != planned:
                raise AssertionError(f"rank {run.rank}: {name}: sent {run.comm.messages}, {run.comm.bytes}, not {planned}")
    run.say("every algorithm, n = 0, 1, p-1, p+1, 1000: the same bits on all ranks, those of replaying the schedules; "
            "messages and bytes as in the schedules")  # fmt: skip
    xs = [np.random.default_rng(r).standard_normal(1000).astype(np.float32) for r in range(run.size)]
    results = {name: replay([algorithm(r, run.size, 1000) for r in range(run.size)], xs)[0]
               for name, algorithm in candidates(nodes).items()}  # fmt: skip
    differ = {name: int((result != results["flat ring"]).sum()) for name, result in results.items()}
    run.say(f"elements of 1000 that differ from the flat ring's, because the order differs: {differ}")


# ---- the measurement ----


def measure_links(run: kit.Run, nodes) -> dict:
    """alpha and beta inside nodes, all ranks at once, and between nodes, masters only; gamma of an addition."""
    run.section("alpha and beta, inside and between nodes")
    i, j = next((i, node.index(run.rank)) for i, node in enumerate(nodes) if run.rank in node)
    groups = {"inside": nodes[i], "between": [node[0] for node in nodes] if j == 0 else [run.rank]}
    links, rows = {}, []
    gamma = addition_s_per_byte(run)
    for name, group in groups.items():
        points = [(b, around(run, group, b)) for b in run.quick([64, 65536], [64, 4096, 65536, 1 << 20])]
        fit = fit_line(points).link if all(t > 0 for _, t in points) and longest(nodes, name) > 1 else Link(0, 0)
        links[name] = Link(fit.alpha_s, fit.beta_s_per_byte, gamma)
        told = f"{1e-9 / fit.beta_s_per_byte:.3g} GB/s" if fit.beta_s_per_byte else "-"
        rows.append([name, kit.seconds(fit.alpha_s), told])
    run.table(["", "alpha", "1 / beta"], rows)
    return links


def longest(nodes, name: str) -> int:
    return max(map(len, nodes)) if name == "inside" else len(nodes)


def around(run: kit.Run, group: list[int], nbytes: int) -> float:
    """One Sendrecv round the group's ring, all groups at once, averaged over eight; groups of one rank wait."""
    outgoing, incoming, place = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), group.index(run.rank)
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


def predicted_crossover(nodes, link, far: int = 1 << 22) -> float:
    """Bytes from which the flat ring should be faster than three phases."""
    lines = []
    for algorithm in (hierarchical.three_phase(nodes), ring.allreduce):
        start_s = predicted_s(algorithm, nodes, link, 0)
        lines.append((start_s, (predicted_s(algorithm, nodes, link, far) - start_s) / (far * ITEMSIZE)))
    return crossover_bytes(*lines)


def sweep_sizes(run: kit.Run, nodes, link, algorithms) -> list[dict]:
    run.section("Time against size")
    calls = {name: collective(run.comm, algorithm) for name, algorithm in algorithms.items()}
    points, rows = [], []
    for nbytes in (1 << k for k in run.quick(range(10, 17, 6), range(10, 23, 2), range(10, 25, 2))):
        x = np.zeros(nbytes // ITEMSIZE, np.float32)
        times = run.alternate({name: (lambda f=f, x=x: f(x)) for name, f in calls.items()},
                              run.quick(2, 5 if nbytes >= 1 << 20 else 9, 7 if nbytes >= 1 << 22 else 15))  # fmt: skip
        forecast = {name: predicted_s(algorithm, nodes, link, x.size) for name, algorithm in algorithms.items()}
        points.append({"bytes": nbytes, "measured": times, "predicted_s": forecast})
        rows.append([kit.number_of_bytes(nbytes)] + [f"{kit.seconds(times[name].median_s)} ({kit.seconds(forecast[name])})"
                                                     for name in algorithms])  # fmt: skip
    run.table(["bytes"] + list(algorithms), rows)
    run.say("measured median (predicted)")
    return points


def tell(run: kit.Run, points: list[dict], threshold: float) -> None:
    def ratio(point, name, other):
        return point["measured"][name].median_s / point["measured"][other].median_s

    short = [p for p in points if p["bytes"] <= 1 << 16]
    gains = ", ".join(f"{ratio(point, 'flat ring', 'three phases'):.2f}" for point in short)
    run.say(f"flat ring / three phases up to 64 KiB: {gains}")
    crossed = [p["bytes"] for p in points if ratio(p, "flat ring", "three phases") <= 1]
    measured = kit.number_of_bytes(crossed[0]) if crossed else "beyond these sizes"
    run.say(f"the flat ring is as fast from {measured}; predicted: {kit.number_of_bytes(threshold)}; the hybrid changes there")
    worst = max(p["measured"]["hybrid"].median_s / min(p["measured"][n].median_s for n in ("flat ring", "three phases"))
                for p in points)  # fmt: skip
    run.say(f"the hybrid took at most {worst:.2f} of the better of the two")


def sweep_ranks_per_node(run: kit.Run, nodes, link) -> list[dict]:
    """Three phases and two-level ring when k ranks are *taken* to share a node; the links stay what they are."""
    run.section("Time against ranks a node")
    order = [rank for node in nodes for rank in node]
    sizes, rows, table = run.quick([1 << 10, 1 << 16], [1 << 12, 1 << 20]), [], []
    for k in (k for k in range(1, run.size + 1) if run.size % k == 0):
        split = [order[i : i + k] for i in range(0, run.size, k)]
        for name, make in (("three phases", hierarchical.three_phase), ("two-level ring", hierarchical.two_level_ring)):
            row = {"k": k, "algorithm": name, "measured": [], "predicted_s": []}
            for nbytes in sizes:
                x, call = np.zeros(nbytes // ITEMSIZE, np.float32), collective(run.comm, make(split))
                row["measured"].append(run.time(lambda x=x, call=call: call(x), run.quick(2, 9)))
                row["predicted_s"].append(predicted_s(make(split), nodes, link, x.size))
            rows.append(row)
            cells = [f"{kit.seconds(t.median_s)} ({kit.seconds(f)})" for t, f in zip(row["measured"], row["predicted_s"])]
            table.append([k, name, 4 * (k - 1) + 2 * (run.size // k - 1) if make is hierarchical.three_phase
                          else 2 * (k - 1) + 2 * (run.size // k - 1), *cells])  # fmt: skip
    run.table(["k", "algorithm", "steps", *map(kit.number_of_bytes, sizes)], table)
    run.say("k = 1 is the flat ring; so is k = p for the two-level ring, while three phases then do everything twice over.")
    return [row | {"bytes": sizes} for row in rows]


def count_at_scale(run: kit.Run) -> None:
    run.section("Steps at the paper's scale")
    rows = [[p, k, 2 * (p - 1), 4 * (k - 1) + 2 * (p // k - 1)] for p, k in ((64, 8), (512, 8), (1024, 16), (2048, 16))]
    run.table(["p", "k", "flat ring 2(p-1)", "three phases 4(k-1) + 2(p/k-1)"], rows)


# ---- the picture ----


def draw(result: dict):
    sizes = "/".join(map(str, sorted({len(node) for node in result["nodes"]})))
    told = f"{len(result['nodes'])} nodes of {sizes} ranks. Few slow steps help short vectors; long ones pay for bytes"
    figure, (size_axis, ratio_axis, k_axis) = axes.frame(f"Lesson 10: {told}", 1, 3, (19, 5.6))
    draw_sizes(size_axis, ratio_axis, result["points"])
    draw_ranks_per_node(k_axis, result["by_k"])
    return axes.finish(figure, size_axis, ratio_axis, k_axis)


def draw_sizes(size_axis, ratio_axis, points: list[dict]) -> None:
    nbytes = [point["bytes"] for point in points]
    for i, (name, marker) in enumerate(zip(points[0]["measured"], "os^Dv<*")):
        axes.measured(size_axis, nbytes, [point["measured"][name] for point in points], marker, color=f"C{i}", label=name)
        size_axis.plot(nbytes, [1e3 * point["predicted_s"][name] for point in points], "--", color=f"C{i}")
        if name != "flat ring":
            gain = [p["measured"]["flat ring"]["median_s"] / p["measured"][name]["median_s"] for p in points]
            ratio_axis.plot(nbytes, gain, marker=marker, ls="none", color=f"C{i}", label=name)
            forecast = [p["predicted_s"]["flat ring"] / max(1e-12, p["predicted_s"][name]) for p in points]
            ratio_axis.plot(nbytes, forecast, "--", color=f"C{i}")
    size_axis.set(title="Time; dashed: predicted", ylabel="ms", yscale="log")
    ratio_axis.axhline(1, color="grey", lw=1)
    ratio_axis.set(title="Times as fast as the flat ring; dashed: predicted", ylim=(0, None))
    for axis in (size_axis, ratio_axis):
        axis.set_xscale("log", base=2)
        axis.set_xticks(nbytes, [kit.number_of_bytes(n) for n in nbytes], fontsize=8)
        axis.set_xlabel("bytes per rank")


def draw_ranks_per_node(axis, by_k: list[dict]) -> None:
    for name, marker in (("three phases", "s"), ("two-level ring", "^")):
        rows = [row for row in by_k if row["algorithm"] == name]
        k = [row["k"] for row in rows]
        for i, colour in enumerate(("tab:blue", "tab:red")):
            label = f"{name}, {kit.number_of_bytes(rows[0]['bytes'][i])}"
            axis.plot(k, [1e3 * row["measured"][i]["median_s"] for row in rows], marker, color=colour, label=label)
            axis.plot(k, [1e3 * row["predicted_s"][i] for row in rows], "--", color=colour)
    axis.set(title="Ranks taken to share a node; dashed: predicted", xlabel="k", ylabel="ms", xscale="log", yscale="log")
    axis.set_xticks(k, k)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    placement.argument(lesson)
    lesson.main(measure, draw)
