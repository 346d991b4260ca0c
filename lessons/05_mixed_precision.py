"""Lesson 05: mixed precision - half the bytes, and the care that it takes.

    mpiexec -n 8 python lessons/05_mixed_precision.py
    options: --quick, --full, --plot, --data PATH, --link ...

QUESTION    Gradients need not be exact. Can they be sent as 16-bit numbers, in half the time,
            without harm?
IDEA        Round to float16 on the wire only. Add in float32, keep float32 master weights, and
            multiply the loss by a power of two so that small gradients do not become zero.
            (refgf/exchange/precision.py)
PREDICTION  Let r be the relative error of one rounding (about 2^-12 root mean square). Each hop of
            a ring rounds a partial sum once more. `direct` rounds every input once and every result
            once, whatever p is. For gradients that are random numbers:

                ring    r sqrt((p+1) / 2)            direct    r sqrt(2)

            float16 ends at 65,504 and has nothing below 6e-8. A sum of p gradients that is divided
            by p only afterwards overflows for gradients p times smaller.

Before you run it, write down: by how much is the error of the float16 ring on 512 ranks larger than
on 2? What share of your network's gradients is too small for float16?

This is weak scaling: each rank brings its own batch, whatever p is.

WHAT YOU SHOULD SEE    Exactly half the bytes. The ring's error grows with the root of p, direct's
            stays constant. Both are far below the noise of a mini-batch. Without a loss scale some
            gradients vanish (a few in a thousand here, all of them small). A scale of some
            thousands saves most of them; one of millions overflows. A dynamic scale that starts too
            high comes down in a few skipped steps. A scale that is far too low loses most
            gradients, yet may train just as well because it loses the smallest ones. Half the bytes
            need not take half the time, on slow links too, because conversion costs processor time,
            which ranks that share cores lack. On the CPU the arithmetic of forward and backward
            remains float32; only the roundings are reproduced.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/05_mixed_precision.py)
    1. Let all gradients be positive (biased). How does the ring's error grow with p now, and why?
    2. Divide each rank's gradients by p before the cast, instead of its loss by the global batch
       before backward. Are other numbers sent? When would it matter?
    3. Leave out the rounding of the owner's own slice (`finish` in refgf/comm/ring.py). Which
       property is lost?
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import axes, flow, images, rounding, trials
from refgf.comm import direct, ring
from refgf.comm.schedule import collective
from refgf.exchange.lazy import Theta
from refgf.exchange.precision import LossScale
from refgf.machine.underflow import Underflow
from refgf.oracle import definitions
from refgf.oracle.definitions import (
    on_wire,
    ring_traffic,
    same_bits,
    scaled_allreduce,
    underflow_share,
)
from refgf.comm.direct import direct_allreduce
from refgf.comm.ring import ring_allreduce

HALF = np.float16
RANKS = [2, 3, 4, 8, 16, 32, 64, 128, 256, 512]
SCALES = [2.0**k for k in range(0, 29, 2)]
LARGEST = 65_504  # in float16


def measure(run: kit.Run) -> dict:
    train, held_out = images.load(run)
    gradients = real_gradients(run, train)
    check_against_oracle(run, gradients)
    counted = count_bytes(run, train)
    microscope = measure_errors(run)
    overflow = divide_after_the_sum(run)
    scales = count_underflow(run, gradients)
    return {
        "bytes": counted,
        "microscope": microscope,
        "overflow": overflow,
        "scales": scales,
        "training": train_with_each(run, train, held_out),
    }


# ---- one step: scale, round for the wire, sum, unscale ----


def half_allreduce(run: kit.Run, gradients, scale: float, algorithm=ring.allreduce) -> None:
    """Sum float32 gradients (n,) over all ranks in place, as float16 on the wire."""
    gradients *= np.float32(scale)  # a real step scales the loss instead, before backward
    collective(run.comm, algorithm, wire=HALF)(gradients)
    gradients /= np.float32(scale)


# ---- the oracle ----


def real_gradients(run: kit.Run, data) -> list[np.ndarray]:
    """Every rank's gradients of a batch, after a few steps of training."""
    with flow.new(run, data) as stack:
        for batch in images.steps(run, data, run.quick(2, 20)):
            stack.step(*batch, rate=run.options.rate)
        stack.model.network.loss(*next(images.steps(run, data, 1)))
        stack.model.network.backward(lambda i: None)
        return run.gather(stack.model.gradients.flat.copy())


