"""Lesson 08: scaling - from the ranks you have to the 2048 GPUs you have not.

    mpiexec -n 8 python lessons/08_scaling.py          (--width, --batch, --theta BYTES, --quick, --full, --plot ...)
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- python lessons/08_scaling.py
                                                       (--machine FILE: predict for a machine that somebody has sent in)

QUESTION    The papers speak of 64, 512 and 2048 GPUs. What of that can be known with eight ranks and a formula?
IDEA        Measure where one can, on 1, 2, 4 and 8 ranks; fit alpha and beta; draw the formula through the points, and only
            then past them. What goes in has a source; what is not known goes in as a range. (refgf/papers/scaling/scaling.py,
            headlines.py, rows.py)
PREDICTION  A ring of p ranks takes T(m) = 2(p-1) alpha + 2(p-1)/p beta m, so the start-ups grow with p and the bytes do not:

                step(p)    = end of the last call, each starting when its gradients are ready and the call before it is over
                throughput, in ranks without exchange = p * T(p ranks, exchange off) / T(p ranks, exchange on)
                scaling efficiency = that over p, in percent

Before you run it, write down: which technique still gains on 2048 ranks what it gains on 8? Which is worth nothing there?
And how much of 512 will GradientFlow reach on 512 GPUs, from a single GPU's rate and the links alone?

This is weak scaling: each rank brings a batch of its own, whatever p is.

WHAT YOU SHOULD SEE    Measured points near their curves, best on an idle machine: what ranks on the same cores lose to each
            other goes in, measured apart (kit/step_times.py, call_times.py, calls.py); a rank that has no core when its message comes does not.
            Curves part from each other, the more ranks there are: eager exchange drowns in start-ups, 2(p-1) alpha for each
            of its calls, lazy allreduce pays them a few times, float16 and CSC cut the bytes. ResNet-50 (161 small gradients)
            needs laziness most, AlexNet (few, large ones) CSC; overlap alone gains next to nothing where one start-up a
            gradient outlasts the backward pass.
            MG-WFBP's simulated Ethernet is slower than the same authors' fitted lines (crosses): its sums take 2.5 ns a byte.
            410.2 and 1.5 minutes lie in their intervals, which are wide because the rate of one GPU at a batch of 128 is known
            badly; 2.5 lies in one so wide that it says little, as neither the allreduce nor the overlap of those systems is
            stated. Jia et al.'s 11x is just beyond what the fused and hierarchical exchange alone can give.
            The sixteen rows: half of the orders come out. On InfiniBand the model hides nearly all of WFBP's hundreds of
            short calls and so has it win; measured, it loses, as if a call cost two to four times its start-up (agreeing on
            tensors would look so: inferred). On Ethernet in float16 MG-WFBP hides everything in the model, and 0.1 to 0.2 s
            a step of the measurement are in no input. One overhead for each cluster, calibrated, mends times, never an order.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/08_scaling.py)
    1. At which p do the start-ups of eager exchange alone take longer than ResNet-50 computes?
    2. Put in the rate of a single GPU that follows from 410.2 and 1.5 minutes. What does the prediction say then, and what is
       it worth?
    3. Halving-doubling takes 2 log2 p steps. What does eager exchange gain by it on 2048 ranks, what lazy allreduce?
"""

import refgf.launch  # noqa: F401  before MPI starts

from dataclasses import replace
from pathlib import Path

import numpy as np

import kit
from kit import calls, flow, images, step_times
from lab import machine_file, rank_subset
from kit.calls import SCALE, Kind
from lab.published_tables import headlines, rows, show_inputs, span
from lab.scaling_picture import draw
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.exchange.lazy import Theta
from refgf.exchange.precision import LossScale
from refgf.oracle.definitions import ring_allreduce, ring_traffic, same_bits
from refgf.predict.cost import Link, ring_allreduce_s, ring_line
from refgf.predict.fit import fit_line
from refgf.papers.scaling.headlines import ALPHA, BANDWIDTH, BATCH, SMALL_BATCH, V100_RATE
from refgf.papers.scaling.interval import Input
from refgf.papers.scaling.published import (
    INFINIBAND,
    INFINIBAND_EXTENDED,
    SIMULATION,
    TEN_GIGABIT,
    TEN_GIGABIT_EXTENDED,
)
from refgf.papers.scaling.scaling import best_theta_step, curve, ready_of
from refgf.papers.scaling.simulate import from_schedules
from refgf.papers.scaling.systems import scaling_efficiency, stack, step
from refgf.papers.scaling.workloads import alexnet, resnet50

