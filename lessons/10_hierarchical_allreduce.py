r"""Lesson 10: hierarchical allreduce - fast links inside a node, slow links between nodes.

    mpiexec -n 8 python lessons/10_hierarchical_allreduce.py      (--ranks-per-node K, --quick, ...)
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- \
        python lessons/10_hierarchical_allreduce.py

QUESTION    A flat ring takes 2(p-1) steps, and every step is as slow as its slowest link. Ranks of
            one node can communicate much faster. Does it pay to treat them differently, and up to
            which size?
IDEA        Sum inside each node first. Let one rank of each node, its master, sum over the nodes.
            Then broadcast the result inside the nodes (Jia et al. 2018). Besch & Pohl (1995) use a
            tree. Others pair ranks that differ in one bit. All are schedules, lists of messages,
            and can be combined: a tree in the node and halving-doubling between masters are three
            phases in the fewest steps, "log phases".
            (refgf/comm/tree.py, refgf/papers/jia/hierarchical.py, doubling.py)
PREDICTION  p ranks on m nodes with k ranks each:

                flat ring       2(p-1) steps at the pace of the slow links  2(p-1)/p n bytes a rank
                three phases    4(k-1) fast steps + 2(m-1) slow ones        2(m-1)/m n, masters only
                log phases      2 log2 k fast steps of all n, 2 log2 m slow ones            the same
                two-level ring  2(k-1) fast steps + 2(m-1) slow ones        the same, from all ranks
                tree            2 log2 p steps of all n elements
                doubling        log2 p exchanges of all elements, or 2 log2 p of shrinking slices
                any allreduce   at least 2(m-1)/m n bytes on the busiest link between nodes

            The time of each is that of its messages, in the order of the schedule. A message takes
            alpha + beta m of its link (refgf/papers/scaling/simulate.py, papers/jia/wires.py).

Before you run it, write down: with 4 nodes of 2 ranks, how many times as fast as the flat ring is
the sum of 1 KiB in three phases? And of 16 MiB? From which size on can no algorithm be 1.5 times as
fast as the ring?

This is weak scaling: each rank brings a vector of n elements, whatever p is.

WHAT YOU SHOULD SEE    On slow links between nodes: for short vectors the fewest slow steps win.
            Three phases beat the flat ring by up to 2(p-1) / 2(m-1), and by less where steps inside
            a node cost time too. Log phases gain more. For long vectors the bytes on the slow link
            decide. The flat ring sends hardly more than the minimum, and does not wait while only
            masters work. The grey line in the middle plot is what those bytes allow. The lower the
            rate, the earlier it falls. Where ranks share cores, as on an emulated cluster, every
            message takes processor time from all ranks. An algorithm with few messages, like the
            tree, gains more than predicted. Where all links are alike (shared memory of one
            machine) the nodes are pretended, and hierarchies that need more steps than they save
            lose.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/10_hierarchical_allreduce.py)
    1. For p = 1024, which k makes three phases shortest, counted in steps? Is it the paper's 16?
    2. Four hierarchies come from `three_phase(nodes, inside, between)`: ring_to_master or
       tree.reduce, ring or halving-doubling. How many steps in the node does the tree save for
       k = 8, what does it cost, and up to which size does it pay? And is recursive doubling between
       the masters ever better?
    3. A launcher assigns ranks round robin: 0, 4 on node 0, 1, 5 on node 1, ... What does the flat
       ring lose? Repair it.
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import placement
from lab import node_links
from lab.hierarchy_picture import draw
from refgf.comm import ring, tree
from refgf.papers.jia import doubling
from refgf.papers.jia import hierarchical
from refgf.comm.replay import check, replay
from refgf.comm.schedule import collective
from refgf.engine.selection import crossover_bytes
from refgf.comm.slices import length
from refgf.oracle.definitions import exact_sum, same_bits, summation_bound
from refgf.papers.scaling.collectives import least_between_s
from refgf.papers.scaling.simulate import from_schedules
from refgf.papers.jia.wires import Wires

ITEMSIZE = 4
# a hybrid uses one of these for short vectors
SHORT = {"three phases": hierarchical.three_phase, "log phases": hierarchical.log_phases}
GAIN = 1.5  # times as fast as the flat ring: from which size on is it impossible?


def measure(run: kit.Run) -> dict:
    nodes = placement.nodes(run)
    run.section("One step: who sends what")
    show_steps(run, nodes)
    check_against_oracle(run, nodes)
    link = node_links.measure(run, nodes)
    thresholds = {
        name: predicted_crossover(make(nodes), nodes, link) for name, make in SHORT.items()
    }
    hybrids = {
        f"hybrid, {name}": hierarchical.hybrid(nodes, thresholds[name] / ITEMSIZE, make)
        for name, make in SHORT.items()
    }
    points = sweep_sizes(run, nodes, link, candidates(nodes) | hybrids)
    for name, threshold in thresholds.items():
        report_crossover(run, points, name, threshold)
    report_bound(run, nodes, link, points)
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
    """Messages of every algorithm: steps of the busiest rank, messages in all, between nodes."""
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
        vectors = sum(length(step.send) for step in slow) / n
        rows.append([name, busiest, len(sends), len(slow), f"{vectors:.4g}"])
    columns = "algorithm", "busiest rank's steps", "messages", "between nodes", "in vectors"
    run.table(list(columns), rows)
    k, m = len(nodes[0]), len(nodes)
    three, logs = (
        [s for s in make(nodes)(nodes[0][0], run.size, n) if s.op != "finish"]
        for make in SHORT.values()
    )
    run.say(f"Steps of rank {nodes[0][0]}, the master of node 0, for k = {k}, m = {m}:")
    run.say(f"    flat ring     {2 * (run.size - 1)} = 2(p-1)")
    run.say(f"    three phases  {len(three)} = 4(k-1) + 2(m-1)")
    run.say(f"    log phases    {len(logs)} = 2 log2 k + 2 log2 m for powers of two")


def check_against_oracle(run: kit.Run, nodes) -> None:
    """Equal bits on all ranks, those of the replay and within the bound; messages as scheduled."""
    run.section("The oracle")
    for name, algorithm in candidates(nodes).items():
        for n in (0, 1, run.size - 1, run.size + 1, 1000):
            everybody = [
                np.random.default_rng([n, r]).standard_normal(n).astype(np.float32)
                for r in range(run.size)
            ]
            schedules = [algorithm(r, run.size, n) for r in range(run.size)]
            x = everybody[run.rank].copy()
            run.comm.reset()
            collective(run.comm, algorithm)(x)
            place = f"{name} on rank {run.rank}, n = {n}"
            if not all(same_bits(x, other) for other in replay(schedules, everybody)):
                raise AssertionError(f"{place}: got other bits than the replayed schedules")
            error = np.abs(x.astype(np.float64) - exact_sum(everybody))
            if not (error <= summation_bound(everybody)).all():
                raise AssertionError(f"{place}: got an error above the bound of the summation")
            sends = [step.send for step in schedules[run.rank] if step.send_to is not None]
            got, wanted = run.comm.messages, len(sends)
            got_bytes, wanted_bytes = run.comm.bytes, ITEMSIZE * sum(map(length, sends))
            if (got, got_bytes) != (wanted, wanted_bytes):
                raise AssertionError(
                    f"{place}: got {got} messages, {got_bytes} bytes; "
                    f"wanted {wanted} messages, {wanted_bytes} bytes"
                )
    run.say("every algorithm, n = 0, 1, p-1, p+1, 1000:")
    run.say("    the same bits on all ranks, those of the replayed schedules")
    run.say("    messages and bytes as in the schedules")
    xs = [
        np.random.default_rng(r).standard_normal(1000).astype(np.float32) for r in range(run.size)
    ]
    results = {
        name: replay([algorithm(r, run.size, 1000) for r in range(run.size)], xs)[0]
        for name, algorithm in candidates(nodes).items()
    }
    run.say("elements of 1000 that differ from the flat ring's, because the order differs:")
    for name, result in results.items():
        run.say(f"    {name}: {int((result != results['flat ring']).sum())}")


# ---- the measurement ----


def predicted_s(algorithm, nodes, link, n: int) -> float:
    """Predicted seconds of the schedules' messages on these links."""
    where = node_of_rank(nodes)
    schedules = [algorithm(rank, len(where), n) for rank in range(len(where))]
    return from_schedules(schedules, ITEMSIZE, Wires(where, link["inside"], link["between"]))


