"""Lesson 13: DASO - nodes that meet only now and then, and a little late.

    mpiexec -n 8 python lessons/13_daso.py                   (--quick, --full, --plot, --ranks-per-node K, --data PATH ...)
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 160mbit -- python lessons/13_daso.py

QUESTION    In synchronous training all nodes wait in every step for the slow links between them. What if they went on
            computing meanwhile, and used the others' answer when it comes? How much time is that, and what does it cost?
IDEA        Ranks of a node average their gradients in every batch. Every B batches one rank of each node, another group each
            time, sums PARAMETERS over the nodes in the background. W batches later the sum, by then stale, is merged with what
            the node has now: w <- (2W w + sum) / (2W + m). Training begins and ends with blocking sums (warm-up, cool-down),
            and each epoch ends with one. (Coquelin et al. 2022; refgf/papers/daso/daso.py, daso_phases.py)
PREDICTION  Per batch: c to compute, l to average in the node, A to sum gradients over all ranks; per sum: G between nodes, s to
            hand the result on in the node. Then a batch takes

                synchronous          c + A
                blocking             c + l + G/2 + s              parameters as bfloat16, every batch
                B, W                 c + l + (max(0, G - W (c + l)) + s) / B         and a whole G + s at the end of the epoch

            so nothing of G is left once W batches take longer than the sum. (On ranks that share cores something is: sending
            takes time from computing. tests/speed/daso_speed.py measures both, and ranks that only wait.)

Before you run it, write down: on links where communication is half of a synchronous step, how much shorter is an epoch with
B = 4, W = 1? And will the network be as good after as many epochs?

This is weak scaling: each rank brings a batch of its own, whatever p is. Where there is one node, nodes are pretended; with
--link the links inside them are as slow as those between, so the emulated cluster shows more. Times are of larger batches
than the training has: a GPU's step is long beside what starts its sums, and here that is Python.

WHAT YOU SHOULD SEE    Where links between nodes are slow, B = 4, W = 1 hides much of their time: with a core to spare an
            epoch would take little more than computing; where ranks share cores, sending takes time from that. Where they
            are fast (shared memory) there is little to hide, and the communication threads take time from the cores.
            Between sums nodes drift apart, the farther the longer B is; a merge leaves about 2W / (2W + m) of the distance,
            and what it brings is W batches old; the blocking sum at the end of an epoch closes it. What this costs is in
            the last table: cycling throughout beside all three phases, and both beside synchronous. And look at "not
            rounded": blocking phases round the parameters themselves to 8 binary digits in every batch, and an update
            smaller than 1/512 of its parameter is lost. It may cost as much as all that came late.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/13_daso.py)
    1. After how many batches do the own parameters weigh as much as the sum of m nodes? What is left of a node's own step
       when 100 nodes merge after W = 1?
    2. A sum takes as long as 3 batches. Which W hides it? With W = 1, from which B on is only 1/20 of a batch left of it?
    3. Let the same group sum every time. Which parameters change, and who sends how much?
"""

import refgf.launch  # noqa: F401  before MPI starts

import functools
import time

import numpy as np

import kit
from kit import axes, flow, images, placement, trials
from lab import daso_replay
from refgf import ops
from refgf.comm import ring
from refgf.papers.jia import hierarchical
from refgf.papers.daso.bfloat16 import ring_on_ranks
from refgf.comm.schedule import collective
from refgf.papers.daso.daso import DASO
from refgf.papers.daso.phases import BLOCKING, Constant, Phase, Phases
from refgf.exchange.lazy import Theta
from refgf.machine.digits import digits
from refgf.training.data import steps_per_epoch
from refgf.training.gradientflow import GradientFlow

ROWS = {
    "blocking": BLOCKING,
    "B=1, W=0": Phase(1, 1, 0),
    "B=1, W=1": Phase(1),
    "B=2, W=1": Phase(2),
    "B=4, W=1": Phase(4),
    "B=8, W=2": Phase(8, 1, 2),
    "B=8, W=2, L=2": Phase(8, 2, 2),
}
TIMED_BATCH, TIMED_EPOCH = (
    32,
    24,
)  # images a rank, batches: beside them Python's time and the end of an epoch are small
SYNCHRONOUS, OVERLAPPED = "synchronous", "synchronous, overlapped"
THROUGHOUT = {"B=8, W=2 throughout": Phase(8, 1, 2), "B=8, W=8 throughout": Phase(8, 1, 8)}
UNROUNDED = "DASO, not rounded"  # float32 in blocking phases, too
COLOURS = {
    SYNCHRONOUS: "black",
    "DASO": "tab:blue",
    UNROUNDED: "tab:cyan",
    "B=8, W=2 throughout": "tab:orange",
    "B=8, W=8 throughout": "tab:red",
}


