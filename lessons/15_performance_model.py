"""Lesson 15: a performance model - measured kernels predict layers and clusters nobody has run.

    mpiexec -n 8 python lessons/15_performance_model.py     (--width, --image-size, --quick ...)

QUESTION    How long will a layer take that nobody has run yet, at a batch size that nobody has
            tried? And which resource of a cluster that nobody has built would limit a step?
IDEA        Barrachina et al. build a step from two parts: the kernels of the layers, and the ring
            between the ranks. The ring has a formula. A kernel has a roofline, its two physical
            limits. Or small multi-layer perceptrons learn from measured kernels how fast each shape
            is computed.
            (refgf/papers/barrachina/kernels.py, refgf/papers/barrachina/roofline.py)
PREDICTION  A node has the peak F flop/s and the memory bandwidth W. There are p ranks, n elements,
            and links with alpha and beta:

                kernel    max(flops / F, bytes / W)
                          or flops / exp(perceptron(logarithms of sizes, flops, bytes))
                ring      2(p-1) (alpha + 4n/p beta), concurrent with the rest of backward
                step      max(end of the kernels, end of the last ring)

Before you run it, write down: by what percentage will the roofline miss a kernel (median)? And the
perceptrons? How fast must the links of 64 GPUs be before ResNet-50 at 64 images a GPU no longer
waits for them?

This is weak scaling: in the study each rank brings its own batch, for any p. Rank 0 measures while
the others sleep, because kernels need no communication.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/15_performance_model.py)
    1. From which batch size on do flops, not memory, limit AlexNet's fc6 on a V100? Derive it, then
       look at the table.
    2. Let a perceptron learn the time itself, with squared errors in seconds. Which kernels does it
       predict badly?
    3. Nodes become twice as fast: how much faster must the links become to halve the step?
"""

import refgf.launch  # noqa: F401  before MPI starts

import time
from dataclasses import replace

import kit
from lab import bottleneck_study, kernel_times
from lab.bottleneck_study import NETWORKS, V100
from kit.layers import measured_node
from lab.performance_picture import draw
from lab.performance_claims import CLAIMS
from refgf.comm import ring
from refgf.papers.barrachina import kernels, roofline
from refgf.predict.cost import Link, ring_allreduce_s
from refgf.papers.barrachina.kernels import DIRECTIONS, KernelShape
from refgf.papers.scaling.simulate import from_schedules
from refgf.papers.scaling.workloads import alexnet
from refgf.training.step import replica

SMALL = [
    KernelShape("conv", 2, 6, 3, 4, 3, 1, 1),
    KernelShape("conv", 3, 9, 4, 5, 5, 2, 2),
    KernelShape("fc", 5, 1, 7, 3),
]
STEP_BATCHES = (5, 10, 20)  # none of them is in kernels.BATCHES


def measure(run: kit.Run) -> dict:
    return run.on_rank_0(lambda: model(run)) or {}


def model(run: kit.Run) -> dict:
    """All measurements and predictions, on rank 0."""
    network, held_out = network_of(run)
    check_against_oracle(run, network)
    samples, training = measure_kernels(run, held_out)
    models, seen = learn(run, *samples)
    result = {"training": training, "kernels": seen, "steps": predict_steps(run, network, models)}
    result["layers"] = limits(run)
    return result | bottleneck_study.study(run)


def network_of(run: kit.Run):
    """(an AlexNet whose steps are predicted, its shapes at batch 1, which are held out)"""
    from refgf.nn.alexnet import AlexNet

    width = run.options.width or run.quick(1 / 8, 1 / 4)
    size = run.options.image_size or run.quick(67, 131)
    shapes = kernels.shapes_of(alexnet(100, size, width), 1)
    return replica(AlexNet(100, size, width), seed=1).network, shapes


# ---- one kernel ----


def check_against_oracle(run: kit.Run, network) -> None:
    run.section("The oracle")
    for shape in SMALL:
        kernel_times.check(shape)
    counted = {
        layer.name: layer.flops(3) for layer in network.layers if layer.name[:2] in ("co", "fc")
    }
    workload = alexnet(network.num_classes, network.image_shape[0], width_of(network))
    planned = {
        name: tuple(shape.flops(d) for d in DIRECTIONS)
        for name, shape in kernels.shapes_of(workload, 3).items()
    }
    if counted != planned:
        raise AssertionError(f"flops of the layers: got {counted}; wanted {planned}")
    link = Link(3e-5, 8e-9, 2e-10)
    ranks = run.quick((2, 3, 8), range(1, 33))
    for p in ranks:
        for n in (0, p - 1, 1000):
            schedules = [ring.allreduce(r, p, n) for r in range(p)]
            if abs(ring_allreduce_s(p, n, 4, link) - from_schedules(schedules, 4, link)) > 1e-12:
                raise AssertionError(
                    f"ring on {p} ranks, {n} elements: formula and schedule differ in time"
                )
    run.say(
        "timed kernels: the definition's numbers within the bound of rounding, and the flops that "
        "the\nnetwork counts; ring: the formula equals the time of the schedule "
        f"on up to {ranks[-1]} ranks"
    )
    shape = KernelShape("conv", 8, 27, 24, 64, 5, 1, 2)
    flops, nbytes = shape.flops("forward"), shape.bytes("forward")
    times = kit.seconds(flops / V100.flops), kit.seconds(nbytes / V100.bandwidth)
    run.say(
        f"one kernel:\n{shape}\n    {flops / 1e6:.0f} Mflop and {nbytes / 1e6:.1f} MB, "
        f"{flops / nbytes:.0f} flops a byte; on a V100 max({times[0]}, {times[1]}): "
        f"limited by {V100.limit(flops, nbytes)}"
    )


