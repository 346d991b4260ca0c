"""Lesson 03's second scene: this machine as a cluster, where the processor is the bottleneck.

Ranks compute a small network for real and share the cores. They compute one after another, enter
each call with cold caches, and compute slowly while it runs. These effects are measured separately
(kit/call_times.py) and used in the predictions. Where the latency of a call costs more than all
bytes, one call wins with overlap too, although it hides nothing.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np

import kit
from kit import axes, call_times, flow, images, rounding, step_times
from kit.replay import Size, replay_backward, sizes_of, time_steps
from lab.lazy import grouped_steps, latency_region, theta_sweep
from refgf.comm import direct, ring
from refgf.comm.agreement import agree
from refgf.comm.schedule import collective
from refgf.exchange.lazy import Theta
from refgf.exchange.pool import Pool
from refgf.papers.scaling.region import gain
from refgf.papers.scaling.workloads import resnet50
from refgf.training.step import require_same_parameters, train_step

# bytes; both networks have about 1.5 MB of gradients here
THETAS = [0, 2**14, 2**16, 2**18, 2**20, math.inf]
RESNET_THETAS = [0, 2**16, 2**18, 2**20, 2**22, 2**24, 2**26, math.inf]  # 102 MB
SMALL_ELEMENTS = 32_768
# an assumption: a GPU with 250 images/s, batch 64, two thirds of the step in backward
RESNET_BACKWARD_S = 0.16


def measure(run: kit.Run, new_exchange) -> dict:
    """new_exchange: (run, pool, theta, overlap, algorithm=ring) -> the lesson's exchange."""
    options = run.options
    thetas = options.theta or run.quick([0, 2**16, math.inf], THETAS)
    train, held_out = images.load(run)
    model = images.model(run, train)
    agree(run.plain.Dup(), "gradient pool", model.gradients.layout())
    losses = compare_losses(run, train, thetas, new_exchange)
    line = measure_allreduce(run, model.gradients.flat.size)
    swept = sweep_network(run, train, thetas, new_exchange)
    resnet = sweep_resnet(run, new_exchange)
    small = sum_small_tensors(run, line, new_exchange)
    best = min(swept["rows"], key=lambda row: row["plain"].median_s)["theta"]
    return {
        "fit": vars(line),
        "losses": losses,
        "trained": images.NETWORKS[options.network],
        "sweep": swept,
        "resnet50": resnet,
        "small": small,
        "accuracy": learn(run, train, held_out, best),
        "data": train.note,
    }


def compare_losses(run: kit.Run, data, thetas, new_exchange) -> dict:
    """Train a few steps with each theta.

    The losses of `direct` must not depend on theta. Those of the ring may, within rounding.
    """
    run.section("Does theta change what the network learns?")
    losses = {}
    for name, algorithm in (("direct", direct.allreduce), ("ring", ring.allreduce)):
        for theta in thetas:
            model = images.model(run, data)
            exchange = new_exchange(run, model.gradients, theta, False, algorithm)
            mine = [
                train_step(model, exchange, *batch, rate=0.01)
                for batch in images.steps(run, data, run.quick(2, 4))
            ]
            losses[name, theta] = np.sum(run.plain.allgather(mine), axis=0).tolist()  # (steps,)
            require_same_parameters(run.plain, model.parameters.flat)
    for name in ("direct", "ring"):
        curves = np.array([losses[name, theta] for theta in thetas])  # (thetas, steps)
        apart = np.ptp(curves, axis=0)
        run.say(f"{name:>6}: losses of the steps {', '.join(f'{v:.6f}' for v in curves[0])}")
        run.say(f"        largest difference between thetas {', '.join(f'{v:.1e}' for v in apart)}")
        if name == "direct" and apart.any():
            raise AssertionError(
                f"direct: got losses {curves.tolist()}; wanted the same for every theta"
            )
    spread, bound = rounding.loss_after_one_step(run, data, thetas)
    run.say("  ring: after one step the losses of all thetas, evaluated in float64, differ by")
    run.say(f"        {spread:.1e} at most; rounding allows {bound:.1e}")
    if not spread <= bound:
        raise AssertionError(
            f"ring: got losses {spread} apart for different thetas; wanted at most {bound}"
        )
    run.say("The ring cuts each message into p slices. The order of summation in a slice starts at")
    run.say("the slice's own rank. Another theta cuts elsewhere, so other elements are added in")
    run.say("another order. `direct` always adds in rank order.")
    return {
        name: {str(theta): losses[name, theta] for theta in thetas} for name in ("direct", "ring")
    }