def check_against_oracle(run: kit.Run, gradients: list[np.ndarray]) -> None:
    """Compare the bits of both schedules, with and without scaling, with the definition."""
    run.section("The oracle")
    for scale in (1.0, 2.0**12):
        for algorithm, definition in (
            (direct.allreduce, definitions.direct_allreduce),
            (ring.allreduce, definitions.ring_allreduce),
        ):
            mine = gradients[run.rank].copy()
            half_allreduce(run, mine, scale, algorithm)
            wanted = scaled_allreduce(gradients, scale, allreduce=definition)[run.rank]
            if not same_bits(mine, wanted):
                raise AssertionError(
                    f"{definition.__name__} of float16 on rank {run.rank}, scale {scale}: "
                    "got other bits; wanted those of the definition"
                )
    run.say("float16 on the wire, with and without a loss scale, ring and direct:")
    run.say("a real batch's gradients have the bits of the definition.")


# ---- the measurement ----


def count_bytes(run: kit.Run, data) -> dict:
    """Take steps with each wire type; check the bytes and measure the time."""
    run.section("Half the bytes")
    rows = {}
    for name, wire, algorithm in (
        ("float32", None, ring),
        ("float16", HALF, ring),
        ("float16, direct", HALF, direct),
    ):
        maker = direct_allreduce if algorithm is direct else ring_allreduce
        with flow.new(run, data, wire=wire, grouping=Theta(2**18), allreduce=maker) as stack:
            run.comm.reset()
            stack.step(*next(images.steps(run, data, 1)), rate=0.0)
            sent, calls = run.comm.bytes, stack.calls
            timing = flow.time_steps(run, stack, images.steps(run, data, run.quick(4, 9)))
        if algorithm is ring:
            lengths = [call.stop - call.start for call in calls]
            elements = sum(ring_traffic(n, run.size, run.rank)[1] for n in lengths)
            assert sent == elements * (2 if wire else 4), (sent, elements)
        rows[name] = {"bytes": sent, "calls": len(calls), "step": timing}
    run.table(
        ["on the wire", "calls", "bytes sent by rank 0", "time of a step"],
        [[name, row["calls"], row["bytes"], row["step"]] for name, row in rows.items()],
    )
    return rows


def measure_errors(run: kit.Run) -> dict:
    """Relative error (root mean square) of sums over p ranks, which one process replays."""
    run.section("Rounding under the microscope: replayed sums of p random gradients")
    ranks = run.quick(RANKS[:5], RANKS)
    kinds = {
        "ring, float16": (ring, HALF),
        "direct, float16": (direct, HALF),
        "ring, float32": (ring, None),
    }
    jobs = [(p, name) for p in reversed(ranks) for name in kinds]  # the longest first
    results = trials.deal(run, jobs, lambda p, name: rounding.error_of(p, *kinds[name]))
    found = dict(zip(jobs, results))
    errors = {p: {name: found[p, name] for name in kinds} for p in ranks}
    one = rounding.one_rounding()
    predicted = {
        p: {"ring, float16": one * ((p + 1) / 2) ** 0.5, "direct, float16": one * 2**0.5}
        for p in ranks
    }
    run.say(f"One rounding to float16 has a relative error of r = {one:.2e}.")
    run.table(
        ["p", *kinds, "ring predicted", "direct predicted"],
        [
            [
                p,
                *(f"{errors[p][name]:.2e}" for name in kinds),
                f"{predicted[p]['ring, float16']:.2e}",
                f"{predicted[p]['direct, float16']:.2e}",
            ]
            for p in ranks
        ],
    )
    return {"ranks": ranks, "errors": errors, "predicted": predicted, "one_rounding": one}