def predicted_line(algorithm, nodes, link, long: int = 1 << 22) -> tuple[float, float]:
    """(a_s, b_s_per_byte) from the predicted times of 0 and of `long` elements."""
    a_s = predicted_s(algorithm, nodes, link, 0)
    return a_s, (predicted_s(algorithm, nodes, link, long) - a_s) / (long * ITEMSIZE)


def predicted_crossover(algorithm, nodes, link) -> float:
    """Bytes from which the flat ring should be faster than this algorithm."""
    return crossover_bytes(
        predicted_line(algorithm, nodes, link), predicted_line(ring.allreduce, nodes, link)
    )


def sweep_sizes(run: kit.Run, nodes, link, algorithms) -> list[dict]:
    run.section("Time against size")
    calls = {name: collective(run.comm, algorithm) for name, algorithm in algorithms.items()}
    points = []
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
    for i in range(0, len(points), 4):
        show_times(run, algorithms, points[i : i + 4])
    run.say("measured median (predicted)")
    return points


def show_times(run: kit.Run, algorithms, points: list[dict]) -> None:
    """One column for each size, one row for each algorithm."""
    sizes = [kit.number_of_bytes(point["bytes"]) for point in points]
    rows = [
        [name, *(measured_and_predicted(point, name) for point in points)] for name in algorithms
    ]
    run.table(["", *sizes], rows)


def measured_and_predicted(point: dict, name: str) -> str:
    measured_s, predicted_s = point["measured"][name].median_s, point["predicted_s"][name]
    return f"{kit.seconds(measured_s)} ({kit.seconds(predicted_s)})"


