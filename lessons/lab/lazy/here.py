"""Lesson 03's second scene: this machine as a cluster, where the processor is the bottleneck.

Ranks compute a small network for real and share the cores. They compute one after another, enter
each call with cold caches, and compute slowly while it runs. These effects are measured separately
(kit/call_times.py) and used in the predictions. Where the latency of a call costs more than all
bytes, one call wins with overlap too, although it hides nothing.
"""

import itertools
import math
from functools import partial

import numpy as np

import kit
from kit import call_times, calls, flow, images, rounding, step_times
from kit.calls import Kind
from kit.rejected import reject
from kit.replay import Size, replay_backward
from lab.lazy import grouped_steps
from lab.lazy.grouped_steps import Bench
from lab.lazy.steps import KINDS, report, sweep
from refgf.comm import direct, ring
from refgf.comm.agreement import agree
from refgf.comm.schedule import collective
from refgf.exchange.lazy import Theta
from refgf.exchange.pool import Pool
from refgf.papers.scaling.region import gain
from refgf.papers.scaling.workloads import resnet50
from refgf.predict.timeline import predict
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
            reject(f"direct: got losses {curves.tolist()}; wanted the same for every theta")
    spread, bound = rounding.loss_after_one_step(run, data, thetas)
    run.say("  ring: after one step the losses of all thetas, evaluated in float64, differ by")
    run.say(f"        {spread:.1e} at most; rounding allows {bound:.1e}")
    if not spread <= bound:
        reject(f"ring: got losses {spread} apart for different thetas; wanted at most {bound}")
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
    batches = list(images.steps(run, data, count))
    timing, ready_s = step_times.without_exchange(run, model, batches)
    found = calls.measure(run, data, {"plain": Kind(), "overlapped": Kind(overlap=True)})
    plain, share = found["plain"], found["overlapped"].kept_share
    a, a_in_steps = kit.seconds(plain.queued(0)), kit.seconds(plain.seconds(0))
    run.say(f"A step without exchange takes {timing}.")
    run.say(f"The latency of a call is {a} in a series of calls and {a_in_steps} inside a step.")
    run.say(f"While a call runs, computing keeps {share:.0%} of its speed.")
    nbytes = [view.nbytes for view in model.gradients.views]
    each = itertools.cycle(batches)

    def step(exchange) -> None:
        train_step(model, exchange, *next(each), rate=0.0)

    def predicted_s(groups, kind: str) -> float:
        call = found[kind]
        ready = list(zip(step_times.rescaled(ready_s, timing, call.compute_s), nbytes))
        return predict(ready, groups, call.seconds, call.kept_share, call.compute_s).step_s

    bench = Bench("", model.gradients, step, list(zip(ready_s, nbytes)), timing.median_s)
    both = dict.fromkeys(KINDS, thetas)
    rows = sweep(run, bench, both, new_exchange, predicted_s, count - 1, warmup=1)
    times = {"ready_s": ready_s, "compute_s": timing.median_s, "kept_share": share}
    return {"rows": rows, "best": report(run, rows)} | times


def sweep_resnet(run: kit.Run, new_exchange) -> dict:
    """Send ResNet-50's 161 gradients in the order and at the pace of backward on a GPU."""
    backward_s, share = run.quick(0.02, RESNET_BACKWARD_S), run.quick(64, 1)
    run.section("ResNet-50's 161 gradients, replayed at the pace of a backward pass")
    run.say(
        f"The ranks sleep instead of computing, for {backward_s} s of backward (an assumption)."
    )
    if share > 1:
        run.say(f"--quick sends a {share}th of each tensor.")
    bench = grouped_steps.replayed(run, resnet50(), backward_s, share)
    n = bench.pool.flat.size
    sizes = [256, n // 1024, n // 256, n // 64, n // 8]
    call_s = call_times.queued(run, sizes, collective(run.comm.Dup(), ring.allreduce))

    def predicted_s(groups, kind: str) -> float:
        return bench.predicted_s(groups, call_s, kind == "overlapped")

    few = [RESNET_THETAS[i] for i in run.quick((1, 4, 7), (0, 3, 5, 7))]  # slow on a slow network
    thetas = run.options.theta or run.quick(few, few, RESNET_THETAS)
    bench.step(new_exchange(run, bench.pool, math.inf, overlap=False))  # allocates memory
    both = dict.fromkeys(KINDS, thetas)
    rows = sweep(run, bench, both, new_exchange, predicted_s, run.quick(1, 3, 5))
    return {"rows": rows, "best": report(run, rows), "compute_s": backward_s}


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