def measure(run: kit.Run) -> dict:
    train, held_out = images.load(run)
    nodes = placement.nodes(run, 2 if run.size % 2 == 0 else 1)
    show_plan(run, nodes)
    run.section("The oracle")
    per_epoch = run.quick(4, 6)
    for phase in [Phase(3, 1, 2), *run.quick([], [Phase(5, 2, 1), BLOCKING])]:
        daso_replay.check(
            run, train, nodes, phase, per_epoch, daso(run, train, nodes, Constant(phase), per_epoch)
        )
    times = time_batches(run, train, nodes)
    drift = watch_drift(run, train, nodes)
    accuracy = compare_accuracy(run, train, held_out, nodes)
    return {"nodes": nodes, "times": times, "drift": drift, "accuracy": accuracy}


# ---- one epoch: this is all there is to it, once the parts are there ----


def daso(
    run: kit.Run,
    data,
    nodes,
    phases,
    per_epoch: int,
    seed: int = images.SEED,
    wire: str | None = "bfloat16",
) -> DASO:
    return DASO(run.comm, images.model(run, data, seed), nodes, phases, per_epoch, wire=wire)


def one_epoch(stack, some_batches, rate: float) -> None:
    for images_, labels, global_batch in some_batches:
        stack.step(
            images_, labels, global_batch, rate
        )  # node average, update, send, merge what is due


def synchronous(run: kit.Run, data, nodes, seed: int = images.SEED, **parts) -> GradientFlow:
    """Gradients are summed in every step; its ranks wait asleep, as those of DASO do."""
    two_level = functools.partial(collective, algorithm=hierarchical.two_level_ring(nodes))
    comm = ops.background(run.comm)
    return GradientFlow(comm, images.model(run, data, seed), allreduce=two_level, **parts)


def show_plan(run: kit.Run, nodes, per_epoch: int = 10) -> None:
    """What happens in each batch of an epoch."""
    phase = ROWS["B=4, W=1"]
    run.section(f"One epoch of {per_epoch} batches with B = {phase.global_skip}, W = {phase.wait}")
    rows, due = [], {}
    for b in range(per_epoch):
        group, received = phase.sender(b, per_epoch, len(nodes[0])), due.pop(b, "")
        if group is not None:
            waited = phase.wait_after(b, per_epoch)
            due[b + waited] = f"of batch {b}, own weight {2 * waited} of {2 * waited + len(nodes)}"
            received = received if waited else "at once: all ranks hold the same parameters"
        rows.append(
            [
                b,
                "yes" if phase.averages(b, per_epoch) else "no",
                "" if group is None else f"group {group}",
                received,
            ]
        )
    run.table(["batch", "gradients averaged in the node", "parameters sent by", "received"], rows)


# ---- the measurement ----


def time_batches(run: kit.Run, data, nodes) -> dict:
    """The time of a batch in whole epochs: synchronous, and for each (B, W); one epoch of each in turn."""
    per_epoch = run.quick(4, TIMED_EPOCH)
    some_batches = images.whole_batches(run, data, per_epoch, run.quick(4, TIMED_BATCH))
    parts = measure_parts(run, data, nodes, some_batches)
    rows = {"blocking": BLOCKING, "B=4, W=1": Phase(4)} if run.options.quick else ROWS
    stacks = {
        SYNCHRONOUS: synchronous(run, data, nodes),
        OVERLAPPED: synchronous(run, data, nodes, overlap=True, grouping=Theta(2**18)),
    }
    stacks |= {
        name: daso(run, data, nodes, Constant(phase), per_epoch) for name, phase in rows.items()
    }
    run.section(
        f"Time of a batch of {some_batches[0][2] // run.size} images a rank, in epochs of {per_epoch}"
    )
    mine, between = {name: [] for name in stacks}, {}
    for repeat in range(1 + run.quick(1, 2, 5)):
        for name, stack in stacks.items():
            run.comm.reset()
            run.plain.Barrier()
            start_s = time.perf_counter()
            one_epoch(stack, some_batches, rate=0.0)
            if repeat:
                mine[name].append((time.perf_counter() - start_s) / per_epoch)
            between[name] = between_nodes(run, nodes) / per_epoch
    for stack in stacks.values():
        stack.close()
    timings = {name: run.slowest(seconds) for name, seconds in mine.items()}
    forecast = {SYNCHRONOUS: parts["compute"] + parts["all"]}
    forecast |= {
        name: predicted_s(parts, phase, per_epoch, len(nodes[0])) for name, phase in rows.items()
    }
    tell_times(run, timings, forecast, between, parts)
    return {
        "parts": parts,
        "measured": timings,
        "predicted_s": forecast,
        "between_bytes": between,
        "per_epoch": per_epoch,
    }


