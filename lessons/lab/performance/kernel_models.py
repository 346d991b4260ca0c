"""Lesson 15: kernels measured on this machine, and two models fitted to them.

samples, training = kernel_models.measure(run, held_out)    (training set, held-out set), a record
models, seen = kernel_models.learn(run, *samples)           roofline and perceptrons
"""

import time
from dataclasses import replace

import kit
from lab.performance import kernel_times
from refgf.papers.barrachina import kernels
from refgf.papers.barrachina.kernels import DIRECTIONS

MOST_FLOPS = 1e9  # forward: almost three times the largest kernel of the held-out steps


def measure(run: kit.Run, network_shapes: dict):
    """((training, held out), a description of the training set).

    Held out are a quarter of the shapes, and all shapes of the network.
    """
    run.section("Kernels measured on this machine")
    counts = run.quick({"conv": 40, "fc": 20}, {"conv": 300, "fc": 150}, {"conv": 600, "fc": 300})
    rounds, most = run.quick(1, 3, 4), run.quick(MOST_FLOPS, MOST_FLOPS, 3 * MOST_FLOPS)
    network = {replace(shape, batch=1) for shape in network_shapes.values()}
    drawn = [
        shape
        for kind, count in counts.items()
        for shape in kernels.draw_shapes(kind, count, seed=1, most_flops=most)
    ]
    shapes = [shape for shape in drawn if replace(shape, batch=1) not in network]
    timer = kernel_times.timer(run)
    start_s = time.perf_counter()
    samples = kernels.measure(shapes, timer, rounds)
    took_s = time.perf_counter() - start_s
    by_kind = [[s for s in samples if s.shape.kind == kind] for kind in counts]
    split = [kernels.held_out(some, seed=1) for some in by_kind]
    training, unseen = ([s for part in split for s in part[i]] for i in (0, 1))
    repeated = kernels.measure([s.shape for s in unseen], timer, rounds, seed=100)
    again = kernels.repeatability(unseen, repeated)
    run.say(f"training set: {len(training)} kernels of random shapes and batch sizes;")
    run.say(
        f"held out: {len(unseen)} others; forward and backward, the minimum of {rounds} rounds;"
    )
    run.say(f"measured in {took_s:.0f} s")
    run.say(f"measured twice, the held-out kernels differ by {again:.1%} (median):")
    run.say("no model can be better")
    sizes = {"shapes": len(training), "unseen": len(unseen), "rounds": rounds}
    return (training, unseen), sizes | {"seconds": took_s, "repeatability": again}


def learn(run: kit.Run, training, unseen):
    """({name: model}, each held-out kernel with its predictions)"""
    run.section("Held-out kernels: roofline against perceptrons")
    start_s = time.perf_counter()
    settings = run.quick({"hidden": (16,), "members": 1}, {})
    models = {
        "roofline": kernels.Roofline(training),
        "perceptrons": kernels.Perceptrons(training, **settings),
    }
    run.say(f"fitted in {time.perf_counter() - start_s:.0f} s;")
    run.say("error |predicted / measured - 1|: median, 90th percentile")
    report(run, {name: kernels.errors(model, unseen) for name, model in models.items()})
    seen = [
        {"kind": s.shape.kind, "direction": d, "measured_s": s.seconds(d)}
        | {name: model.seconds(s.shape, d) for name, model in models.items()}
        for s in unseen
        for d in DIRECTIONS
    ]
    return models, seen


def report(run: kit.Run, errors: dict) -> None:
    """Print the errors. errors: {model: {(kind, direction): errors, ascending}}"""
    roofline, rows = errors["roofline"], []
    for key in roofline:
        found = [percentiles(by_key[key]) for by_key in errors.values()]
        rows.append([*key, len(roofline[key]), *found])
    pooled = [sorted(e for some in by_key.values() for e in some) for by_key in errors.values()]
    rows.append(["all", "", len(pooled[0]), *map(percentiles, pooled)])
    run.table(["kind", "direction", "kernels", *errors], rows)


def percentiles(errors: list[float]) -> str:
    return f"{errors[len(errors) // 2]:.1%}, {errors[9 * len(errors) // 10]:.0%}"
