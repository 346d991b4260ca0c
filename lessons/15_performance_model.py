"""Lesson 15: a performance model - kernels that were measured, layers and clusters that were not.

    mpiexec -n 8 python lessons/15_performance_model.py          (--width, --image-size, --quick, --full, --plot)

QUESTION    How long will a layer take that nobody has run yet, at a batch size that nobody has tried? And which resource of
            a cluster that nobody has built would limit a training step?
IDEA        Barrachina et al. put a step together from pieces: the layers' kernels, and the ring between the ranks. The ring
            has a formula. A kernel has a roofline, its two physical limits; or small multi-layer perceptrons, that learn
            from measured kernels how fast each shape is computed. (refgf/papers/barrachina/kernels.py, roofline.py)
PREDICTION  With the peak F flop/s and the memory bandwidth W of a node, p ranks, n elements, alpha and beta of the links:

                kernel      max(flops / F, bytes / W)         or flops / exp(perceptron(logarithms of sizes, flops, bytes))
                ring        2(p-1) (alpha + 4n/p beta)           beside the rest of the backward pass
                step        max(end of the kernels, end of the last ring)

Before you run it, write down: by how many percent will the roofline miss a kernel, in the middle (median)? By how many the
perceptrons? And how fast must the links of 64 GPUs be before ResNet-50 at 64 images a GPU stops waiting for them?

This is weak scaling: in the study each rank brings its own batch, whatever p is. Rank 0 alone measures, the others sleep:
kernels need no communication.

WHAT YOU SHOULD SEE    The roofline, with its roofs fitted through the middle of the kernels, is wrong both ways, by about a
            quarter in the middle and by far more at worst: it knows nothing of start-ups, of narrow matrices, of copies
            into windows. Perceptrons miss kernels they have not seen by five to ten percent in the middle, little more than
            the clock misses itself (compare the line "measured twice"; on a busy machine both grow). By the roofline,
            convolutions are limited by flops at any batch, fully connected layers by memory up to some tens of images,
            normalisation and pooling always. AlexNet waits for links that ResNet-50 does not wait for any more. Larger
            batches take weight from the network, faster nodes and more ranks put weight on it; ResNet-50's bottleneck
            becomes first the memory, when only the flops grow, and the network when the ranks do.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/15_performance_model.py)
    1. From which batch size on is fc6 of AlexNet limited by flops, not memory, on a V100? Derive it, then look at the table.
    2. Let a perceptron learn the time itself, with the squares of its errors in seconds. Which kernels does it spoil?
    3. Twice as fast nodes: how much faster must the links become, so that the step takes half as long?
"""

import refgf.launch  # noqa: F401  before MPI starts

import time
from dataclasses import replace
from functools import partial

import numpy as np

import kit
from lab import kernel_times
from kit.layers import measured_node
from lab.performance_picture import draw
from refgf.comm import ring
from refgf.nn.workspace import Workspace
from refgf.oracle.definitions.network import conv, conv_backward
from refgf.oracle.definitions.rounding import gamma
from refgf.papers.barrachina import kernels
from refgf.papers.barrachina import roofline
from refgf.predict.cost import Link, ring_allreduce_s
from refgf.papers.barrachina.kernels import DIRECTIONS, KernelShape
from refgf.papers.scaling.simulate import from_schedules
from refgf.papers.scaling.systems import System
from refgf.papers.scaling.systems import step as predicted_step
from refgf.papers.scaling.workloads import alexnet, resnet50
from refgf.training.step import replica

SMALL = [
    KernelShape("conv", 2, 6, 3, 4, 3, 1, 1),
    KernelShape("conv", 3, 9, 4, 5, 5, 2, 2),
    KernelShape("fc", 5, 1, 7, 3),
]
STEP_BATCHES = (5, 10, 20)  # none of them is in kernels.BATCHES
V100 = roofline.Node(15.7e12, 900e9)  # data sheet, float32
BASE = {
    "batch": 64,
    "flops": 15.7e12,
    "memory": 900e9,
    "link": 7e9,
    "ranks": 64,
}  # V100s on 56 Gbit/s
ALPHA_S = (
    7.9e-6  # fitted to 16 GPUs on 56 Gbit/s InfiniBand (verified: MG-WFBP's code; 235.8 us / 30)
)
SYSTEM = System("lazy allreduce, float32", threshold_bytes=2**22)
NETWORKS = {"AlexNet": alexnet, "ResNet-50": resnet50}


