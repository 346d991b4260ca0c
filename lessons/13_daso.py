"""Lesson 13: DASO - nodes that synchronise only now and then, and a little late.

    mpiexec -n 8 python lessons/13_daso.py    (--quick, --full, --plot, --ranks-per-node K ...)
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 160mbit -- \
        python lessons/13_daso.py

QUESTION    In synchronous training all nodes wait in every step for the slow links between them.
            What if they kept computing, and used the other nodes' result when it arrives? How much
            time does that save, and what does it cost?
IDEA        The ranks of a node average their gradients in every batch. Every B batches, one rank of
            each node sums PARAMETERS over the nodes in the background; these groups take turns. W
            batches later the sum, stale by then, is merged with the node's current parameters:
            w <- (2W w + sum) / (2W + m). Training begins and ends with blocking sums (warm-up,
            cool-down), and each epoch ends with one.
            (Coquelin et al. 2022; refgf/papers/daso/daso.py, refgf/papers/daso/phases.py)
PREDICTION  Per batch: c to compute, l to average in the node, A to sum gradients over all ranks.
            Per sum: G between nodes, s to broadcast the result in the node. A batch then takes

                synchronous    c + A
                blocking       c + l + G/2 + s           bfloat16 parameters, every batch
                B, W           c + l + (max(0, G - W (c + l)) + s) / B
                               and a whole G + s at the end of the epoch

            Nothing of G remains once W batches take longer than the sum. On ranks that share
            cores something remains, because sending takes time from computing.
            tests/speed/daso_speed.py measures both cases, and ranks that only wait.

Before you run it, write down: on links where communication is half of a synchronous step, how much
shorter is an epoch with B = 4, W = 1? And is the network as good after the same number of epochs?

This is weak scaling: each rank brings its own batch, for any p. Where there is only one node, nodes
are pretended. With --link the links inside nodes are as slow as those between them, so the emulated
cluster shows more. Times are measured with larger batches than the training has: on a GPU a step is
long compared with starting a sum, and here Python starts the sums.

WHAT YOU SHOULD SEE    Where links between nodes are slow, B = 4, W = 1 hides much of their time.
            With a spare core an epoch would take little more than computing. Where ranks share
            cores, sending takes time from computing. Where links are fast (shared memory) there is
            little to hide, and the communication threads take time from the cores. Between sums
            nodes drift apart, further for larger B. A merge leaves about 2W / (2W + m) of the
            distance, and what it brings is W batches old. The blocking sum at the end of an epoch
            closes the distance. The last table shows what this costs: cycling throughout against
            all three phases, and both against synchronous training. Look at "not rounded", too:
            blocking phases round the parameters themselves to 8 binary digits in every batch, and
            an update smaller than 1/512 of its parameter is lost. This may cost as much as all
            the staleness.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/13_daso.py)
    1. After how many batches do a node's own parameters weigh as much as the sum of m nodes? What
       remains of a node's own step when 100 nodes merge after W = 1?
    2. A sum takes as long as 3 batches. Which W hides it? With W = 1, from which B does only 1/20
       of a batch of it remain?
    3. Let the same group sum every time. Which parameters change, and who sends how much?
"""

import refgf.launch  # noqa: F401  before MPI starts

import functools
import time

import numpy as np

import kit
from kit import flow, images, placement, trials
from lab import daso_replay
from lab.daso_picture import COLOURS, OVERLAPPED, SYNCHRONOUS, UNROUNDED, draw
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
# Images a rank, and batches: large enough to hide Python's own time and the end of an epoch.
TIMED_BATCH, TIMED_EPOCH = 32, 24
THROUGHOUT = {"B=8, W=2 throughout": Phase(8, 1, 2), "B=8, W=8 throughout": Phase(8, 1, 8)}


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


# ---- one epoch ----


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
        # Averages in the node, updates, sends, and merges a sum that is due.
        stack.step(images_, labels, global_batch, rate)


def synchronous(run: kit.Run, data, nodes, seed: int = images.SEED, **settings) -> GradientFlow:
    """Sums gradients in every step. Waiting ranks sleep, as those of DASO do."""
    two_level = functools.partial(collective, algorithm=hierarchical.two_level_ring(nodes))
    comm = ops.background(run.comm)
    return GradientFlow(comm, images.model(run, data, seed), allreduce=two_level, **settings)


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
            received = received if waited else "immediately: equal parameters on all ranks"
        rows.append(
            [
                b,
                "yes" if phase.averages(b, per_epoch) else "no",
                "" if group is None else f"group {group}",
                received,
            ]
        )
    run.table(["batch", "averaged in the node", "parameters sent by", "received"], rows)


# ---- the measurement ----