def measure_parts(run: kit.Run, data, nodes, some_batches) -> dict:
    """Each part alone, in seconds: c, l, A, G, G of bfloat16, s."""
    compute, _ = flow.without_exchange(run, data, some_batches[: run.quick(4, 12)])
    node = next(node for node in nodes if run.rank in node)
    group, comm = [other[0] for other in nodes], ops.background(run.comm)
    with daso(run, data, nodes, Constant(BLOCKING), 1) as stack:
        w, place = stack.model.parameters.flat.copy(), node.index(run.rank)
        sums = {
            kind: ring_on_ranks(comm, group, wire) if place == 0 else (lambda x: None)
            for kind, wire in (("sum", None), ("sum, bfloat16", "bfloat16"))
        }
        calls = {
            "node": ring_on_ranks(comm, node),
            "all": collective(comm, hierarchical.two_level_ring(nodes)),
            **sums,
            "spread": lambda x: stack.spread(0),
        }
        parts = {
            name: run.time(lambda call=call: call(w), run.quick(2, 7)).median_s
            for name, call in calls.items()
        }
    parts["compute"] = compute.median_s
    run.section("The parts, each alone")
    run.table(
        [
            "c compute",
            "l average in the node",
            "A all gradients",
            "G between nodes",
            "G, bfloat16",
            "s in node",
        ],
        [
            [
                kit.seconds(parts[k])
                for k in ("compute", "node", "all", "sum", "sum, bfloat16", "spread")
            ]
        ],
    )
    return parts


def predicted_s(parts: dict, phase: Phase, per_epoch: int, groups: int) -> float:
    """The time of a batch, averaged over an epoch; a sum that is replaced by the last batch's is waited for, not spread."""
    total, inside = 0.0, parts["compute"] + parts["node"]
    for b in range(per_epoch):
        total += parts["compute"] + (parts["node"] if phase.averages(b, per_epoch) else 0.0)
        if phase.sender(b, per_epoch, groups) is not None:
            waited = phase.wait_after(b, per_epoch)
            total += max(0.0, parts["sum, bfloat16" if phase.blocking else "sum"] - waited * inside)
            total += parts["spread"] if not waited or b + waited < per_epoch - 1 else 0.0
    return total / per_epoch


def between_nodes(run: kit.Run, nodes) -> float:
    """Bytes that a node has sent to others, the mean over nodes."""
    node = next(node for node in nodes if run.rank in node)
    mine = sum(size for peer, (_, size) in run.comm.peers.items() if peer not in node)
    return sum(run.plain.allgather(mine)) / len(nodes)


def tell_times(run: kit.Run, timings: dict, forecast: dict, between: dict, parts: dict) -> None:
    base = timings[SYNCHRONOUS].median_s
    run.table(
        ["", "bytes between nodes", "measured", "predicted", "less than synchronous"],
        [
            [
                name,
                kit.number_of_bytes(between[name]),
                timing,
                kit.seconds(forecast[name]) if name in forecast else "-",
                f"{100 * (1 - timing.median_s / base):.0f} %",
            ]
            for name, timing in timings.items()
        ],
    )
    share = max(0.0, 1 - parts["compute"] / base)
    run.say(
        f"communication is {100 * share:.0f} % of a synchronous step; it would be half of it where a node's "
        f"{kit.number_of_bytes(between[SYNCHRONOUS])} take as long as computing, on links of about "
        f"{8e-6 * between[SYNCHRONOUS] / parts['compute']:.0f} Mbit/s (predicted, latency left out)"
    )
    gain = 1 - timings["B=4, W=1"].median_s / min(
        timings[name].median_s for name in (SYNCHRONOUS, OVERLAPPED)
    )
    run.say(
        f"B=4, W=1 takes {100 * gain:.0f} % less time per epoch than the better of both synchronous ones"
    )


def watch_drift(run: kit.Run, data, nodes) -> dict:
    """How far a node's parameters are from the mean of all, as a share of its norm, after each batch of two epochs."""
    run.section("How far nodes drift apart")
    per_epoch, result = run.quick(5, 20, 23), {}
    phases = {
        "B=4, W=1": Phase(4),
        "B=8, W=2": Phase(8, 1, 2),
        "B=8, W=8": Phase(8, 1, 8),
        "no merges": Phase(1000, 1, 0),
    }
    for name, phase in list(phases.items())[: run.quick(2, 4)]:
        distances = []
        with daso(run, data, nodes, Constant(phase), per_epoch) as stack:
            for batch in images.steps(run, data, 2 * per_epoch):
                stack.step(*batch, rate=run.options.rate)
                distances.append(distance(run, stack.model.parameters.flat))
        result[name] = distances
        run.say(
            f"{name:>10}: at most {100 * max(distances):.2f} % of the parameters' norm, "
            f"{100 * distances[per_epoch - 1]:.2g} % at the end of an epoch"
        )
    return {"per_epoch": per_epoch, "distances": result}