def measure(run: kit.Run) -> dict:
    return run.on_rank_0(lambda: model(run)) or {}


def model(run: kit.Run) -> dict:
    """Everything, on rank 0."""
    network, held_back = network_of(run)
    check_against_oracle(run, network)
    samples, told = measure_kernels(run, held_back)
    models, seen = learn(run, *samples)
    result = {"training": told, "kernels": seen, "steps": predict_steps(run, network, models)}
    result["layers"] = limits(run)
    return result | study(run)


def network_of(run: kit.Run):
    """(an AlexNet to predict the steps of, its shapes at batch 1: no kernel of these sizes is learned from)"""
    from refgf.nn.alexnet import AlexNet

    width, size = (
        run.options.width or run.quick(1 / 8, 1 / 4),
        run.options.image_size or run.quick(67, 131),
    )
    shapes = kernels.shapes_of(alexnet(100, size, width), 1)
    return replica(AlexNet(100, size, width), seed=1).network, shapes


# ---- one step: what a kernel is to a model ----


def check_against_oracle(run: kit.Run, network) -> None:
    run.section("The oracle")
    for shape in SMALL:
        check_kernel(shape)
    counted = {
        layer.name: layer.flops(3) for layer in network.layers if layer.name[:2] in ("co", "fc")
    }
    workload = alexnet(network.num_classes, network.image_shape[0], width_of(network))
    planned = {
        name: tuple(shape.flops(d) for d in DIRECTIONS)
        for name, shape in kernels.shapes_of(workload, 3).items()
    }
    if counted != planned:
        raise AssertionError(f"flops of the layers: counted {counted}, planned {planned}")
    link = Link(3e-5, 8e-9, 2e-10)
    ranks = run.quick((2, 3, 8), range(1, 33))
    for p in ranks:
        for n in (0, p - 1, 1000):
            schedules = [ring.allreduce(r, p, n) for r in range(p)]
            if abs(ring_allreduce_s(p, n, 4, link) - from_schedules(schedules, 4, link)) > 1e-12:
                raise AssertionError(
                    f"ring on {p} ranks, {n} elements: formula and schedule differ"
                )
    run.say(
        "the kernels that are timed compute what the definition says, within the bound of rounding; their flops are those\n"
        f"that the network counts; the ring's formula is the time of its schedule on up to {ranks[-1]} ranks"
    )
    shape = KernelShape("conv", 8, 27, 24, 64, 5, 1, 2)
    flops, nbytes = shape.flops("forward"), shape.bytes("forward")
    times = kit.seconds(flops / V100.flops), kit.seconds(nbytes / V100.bandwidth)
    run.say(
        f"one kernel, {shape}:\n{flops / 1e6:.0f} Mflop and {nbytes / 1e6:.1f} MB, {flops / nbytes:.0f} flops a byte; on a "
        f"V100 max({times[0]}, {times[1]}): limited by {V100.limit(flops, nbytes)}"
    )


def width_of(network) -> float:
    return next(layer for layer in network.layers if layer.name == "fc6").outputs / 4096