def measure_allreduce(run: kit.Run, elements: int):
    """Fit T(m) = a + b m to ring allreduces of this run's sizes."""
    run.section("What one call costs here")
    sizes = [256, 4096, elements // 4, elements, run.quick(elements, 1 << 20, 1 << 22)]
    fit = flow.fit_allreduce(run, sizes, repeats=run.quick(3, 9))
    half = kit.number_of_bytes(fit.a_s / fit.b_s_per_byte) if fit.b_s_per_byte else "any size"
    slope = f"{1e-9 / fit.b_s_per_byte:.3g} GB/s" if fit.b_s_per_byte else "too fast to measure"
    run.say(f"T(m) = a + b m with a = {kit.seconds(fit.a_s)}, 1/b = {slope}.")
    run.say(f"Below {half} the latency a is more than half of T(m).")
    run.say(f"The largest error of the fit at {fit.points} sizes is {fit.largest_error:.0%}.")
    return fit.line


def sweep_network(run: kit.Run, data, thetas, new_exchange) -> dict:
    """Steps of the small network, computed for real on ranks that share the cores."""
    run.section(f"{images.in_words(run)}: theta from 0 to infinity")
    model, count = images.model(run, data), run.quick(3, 13, 31)
    grouped_steps.show_sizes(run, model.gradients)
    allreduce = collective(run.comm.Dup(), ring.allreduce)
    n, batches = model.gradients.flat.size, list(images.steps(run, data, count))
    timing, ready_s = step_times.without_exchange(run, model, batches)
    queued = call_times.queued(run, [256, n // 64, n // 8, n], allreduce)
    queued = call_times.line_of(run, queued)
    in_steps, plain_s = call_times.line_in_steps(run, model, batches, queued, allreduce)
    with_thread_s = call_times.compute_with_thread(run, model, batches, queued, allreduce)
    share = call_times.kept_share(run, n, allreduce)
    a, a_in_steps = kit.seconds(queued.a_s), kit.seconds(in_steps.a_s)
    run.say(f"A step without exchange takes {timing}.")
    run.say(f"The latency of a call is {a} in a series of calls and {a_in_steps} inside a step.")
    run.say(f"While a call runs, computing keeps {share:.0%} of its speed.")

    def inputs(line, compute_s: float, kept_share: float = 0.0) -> theta_sweep.Inputs:
        at_s = step_times.rescaled(ready_s, timing, compute_s)
        gradients = [(t, view.nbytes) for t, view in zip(at_s, model.gradients.views)]
        return theta_sweep.Inputs(gradients, line, compute_s, kept_share)

    kinds = {"plain": inputs(in_steps, plain_s), "overlapped": inputs(queued, with_thread_s, share)}

    def time_one(exchange):
        return time_steps(run, model, exchange, batches), count

    new = partial(new_exchange, run, model.gradients)
    rows = theta_sweep.sweep(run, thetas, new, time_one, kinds)
    times = {"ready_s": ready_s, "compute_s": timing.median_s, "kept_share": share}
    return theta_sweep.report(run, rows) | times


def sweep_resnet(run: kit.Run, new_exchange) -> dict:
    """Send ResNet-50's 161 gradients in the order and at the pace of backward on a GPU."""
    backward_s, share = run.quick(0.02, RESNET_BACKWARD_S), run.quick(64, 1)
    run.section("ResNet-50's 161 gradients, replayed at the pace of a backward pass")
    run.say(
        f"The ranks sleep instead of computing, for {backward_s} s of backward (an assumption)."
    )
    if share > 1:
        run.say(f"--quick sends a {share}th of each tensor.")
    pool = Pool(sizes_of(resnet50(), share), np.float32, run.xp.zeros)
    ready_s = [t for t, _ in resnet50().gradients(backward_s)]
    gradients = [(t, view.nbytes) for t, view in zip(ready_s, pool.views)]
    repeats, n = run.quick(1, 3, 5), pool.flat.size
    sizes = [256, n // 1024, n // 256, n // 64, n // 8]
    line = call_times.queued(run, sizes, collective(run.comm.Dup(), ring.allreduce))

    def time_one(exchange):
        return run.time(lambda: replay_backward(exchange, ready_s), repeats, warmup=0), repeats

    few = [RESNET_THETAS[i] for i in run.quick((1, 4, 7), (0, 3, 5, 7))]  # slow on a slow network
    thetas = run.options.theta or run.quick(few, few, RESNET_THETAS)
    new = partial(new_exchange, run, pool)
    replay_backward(new(math.inf, overlap=False), ready_s)  # allocates memory
    plain = theta_sweep.Inputs(gradients, line, backward_s)
    kinds = {"plain": plain, "overlapped": replace(plain, kept_share=1.0)}
    rows = theta_sweep.sweep(run, thetas, new, time_one, kinds)
    return theta_sweep.report(run, rows) | {"compute_s": backward_s}


def sum_small_tensors(run: kit.Run, line, new_exchange) -> dict:
    """Time ResNet-50's tensors below 32,768 elements, where lazy allreduce gains most."""
    small = [Size(t.name, t.shape) for t in resnet50().tensors if t.elements < SMALL_ELEMENTS]
    pool = Pool(small, np.float32, run.xp.zeros)
    calls, nbytes = len(pool.specs), pool.flat.nbytes
    together = f"{kit.number_of_bytes(nbytes)} together"
    run.section(f"Only the {calls} tensors below {SMALL_ELEMENTS:,} elements, {together}")
    times = {}
    for theta in (0, math.inf):
        exchange = new_exchange(run, pool, theta, overlap=False)
        backward = partial(replay_backward, exchange, [0.0] * calls)
        times[theta] = run.time(backward, run.quick(2, 5))
    eager, one_call = times.values()
    found, predicted = eager.median_s / one_call.median_s, gain(calls, nbytes, line)
    run.say(f"Eager {eager}, one call {one_call}.")
    run.say(f"One call is {found:.1f} times as fast; predicted: {predicted:.1f} times.")
    gains = {"gain": found, "predicted_gain": predicted}
    return {"calls": calls, "bytes": nbytes, "eager": eager, "one_call": one_call} | gains


def learn(run: kit.Run, train, held_out, theta) -> dict:
    """Train the whole system of lesson 07 with this theta, to show that it learns."""
    epochs = run.options.epochs or run.quick(1, 12 if run.options.network == "alexnet" else 6)
    run.section(f"Learning: {epochs} epochs with theta = {kit.number_of_bytes(theta)}")
    with flow.new(run, train, grouping=Theta(theta)) as stack:
        rows = flow.learn(run, stack, train, held_out, epochs)
        digest = stack.require_same_parameters()
    for number, row in enumerate(rows, 1):
        accuracy = "no images held out"
        if row["accuracy"] is not None:
            accuracy = f"{100 * row['accuracy']:5.1f} % of the held-out images right"
        run.say(f"epoch {number:2d}: loss {row['loss']:.4f}, {accuracy}")
    run.say(f"{rows[-1]['seconds']:.1f} s of training; the same parameters on all ranks:")
    run.say(f"{digest[:16]}...")
    return {"epochs": rows, "theta": theta}


def draw(result: dict) -> dict:
    """Step against theta for the small network, for ResNet-50's gradients, and the map of links."""
    title = "Lesson 03 on this machine as it is: how long should gradients wait for each other?"
    figure, panels = axes.frame(title, 1, 2)
    titles = {
        "sweep": f"{result['trained']} on images, computed",
        "resnet50": "ResNet-50's 161 gradients, replayed",
    }
    names = {"plain": "no overlap", "overlapped": "overlap"}
    kinds = {kind: (names[kind], axes.COLOURS[i]) for i, kind in enumerate(names)}
    for axis, (key, title) in zip(panels, titles.items()):
        rows = result[key]["rows"]
        calls = [str(row["calls"]) for row in rows]
        axes.against_theta(axis, rows, kinds, result[key]["compute_s"], "no exchange", calls)
        axis.tick_params(axis="x", rotation=45)
        axis.set_ylim(0, 1.6 * axis.get_ylim()[1])  # room for the legend
        axis.set(title=title, xlabel="theta (above it: number of calls)")
    here = {"this run": (result["ranks"], result["fit"]["a_s"], result["fit"]["b_s_per_byte"])}
    region = latency_region.draw(here, max(2, result["ranks"]))
    return {"": axes.finish(figure, *panels), "region": region}