def divide_after_the_sum(run: kit.Run) -> dict:
    """Sum gradients up to 400 over p ranks in float16, and divide by p after or before the sum."""
    run.section("Where division after the sum overflows")
    rows = {}
    for p in (8, 64, 128, 256, 512):
        values = np.random.default_rng(p).uniform(100, 400, 256).astype(np.float32)
        after = np.isinf(rounding.ring_sum(values, p)).mean()
        before = np.isinf(rounding.ring_sum(values / np.float32(p), p)).mean()
        rows[p] = {"after": float(after), "before": float(before)}
    run.table(
        ["p", "infinite, divided after the sum", "divided before"],
        [
            [p, f"{100 * row['after']:.0f} %", f"{100 * row['before']:.0f} %"]
            for p, row in rows.items()
        ],
    )
    run.say(f"float16 ends at {LARGEST:,}. In refgf each loss is divided by the global batch,")
    run.say("so the exchange only sums.")
    return rows


def count_underflow(run: kit.Run, gradients: list[np.ndarray]) -> dict:
    """For each loss scale, count the gradients that become zero or infinite on the wire."""
    run.section("Underflow, overflow and the loss scale")
    mine = gradients[run.rank]
    magnitude = np.log2(np.abs(mine[mine != 0]))
    rows = {}
    for scale in SCALES:
        scaled = mine * np.float32(scale)
        measured = Underflow(lambda x: None, HALF)
        measured(scaled)
        assert measured.share == underflow_share(scaled, "float16")
        rows[scale] = {
            "zero": measured.share,
            "infinite": float(np.isinf(on_wire(scaled, "float16")).mean()),
        }
    run.table(
        ["loss scale", "become zero", "become infinite"],
        [
            [f"2^{int(np.log2(s))}", f"{100 * row['zero']:.3f} %", f"{100 * row['infinite']:.4f} %"]
            for s, row in rows.items()
        ],
    )
    counts, edges = np.histogram(magnitude, bins=np.arange(-50, 12))
    return {"rows": rows, "histogram": {"counts": counts.tolist(), "edges": edges.tolist()}}


def train_with_each(run: kit.Run, train, held_out) -> dict:
    """Repeat the same training in float32 and in float16 with several loss scales."""
    epochs = run.options.epochs or run.quick(1, 5, 12)
    run.section(f"{epochs} epochs: does the network learn the same?")
    mixed = {"wire": HALF, "half_weights": True}
    kinds = {
        "float32": {},
        "float16, dynamic scale from 2^24": {
            **mixed,
            "loss_scale": LossScale(2.0**24, dynamic=True, interval=50),
        },
        "float16, no scale": mixed,
        "float16, scale 2^-16 (too low)": mixed | {"loss_scale": LossScale(2.0**-16)},
    }
    result = {}
    for name, settings in kinds.items():
        with flow.new(run, train, grouping=Theta(2**18), **settings) as stack:
            scales = record_scale(stack)
            rows = flow.learn(run, stack, train, held_out, epochs, say=False)
            result[name] = {
                "epochs": rows,
                "skipped": stack.model.loss_scale.skipped,
                "scales": scales,
            }
    run.table(
        ["", "loss", "accuracy", "skipped steps", "scale at the end"],
        [
            [
                name,
                f"{row['epochs'][-1]['loss']:.4f}",
                f"{100 * (row['epochs'][-1]['accuracy'] or 0):.1f} %",
                row["skipped"],
                f"{row['scales'][-1]:g}",
            ]
            for name, row in result.items()
        ],
    )
    return result


def record_scale(stack) -> list[float]:
    """A list to which each step from now on appends its loss scale."""
    scales, finish = [], stack.finish

    def recorded():
        scales.append(stack.model.loss_scale.scale)
        return finish()

    stack.finish = recorded
    return scales


# ---- the figure ----