def check_kernel(shape: KernelShape) -> None:
    """Forward and backward in float64 against the definition; both err by at most gamma_n of the products' magnitudes."""
    layer, x, dy = kernel_times.layer_of(
        shape, Workspace(dtype=np.float64), np.random.default_rng(1)
    )
    bias, weight = layer.parameters
    w = weight.reshape(shape.kernel, shape.kernel, shape.channels, shape.outputs)
    x4, dy4 = (
        a.reshape(shape.batch, side, side, -1)
        for a, side in ((x, shape.side), (dy, shape.output_side))
    )
    where = {"stride": shape.stride, "pad": shape.padding}
    got = [layer.forward(x, True).reshape(dy4.shape).copy()]
    got += [layer.backward(dy, lambda k: None), layer.gradients[1], layer.gradients[0]]
    wanted = conv(x4, w, bias, **where), *conv_backward(x4, w, dy4, **where)
    sizes = (
        conv(abs(x4), abs(w), abs(bias), **where),
        *conv_backward(abs(x4), abs(w), abs(dy4), **where),
    )
    terms = shape.patch + 1, shape.kernel**2 * shape.outputs, shape.rows, shape.rows
    for mine, theirs, size, n in zip(got, wanted, sizes, terms):
        if (
            mine is not None
            and not (
                abs(mine.reshape(theirs.shape) - theirs) <= 2 * gamma(n, 2.0**-53) * size
            ).all()
        ):
            raise AssertionError(f"{shape}: not the definition's numbers")


# ---- the measurement: kernels, and models that learn from them ----


def measure_kernels(run: kit.Run, held_back):
    """((training, held out), what the training set is). Held out: a quarter of the shapes, and all of the network's."""
    run.section("Kernels measured on this machine")
    counts, rounds = (
        run.quick({"conv": 40, "fc": 20}, {"conv": 300, "fc": 150}, {"conv": 600, "fc": 300}),
        run.quick(1, 3, 4),
    )
    network = {replace(shape, batch=1) for shape in held_back.values()}
    drawn = [
        shape
        for kind, count in counts.items()
        for shape in kernels.draw_shapes(kind, count, seed=1)
    ]
    shapes, timer = (
        [shape for shape in drawn if replace(shape, batch=1) not in network],
        kernel_times.timer(),
    )
    start_s = time.perf_counter()
    samples = kernels.measure(shapes, timer, rounds)
    seconds = time.perf_counter() - start_s
    split = [
        kernels.held_out([s for s in samples if s.shape.kind == kind], seed=1) for kind in counts
    ]
    training, unseen = ([s for part in split for s in part[i]] for i in (0, 1))
    again = kernels.repeatability(
        unseen, kernels.measure([s.shape for s in unseen], timer, rounds, seed=100)
    )
    told = {
        "shapes": len(training),
        "unseen": len(unseen),
        "rounds": rounds,
        "seconds": seconds,
        "repeatability": again,
    }
    run.say(
        f"training set: {len(training)} kernels of random shapes and batch sizes, held out: {len(unseen)} others; forward "
        f"and backward, the least of {rounds} rounds; measured in {seconds:.0f} s"
    )
    run.say(
        f"measured twice, the held-out kernels differ by {again:.1%} in the middle: no model can be better than that"
    )
    return (training, unseen), told


def learn(run: kit.Run, training, unseen):
    """({name: model}, each held-out kernel with its predictions)"""
    run.section("Held-out kernels: roofline against perceptrons")
    start_s = time.perf_counter()
    settings = run.quick({"hidden": (16,), "members": 1}, {})
    models = {
        "roofline": kernels.Roofline(training),
        "perceptrons": kernels.Perceptrons(training, **settings),
    }
    run.say(
        f"fitted in {time.perf_counter() - start_s:.0f} s; error |predicted / measured - 1|, median and 90 of 100:"
    )
    errors = {name: kernels.errors(model, unseen) for name, model in models.items()}
    rows = [
        [*key, len(errors["roofline"][key]), *(percentiles(errors[name][key]) for name in models)]
        for key in errors["roofline"]
    ]
    everything = {
        name: sorted(e for values in errors[name].values() for e in values) for name in models
    }
    rows.append(
        [
            "all",
            "",
            len(everything["roofline"]),
            *(percentiles(everything[name]) for name in models),
        ]
    )
    run.table(["kind", "direction", "kernels", *models], rows)
    seen = [
        {"kind": s.shape.kind, "direction": d, "measured_s": s.seconds(d)}
        | {name: model.seconds(s.shape, d) for name, model in models.items()}
        for s in unseen
        for d in DIRECTIONS
    ]
    return models, seen


