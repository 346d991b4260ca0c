r"""Lesson 07: GradientFlow - the whole stack, switched on technique by technique.

    mpiexec -n 8 python lessons/07_gradientflow.py    (--width 0.5, --theta BYTES, --quick, ...)
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- \
        python lessons/07_gradientflow.py             (then --nodes 1 and 2: the figure shows all)
    ... --network resnet50                            (161 gradients instead of 26)
    ... --checkpoints DIR                             (after a kill add --resume: the training at
                                                      the end continues at the last checkpoint)

QUESTION    Each of five techniques gains something. What does each add to the others, and what is
            left to wait for?
IDEA        They form one stack. Chosen chunks are packed. Packed bytes wait for each other. A
            thread sums them with a ring, rounded for the wire. Each technique is one argument, and
            each can be off. (refgf/training/gradientflow.py)
PREDICTION  For each technique what its own lesson predicts. Together: the timeline of lesson 04
            with the bytes of lessons 05 and 06.

                step = max(end of backward, end of the last call) + choice of chunks + update

            scaling efficiency = T(p ranks, exchange off) / T(p ranks, exchange on), at most 100 %.
            The comparison is never against one rank: p ranks on fewer cores than p compute more
            slowly, and no exchange is to blame for that.

            The inputs are measured separately from the steps that they predict (kit/step_times.py,
            kit/call_times.py):
            - the step and its gradients, in time since the *first* rank started;
            - calls of eight sizes in a row, as each technique makes them;
            - how much later a call ends when ranks come to it from computing;
            - the share of its speed that computing keeps during a call;
            - what choosing chunks adds to a step in which no gradient is sent.
            Not an input: a rank has no core at the moment at which its message arrives.

Before you run it, write down the order: which technique gains most on your network? And which
gains nothing there?

This is weak scaling: each rank brings a batch of its own, whatever p is.

WHAT YOU SHOULD SEE    On links that decide, with a core for each rank, every bar should be shorter
            than the one above it (not yet measured on such machines). Emulated nodes share the
            cores of one machine. There a technique gains only if it saves more time on the link
            than it takes from the processor. Rounding for the wire in 26 calls makes a step longer.
            The thread of overlap finds no free core, so it hides little. It sleeps between polls
            (refgf/engine/sleeping.py), so it notices each message late, and short calls take
            longer. Lazy allreduce recovers what many calls cost, and CSC sends a tenth of the
            bytes. These two gain most on a network. In shared memory, where bytes cost little, CSC
            gains little or nothing. Sparse training needs as many steps to the same accuracy, or
            more. What counts is the time to an accuracy, not the time of a step.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/07_gradientflow.py)
    1. Switch on CSC first and float16 last. Is the gain of a technique the same in another order?
       Why not?
    2. Which technique can you leave out without losing anything on this machine?
    3. From the measured alpha, beta and compute time: how many Gbit/s would be enough for dense
       float16 training?
"""

import refgf.launch  # noqa: F401  before MPI starts

from pathlib import Path

import numpy as np

import kit
from kit import calls, flow, images, step_times
from kit.calls import SCALE, Kind
from refgf.comm.direct import direct_allreduce
from refgf.comm.native import mpi_allreduce
from refgf.comm.ring import ring_allreduce
from refgf.exchange.chunk_choice import Density
from refgf.exchange.lazy import Theta
from refgf.exchange.precision import LossScale
from refgf.oracle.definitions import direct_allreduce as defined_allreduce
from refgf.oracle.definitions import momentum_step, same_bits
from refgf.papers.scaling.systems import System
from refgf.papers.scaling.systems import step as predicted_step
from refgf.machine.checkpoint import Checkpoints
from refgf.training.data import steps_per_epoch

HALF, DENSITY, LATER = np.float16, 10.0, "float16, overlap"
WIDTH = 1 / 4  # of AlexNet's channels: wide enough that bytes, not only latencies, decide the step
WARMUP = (100, 25)  # percent in the first epochs of sparse training
BASELINE = "MPI's allreduce"