def width_of(network) -> float:
    return next(layer for layer in network.layers if layer.name == "fc6").outputs / 4096


# ---- the measurement: kernels, and models that learn from them ----


def measure_kernels(run: kit.Run, network_shapes):
    """((training, held out), a description of the training set).

    Held out are a quarter of the shapes, and all shapes of the network.
    """
    run.section("Kernels measured on this machine")
    counts = run.quick({"conv": 40, "fc": 20}, {"conv": 300, "fc": 150}, {"conv": 600, "fc": 300})
    rounds = run.quick(1, 3, 4)
    network = {replace(shape, batch=1) for shape in network_shapes.values()}
    drawn = [
        shape
        for kind, count in counts.items()
        for shape in kernels.draw_shapes(kind, count, seed=1)
    ]
    shapes = [shape for shape in drawn if replace(shape, batch=1) not in network]
    timer = kernel_times.timer()
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
    description = {
        "shapes": len(training),
        "unseen": len(unseen),
        "rounds": rounds,
        "seconds": seconds,
        "repeatability": again,
    }
    run.say(
        f"training set: {len(training)} kernels of random shapes and batch sizes; "
        f"held out: {len(unseen)} others;\nforward and backward, the minimum of {rounds} rounds; "
        f"measured in {seconds:.0f} s"
    )
    run.say(
        f"measured twice, the held-out kernels differ by {again:.1%} (median): "
        "no model can be better"
    )
    return (training, unseen), description


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
        f"fitted in {time.perf_counter() - start_s:.0f} s; "
        "error |predicted / measured - 1|: median, 90th percentile"
    )
    errors = {name: kernels.errors(model, unseen) for name, model in models.items()}
    rows = [
        [*key, len(errors["roofline"][key]), *(percentiles(errors[name][key]) for name in models)]
        for key in errors["roofline"]
    ]
    pooled = {
        name: sorted(e for values in errors[name].values() for e in values) for name in models
    }
    rows.append(
        [
            "all",
            "",
            len(pooled["roofline"]),
            *(percentiles(pooled[name]) for name in models),
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


def with_error(predicted_s: float, measured_s: float) -> str:
    return f"{kit.seconds(predicted_s)} ({predicted_s / measured_s - 1:+.0%})"


def predict_steps(run: kit.Run, network, models) -> list[dict]:
    """Steps of one rank, layer by layer, at batch sizes that are not in the training set."""
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
        measured = kernel_times.step_times(network, batch, run.quick(3, 7))
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
                *(with_error(total[m], total["measured"]) for m in models),
            ]
        )
    run.table(["images", "measured step", "other layers", *models], rows)
    run.say(
        "Other layers (normalisation, pooling, ReLU, dropout) are CALIBRATED: "
        f"their time at {STEP_BATCHES[0]} images,\nin proportion to the images."
    )
    layers = [
        [
            name,
            kit.seconds(sum(times)),
            *(with_error(sum(step[m][name]), sum(times)) for m in models),
        ]
        for name, times in step["measured"].items()
    ]
    run.table(["layer", "measured", *models], layers)
    return steps


# ---- which resource limits what ----


def limits(run: kit.Run) -> dict:
    """Roofline of every layer on this machine and on a V100."""
    run.section("Which resource limits which layer (by the roofline)")
    nodes = {"this machine": measured_node(), "V100": V100}
    for name, node in nodes.items():
        run.say(
            f"{name}: {node.flops / 1e9:,.0f} Gflop/s, {node.bandwidth / 1e9:,.0f} GB/s: "
            f"flops are the limit from {node.flops / node.bandwidth:.0f} flops a byte"
        )
    batches, found, rows = (1, 8, 64), {}, []
    for layer in alexnet().layers:
        work = {b: (b * layer.forward_flops, layer.forward_bytes(b, 4)) for b in batches}
        rows.append(
            [
                layer.name,
                *(f"{f / m:.1f}" for f, m in work.values()),
                *(", ".join(node.limit(*work[b]) for b in batches) for node in nodes.values()),
            ]
        )
    run.table(
        [
            "AlexNet",
            *("flops/byte" if b == 1 else "" for b in batches),
            *nodes,
        ],
        rows,
    )
    run.say(
        f"forward pass; flops/byte and limits with {batches[0]}, {batches[1]}, {batches[2]} images"
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
        for n in nodes:
            shares = ", ".join(f"{found[name][f'{n}, {b} images']:.0%}" for b in batches)
            run.say(
                f"share of {name}'s step that flops limit, {n}: {shares}; memory limits the rest"
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


if __name__ == "__main__":
    lesson = kit.Lesson(
        __file__,
        __doc__,
        claims=CLAIMS,
        picture="Predicted against measured kernels; what limits each layer.",
    )
    lesson.argument("--width", type=float, help="share of AlexNet's channels in the held-out steps")
    lesson.argument(
        "--image-size",
        type=kit.positive,
        metavar="PIXELS",
        help="of the held-out steps, 67 or more",
    )
    lesson.main(measure, draw)