KINDS = {
    "float32": Kind(),
    "float32, overlap": Kind(overlap=True),
    "float16, overlap": Kind(wire=np.float16, overlap=True),
}
FAR = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]
ETHERNET = SIMULATION.links["between"]


def source(name, values, unit, machine) -> Input:
    return Input(name, values, unit, machine.label, f"{machine.name}: {machine.source}")


RESNET_RATE = Input(
    "rate",
    (253.1,),
    "images/s",
    "verified",
    "ddl-benchmarks, 2020-05-29: ResNet-50, one GPU, batch 64",
)
RESNET_BATCH = Input("batch", (64,), "images a GPU", "verified", "the same benchmark")
CLUSTERS = {
    "56 Gbit/s InfiniBand": (ALPHA, BANDWIDTH),
    "10 Gbit/s Ethernet": (
        source("alpha_s", (ETHERNET.alpha_s,), "s", SIMULATION),
        source("bandwidth", (1 / ETHERNET.beta_s_per_byte,), "B/s", SIMULATION),
        source("gamma_s_per_byte", (ETHERNET.gamma_s_per_byte,), "s/B", SIMULATION),
    ),
}
NETWORKS = {
    "AlexNet": (alexnet, (V100_RATE, SMALL_BATCH, BATCH)),
    "ResNet-50": (resnet50, (RESNET_RATE, RESNET_BATCH)),
}
FITTED = {
    "56 Gbit/s InfiniBand": INFINIBAND.lines | INFINIBAND_EXTENDED.lines,
    "10 Gbit/s Ethernet": TEN_GIGABIT.lines | TEN_GIGABIT_EXTENDED.lines,
}


def measure(run: kit.Run) -> dict:
    theta = run.options.theta
    given = run.options.machine and machine_file.given(run.options.machine)
    train, _ = images.load(run)
    sizes = sorted({p for p in (1, 2, 4, 8) if p <= run.size} | {run.size})
    run.section("The oracle")
    for p in sizes:
        rank_subset.first(run, p, check_part)
    check_formula(run)
    here = scale_here(run, train, theta, sizes)
    machine_file.measured(run, here["points"])
    result = run.on_rank_0(lambda: past_the_points(run, given)) or {}
    return {"here": here} | result


# ---- one step: the same training on fewer ranks ----


def check_part(part: kit.Run) -> None:
    """The ring among the first ranks gives the definition's bits, and sends the definition's messages."""
    for n in (0, part.size - 1, 1000):
        everybody = [
            np.random.default_rng([n, r]).standard_normal(n).astype(np.float32)
            for r in range(part.size)
        ]
        x, before = everybody[part.rank].copy(), (part.comm.messages, part.comm.bytes)
        collective(part.comm, ring.allreduce)(x)
        if not same_bits(x, ring_allreduce(everybody)[part.rank]):
            raise AssertionError(
                f"rank {part.rank} of {part.size}: not the bits of the definition for n = {n}"
            )
        messages, elements = ring_traffic(n, part.size, part.rank)
        if (part.comm.messages - before[0], part.comm.bytes - before[1]) != (
            messages,
            4 * elements,
        ):
            raise AssertionError(
                f"rank {part.rank} of {part.size}: not the definition's {messages} messages, n = {n}"
            )
    part.say(
        f"ring on {part.size} of the ranks: bits, messages and bytes of the definition, n = 0, p-1, 1000"
    )


def check_formula(run: kit.Run) -> None:
    """What is used for 2048 ranks is the time of the schedule wherever schedules can still be followed."""
    link = Link(3e-5, 8e-9, 2e-10)
    for p in run.quick((1, 2, 3, 8), range(1, 33)):
        schedules = [ring.allreduce(r, p, 1000) for r in range(p)]
        if abs(ring_allreduce_s(p, 1000, 4, link) - from_schedules(schedules, 4, link)) > 1e-12:
            raise AssertionError(f"ring on {p} ranks: formula and schedule differ")
    run.say("the formula of the ring is the time of its schedule, uneven slices included")