def percentiles(errors) -> str:
    return f"{errors[len(errors) // 2]:.1%}, {errors[9 * len(errors) // 10]:.0%}"


def predict_steps(run: kit.Run, network, models) -> list[dict]:
    """Steps of one rank at batch sizes that no kernel was learned at, layer by layer."""
    run.section(
        f"Held-out steps: AlexNet of width {width_of(network):g} on {network.image_shape[0]} x "
        f"{network.image_shape[1]} pixels"
    )
    workload, steps, rows = (
        alexnet(network.num_classes, network.image_shape[0], width_of(network)),
        [],
        [],
    )
    for batch in STEP_BATCHES:
        measured = measured_step(network, batch, run.quick(3, 7))
        shapes = kernels.shapes_of(workload, batch)
        step = {"batch": batch, "measured": {name: measured[name] for name in shapes}}
        step["rest_s"] = sum(sum(t) for name, t in measured.items() if name not in shapes)
        for name, model in models.items():
            step[name] = {
                layer: [model.seconds(shape, d) for d in DIRECTIONS]
                for layer, shape in shapes.items()
            }
        steps.append(step)
        rest_s = steps[0]["rest_s"] * batch / steps[0]["batch"]
        total = {
            name: sum(map(sum, step[name].values()))
            + (step["rest_s"] if name == "measured" else rest_s)
            for name in ("measured", *models)
        }
        step["totals_s"] = total
        rows.append(
            [
                batch,
                kit.seconds(total["measured"]),
                f"{step['rest_s'] / total['measured']:.0%}",
                *(
                    f"{kit.seconds(total[m])} ({total[m] / total['measured'] - 1:+.0%})"
                    for m in models
                ),
            ]
        )
    run.table(["images", "measured step", "of it other layers", *models], rows)
    run.say(
        f"Other layers (normalisation, pooling, ReLU, dropout) are CALIBRATED: their time at {STEP_BATCHES[0]} images, in "
        "proportion to the images."
    )
    run.table(
        ["layer", "measured", *models],
        [
            [
                name,
                kit.seconds(sum(times)),
                *(
                    f"{kit.seconds(sum(step[m][name]))} ({sum(step[m][name]) / sum(times) - 1:+.0%})"
                    for m in models
                ),
            ]
            for name, times in step["measured"].items()
        ],
    )
    return steps


def measured_step(network, batch: int, repeats: int) -> dict:
    """{layer: [forward_s, backward_s]} of a step without exchange and update: the least of the repeats, processor time."""
    images = np.random.default_rng(1).standard_normal(
        (batch, *network.image_shape), dtype=np.float32
    )
    labels, times = np.zeros(batch, int), {layer.name: [] for layer in network.layers}
    for _ in range(repeats + 1):
        last_s = time.thread_time()

        def mark(name, what):
            nonlocal last_s
            now_s = time.thread_time()
            times[name].append(now_s - last_s)
            last_s = now_s

        network.loss(images, labels, batch, mark)
        network.backward(lambda i: None, mark)
    return {
        name: [min(t[2::2]), min(t[3::2])] for name, t in times.items()
    }  # without the first step


# ---- which resource limits what ----


