"""Lesson 07: GradientFlow - the whole stack, switched on part by part.

    mpiexec -n 8 python lessons/07_gradientflow.py           (--width 0.5, --theta BYTES, --network resnet50, --quick ...)
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- python lessons/07_gradientflow.py
                                                             (and with --nodes 1 and 2: the figure keeps the last runs)
    ... --checkpoints DIR, and after a kill the same again with --resume: the training at the end goes on where it was

QUESTION    Five techniques, each of which gains something. What does each add to the others, and what is left to wait for?
IDEA        They are one stack: chosen chunks are packed, packed bytes wait for each other, a thread sums them, rounded for
            the wire, by a ring. (refgf/training/gradientflow.py; each part is one argument, and each can be off)
PREDICTION  Per part what its own lesson predicts; together the timeline of lesson 04 with the bytes of lessons 05 and 06:

                step = max(end of backward, end of the last call) + choice of chunks + update

            speedup = p * T(p ranks, exchange off) / T(p ranks, exchange on), at most p. Never against one rank: p ranks on
            fewer cores than p compute more slowly, and no exchange is to blame for that.

            What goes in is measured apart from the steps that it predicts (kit/step_times.py, call_times.py): the step and its gradients since the
            *first* rank started; calls of eight sizes in a row, as each part makes them; how much later they are when ranks
            come to them from computing; the share of its speed that computing keeps beside a call; what choosing chunks adds
            to a step in which no gradient travels. Not in it: a rank without a core just when its message comes.

Before you run it, write down the order: which of the parts gains most on your network? And which gains nothing there?

This is weak scaling: each rank brings a batch of its own, whatever p is.

WHAT YOU SHOULD SEE    On links that decide, with a core for each rank, every bar should be shorter than the one above it
            (not yet measured on such machines). Emulated nodes share the cores of one machine, and there a part gains only
            if it saves more of the link than it takes from the processor. Rounding for the wire in 26 calls makes a step
            longer. The thread of overlap finds no core free, so it hides little, and as it waits asleep
            (refgf/engine/sleeping.py) each message is noticed late: short calls take longer. Lazy allreduce gives back what
            many calls cost, and CSC sends a tenth of the bytes: these two gain most on a network; in shared memory, where
            bytes are cheap, CSC gains little or nothing. Sparse training needs more steps to the same accuracy, or as many:
            what counts is the time to an accuracy, not that of a step.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/07_gradientflow.py)
    1. Switch on CSC first and float16 last. Is the gain of a part the same in another order? Why not?
    2. Which part can you leave out without losing anything on this machine?
    3. From the measured alpha, beta and compute time: on how many Gbit/s would dense float16 training be enough?
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
WIDTH = (
    1 / 4
)  # of AlexNet's channels: where bytes, and not start-ups alone, decide how long a step takes
WARMUP = (100, 25)  # percent in the first epochs of sparse training
ORDER = [
    "MPI's allreduce",
    "+ ring",
    "+ mixed precision",
    "+ overlap",
    "+ lazy allreduce",
    "+ CSC",
]  # the paper's


def measure(run: kit.Run) -> dict:
    theta = run.options.theta
    if run.options.width is None and run.options.network == "alexnet":
        run.options.width = run.quick(1 / 8, WIDTH)
    flow.require_folder(run)
    train, held_out = images.load(run)
    climb_the_ladder(run, train)
    here = ablation(run, train, theta)
    here["learning"] = time_to_accuracy(run, train, held_out, theta)
    title = f"{images.NETWORKS[run.options.network]}; {run.place}"
    others = {
        place: kept for place, kept in run.earlier().get("places", {}).items() if place != title
    }
    return {"places": dict(list(others.items())[-2:]) | {title: here | {"ranks": run.size}}}


# ---- one step: the parts of the stack, each one argument ----


def parts_of(run: kit.Run, data, theta: float) -> dict[str, dict]:
    """What each bar adds to the one before; the first is left out where there is no MPI."""
    added = {
        "MPI's allreduce": {"allreduce": mpi_allreduce, "grouping": Theta(0)},
        "+ ring": {"allreduce": ring_allreduce, "grouping": Theta(0)},
        "+ mixed precision": {"wire": HALF, "loss_scale": LossScale(SCALE)},
        "+ overlap": {"overlap": True},
        "+ lazy allreduce": {"grouping": Theta(theta)},
        "+ CSC": {"csc": flow.csc(run, data, DENSITY)},
    }
    if run.mpi_allreduce() is None:
        del added["MPI's allreduce"]
    stacks, so_far = {}, {}
    for name, part in added.items():
        so_far = so_far | part
        stacks[name] = so_far
    return stacks


def kinds_of(run: kit.Run) -> dict[str, Kind]:
    """The sums in these stacks."""
    own = {"MPI": Kind(mpi_allreduce)} if run.mpi_allreduce() is not None else {}
    return own | {
        "float32": Kind(),
        "float16": Kind(wire=HALF),
        LATER: Kind(wire=HALF, overlap=True),
    }


# ---- the oracle ----


def climb_the_ladder(run: kit.Run, data) -> None:
    """Switching on a part changes no bit that it should not change (sums in rank order, so that cuts do not matter)."""
    run.section("The oracle")
    rate, some = 0.01, list(images.steps(run, data, run.quick(2, 3)))

    def bits(**parts):
        with flow.new(run, data, allreduce=direct_allreduce, **parts) as stack:
            for batch in some:
                stack.step(*batch, rate=rate)
            stack.require_same_parameters()
            return stack.model.parameters.flat.copy()

    dense = bits()
    rungs = {
        "lazy = eager": bits(grouping=Theta(2**14)),
        "overlapped = sequential": bits(grouping=Theta(2**14), overlap=True),
        "float32 wire = no wire type": bits(wire=np.float32),
        "CSC at 100 % (history) = dense": bits(csc=flow.csc(run, data, 100, "history")),
    }
    for rung, got in rungs.items():
        if not same_bits(got, dense):
            raise AssertionError(f"rank {run.rank}: {rung}: the bits differ")
    with flow.new(run, data, allreduce=direct_allreduce, weight_decay=0.0) as stack:
        w = stack.model.parameters.flat.copy()
        stack.model.network.loss(*some[0])
        stack.model.network.backward(lambda i: None)
        total = defined_allreduce(run.gather(stack.model.gradients.flat.copy()))[0]
        for i in range(len(stack.model.gradients.specs)):
            stack.ready(i)
        stack.model.update(rate, stack.finish())
        if not same_bits(
            stack.model.parameters.flat, momentum_step(w, np.zeros_like(w), total, rate, 0.9)[0]
        ):
            raise AssertionError(f"rank {run.rank}: one step: not the weights of the definition")
    run.say(f"bit for bit after {len(some)} steps: {'; '.join(rungs)}; and one step as defined")


# ---- the measurement ----


def ablation(run: kit.Run, data, theta: float) -> dict:
    count = run.quick(4, 12, 30)
    timing, ready_s = flow.without_exchange(run, data, images.steps(run, data, count))
    sizes = [spec.size for spec in images.network(run, data).tensors]
    n = sum(sizes)
    run.section(f"{images.told(run)}: {n:,} gradients, theta {kit.number_of_bytes(theta)}")
    found = calls.measure(run, data, kinds_of(run))
    share, starts = (
        found[LATER].kept_share,
        "; ".join(f"{name} {kit.seconds(c.seconds(0))}" for name, c in found.items()),
    )
    run.say(
        f"a step without any exchange, update included: {timing}; beside a call computing keeps {share:.0%} of its speed"
    )
    run.say(f"a short call: {starts}")
    rows = []
    for name, parts in parts_of(run, data, theta).items():
        run.opaque = run.opaque or parts["allreduce"] is mpi_allreduce
        kind = (LATER if parts.get("overlap") else "float16") if parts.get("wire") else "float32"
        call = found["MPI" if name == ORDER[0] else kind]
        with flow.new(run, data, **parts) as stack:
            step = flow.time_steps(run, stack, images.steps(run, data, count))
            number, busy_s = len(stack.calls), stack.communication_s
            some = images.steps(run, data, count)
            selection_s = calls.selection_s(run, stack, some, call.compute_s) if stack.csc else 0.0
            chunk = stack.csc.settings.chunk if stack.csc else 1
        threshold_bytes = parts["grouping"].threshold_bytes
        percent = DENSITY if parts.get("csc") else None
        system = System(
            name,
            2 if parts.get("wire") else 4,
            threshold_bytes,
            percent=percent,
            chunk=chunk,
            overlap=call.kept_share,
            selection_s=selection_s,
            norms_s=0.0,
        )
        ready = list(zip(step_times.rescaled(ready_s, timing, call.compute_s), sizes))
        predicted = predicted_step(ready, system, call.seconds, call.compute_s)
        speedup = run.size * timing.median_s / step.median_s
        rows.append(
            {
                "name": name,
                "step": step,
                "predicted_s": predicted.step_s,
                "calls": number,
                "speedup": speedup,
                "communication_s": busy_s,
            }
        )
    run.table(
        ["", "calls", "step", "predicted", "miss", f"speedup of {run.size}", "efficiency"],
        [
            [
                r["name"],
                r["calls"],
                r["step"],
                kit.seconds(r["predicted_s"]),
                f"{100 * (r['predicted_s'] / r['step'].median_s - 1):+.0f} %",
                f"{r['speedup']:.2f}",
                f"{100 * r['speedup'] / run.size:.0f} %",
            ]
            for r in rows
        ],
    )
    run.say(kit.apart([(row["predicted_s"], row["step"].median_s) for row in rows]))
    return {"rows": rows, "alone": timing, "elements": n, "theta": theta, "kept_share": share}


def time_to_accuracy(run: kit.Run, train, held_out, theta: float) -> dict:
    """The same training, dense and sparse, with the whole stack; when each reaches the wanted accuracy."""
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
        ["", "right at the end", "seconds an epoch", f"seconds to {wanted:g} %", "parameters"],
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
    figure.suptitle("Lesson 07: GradientFlow, switched on part by part")
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
        axis.annotate(
            f"{row['speedup']:.2f} x",
            (0, y),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
        )
    axis.axvline(
        1e3 * here["alone"]["median_s"], color="grey", label="no exchange (speedup = ranks)"
    )
    axis.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axis.set(
        title=f"{here['ranks']} ranks: {place}\n{here['elements']:,} gradients",
        xlabel="ms a step; in the bars: speedup",
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
        help="keep checkpoints of the training at the end here",
    )
    lesson.argument(
        "--resume", action="store_true", help="go on with the training whose checkpoints are there"
    )
    lesson.argument(
        "--accuracy",
        type=float,
        default=90.0,
        metavar="PERCENT",
        help="the accuracy that is waited for",
    )
    lesson.main(measure, draw)
