"""Lesson 13: DASO - nodes that synchronise only now and then, and a little late.

    python -m refgf.cluster run --like v100-10gbe --nodes 2 --ranks-per-node 2 --rate 1gbit -- \
        python lessons/13_daso.py                 (--quick, --full, --plot ...)
    mpiexec -n 4 python lessons/13_daso.py        without nodes: links are waited for
    ... --like this-machine                       your laptop as a cluster: computes for real

QUESTION    In synchronous training all nodes wait in every step for the slow links between them.
            What if they kept computing, and used the other nodes' result when it arrives? How much
            time does that save, and what does it cost?
IDEA        The ranks of a node average their gradients in every batch. Every B batches, one rank of
            each node sums PARAMETERS over the nodes in the background; these groups take turns. W
            batches later the sum, stale by then, is merged with the node's current parameters:
            w <- (2W w + sum) / (2W + m). Training begins and ends with blocking sums (warm-up,
            cool-down), and each epoch ends with one.
            (Coquelin et al. 2022; refgf/papers/daso/daso.py, refgf/papers/daso/phases.py)
PREDICTION  m nodes, n parameters. A batch takes c without exchange, the update included. Averaging
            gradients in the node takes l. A sum over the nodes takes

                G = 2 (m-1) (alpha + 4 n / m / rate) + the work of adding and copying

            and s to broadcast in the node, and h to copy, check and merge. So a batch takes

                synchronous           c + l + G          all gradients: in the node, then between
                blocking, bfloat16    c + l + G/2 + h + s        and the work of rounding
                B, W                  c + l + (max(0, G - W (c + l)) + h + s) / B

            and the last batch of an epoch c + l + G + h + s, because it waits for a whole sum. The
            rest is the processor's work, measured without a network or inside a node. In DASO a
            thread sums and sleeps between polls; the share of the link that it fills is probed.

Before you run it, write down: on links where communication is half of a synchronous step, how much
shorter is a batch with B = 4, W = 1? What of a sum can never be hidden? And is the network as good
after the same number of epochs?

This is weak scaling: each rank brings its own batch, for any p. Where there is only one node, nodes
are pretended: then only messages between these nodes wait for the link. Averaging in the node is
not to scale: it crosses this machine's memory, and GPUs of a node have faster links.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/13_daso.py)
    1. After how many batches do a node's own parameters weigh as much as the sum of m nodes? What
       remains of a node's own step when 100 nodes merge after W = 1?
    2. A sum takes as long as 3 batches. Which W hides it? With W = 1, from which B does only 1/20
       of a batch of it remain?
    3. Let the same group sum every time. Which parameters change, and who sends how much?
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import images, placement
from kit.claims import GAIN, LIMIT, Claim
from lab import daso_learning, daso_picture, daso_replay, daso_scene, daso_times
from lab.daso_claims import batch, drift, paired, predictions
from lab.daso_learning import CYCLING, STALE, SYNCHRONOUS
from refgf.exchange.precision import LossScale
from refgf.papers.daso.phases import BLOCKING, Constant, Phase

OVERLAPPED, HALF = "+ overlap", "+ float16"
BASELINES = {
    SYNCHRONOUS: {},
    OVERLAPPED: {"overlap": True},
    HALF: {"overlap": True, "wire": np.float16, "loss_scale": LossScale(2.0**10)},
}
PHASES = {
    "blocking, bfloat16": BLOCKING,
    "B = 1, W = 1": Phase(1),
    "B = 4, W = 1": Phase(4),
}
ALSO = {"B = 8, W = 2": Phase(8, 1, 2)}  # with --full
MAIN = "B = 4, W = 1"
SLOW = "links on which communication is much less than half of a synchronous step"
CLAIMS = (
    Claim(
        "With B = 4, W = 1 a batch takes at least 25 % less time than in synchronous training.",
        batch(MAIN, "<", SYNCHRONOUS, 0.75),
        SLOW,
        kind=GAIN,
    ),
    Claim(
        "It is also faster than synchronous training that overlaps float32 sums with backward.",
        batch(MAIN, "<", OVERLAPPED),
        SLOW,
    ),
    Claim(
        "Where overlapped float16 sums hide behind backward, DASO loses: its batch takes longer.",
        batch(MAIN, ">", HALF),
        "links too slow for half of the bytes to hide behind backward",
        kind=LIMIT,
    ),
    Claim(
        "A hidden sum is not free: B = 1, W = 1 takes longer than B = 4, W = 1.",
        batch("B = 1, W = 1", ">", MAIN),
        "a processor that copies and merges in no time, and a sum shorter than a batch",
    ),
    Claim(
        "The prediction is within 15 % of every batch time.",
        predictions("<", 1.15),
        "other programs on this machine, or ranks that share too few cores",
    ),
    Claim(
        "Nodes drift further apart with B = 8 than with B = 4.",
        drift("B = 8, W = 1", ">", MAIN),
        "a learning rate so small that nodes hardly move in 8 batches",
    ),
    Claim(
        "With warm-up and cool-down, DASO costs less than one point of accuracy.",
        paired(CYCLING, ">", -1.0),
        "epochs and batches: the longer nodes train separately, the more it costs",
    ),
    Claim(
        "B = 8, W = 8 throughout costs accuracy after as many epochs.",
        paired(STALE, "<", 0.0),
        "a learning rate so small that nodes hardly move in 8 batches",
    ),
)


def measure(run: kit.Run) -> dict:
    train, held_out = images.load(run)
    nodes = placement.nodes(run, 2 if run.size % 2 == 0 else 1)
    show_plan(run, nodes)
    check_against_oracle(run, train, nodes)
    if run.regime.like is None:
        scene = daso_scene.this_machine(run, train, nodes)
    else:
        scene = daso_scene.virtual_scene(run, nodes)
    phases = PHASES | run.quick({}, {}, ALSO)
    times = daso_times.measure(run, scene, BASELINES, phases, predicted_s)
    times |= {"like": run.regime.like and run.regime.like.name, "dilation": run.regime.dilation}
    daso_times.show(run, times, SYNCHRONOUS)
    return {
        "nodes": nodes,
        "times": times,
        "drift": daso_learning.watch_drift(run, train, nodes),
        "lost_updates": daso_learning.lost_updates(run, train, nodes),
        "accuracy": daso_learning.compare_accuracy(run, train, held_out, nodes),
    }


# ---- one epoch ----


def show_plan(run: kit.Run, nodes, per_epoch: int = 10) -> None:
    """What happens in each batch of an epoch."""
    phase = PHASES[MAIN]
    run.section(f"One epoch of {per_epoch} batches with B = {phase.global_skip}, W = {phase.wait}")
    rows, due = [], {}
    for b in range(per_epoch):
        group, received = phase.sender(b, per_epoch, len(nodes[0])), due.pop(b, "")
        if group is not None:
            waited = phase.wait_after(b, per_epoch)
            due[b + waited] = f"of batch {b}, own weight {2 * waited} of {2 * waited + len(nodes)}"
            received = received if waited else "immediately: equal parameters on all ranks"
        averaged = "yes" if phase.averages(b, per_epoch) else "no"
        rows.append([b, averaged, "" if group is None else f"group {group}", received])
    run.table(["batch", "averaged in the node", "parameters sent by", "received"], rows)


def predicted_s(terms: dict[str, float], phase: Phase) -> float:
    """The predicted time of a batch inside a long epoch. terms: see PREDICTION."""
    inside = terms["compute"] + terms["node"]
    merged = terms["merge"] + terms["spread"]
    if phase.blocking:
        return inside + terms["sum bfloat16"] + merged
    waited = max(0.0, terms["sum"] - phase.wait * inside)
    return inside + (waited + merged) / phase.global_skip


# ---- the oracle ----


def check_against_oracle(run: kit.Run, data, nodes) -> None:
    """An epoch of each kind of phase: bits, messages and bytes as defined."""
    run.section("The oracle")
    per_epoch = run.quick(4, 6)
    for phase in [Phase(3, 1, 2), *run.quick([], [Phase(5, 2, 1), BLOCKING])]:
        stack = daso_learning.daso(run, data, nodes, Constant(phase), per_epoch)
        daso_replay.check(run, data, nodes, phase, per_epoch, stack)


if __name__ == "__main__":
    lesson = kit.Lesson(
        __file__,
        __doc__,
        like="v100-10gbe",
        claims=CLAIMS,
        picture="Bars: the time of a batch, with the prediction through each. The other figure: "
        "drift of the nodes against batches; paired differences in accuracy.",
    )
    images.arguments(lesson, rate=0.04)
    lesson.parser.set_defaults(width=1 / 16, batch=16)
    placement.argument(lesson)
    lesson.main(measure, daso_picture.draw)
