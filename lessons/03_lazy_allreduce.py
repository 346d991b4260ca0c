"""Lesson 03: lazy allreduce - one message for many gradients.

    mpiexec -n 8 python lessons/03_lazy_allreduce.py
    options: --data PATH, --theta BYTES ..., --quick, --full, --plot, ...
             --network resnet50: 161 gradients instead of 26

QUESTION    Backward makes one gradient after another, many of them small. Is it better to send each
            at once, or to wait for more?
IDEA        All gradients lie in one pool, in the order in which backward makes them. Wait until
            more than theta bytes are ready, then sum the whole slice in one call. No copy is
            needed. (refgf/exchange/pool.py, lazy.py)
PREDICTION  One call of m bytes takes T(m) = a + b m (lesson 01: a = 2(p-1) alpha). k calls pay the
            latency k times, k a: waiting saves latency. But a gradient that waits is sent later,
            so less of its time hides behind the backward pass:

                without overlap    step = compute + k a + b n
                                   fewer calls are always better
                with overlap       start of a call = max(end of the previous call,
                                                         its last gradient is ready)
                                   step = max(end of compute, end of the last call)
                                   one giant call hides nothing

Before you run it, write down: which theta is best without overlap, and which with? 0, infinity, or
something between?

This is weak scaling: each rank brings its own batch (--batch images), whatever p is.

WHAT YOU SHOULD SEE    Without overlap the curve falls to the right: infinity is best, or within a
            few percent of the best. With overlap there is an optimum between 0 and infinity where
            bytes matter (ResNet-50). Where latency costs more than all bytes, one call wins there
            too, although it hides nothing (the small network on 8 busy ranks). Beyond some size the
            bytes decide: there sparsity (lesson 06) begins. Ranks that share cores compute one
            after another, enter each call with cold caches and compute slowly while it runs. These
            effects are measured separately and used in the prediction.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/03_lazy_allreduce.py)
    1. Which theta sends exactly two calls? Compute it from the sizes, then try it.
    2. The rule says *greater than* theta. Find a theta where "greater or equal" gives another
       number of calls.
    3. A colleague forgets the flush after the last gradient. What would the losses show, and after
       how many steps?
"""

import refgf.launch  # noqa: F401  before MPI starts

import math
from dataclasses import replace
from functools import partial

import numpy as np

import kit
from kit import axes, call_times, flow, images, rounding, step_times
from lab import latency_region, theta_sweep
from kit.replay import Size, replay_backward, sizes_of, time_steps
from refgf.comm import direct, ring
from refgf.comm.agreement import CheckedAllreduce, agree
from refgf.comm.schedule import collective
from refgf.exchange.result import StepResult
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import direct_allreduce, lazy_allreduce, lazy_calls, same_bits
from refgf.papers.scaling.region import gain
from refgf.papers.scaling.workloads import resnet50
from refgf.training.step import require_same_parameters, train_step

# bytes; both networks have about 1.5 MB of gradients here
THETAS = [0, 2**14, 2**16, 2**18, 2**20, math.inf]
RESNET_THETAS = [0, 2**16, 2**18, 2**20, 2**22, 2**24, 2**26, math.inf]  # 102 MB
SMALL_ELEMENTS = 32_768
# an assumption: a GPU with 250 images/s, batch 64, two thirds of the step in backward
RESNET_BACKWARD_S = 0.16


def measure(run: kit.Run) -> dict:
    options = run.options
    thetas = options.theta or run.quick([0, 2**16, math.inf], THETAS)
    train, held_out = images.load(run)
    model = images.model(run, train)
    agree(run.plain.Dup(), "gradient pool", model.gradients.layout())
    agree(run.plain.Dup(), "theta", str(thetas))
    check_against_oracle(run, model, train, thetas)
    losses = compare_losses(run, train, thetas)
    line = measure_allreduce(run, model.gradients.flat.size)
    swept = sweep_network(run, train, thetas)
    resnet = sweep_resnet(run)
    small = sum_small_tensors(run, line)
    best = min(swept["rows"], key=lambda row: row["plain"].median_s)["theta"]
    accuracy = learn(run, train, held_out, best)
    return {
        "fit": vars(line),
        "losses": losses,
        "network": images.NETWORKS[run.options.network],
        "sweep": swept,
        "resnet50": resnet,
        "small": small,
        "accuracy": accuracy,
        "data": train.note,
    }


# ---- one step: this is the whole of lazy allreduce ----


