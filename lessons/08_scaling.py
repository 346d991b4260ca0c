r"""Lesson 08: scaling - from the ranks that you have to the 2048 GPUs that you do not have.

    mpiexec -n 8 python lessons/08_scaling.py     (--width, --batch, --theta BYTES, --quick, ...)
    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- \
        python lessons/08_scaling.py
    ... --machine FILE                            (predict also for a machine measured elsewhere)

QUESTION    The papers speak of 64, 512 and 2048 GPUs. How much of that can be known with eight
            ranks and a formula?
IDEA        Measure where you can, on 1, 2, 4 and 8 ranks. Fit alpha and beta. Draw the formula
            through the points, and only then past them. Every input has a source. An input that is
            not known is a range. (refgf/papers/scaling/scaling.py, headlines.py, rows.py)
PREDICTION  A ring of p ranks takes T(m) = 2(p-1) alpha + 2(p-1)/p beta m. So the latencies grow
            with p and the bytes do not.

                step(p)             = end of the last call; a call starts when its gradients are
                                      ready and the call before it has ended
                scaling efficiency  = T(p ranks, exchange off) / T(p ranks, exchange on), in percent
                throughput          = p x scaling efficiency, in ranks without exchange

Before you run it, write down: which technique gains on 2048 ranks what it gains on 8? Which gains
nothing there? And how much of 512 will GradientFlow reach on 512 GPUs, computed from a single GPU's
rate and the links?

This is weak scaling: each rank brings a batch of its own, whatever p is.

WHAT YOU SHOULD SEE    Measured points near their curves, nearest on an idle machine. What ranks on
            the same cores lose to each other is an input, measured separately (kit/step_times.py,
            call_times.py, calls.py). A rank without a core when its message arrives is not.
            The curves diverge with the number of ranks. Eager exchange is dominated by latencies,
            2(p-1) alpha for each of its calls. Lazy allreduce pays them a few times. Float16 and
            CSC cut the bytes. ResNet-50 (161 small gradients) needs lazy allreduce most, AlexNet
            (few, large gradients) CSC. Overlap by itself gains next to nothing where one latency
            per gradient outlasts the backward pass.
            MG-WFBP's simulated Ethernet is slower than the same authors' fitted lines (crosses),
            because its sums take 2.5 ns per byte.
            410.2 and 1.5 minutes lie in their intervals. These are wide because the rate of one GPU
            at a batch of 128 is not known well. 2.5 lies in an interval so wide that it says
            little: neither the allreduce nor the overlap of those systems is stated. Jia et al.'s
            11x is just beyond what the fused and hierarchical exchange can give by itself.
            The sixteen rows: half of the orders come out. On InfiniBand the model hides nearly all
            of WFBP's hundreds of short calls, so WFBP wins in the model. Measured, it loses, as if
            a call cost two to four latencies. (Agreeing on tensors would look like this: inferred.)
            On Ethernet in float16 MG-WFBP hides everything in the model, and 0.1 to 0.2 s per step
            of the measurement are in no input. Fitting one overhead per cluster improves the
            predicted times, but it never changes an order.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/08_scaling.py)
    1. At which p do the latencies of eager exchange take longer than ResNet-50 computes?
    2. Use the rate of a single GPU that follows from 410.2 and 1.5 minutes. What does the
       prediction say then, and what is it worth?
    3. Halving-doubling takes 2 log2 p steps. What does eager exchange gain by it on 2048 ranks,
       and what does lazy allreduce gain?
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

LATER = "float16, overlap"
KINDS = {
    "float32": Kind(),
    "float32, overlap": Kind(overlap=True),
    LATER: Kind(wire=np.float16, overlap=True),
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
        rank_subset.first(run, p, check_subset)
    check_formula(run)
    here = scale_here(run, train, theta, sizes)
    machine_file.measured(run, here["points"])
    result = run.on_rank_0(lambda: past_the_points(run, given)) or {}
    return {"here": here} | result


# ---- one step: the same training on fewer ranks ----


def check_subset(run: kit.Run) -> None:
    """The ring on these ranks gives the definition's bits and sends the definition's messages."""
    for n in (0, run.size - 1, 1000):
        everybody = [
            np.random.default_rng([n, r]).standard_normal(n).astype(np.float32)
            for r in range(run.size)
        ]
        x, messages, nbytes = everybody[run.rank].copy(), run.comm.messages, run.comm.bytes
        collective(run.comm, ring.allreduce)(x)
        place = f"ring allreduce of {n} elements on rank {run.rank} of {run.size}"
        if not same_bits(x, ring_allreduce(everybody)[run.rank]):
            raise AssertionError(f"{place}: got other bits than defined")
        wanted, elements = ring_traffic(n, run.size, run.rank)
        got = run.comm.messages - messages, run.comm.bytes - nbytes
        if got != (wanted, 4 * elements):
            raise AssertionError(
                f"{place}: got {got} messages, bytes; wanted {wanted}, {4 * elements}"
            )
    run.say(
        f"ring on {run.size} ranks, n = 0, p-1, 1000: bits, messages and bytes of the definition"
    )


def check_formula(run: kit.Run) -> None:
    """The formula used for 2048 ranks is the time of the schedule, on up to 32 ranks."""
    link = Link(3e-5, 8e-9, 2e-10)
    for p in run.quick((1, 2, 3, 8), range(1, 33)):
        schedules = [ring.allreduce(r, p, 1000) for r in range(p)]
        if abs(ring_allreduce_s(p, 1000, 4, link) - from_schedules(schedules, 4, link)) > 1e-12:
            raise AssertionError(f"ring on {p} ranks: got a formula that differs from the schedule")
    run.say("the formula of the ring is the time of its schedule, uneven slices included")


# ---- the measurement: 1, 2, 4, 8 ranks ----


def scale_here(run: kit.Run, data, theta: float, sizes: list[int]) -> dict:
    run.section(
        f"{run.options.batch} images per rank, theta {kit.number_of_bytes(theta)}: this cluster"
    )
    points = []
    for p in sizes:
        point = rank_subset.first(run, p, lambda subset: measure_subset(subset, data, theta))
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
        run.say(f"alpha and beta of the rings on {point['ranks']} ranks:")
        for kind, link in point["links"].items():
            beta = f"{1e9 * link.beta_s_per_byte:.3g} ns/byte"
            run.say(f"    {kind}: {kit.seconds(link.alpha_s)}, {beta}")
        share, choice_s = point["calls"][LATER].kept_share, point["selection_s"][True]
        run.say(f"    during a call computing keeps {share:.0%} of its speed")
        run.say(f"    CSC's choice adds {kit.seconds(choice_s)}")
    run.table(
        ["ranks", "exchange off", *map(short, names)],
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
        run.say(f"steps on 2 ranks and more: {kit.errors_in_words(compared)}")
    beyond = [p for p in run.quick((64, 2048), FAR) if p > run.size]
    curves = {name: [] for name in names}
    for p in beyond:
        for name, predicted in predict_here(points[-1], p, theta, elements).items():
            curves[name].append(in_ranks_here(points[-1], p, predicted))
    run.say("PREDICTED for more ranks, on cores and links like those of the last row:")
    run.table(
        ["ranks", *map(short, names)],
        [[p, *(f"{curves[n][i]:.1f}" for n in names)] for i, p in enumerate(beyond)],
    )
    return {"points": points, "beyond": beyond, "curves": curves, "theta": theta}


def measure_subset(run: kit.Run, data, theta: float) -> dict:
    """Steps of all techniques on these ranks, and the rings that the prediction is fitted to."""
    count = run.quick(4, 14, 30)
    off, ready_s = flow.without_exchange(run, data, images.steps(run, data, count))
    found, steps, selection_s = calls.measure(run, data, KINDS, 21), {}, {}
    for system in stack(theta):
        half = system.itemsize == 2
        arguments = {"wire": np.float16, "loss_scale": LossScale(SCALE)} if half else {}
        arguments["grouping"] = Theta(system.threshold_bytes)
        arguments["csc"] = system.percent and flow.csc(run, data, system.percent)
        with flow.new(run, data, overlap=system.overlap, **arguments) as flow_:
            steps[system.name] = flow.time_steps(run, flow_, images.steps(run, data, count))
            if system.percent:  # with and without the norms' call
                compute_s = found[kind_of(system)].compute_s
                for norms in (True, False):
                    batches = images.steps(run, data, count)
                    seconds = calls.selection_s(run, flow_, batches, compute_s, norms)
                    selection_s[norms] = max(0.0, seconds)
    links = {kind: link_of(each, run.size) for kind, each in found.items()}
    measured = {name: run.size * off.median_s / timing.median_s for name, timing in steps.items()}
    return {
        "ranks": run.size,
        "alone": off,
        "ready_s": ready_s,
        "steps": steps,
        "links": links,
        "calls": found,
        "selection_s": selection_s,
        "measured": measured,
    }


def kind_of(system) -> str:
    """The key of KINDS for the calls of this system."""
    return ("float16" if system.itemsize == 2 else "float32") + ", overlap" * system.overlap


def link_of(each: calls.Calls, size: int) -> Link:
    """The link on which a ring of `size` ranks takes this long: the inverse of `ring_line`."""
    if size == 1:  # one rank sends nothing
        return Link(0.0, 0.0)
    line = fit_line(each.queued.points).line
    alpha_s = max(line.a_s, each.seconds(0)) / (2 * (size - 1))
    return Link(alpha_s, line.b_s_per_byte * size / (2 * (size - 1)))


def short(name: str) -> str:
    """The name of a technique in a table: "eager" for "eager, float32, no overlap"."""
    return name.partition(",")[0]


def in_ranks_here(point, p: int, timeline) -> float:
    """Throughput, in ranks without exchange. timeline: a PredictedStep on p ranks."""
    return p * point["alone"].median_s / timeline.step_s


def predict_here(point, p: int, theta: float, elements) -> dict:
    """{technique: PredictedStep} on p ranks whose cores and links are those of this point.

    For the point's own number of ranks the calls are as measured, else those of the fitted ring.
    """
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
    """On rank 0: arithmetic only. given: a Machine measured elsewhere, or None."""
    shown = []  # inputs whose sources are on the screen
    elsewhere = {given.name: machine_file.scale(run, given, FAR)} if given else {}
    curves = {net: predict_clusters(run, net, shown) for net in NETWORKS}
    return {
        "machine_file": elsewhere,
        "far": curves,
        "headlines": headlines(run, shown),
        "rows": rows(run),
    }


def predict_clusters(run: kit.Run, net: str, shown: list) -> dict:
    """Throughput of each technique over one GPU on published clusters: intervals, best theta."""
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
            ["GPUs", *map(short, systems)],
            [[p, *(span(found[cluster][name][p]) for name in systems)] for p in sizes],
        )
        show_inputs(run, (*rate, *link), shown)
        found[cluster] |= {"fitted lines": fitted(workload, rate, FITTED[cluster])}
    return found


def in_gpus(efficiencies: dict) -> dict:
    """{p: (low, high)} of p times the scaling efficiency, from percent."""
    return {p: tuple(p * percent / 100 for percent in ends) for p, ends in efficiencies.items()}


def fitted(workload, rate, lines) -> dict:
    """Dense lazy allreduce with the fitted lines of 4 to 64 GPUs; the first value of each input."""
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
        help="predict also for this machine: a file that this lesson wrote",
    )
    lesson.main(measure, draw)