def measure(run: kit.Run) -> dict:
    theta = run.options.theta
    if run.options.width is None and run.options.network == "alexnet":
        run.options.width = run.quick(1 / 8, WIDTH)
    flow.require_folder(run)
    train, held_out = images.load(run)
    check_against_oracle(run, train)
    here = ablation(run, train, theta)
    here["learning"] = time_to_accuracy(run, train, held_out, theta)
    title = f"{images.NETWORKS[run.options.network]}; {run.place}"
    earlier = run.earlier().get("places", {})
    others = [(place, result) for place, result in earlier.items() if place != title]
    return {"places": dict(others[-2:]) | {title: here | {"ranks": run.size}}}


# ---- one step: the stack, each technique one argument ----


def stacks_of(run: kit.Run, data, theta: float) -> dict[str, dict]:
    """The arguments of each bar, which adds one technique to the bar before, in the paper's order.

    The first bar is left out where there is no MPI.
    """
    added = {
        BASELINE: {"allreduce": mpi_allreduce, "grouping": Theta(0)},
        "+ ring": {"allreduce": ring_allreduce, "grouping": Theta(0)},
        "+ mixed precision": {"wire": HALF, "loss_scale": LossScale(SCALE)},
        "+ overlap": {"overlap": True},
        "+ lazy allreduce": {"grouping": Theta(theta)},
        "+ CSC": {"csc": flow.csc(run, data, DENSITY)},
    }
    if run.mpi_allreduce() is None:
        del added[BASELINE]
    stacks, so_far = {}, {}
    for name, technique in added.items():
        so_far = so_far | technique
        stacks[name] = so_far
    return stacks


def kinds_of(run: kit.Run) -> dict[str, Kind]:
    """The kinds of allreduce in these stacks."""
    own = {"MPI": Kind(mpi_allreduce)} if run.mpi_allreduce() is not None else {}
    return own | {
        "float32": Kind(),
        "float16": Kind(wire=HALF),
        LATER: Kind(wire=HALF, overlap=True),
    }


# ---- the oracle ----


def check_against_oracle(run: kit.Run, data) -> None:
    """Switching on a technique changes no bit that it should not change.

    The direct allreduce sums in rank order, so the grouping does not matter.
    """
    run.section("The oracle")
    rate, batches = 0.01, list(images.steps(run, data, run.quick(2, 3)))

    def trained(**arguments):
        with flow.new(run, data, allreduce=direct_allreduce, **arguments) as stack:
            for batch in batches:
                stack.step(*batch, rate=rate)
            stack.require_same_parameters()
            return stack.model.parameters.flat.copy()

    dense = trained()
    equal = {
        "lazy = eager": trained(grouping=Theta(2**14)),
        "overlapped = sequential": trained(grouping=Theta(2**14), overlap=True),
        "float32 wire = no wire type": trained(wire=np.float32),
        "CSC at 100 % (history) = dense": trained(csc=flow.csc(run, data, 100, "history")),
    }
    for claim, parameters in equal.items():
        if not same_bits(parameters, dense):
            raise AssertionError(f"training on rank {run.rank}: got other bits; wanted {claim}")
    with flow.new(run, data, allreduce=direct_allreduce, weight_decay=0.0) as stack:
        w = stack.model.parameters.flat.copy()
        stack.model.network.loss(*batches[0])
        stack.model.network.backward(lambda i: None)
        total = defined_allreduce(run.gather(stack.model.gradients.flat.copy()))[0]
        for i in range(len(stack.model.gradients.specs)):
            stack.ready(i)
        stack.model.update(rate, stack.finish())
        wanted = momentum_step(w, np.zeros_like(w), total, rate, 0.9)[0]
        if not same_bits(stack.model.parameters.flat, wanted):
            raise AssertionError(f"one step on rank {run.rank}: got other weights than defined")
    run.say(f"bit for bit after {len(batches)} steps; one step as defined:\n{'; '.join(equal)}")