class Exchange:
    """This lesson's stack: pool -> lazy -> (communication thread ->) checked -> ring or direct."""

    def __init__(
        self,
        run: kit.Run,
        pool: Pool,
        theta: float,
        overlap: bool,
        algorithm=ring.allreduce,
        check=True,
    ):
        comm = run.comm.Dup() if overlap else run.comm
        allreduce = collective(comm, algorithm)
        self.allreduce = CheckedAllreduce(run.plain.Dup(), allreduce) if check else allreduce
        self.worker = CommunicationThread() if overlap else AtOnce()
        self.lazy = LazyAllreduce(pool, self.send, Theta(theta))

    def ready(self, i: int) -> None:
        self.lazy.ready(i)

    def send(self, x) -> None:
        self.worker.run(self.allreduce, x)

    def finish(self) -> StepResult:
        self.lazy.finish()
        self.worker.wait()
        return StepResult()

    def close(self) -> None:
        self.worker.close()


# ---- the oracle ----


def check_against_oracle(run: kit.Run, model, data, thetas) -> None:
    """Compare calls and bits of every theta with the definition, for a real batch's gradients."""
    run.section("The oracle")
    model.network.loss(*next(images.steps(run, data, 1)))
    model.network.backward(lambda i: None)
    sizes = [spec.size for spec in model.network.tensors]
    xs = run.gather(model.gradients.flat.copy())
    pool = Pool(model.network.tensors)
    for theta in thetas:
        for algorithm, order in ((ring.allreduce, "ring"), (direct.allreduce, "direct")):
            pool.flat[:] = xs[run.rank]
            exchange = Exchange(run, pool, theta, overlap=False, algorithm=algorithm)
            for i in range(len(sizes)):
                exchange.ready(i)
            exchange.finish()
            calls = [(call.start, call.stop) for call in exchange.lazy.calls]
            wanted = lazy_allreduce(xs, sizes, theta, order=order)[run.rank]
            where = f"lazy {order} allreduce on rank {run.rank}, theta {theta}"
            if calls != lazy_calls(sizes, 4, theta) or not same_bits(pool.flat, wanted):
                raise AssertionError(f"{where}: got other calls or bits; wanted the definition's")
            independent = order != "direct" or same_bits(pool.flat, direct_allreduce(xs)[run.rank])
            if not independent:
                raise AssertionError(f"{where}: got bits that depend on theta; wanted the same")
    run.say("theta: bytes that may wait. ring: lesson 01's allreduce. direct: adds in rank order.")
    run.say(f"{len(thetas)} values of theta, each with ring and with direct, on a real batch's")
    run.say("gradients: calls and bits are as defined.")
    cost_s = run.slowest([exchange.allreduce.seconds / max(1, exchange.allreduce.calls)])
    run.say("Before every call the ranks check that all are about to sum the same slice.")
    run.say(f"This takes {cost_s} per call. It is off in the measurements.")


def compare_losses(run: kit.Run, data, thetas) -> dict:
    """Train a few steps with each theta.

    The losses of `direct` must not depend on theta. Those of the ring may, within rounding.
    """
    run.section("Does theta change what the network learns?")
    losses = {}
    for name, algorithm in (("direct", direct.allreduce), ("ring", ring.allreduce)):
        for theta in thetas:
            model = images.model(run, data)
            exchange = Exchange(run, model.gradients, theta, overlap=False, algorithm=algorithm)
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


# ---- the measurement ----