def time_batches(run: kit.Run, data, nodes) -> dict:
    """Batch times over whole epochs: synchronous and for each (B, W), one epoch of each in turn."""
    per_epoch = run.quick(4, TIMED_EPOCH)
    some_batches = images.whole_batches(run, data, per_epoch, run.quick(4, TIMED_BATCH))
    parts = measure_terms(run, data, nodes, some_batches)
    rows = {"blocking": BLOCKING, "B=4, W=1": Phase(4)} if run.options.quick else ROWS
    stacks = {
        SYNCHRONOUS: synchronous(run, data, nodes),
        OVERLAPPED: synchronous(run, data, nodes, overlap=True, grouping=Theta(2**18)),
    }
    stacks |= {
        name: daso(run, data, nodes, Constant(phase), per_epoch) for name, phase in rows.items()
    }
    run.section(
        f"Time of a batch of {some_batches[0][2] // run.size} images a rank, "
        f"in epochs of {per_epoch} batches"
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
    say_times(run, timings, forecast, between, parts)
    return {
        "parts": parts,
        "measured": timings,
        "predicted_s": forecast,
        "between_bytes": between,
        "per_epoch": per_epoch,
    }


def measure_terms(run: kit.Run, data, nodes, some_batches) -> dict:
    """Each term of the prediction in seconds: c, l, A, G, G of bfloat16, s."""
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
    run.section("The terms of the prediction, measured separately")
    run.table(
        [
            "c compute",
            "l average in node",
            "A all gradients",
            "G between nodes",
            "G, bfloat16",
            "s broadcast in node",
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
    """The predicted time of a batch, averaged over an epoch.

    A sum that the last batch's sum replaces is waited for, but not broadcast.
    """
    total, inside = 0.0, parts["compute"] + parts["node"]
    for b in range(per_epoch):
        total += parts["compute"] + (parts["node"] if phase.averages(b, per_epoch) else 0.0)
        if phase.sender(b, per_epoch, groups) is not None:
            waited = phase.wait_after(b, per_epoch)
            total += max(0.0, parts["sum, bfloat16" if phase.blocking else "sum"] - waited * inside)
            total += parts["spread"] if not waited or b + waited < per_epoch - 1 else 0.0
    return total / per_epoch


def between_nodes(run: kit.Run, nodes) -> float:
    """Bytes that a node has sent to other nodes, the mean over nodes."""
    node = next(node for node in nodes if run.rank in node)
    mine = sum(size for peer, (_, size) in run.comm.peers.items() if peer not in node)
    return sum(run.plain.allgather(mine)) / len(nodes)


def say_times(run: kit.Run, timings: dict, forecast: dict, between: dict, parts: dict) -> None:
    """Print the table of batch times, and what they say about the links."""
    base = timings[SYNCHRONOUS].median_s
    run.table(
        ["", "bytes between nodes", "measured", "predicted", "saved"],
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
        "saved: against synchronous; the bytes are those of a node in a batch\n"
        f"communication is {100 * share:.0f} % of a synchronous step. It would be half of a step\n"
        f"where a node's {kit.number_of_bytes(between[SYNCHRONOUS])} take as long as computing: "
        f"on links of about {8e-6 * between[SYNCHRONOUS] / parts['compute']:.0f} Mbit/s "
        "(predicted without latency)"
    )
    gain = 1 - timings["B=4, W=1"].median_s / min(
        timings[name].median_s for name in (SYNCHRONOUS, OVERLAPPED)
    )
    run.say(
        f"B=4, W=1 takes {100 * gain:.0f} % less time per epoch than the faster synchronous run"
    )


def watch_drift(run: kit.Run, data, nodes) -> dict:
    """Distance of a node's parameters from the mean of all, after each batch of two epochs.

    As a share of the mean's norm.
    """
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
    """The same training: synchronous, by DASO, and by two of DASO's phases throughout."""
    epochs = run.options.epochs or run.quick(1, 8, 16)
    pairs = [
        (seed, fold) for seed in run.quick([1], [1], [1, 2]) for fold in range(run.quick(1, 3, 5))
    ]
    # The authors' example has 4 epochs of warm-up and 4 of cool-down in 90.
    ends = 0 if epochs == 1 else max(1, round(4 / 90 * epochs))
    run.section(
        f"Accuracy after {epochs} epochs, {len(pairs)} runs of each; "
        f"epochs of DASO's warm-up and cool-down: {ends} each"
    )
    result = {}
    for name in run.quick([SYNCHRONOUS, "DASO"], list(COLOURS)):
        result[name] = []
        for seed, fold in pairs:
            data, out = train, held_out
            if fold and not run.options.data:
                data, out = digits(run.options.image_size, fold)
            with stack_of(run, name, data, nodes, Phases(epochs, ends, ends), seed) as stack:
                result[name].append(flow.learn(run, stack, data, out, epochs, say=False, seed=seed))
        seconds = np.mean([rows[-1]["seconds"] for rows in result[name]])
        run.say(f"{name:>22}: {trials.in_words(result[name])}, {seconds:.1f} s of training")
    if len(pairs) > 1:
        for name in list(result)[1:]:
            paired = trials.interval(result[name], result[SYNCHRONOUS])
            run.say(f"{name} minus synchronous, paired: {paired}")
    return {"runs": result, "epochs": epochs, "ends": ends}


def stack_of(run: kit.Run, name: str, data, nodes, phases: Phases, seed: int):
    if name == SYNCHRONOUS:
        return synchronous(run, data, nodes, seed)
    per_epoch = steps_per_epoch(data.size, run.options.batch * run.size)
    phases = Constant(THROUGHOUT[name]) if name in THROUGHOUT else phases
    wire = None if name == UNROUNDED else "bfloat16"
    return daso(run, data, nodes, phases, per_epoch, seed, wire)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    images.arguments(lesson, rate=0.04)
    lesson.parser.set_defaults(width=1 / 16, batch=16)
    placement.argument(lesson)
    lesson.main(measure, draw)