# ---- the measurement: 1, 2, 4, 8 ranks ----


def scale_here(run: kit.Run, data, theta: float, sizes: list[int]) -> dict:
    run.section(
        f"{run.options.batch} images a rank, theta {kit.number_of_bytes(theta)}: this cluster"
    )
    points = []
    for p in sizes:
        point = rank_subset.first(run, p, lambda part: measure_part(part, data, theta))
        points.append(run.plain.bcast(point))
    elements = [spec.size for spec in images.network(run, data).tensors]
    for point in points:
        timelines = predict_here(point, point["ranks"], theta, elements)
        point["predicted"] = {
            name: in_ranks_here(point, point["ranks"], timeline)
            for name, timeline in timelines.items()
        }
        point["predicted_s"] = {name: timeline.step_s for name, timeline in timelines.items()}
    names = list(points[0]["steps"])
    for point in points[1:]:
        told = [
            f"{wire} {kit.seconds(link.alpha_s)}, {1e9 * link.beta_s_per_byte:.3g} ns/byte"
            for wire, link in point["links"].items()
        ]
        run.say(
            f"alpha and beta of the rings on {point['ranks']} ranks: {'; '.join(told)};\n"
            f"    beside a call computing keeps {point['calls']['float16, overlap'].kept_share:.0%} of its speed; "
            f"CSC's choice adds {kit.seconds(point['selection_s'][True])}"
        )
    run.table(
        ["ranks", "exchange off", *names],
        [
            [
                p["ranks"],
                kit.seconds(p["alone"].median_s),
                *(f"{p['measured'][n]:.2f} ({p['predicted'][n]:.2f})" for n in names),
            ]
            for p in points
        ],
    )
    run.say("throughput in ranks without exchange, p x scaling efficiency: measured (predicted)")
    compared = [
        (p["predicted_s"][n], p["steps"][n].median_s)
        for p in points
        if p["ranks"] > 1
        for n in names
    ]
    if compared:
        run.say(f"steps on 2 ranks and more: {kit.apart(compared)}")
    beyond = [p for p in run.quick((64, 2048), FAR) if p > run.size]
    curves = {name: [] for name in names}
    for p in beyond:
        for name, predicted in predict_here(points[-1], p, theta, elements).items():
            curves[name].append(in_ranks_here(points[-1], p, predicted))
    run.say("PREDICTED for more ranks on cores and links like those of the last line:")
    run.table(
        ["ranks", *names],
        [[p, *(f"{curves[n][i]:.1f}" for n in names)] for i, p in enumerate(beyond)],
    )
    return {"points": points, "beyond": beyond, "curves": curves, "theta": theta}


def measure_part(part: kit.Run, data, theta: float) -> dict:
    """Steps of all techniques on this part's ranks, and the rings that the prediction is fitted to."""
    count = part.quick(4, 14, 30)
    alone_, ready_s = flow.without_exchange(part, data, images.steps(part, data, count))
    found, steps, selection_s = calls.measure(part, data, KINDS, 21), {}, {}
    for system in stack(theta):
        half = system.itemsize == 2
        switched = {"wire": np.float16, "loss_scale": LossScale(SCALE)} if half else {}
        switched["grouping"] = Theta(system.threshold_bytes)
        switched["csc"] = system.percent and flow.csc(part, data, system.percent)
        with flow.new(part, data, overlap=system.overlap, **switched) as stack_:
            steps[system.name] = flow.time_steps(part, stack_, images.steps(part, data, count))
            if system.percent:  # with and without the norms' call
                compute_s = found[kind_of(system)].compute_s
                for norms in (True, False):
                    some = images.steps(part, data, count)
                    selection_s[norms] = max(
                        0.0, calls.selection_s(part, stack_, some, compute_s, norms)
                    )
    links = {kind: link_of(each, part.size) for kind, each in found.items()}
    measured = {
        name: part.size * alone_.median_s / timing.median_s for name, timing in steps.items()
    }
    return {
        "ranks": part.size,
        "alone": alone_,
        "ready_s": ready_s,
        "steps": steps,
        "links": links,
        "calls": found,
        "selection_s": selection_s,
        "measured": measured,
    }