def draw(result: dict):
    title = "Lesson 05: mixed precision. Half the bytes, and the care that it takes"
    figure, (errors, gradients, lost, wire, scale, learning) = axes.frame(title, 2, 3, (18, 9))
    draw_errors(errors, result["microscope"])
    draw_gradients(gradients, result["scales"]["histogram"])
    rows = result["scales"]["rows"]
    for name, colour in (("zero", "tab:blue"), ("infinite", "tab:red")):
        exponents = [np.log2(float(s)) for s in rows]
        percent = [100 * row[name] for row in rows.values()]
        lost.plot(exponents, percent, ".-", color=colour, label=f"become {name}")
    lost.set(
        title="Underflow and overflow for each loss scale",
        xlabel="log2 of the loss scale",
        ylabel="% of the gradients",
        yscale="symlog",
    )
    lost.set_yscale("symlog", linthresh=0.01)
    draw_wire(wire, result["bytes"])
    for name, row in result["training"].items():
        if "dynamic" in name:
            scale.semilogy(row["scales"], base=2, label=f"{name}: {row['skipped']} steps skipped")
        losses = [epoch["loss"] for epoch in row["epochs"]]
        learning.plot(range(1, len(losses) + 1), losses, marker=".", label=name)
    scale.set(title="Dynamic loss scale", xlabel="step", ylabel="loss scale")
    learning.set(title="Training loss", xlabel="epoch", yscale="log")
    return axes.finish(figure, errors, lost, scale, learning)


def draw_errors(axis, microscope: dict) -> None:
    ranks = microscope["ranks"]
    for name, colour in (
        ("ring, float16", "tab:red"),
        ("direct, float16", "tab:blue"),
        ("ring, float32", "tab:green"),
    ):
        measured = [microscope["errors"][str(p)][name] for p in ranks]
        axis.loglog(ranks, measured, "o", color=colour, label=name)
        if name in microscope["predicted"][str(ranks[0])]:
            predicted = [microscope["predicted"][str(p)][name] for p in ranks]
            axis.loglog(ranks, predicted, "--", color=colour, label=f"{name}, predicted")
    axis.set(
        title="Relative error of a sum over p ranks (replayed)",
        xlabel="p",
        ylabel="root mean square",
    )
    axis.set_xscale("log", base=2)


def draw_gradients(axis, histogram: dict) -> None:
    counts, edges = histogram["counts"], histogram["edges"]
    shares = np.array(counts) / max(1, sum(counts))
    axis.bar(edges[:-1], shares, width=1, align="edge", color="tab:grey", alpha=0.7)
    axis.axvspan(-60, -25, color="tab:blue", alpha=0.15, label="zero in float16")
    axis.axvspan(-25, -14, color="tab:blue", alpha=0.07, label="fewer digits (subnormal)")
    axis.axvspan(16, 30, color="tab:red", alpha=0.15, label="infinite in float16")
    axis.set(
        title="Gradients of one rank; a loss scale of 2^k shifts them k to the right",
        xlim=(-52, 20),
        xlabel="log2 of the magnitude",
        ylabel="share of the gradients",
    )
    axis.legend(fontsize=8, loc="upper left")


def draw_wire(axis, rows: dict) -> None:
    """Bytes and time of a step, as a share of those of float32."""
    places = np.arange(len(rows))
    whole = rows["float32"]
    sent = [row["bytes"] / max(1, whole["bytes"]) for row in rows.values()]
    times = [row["step"]["median_s"] / whole["step"]["median_s"] for row in rows.values()]
    axis.bar(places - 0.2, sent, 0.4, color="tab:grey", label="bytes, counted")
    axis.bar(places + 0.2, times, 0.4, color="tab:blue", label="time of a step, measured")
    axis.set_xticks(places, list(rows))
    axis.set(title="On the wire, as a share of float32", ylim=(0, 1.25 * axis.get_ylim()[1]))
    axis.legend(fontsize=8, loc="upper left")
    axis.grid(alpha=0.3, axis="y")


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    images.arguments(lesson)
    lesson.main(measure, draw)