def limits(run: kit.Run) -> dict:
    """Roofline of every layer on this machine and on a V100."""
    run.section("Which resource limits which layer (by the roofline)")
    nodes = {"this machine": measured_node(), "V100": V100}
    for name, node in nodes.items():
        run.say(
            f"{name}: {node.flops / 1e9:,.0f} Gflop/s, {node.bandwidth / 1e9:,.0f} GB/s: flops decide from "
            f"{node.flops / node.bandwidth:.0f} flops a byte on"
        )
    batches, found, rows = (1, 8, 64), {}, []
    for layer in alexnet().layers:
        work = {b: (b * layer.forward_flops, layer.forward_bytes(b, 4)) for b in batches}
        rows.append(
            [
                layer.name,
                *(f"{f / m:.1f}" for f, m in work.values()),
                *(node.limit(*work[b]) for node in nodes.values() for b in batches),
            ]
        )
    run.table(
        [
            "AlexNet, forward",
            *(f"flops/byte {b}" for b in batches),
            *(f"{n}, {b}" for n in nodes for b in batches),
        ],
        rows,
    )
    for name, make in NETWORKS.items():
        times = {
            (n, b): roofline.layer_times(make(), b, node)
            for n, node in nodes.items()
            for b in batches
        }
        found[name] = {
            f"{n}, {b} images": share_of_flops(layers) for (n, b), layers in times.items()
        }
        run.say(
            f"{name}: share of the step's time that flops limit, the rest is memory: "
            + ", ".join(f"{what} {share:.0%}" for what, share in found[name].items())
        )
    points = [
        [layer.name, 8 * layer.forward_flops, layer.forward_bytes(8, 4)]
        for layer in alexnet().layers
    ]
    return {
        "nodes": {name: vars(node) for name, node in nodes.items()},
        "shares": found,
        "points": points,
    }


def share_of_flops(layers) -> float:
    passes = [
        (limit, s)
        for t in layers
        for limit, s in ((t.forward_limit, t.forward_s), (t.backward_limit, t.backward_s))
    ]
    return sum(s for limit, s in passes if limit == "flops") / sum(s for _, s in passes)


def point(workload, **changes) -> roofline.Point:
    """The study's point for BASE with these changes."""
    given = BASE | changes
    node, link = roofline.Node(given["flops"], given["memory"]), Link(ALPHA_S, 1 / given["link"])
    return roofline.study(
        workload, given["batch"], node, link, given["ranks"], partial(predicted_step, system=SYSTEM)
    )


def study(run: kit.Run) -> dict:
    """Every resource from 1/16 to 16 times, one at a time; then a map over batch and links for each network."""
    run.section(
        f"The study (PREDICTED): {BASE['ranks']} V100s, {BASE['batch']} images each, 56 Gbit/s, {SYSTEM.name} of 4 MiB"
    )
    factors, sweeps = [2.0**k for k in run.quick((-4, 0, 4), range(-4, 5))], {}
    for name, make in NETWORKS.items():
        workload, rows = make(), []
        for resource, base in BASE.items():
            points = [
                point(workload, **{resource: type(base)(base * factor)}) for factor in factors
            ]
            sweeps.setdefault(name, {})[resource] = [
                {
                    "factor": f,
                    "images_per_s": p.samples_per_s,
                    "shares": p.shares,
                    "bottleneck": p.bottleneck,
                }
                for f, p in zip(factors, points)
            ]
            rows.append(
                [
                    resource,
                    *(
                        f"{p.samples_per_s:,.0f} {p.bottleneck}"
                        for p in points[:: max(1, len(points) // 4)]
                    ),
                ]
            )
        run.table(
            [f"{name}: images/s", *(f"x {f:g}" for f in factors[:: max(1, len(factors) // 4)])],
            rows,
        )
    batches, links = (
        [2**k for k in run.quick((3, 9), range(2, 11))],
        [1e8 * 2.0**k for k in run.quick((3, 9), range(12))],
    )
    maps = {
        name: [
            [point(make(), batch=batch, link=link).bottleneck for batch in batches]
            for link in links
        ]
        for name, make in NETWORKS.items()
    }
    enough = {
        name: next(
            (link for link in links if point(make(), link=link).bottleneck != "network"), None
        )
        for name, make in NETWORKS.items()
    }
    told = {
        name: f"{8e-9 * w:.3g} Gbit/s" if w else "more than these" for name, w in enough.items()
    }
    run.say(f"the network stops being the bottleneck at {BASE['batch']} images a rank from: {told}")
    return {
        "sweeps": sweeps,
        "map": {"batches": batches, "links": links, "bottlenecks": maps},
        "base": BASE,
    }


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    lesson.argument("--width", type=float, help="share of AlexNet's channels in the held-out steps")
    lesson.argument(
        "--image-size",
        type=kit.positive,
        metavar="PIXELS",
        help="of the held-out steps, 67 or more",
    )
    lesson.main(measure, draw)