# ---- the measurement ----


def ablation(run: kit.Run, data, theta: float) -> dict:
    count = run.quick(4, 12, 30)
    timing, ready_s = flow.without_exchange(run, data, images.steps(run, data, count))
    sizes = [spec.size for spec in images.network(run, data).tensors]
    n = sum(sizes)
    run.section(f"{images.in_words(run)}: {n:,} gradients, theta {kit.number_of_bytes(theta)}")
    found = calls.measure(run, data, kinds_of(run))
    share = found[LATER].kept_share
    run.say(f"a step without any exchange, update included: {timing}")
    run.say(f"during a call computing keeps {share:.0%} of its speed")
    short = "; ".join(f"{name} {kit.seconds(call.seconds(0))}" for name, call in found.items())
    run.say(f"a short call: {short}")
    rows = []
    for name, arguments in stacks_of(run, data, theta).items():
        run.opaque = run.opaque or arguments["allreduce"] is mpi_allreduce
        call = found[kind_of(name, arguments)]
        with flow.new(run, data, **arguments) as stack:
            step = flow.time_steps(run, stack, images.steps(run, data, count))
            number, busy_s = len(stack.calls), stack.communication_s
            batches = images.steps(run, data, count)
            compute_s = call.compute_s
            selection_s = calls.selection_s(run, stack, batches, compute_s) if stack.csc else 0.0
            chunk = stack.csc.settings.chunk if stack.csc else 1
        system = System(
            name,
            itemsize=2 if arguments.get("wire") else 4,
            threshold_bytes=arguments["grouping"].threshold_bytes,
            percent=DENSITY if arguments.get("csc") else None,
            chunk=chunk,
            overlap=call.kept_share,
            selection_s=selection_s,
            norms_s=0.0,
        )
        ready = list(zip(step_times.rescaled(ready_s, timing, call.compute_s), sizes))
        predicted = predicted_step(ready, system, call.seconds, call.compute_s)
        rows.append(
            {
                "name": name,
                "step": step,
                "predicted_s": predicted.step_s,
                "calls": number,
                "communication_s": busy_s,
            }
        )
    run.table(
        ["", "calls", "step", "predicted", "error", "scaling efficiency"],
        [
            [
                r["name"],
                r["calls"],
                r["step"],
                kit.seconds(r["predicted_s"]),
                f"{100 * (r['predicted_s'] / r['step'].median_s - 1):+.0f} %",
                f"{100 * timing.median_s / r['step'].median_s:.0f} %",
            ]
            for r in rows
        ],
    )
    run.say(kit.errors_in_words([(row["predicted_s"], row["step"].median_s) for row in rows]))
    return {"rows": rows, "alone": timing, "elements": n, "theta": theta, "kept_share": share}


def kind_of(name: str, arguments: dict) -> str:
    """Which of `kinds_of` makes the calls of this stack."""
    if name == BASELINE:
        return "MPI"
    if not arguments.get("wire"):
        return "float32"
    return LATER if arguments.get("overlap") else "float16"