def kind_of(system) -> str:
    """What its calls are called in KINDS."""
    return ("float16" if system.itemsize == 2 else "float32") + ", overlap" * system.overlap


def link_of(each: calls.Calls, size: int) -> Link:
    """The link on which a ring of `size` ranks takes so long: the inverse of `ring_line`; one rank sends nothing."""
    if size == 1:
        return Link(0.0, 0.0)
    line = fit_line(each.queued.points).line
    alpha_s = max(line.a_s, each.seconds(0)) / (2 * (size - 1))
    return Link(alpha_s, line.b_s_per_byte * size / (2 * (size - 1)))


def in_ranks_here(point, p: int, timeline) -> float:
    """Against the step without exchange: where ranks share cores, one with an exchange computes for longer or shorter."""
    return p * point["alone"].median_s / timeline.step_s


def predict_here(point, p: int, theta: float, elements) -> dict:
    """{technique: PredictedStep} on p ranks whose cores and links are those of this point; for its own number of ranks from the
    calls as they were measured."""
    found, here = {}, p == point["ranks"]
    for system in stack(theta):
        kind = kind_of(system)
        call = point["calls"][kind]
        ready = list(
            zip(step_times.rescaled(point["ready_s"], point["alone"], call.compute_s), elements)
        )
        allreduce_s = call.seconds if here else ring_line(p, point["links"][kind])
        system = replace(system, overlap=call.kept_share)
        if system.percent:
            system = replace(
                system,
                chunk=flow.chunk_elements(sum(elements)),
                selection_s=point["selection_s"][here],
                norms_s=0.0 if here else None,
            )
        found[system.name] = step(ready, system, allreduce_s, call.compute_s)
    return found


# ---- past the points: published machines, headlines, rows ----


def past_the_points(run: kit.Run, given) -> dict:
    """On rank 0: arithmetic only. given: somebody's machine, or None."""
    told = []  # inputs whose sources are on the screen
    sent_in = {given.name: machine_file.scale(run, given, FAR)} if given else {}
    curves = {net: far(run, net, told) for net in NETWORKS}
    return {
        "machine_file": sent_in,
        "far": curves,
        "headlines": headlines(run, told),
        "rows": rows(run),
    }


def far(run: kit.Run, net: str, told: list) -> dict:
    """Throughput of each technique over one GPU on published clusters, as intervals, with the best theta each time."""
    make, rate = NETWORKS[net]
    workload, sizes, found = make(), run.quick([4, 512, 2048], FAR), {}
    for cluster, link in CLUSTERS.items():
        run.section(f"PREDICTED: {net} on {cluster}, lazy allreduce with its best theta")
        systems = {system.name: system for system in stack(np.inf)}
        found[cluster] = {
            name: in_gpus(curve(workload, system, sizes, (*rate, *link)))
            for name, system in systems.items()
        }
        run.table(
            ["GPUs", *systems],
            [[p, *(span(found[cluster][name][p]) for name in systems)] for p in sizes],
        )
        show_inputs(run, (*rate, *link), told)
        found[cluster] |= {"fitted lines": fitted(workload, rate, FITTED[cluster])}
    return found


def in_gpus(efficiencies: dict) -> dict:
    """{p: (low, high)} of p times the scaling efficiency, from percent."""
    return {p: tuple(p * percent / 100 for percent in ends) for p, ends in efficiencies.items()}


def fitted(workload, rate, lines) -> dict:
    """Dense lazy allreduce with the fitted lines of 4 to 64 GPUs in place of a ring on one link; first values of inputs."""
    given = {each.name: each.values[0] for each in rate}
    ready, lazy = ready_of(workload, given["batch"], given["rate"]), stack(np.inf)[2]
    return {
        p: p * scaling_efficiency(best_theta_step(ready, lazy, line)) / 100
        for p, line in lines.items()
        if p >= 4
    }


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    images.arguments(lesson)
    lesson.argument(
        "--theta",
        type=kit.threshold_bytes,
        default=2**18,
        metavar="BYTES",
        help="threshold of lazy allreduce in the measured steps",
    )
    lesson.argument(
        "--machine",
        type=Path,
        metavar="FILE",
        help="predict for this machine too: a file that this lesson wrote",
    )
    lesson.main(measure, draw)