def measure_allreduce(run: kit.Run, elements: int):
    """Fit T(m) = a + b m to ring allreduces of this run's sizes."""
    run.section("What one call costs here")
    sizes = [256, 4096, elements // 4, elements, run.quick(elements, 1 << 20, 1 << 22)]
    fit = flow.fit_allreduce(run, sizes, repeats=run.quick(3, 9))
    half = kit.number_of_bytes(fit.a_s / fit.b_s_per_byte) if fit.b_s_per_byte else "any size"
    run.say(f"T(m) = a + b m with a = {kit.seconds(fit.a_s)}, 1/b = {rate(fit.b_s_per_byte)}.")
    run.say(f"Below {half} the latency a is more than half of T(m).")
    run.say(f"The largest error of the fit at {fit.points} sizes is {fit.largest_error:.0%}.")
    if run.size > 1:
        share = 2 * (run.size - 1) / run.size
        alpha = kit.seconds(fit.a_s / 2 / (run.size - 1))
        run.say(f"Every rank sends 2(p-1)/p = {share:.3g} of the m bytes, in 2(p-1) messages,")
        run.say(f"with latency {alpha} per message and {rate(fit.b_s_per_byte / share)}.")
    return fit.line


def rate(b_s_per_byte: float) -> str:
    return f"{1e-9 / b_s_per_byte:.3g} GB/s" if b_s_per_byte else "too fast to measure"


def sweep_network(run: kit.Run, data, thetas) -> dict:
    run.section(f"{images.in_words(run)}: theta from 0 to infinity")
    model, count = images.model(run, data), run.quick(3, 13, 31)
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

    rows = theta_sweep.sweep(run, thetas, unchecked(run, model.gradients), time_one, kinds)
    times = {"ready_s": ready_s, "compute_s": timing.median_s, "kept_share": share}
    return theta_sweep.report(run, rows) | times


def sweep_resnet(run: kit.Run) -> dict:
    """Send ResNet-50's 161 gradients in the order and at the pace of backward on a GPU."""
    backward_s, share = run.quick(0.02, RESNET_BACKWARD_S), run.quick(64, 1)
    run.section("ResNet-50's 161 gradients, replayed at the pace of a backward pass")
    run.say(
        f"The ranks sleep instead of computing, for {backward_s} s of backward (an assumption)."
    )
    run.say("Their cores are idle meanwhile, as with a GPU.")
    if share > 1:
        run.say(f"--quick sends a {share}th of each tensor.")
    pool = Pool(sizes_of(resnet50(), share))
    ready_s = [t for t, _ in resnet50().gradients(backward_s)]
    gradients = [(t, view.nbytes) for t, view in zip(ready_s, pool.views)]
    repeats, n = run.quick(1, 3, 5), pool.flat.size
    sizes = [256, n // 1024, n // 256, n // 64, n // 8]
    line = call_times.queued(run, sizes, collective(run.comm.Dup(), ring.allreduce))

    def time_one(exchange):
        return run.time(lambda: replay_backward(exchange, ready_s), repeats, warmup=0), repeats

    few = [RESNET_THETAS[i] for i in run.quick((1, 4, 7), (0, 3, 5, 7))]  # slow on a slow network
    thetas = run.options.theta or run.quick(few, few, RESNET_THETAS)
    new = unchecked(run, pool)
    replay_backward(new(math.inf, overlap=False), ready_s)  # allocates memory
    plain = theta_sweep.Inputs(gradients, line, backward_s)
    kinds = {"plain": plain, "overlapped": replace(plain, kept_share=1.0)}
    rows = theta_sweep.sweep(run, thetas, new, time_one, kinds)
    return theta_sweep.report(run, rows) | {"compute_s": backward_s}


def unchecked(run: kit.Run, pool: Pool):
    """A function (theta, overlap) -> Exchange without checks, for measurements."""
    return partial(Exchange, run, pool, check=False)


def sum_small_tensors(run: kit.Run, line) -> dict:
    """Time ResNet-50's tensors below 32,768 elements, where lazy allreduce gains most."""
    pool = Pool([Size(t.name, t.shape) for t in resnet50().tensors if t.elements < SMALL_ELEMENTS])
    calls, nbytes = len(pool.specs), pool.flat.nbytes
    together = f"{kit.number_of_bytes(nbytes)} together"
    run.section(f"Only the {calls} tensors below {SMALL_ELEMENTS:,} elements, {together}")
    times = {}
    for theta in (0, math.inf):
        exchange = Exchange(run, pool, theta, overlap=False, check=False)
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
        return {"epochs": flow.learn(run, stack, train, held_out, epochs), "theta": theta}


# ---- the figure ----


def draw(result: dict):
    title = "Lesson 03: lazy allreduce. How long should gradients wait for each other?"
    figure, (*sweeps, where) = axes.frame(title, 1, 3, (19, 5.4))
    titles = {
        "sweep": f"{result['network']} on images, forward to update",
        "resnet50": "ResNet-50's 161 gradients, replayed",
    }
    kinds = {"plain": ("no overlap", "tab:red"), "overlapped": ("overlap", "tab:blue")}
    for axis, (key, title) in zip(sweeps, titles.items()):
        rows = result[key]["rows"]
        calls = [str(row["calls"]) for row in rows]
        axes.against_theta(axis, rows, kinds, result[key]["compute_s"], "no exchange", calls)
        axis.set(title=title, xlabel="theta (above it: number of calls)")
    latency_region.draw(where, result)
    return axes.finish(figure, *sweeps)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, probe=True)
    images.arguments(lesson, networks=images.NETWORKS)
    lesson.argument(
        "--theta",
        nargs="+",
        type=kit.threshold_bytes,
        metavar="BYTES",
        help="thresholds to sweep: 0 65536 1e6 inf",
    )
    lesson.main(measure, draw)