def time_to_accuracy(run: kit.Run, train, held_out, theta: float) -> dict:
    """The same training, dense and sparse, with the whole stack: when each reaches an accuracy."""
    epochs, wanted = run.options.epochs or run.quick(1, 4, 15), run.options.accuracy
    per_epoch = steps_per_epoch(train.size, run.options.batch * run.size)
    run.section(f"Time to {wanted:g} % of held-out images right, at most {epochs} epochs")
    sparse = Density(DENSITY, WARMUP[: epochs - 1], per_epoch, epochs * per_epoch)
    result = {}
    for name, density in (("dense", None), ("CSC", sparse)):
        csc = density and flow.csc(run, train, density)
        stack_ = {"wire": HALF, "grouping": Theta(theta), "csc": csc, "overlap": True}
        model = {"half_weights": True, "loss_scale": LossScale(SCALE, dynamic=True)}
        with flow.new(run, train, **stack_, **model) as stack:
            folder = run.options.checkpoints
            checkpoints = Checkpoints(folder / name, stack, run.say) if folder else None
            rows = flow.learn(
                run, stack, train, held_out, epochs, say=False, checkpoints=checkpoints
            )
            parameters = stack.require_same_parameters()
        reached = next((row for row in rows if 100 * (row["accuracy"] or 0) >= wanted), None)
        result[name] = {
            "epochs": rows,
            "reached_s": reached and reached["seconds"],
            "parameters": parameters,
        }
    run.table(
        ["", "right at the end", "seconds per epoch", f"seconds to {wanted:g} %", "parameters"],
        [
            [
                name,
                f"{100 * (r['epochs'][-1]['accuracy'] or 0):.1f} %",
                f"{r['epochs'][-1]['seconds'] / epochs:.2f}",
                f"{r['reached_s']:.1f}" if r["reached_s"] else "not reached",
                r["parameters"][:16],
            ]
            for name, r in result.items()
        ],
    )
    return result | {"wanted": wanted}


# ---- the picture ----


def draw(result: dict):
    import matplotlib.pyplot as plt

    places = result["places"]
    figure, axes = plt.subplots(
        1, len(places) + 1, figsize=(6 * len(places) + 6, 5.5), squeeze=False
    )
    for axis, (place, here) in zip(axes[0], places.items()):
        draw_ablation(axis, place, here)
    draw_learning(axes[0][-1], list(places.values())[-1]["learning"])
    figure.suptitle("Lesson 07: GradientFlow, switched on technique by technique")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


def draw_ablation(axis, place: str, here: dict) -> None:
    rows = here["rows"][::-1]
    for y, row in enumerate(rows):
        timing = row["step"]
        spread = [
            [1e3 * (timing["median_s"] - timing["low_s"])],
            [1e3 * (timing["high_s"] - timing["median_s"])],
        ]
        axis.barh(y, 1e3 * timing["median_s"], xerr=spread, color="tab:blue", alpha=0.7, capsize=3)
        axis.plot(
            1e3 * row["predicted_s"], y, "D", color="tab:red", label="predicted" if y == 0 else None
        )
        percent = 100 * here["alone"]["median_s"] / timing["median_s"]
        style = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
        axis.annotate(f"{percent:.0f} %", (0, y), **style)
    axis.axvline(1e3 * here["alone"]["median_s"], color="grey", label="no exchange (100 %)")
    axis.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axis.set(
        title=f"{here['ranks']} ranks: {place}\n{here['elements']:,} gradients",
        xlabel="ms per step; in the bars: scaling efficiency",
    )
    axis.title.set_fontsize(9)
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3, axis="x")


def draw_learning(axis, learning: dict) -> None:
    for name, colour in (("dense", "black"), ("CSC", "tab:blue")):
        rows = learning[name]["epochs"]
        right = [100 * (row["accuracy"] or 0) for row in rows]
        axis.plot([row["seconds"] for row in rows], right, ".-", color=colour, label=name)
    axis.axhline(learning["wanted"], color="grey", ls=":")
    axis.set(
        title="Time to an accuracy (the last run)",
        xlabel="seconds of training",
        ylabel="held-out images right, %",
    )
    axis.legend(fontsize=8)
    axis.grid(alpha=0.3)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    images.arguments(lesson, networks=images.NETWORKS)
    lesson.argument(
        "--theta",
        type=kit.threshold_bytes,
        default=2**18,
        metavar="BYTES",
        help="threshold of lazy allreduce",
    )
    lesson.argument(
        "--checkpoints",
        type=Path,
        metavar="DIR",
        help="save checkpoints of the training at the end here",
    )
    lesson.argument(
        "--resume", action="store_true", help="continue the training of these checkpoints"
    )
    lesson.argument(
        "--accuracy",
        type=float,
        default=90.0,
        metavar="PERCENT",
        help="the accuracy of the time to an accuracy",
    )
    lesson.main(measure, draw)