def distance(run: kit.Run, w) -> float:
    mean = w.astype(np.float64)
    collective(run.comm, ring.allreduce)(mean)
    mean /= run.size
    return max(run.plain.allgather(float(np.linalg.norm(w - mean) / np.linalg.norm(mean))))


def compare_accuracy(run: kit.Run, train, held_out, nodes) -> dict:
    """The same training, synchronous and by DASO, and by two of its phases throughout."""
    epochs = run.options.epochs or run.quick(1, 8, 16)
    pairs = [
        (seed, fold) for seed in run.quick([1], [1], [1, 2]) for fold in range(run.quick(1, 3, 5))
    ]
    ends = (
        0 if epochs == 1 else max(1, round(4 / 90 * epochs))
    )  # the public example has 4 and 4 of 90
    run.section(
        f"Accuracy after {epochs} epochs, {len(pairs)} runs of each; warm-up and cool-down of DASO: {ends} each"
    )
    result = {}
    for name in run.quick([SYNCHRONOUS, "DASO"], list(COLOURS)):
        result[name] = []
        for seed, fold in pairs:
            few, out = (
                (train, held_out)
                if run.options.data or not fold
                else digits(run.options.image_size, fold)
            )
            with trained(run, name, few, nodes, Phases(epochs, ends, ends), seed) as stack:
                result[name].append(flow.learn(run, stack, few, out, epochs, say=False, seed=seed))
        seconds = np.mean([rows[-1]["seconds"] for rows in result[name]])
        run.say(f"{name:>22}: {trials.told(result[name])}, {seconds:.1f} s of training")
    if len(pairs) > 1:
        for name in list(result)[1:]:
            run.say(
                f"{name} minus synchronous, paired: {trials.interval(result[name], result[SYNCHRONOUS])}"
            )
    return {"runs": result, "epochs": epochs, "ends": ends}


def trained(run: kit.Run, name: str, data, nodes, phases: Phases, seed: int):
    if name == SYNCHRONOUS:
        return synchronous(run, data, nodes, seed)
    per_epoch = steps_per_epoch(data.size, run.options.batch * run.size)
    phases, wire = (
        Constant(THROUGHOUT[name]) if name in THROUGHOUT else phases,
        None if name == UNROUNDED else "bfloat16",
    )
    return daso(run, data, nodes, phases, per_epoch, seed, wire)


# ---- the picture ----


def draw(result: dict):
    title = "Lesson 13: DASO. Nodes that do not wait for each other, and what their drifting apart costs"
    figure, (times, drift, losses, accuracy) = axes.frame(title, 2, 2, size=(15, 10))
    draw_times(times, result["times"])
    for name, distances in result["drift"]["distances"].items():
        drift.plot(
            range(1, len(distances) + 1), [100 * d for d in distances], marker=".", label=name
        )
    drift.axvline(result["drift"]["per_epoch"], color="grey", lw=1, ls="--")
    drift.set(
        title="Distance of a node from the mean of all (dashed: end of an epoch)",
        xlabel="batch",
        ylabel="% of the norm",
    )
    runs = result["accuracy"]["runs"]
    axes.losses(losses, runs, COLOURS)
    for name, rows in runs.items():
        accuracy.plot(
            [r[-1]["seconds"] for r in rows],
            [100 * (r[-1]["accuracy"] or 0) for r in rows],
            "o",
            color=COLOURS[name],
            label=name,
        )
    accuracy.set(
        title=f"Held-out images right after {result['accuracy']['epochs']} epochs, each run",
        xlabel="training, s",
        ylabel="%",
        xlim=(0, None),
    )
    return axes.finish(figure, times, drift, losses, accuracy)


def draw_times(axis, times: dict) -> None:
    names, parts = list(times["measured"]), times["parts"]
    axes.measured(axis, names, times["measured"].values(), "o", color="tab:blue", label="measured")
    axis.plot(
        list(times["predicted_s"]),
        [axes.MS * t for t in times["predicted_s"].values()],
        "_",
        ms=22,
        color="tab:red",
        label="predicted from the parts",
    )
    axis.axhline(axes.MS * parts["compute"], color="grey", lw=1, label="computing alone")
    axis.set_xticks(range(len(names)), names, rotation=20, ha="right", fontsize=8)
    axis.set(
        title=f"Time of a batch, in epochs of {times['per_epoch']}", ylabel="ms", ylim=(0, None)
    )


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    images.arguments(lesson, rate=0.04)
    lesson.parser.set_defaults(width=1 / 16, batch=16)
    placement.argument(lesson)
    lesson.main(measure, draw)