def repeats(run: kit.Run, nbytes: int) -> int:
    """More calls of short vectors, because they are shorter than the processor's disturbances."""
    if nbytes <= 1 << 16:
        return run.quick(2, 31, 61)
    return run.quick(2, 5 if nbytes >= 1 << 20 else 9, 7 if nbytes >= 1 << 22 else 15)


def ratio(point: dict, name: str, other: str) -> float:
    return point["measured"][name].median_s / point["measured"][other].median_s


def report_crossover(run: kit.Run, points: list[dict], name: str, threshold: float) -> None:
    """Gains of a hierarchy for short vectors, its crossover with the flat ring, and its hybrid."""
    gains = ", ".join(
        f"{ratio(point, 'flat ring', name):.2f}" for point in points if point["bytes"] <= 1 << 16
    )
    crossed = [point["bytes"] for point in points if ratio(point, "flat ring", name) <= 1]
    measured = kit.number_of_bytes(crossed[0]) if crossed else "beyond these sizes"
    hybrid = f"hybrid, {name}"
    largest = max(ratio(point, hybrid, other) for point in points for other in ("flat ring", name))
    run.say(f"flat ring / {name} up to 64 KiB: {gains}")
    run.say(f"    the flat ring is as fast from: {measured}")
    run.say(f"    predicted, where the hybrid changes: {kit.number_of_bytes(threshold)}")
    run.say(f"    hybrid / the faster of the two: at most {largest:.2f}")


def report_bound(run: kit.Run, nodes, link, points: list[dict]) -> None:
    """What the bytes between nodes allow: any algorithm sends 2(m-1)/m n on the busiest link."""
    if points[-1]["least_s"] <= 0:
        return
    most = [point["measured"]["flat ring"].median_s / point["least_s"] for point in points]
    rate = f"{1e-6 / link['between'].beta_s_per_byte:.0f} MB/s"
    run.say("The most that any allreduce can gain over the flat ring:")
    run.say(f"    time of the ring / time of 2(m-1)/m n bytes at {rate}:")
    run.say(f"    {', '.join(f'{gain:.2f}' for gain in most)}")
    floor = 0.0, GAIN * points[-1]["least_s"] / points[-1]["bytes"]
    predicted = crossover_bytes(floor, predicted_line(ring.allreduce, nodes, link))
    below = [point["bytes"] for point, gain in zip(points, most) if gain < GAIN]
    measured = kit.number_of_bytes(below[0]) if below else "beyond these sizes"
    run.say(f"    no algorithm can be {GAIN} times as fast from: {measured}")
    run.say(f"    predicted from the ring's line: {kit.number_of_bytes(predicted)}")


def sweep_ranks_per_node(run: kit.Run, nodes, link) -> list[dict]:
    """Hierarchies in which k ranks are *taken* to share a node. The links do not change."""
    run.section("Time against ranks per node")
    order = [rank for node in nodes for rank in node]
    sizes, rows, table = run.quick([1 << 10, 1 << 16], [1 << 12, 1 << 20]), [], []
    for k in (k for k in range(1, run.size + 1) if run.size % k == 0):
        split = [order[i : i + k] for i in range(0, run.size, k)]
        for name, make in (SHORT | {"two-level ring": hierarchical.two_level_ring}).items():
            row = {"k": k, "algorithm": name, "measured": [], "predicted_s": []}
            for nbytes in sizes:
                x = np.zeros(nbytes // ITEMSIZE, np.float32)
                call = collective(run.comm, make(split))
                row["measured"].append(run.time(lambda x=x, call=call: call(x), run.quick(2, 9)))
                row["predicted_s"].append(predicted_s(make(split), nodes, link, x.size))
            rows.append(row)
            cells = [
                f"{kit.seconds(t.median_s)} ({kit.seconds(f)})"
                for t, f in zip(row["measured"], row["predicted_s"])
            ]
            schedule = make(split)(split[0][0], run.size, run.size)
            table.append([k, name, sum(step.op != "finish" for step in schedule), *cells])
    run.table(["k", "algorithm", "steps", *map(kit.number_of_bytes, sizes)], table)
    run.say("k = 1: the rings are the flat ring, log phases are halving-doubling.")
    run.say("k = p: the two-level ring is the flat ring, log phases are the tree,")
    run.say("       and three phases do everything twice.")
    return [row | {"bytes": sizes} for row in rows]


def count_at_scale(run: kit.Run) -> None:
    run.section("Steps at the paper's scale")
    rows = [
        [p, k, 2 * (p - 1), 4 * (k - 1) + 2 * (p // k - 1), 2 * (p.bit_length() - 1)]
        for p, k in ((64, 8), (512, 8), (1024, 16), (2048, 16))
    ]
    three, logs = "three phases 4(k-1) + 2(p/k-1)", "log phases 2 log2 k + 2 log2 p/k"
    run.table(["p", "k", "flat ring 2(p-1)", three, logs], rows)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    placement.argument(lesson)
    lesson.main(measure, draw)
