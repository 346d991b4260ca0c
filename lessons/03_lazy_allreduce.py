"""Lesson 03: lazy allreduce - one message for many gradients.

    mpiexec -n 8 python lessons/03_lazy_allreduce.py         (--data PATH, --theta BYTES ...,
    --quick, --plot, ...)
                                                             (--network resnet50: 161 gradients
                                                             instead of 26)

QUESTION    Backward makes one gradient after another, many of them small. Is it better to send each
            at once, or to wait?
IDEA        All gradients lie in one pool, in the order in which they are made. Let them wait until
            more than theta bytes are together, then sum the whole slice in one call. No copy is
            needed. (refgf/exchange/pool.py, lazy.py)
PREDICTION  One call of m bytes takes T(m) = a + b m (lesson 01: a = 2(p-1) alpha). k calls cost k
            a: waiting saves start-ups. But a gradient that waits travels later, so less of it hides
            behind the backward pass:

                without overlap    step = compute + k a + b n                      fewer calls are
                                   always better
                with overlap       start of a call = max(end of the one before, its last gradient
                                   ready) step = max(end of compute, end of the last call)     one
                                   giant call hides nothing

Before you run it, write down: which theta is best without overlap, and which with? 0, infinity, or
something between?

This is weak scaling: each rank brings a batch of its own (--batch images), whatever p is.

WHAT YOU SHOULD SEE    Without overlap the curve falls to the right: infinity is best, or within a
                       few percent of it. With
            overlap there is an optimum between where bytes matter (ResNet-50); where start-ups cost
            more than all bytes, one call wins there too, although it hides nothing (the small
            network on 8 busy ranks). Beyond some size the bytes decide: there sparsity (lesson 06)
            begins. Ranks that share cores compute one after another, come to calls with cold
            caches, and compute little beside one: all measured apart (kit/alone.py) and predicted
            with.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/03_lazy_allreduce.py)
    1. Which theta sends exactly two calls? Compute it from the sizes, then try it.
    2. The rule says *greater than* theta. Find a theta where "greater or equal" gives another
    number of calls. 3. Someone forgets the flush after the last gradient. What would the losses
    show, and after how many steps?
"""

import refgf.launch  # noqa: F401  before MPI starts

import math

import numpy as np

import kit
from kit import axes, call_times, flow, images, rounding, step_times
from lab import latency_region
from kit.replay import Size, replay_backward, sizes_of, time_steps
from refgf.comm import direct, ring
from refgf.comm.agreement import agree, checked
from refgf.comm.schedule import collective
from refgf.exchange.result import StepResult
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import direct_allreduce, lazy_allreduce, lazy_calls, same_bits
from refgf.papers.scaling.region import gain
from refgf.predict.timeline import lazy, predict
from refgf.papers.scaling.workloads import resnet50
from refgf.training.step import require_same_parameters, train_step

THETAS = [
    0,
    2**14,
    2**16,
    2**18,
    2**20,
    math.inf,
]  # bytes; both networks have about 1.5 MB of gradients here
RESNET_THETAS = [0, 2**16, 2**18, 2**20, 2**22, 2**24, 2**26, math.inf]  # 102 MB
SMALL_ELEMENTS = 32_768
RESNET_BACKWARD_S = (
    0.16  # an assumption: a GPU that makes 250 images/s, batch 64, two thirds of the step backward
)


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


# ---- one step: this is all there is to lazy allreduce ----


class Exchange:
    """The stack of this lesson: pool -> lazy -> (communication thread ->) checked -> ring or
    direct.
    """

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
        self.allreduce = checked(run.plain.Dup(), allreduce) if check else allreduce
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
    """On one real batch: the calls and the bits of every theta are those of the definition."""
    run.section("The oracle")
    model.network.loss(*next(images.steps(run, data, 1)))
    model.network.backward(lambda i: None)
    sizes = [spec.size for spec in model.network.tensors]
    everybody = run.gather(model.gradients.flat.copy())
    pool = Pool(model.network.tensors)
    for theta in thetas:
        for algorithm, order in ((ring.allreduce, "ring"), (direct.allreduce, "direct")):
            pool.flat[:] = everybody[run.rank]
            exchange = Exchange(run, pool, theta, overlap=False, algorithm=algorithm)
            for i in range(len(sizes)):
                exchange.ready(i)
            exchange.finish()
            calls = [(call.start, call.stop) for call in exchange.lazy.calls]
            wanted = lazy_allreduce(everybody, sizes, theta, order=order)[run.rank]
            if calls != lazy_calls(sizes, 4, theta) or not same_bits(pool.flat, wanted):
                raise AssertionError(
                    f"rank {run.rank}: theta = {theta}, {order}: not what the definition says"
                )
            if order == "direct" and not same_bits(
                pool.flat, direct_allreduce(everybody)[run.rank]
            ):
                raise AssertionError(f"rank {run.rank}: theta = {theta}: direct depends on theta")
    run.say(
        "theta: bytes that may wait. ring: lesson 01's allreduce; direct: one that adds in rank order"
    )
    run.say(
        f"{len(thetas)} values of theta, ring and direct: calls and bits as defined, on a real batch's gradients"
    )
    cost_s = run.slowest([exchange.allreduce.seconds / max(1, exchange.allreduce.calls)])
    run.say(
        f"before every call the ranks compare what they are about to sum: {cost_s} a call (not while timing)"
    )


def compare_losses(run: kit.Run, data, thetas) -> dict:
    """Train a few steps with each theta. The losses of `direct` must not depend on it; those of the
    ring may, a little.
    """
    run.section("Does theta change what is learnt?")
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
        run.say(
            f"{name:>6}: losses of the steps {', '.join(f'{v:.6f}' for v in curves[0])}; largest difference between thetas "
            f"{', '.join(f'{v:.1e}' for v in np.ptp(curves, axis=0))}"
        )
        if name == "direct" and np.ptp(curves, axis=0).any():
            raise AssertionError(f"direct: the losses depend on theta: {curves.tolist()}")
    spread, bound = rounding.loss_after_one_step(run, data, thetas)
    run.say(
        f"  ring: after one step the loss, evaluated in float64, differs by {spread:.1e} between thetas; "
        f"rounding allows {bound:.1e}"
    )
    if not spread <= bound:
        raise AssertionError(
            f"ring: losses of different thetas are {spread} apart, more than rounding allows: {bound}"
        )
    run.say(
        "The ring cuts each message into p slices, and a slice's order of summation starts at its own rank; another theta\n"
        "cuts elsewhere, so other elements are added in another order. `direct` always adds in rank order."
    )
    return {
        name: {str(theta): losses[name, theta] for theta in thetas} for name in ("direct", "ring")
    }


# ---- the measurement ----


def measure_allreduce(run: kit.Run, elements: int):
    """T(m) = a + b m, fitted to ring allreduces of this run's sizes."""
    run.section("What one call costs here")
    sizes = [256, 4096, elements // 4, elements, run.quick(elements, 1 << 20, 1 << 22)]
    fit = flow.fit_allreduce(run, sizes, repeats=run.quick(3, 9))
    half = kit.number_of_bytes(fit.a_s / fit.b_s_per_byte) if fit.b_s_per_byte else "any size"
    run.say(
        f"T(m) = a + b m with a = {kit.seconds(fit.a_s)}, 1/b = {rate(fit.b_s_per_byte)}: "
        f"below {half} the start-up is more than half; it misses the worst of {fit.points} sizes by {fit.largest_error:.0%}"
    )
    if run.size > 1:
        share = 2 * (run.size - 1) / run.size
        run.say(
            f"every rank sends 2(p-1)/p = {share:.3g} of these bytes, at {rate(fit.b_s_per_byte / share)}, in 2(p-1) "
            f"messages that start up in {kit.seconds(fit.a_s / 2 / (run.size - 1))}"
        )
    return fit.line


def rate(b_s_per_byte: float) -> str:
    return f"{1e-9 / b_s_per_byte:.3g} GB/s" if b_s_per_byte else "too fast to see"


def sweep_network(run: kit.Run, data, thetas) -> dict:
    run.section(f"{images.told(run)}: theta from 0 to infinity")
    model, count, allreduce = (
        images.model(run, data),
        run.quick(3, 13, 31),
        collective(run.comm.Dup(), ring.allreduce),
    )
    n, batches = model.gradients.flat.size, list(images.steps(run, data, count))
    timing, ready_s = step_times.without_exchange(run, model, batches)
    queued = call_times.queued(run, [256, n // 64, n // 8, n], allreduce)
    queued = call_times.line_of(run, queued)
    in_steps, plain_s = call_times.line_in_steps(run, model, batches, queued, allreduce)
    with_thread_s = call_times.compute_with_thread(run, model, batches, queued, allreduce)
    compute_s = {"plain": plain_s, "overlapped": with_thread_s}
    share = call_times.kept_share(run, n, allreduce)
    run.say(
        f"a step without exchange {timing}; a call starts up in {kit.seconds(queued.a_s)} in a row of calls, in "
        f"{kit.seconds(in_steps.a_s)}\nwhen ranks come from computing; beside a call computing keeps {share:.0%} of its speed"
    )
    gradients = {
        kind: [
            (t, view.nbytes)
            for t, view in zip(step_times.rescaled(ready_s, timing, s), model.gradients.views)
        ]
        for kind, s in compute_s.items()
    }
    lines, one = (
        {"plain": in_steps, "overlapped": queued},
        lambda exchange: (time_steps(run, model, exchange, batches), count),
    )
    rows = sweep(run, model.gradients, thetas, gradients, lines, compute_s, one, share)
    return report(run, rows) | {
        "ready_s": ready_s,
        "compute_s": timing.median_s,
        "kept_share": share,
    }


def sweep_resnet(run: kit.Run) -> dict:
    """ResNet-50's 161 gradient sizes, in the order and at the pace of a backward pass on a GPU that
    is not there.
    """
    backward_s, share = (
        run.quick(0.02, RESNET_BACKWARD_S),
        run.quick(64, 1),
    )  # --quick sends a 64th of each tensor
    run.section("ResNet-50's 161 gradients, replayed at the pace of a backward pass")
    run.say(
        f"The ranks sleep instead of computing ({backward_s} s of backward, an assumption): their cores stay free,\n"
        "as with a GPU." + f" --quick sends a {share}th of each tensor." * (share > 1)
    )
    pool = Pool(sizes_of(resnet50(), share))
    ready_s = [t for t, _ in resnet50().gradients(backward_s)]
    gradients = [(t, view.nbytes) for t, view in zip(ready_s, pool.views)]
    repeats, n = run.quick(1, 3, 5), pool.flat.size
    line = call_times.queued(
        run, [256, n // 1024, n // 256, n // 64, n // 8], collective(run.comm.Dup(), ring.allreduce)
    )

    def one(exchange):
        return run.time(lambda: replay_backward(exchange, ready_s), repeats, warmup=0), repeats

    few = [
        RESNET_THETAS[i] for i in run.quick((1, 4, 7), (0, 3, 5, 7))
    ]  # each takes seconds on a slow network
    thetas = run.options.theta or run.quick(few, few, RESNET_THETAS)
    replay_backward(
        Exchange(run, pool, math.inf, overlap=False, check=False), ready_s
    )  # fetches memory
    rows = sweep(
        run,
        pool,
        thetas,
        *(dict.fromkeys(("plain", "overlapped"), x) for x in (gradients, line, backward_s)),
        one,
    )
    return report(run, rows) | {"compute_s": backward_s}


def sum_small_tensors(run: kit.Run, line) -> dict:
    """The tensors that laziness is for: those of ResNet-50 below 32,768 elements, eager against one
    call.
    """
    pool = Pool([Size(t.name, t.shape) for t in resnet50().tensors if t.elements < SMALL_ELEMENTS])
    calls, nbytes = len(pool.specs), pool.flat.nbytes
    run.section(
        f"Only the {calls} tensors below {SMALL_ELEMENTS:,} elements, {kit.number_of_bytes(nbytes)} together"
    )
    times = {}
    for theta in (0, math.inf):
        exchange = Exchange(run, pool, theta, overlap=False, check=False)
        times[theta] = run.time(
            lambda e=exchange: replay_backward(e, [0.0] * calls), run.quick(2, 5)
        )
    told = {
        "gain": times[0].median_s / times[math.inf].median_s,
        "predicted_gain": gain(calls, nbytes, line),
    }
    run.say(
        "eager {}, one call {}: {gain:.1f} times as fast, {predicted_gain:.1f} predicted".format(
            *times.values(), **told
        )
    )
    return {"calls": calls, "bytes": nbytes, "eager": times[0], "one_call": times[math.inf]} | told


def sweep(
    run: kit.Run, pool, thetas, gradients, lines, compute_s, measure_one, share=1.0
) -> list[dict]:
    """One row a theta: counts, times without and with overlap, predictions of both. share: kept
    beside a call, if not all.
    """
    rows = []
    for theta in thetas:
        row = {"theta": theta, "predicted": {}}
        for name in ("plain", "overlapped"):
            exchange = Exchange(run, pool, theta, overlap=name == "overlapped", check=False)
            run.comm.reset()
            row[name], steps = measure_one(exchange)
            row |= {"messages": run.comm.messages // steps, "bytes": run.comm.bytes // steps}
            exchange.close()
            groups, overlap = lazy(gradients[name], theta), share * (name == "overlapped")
            row["predicted"][name] = predict(
                gradients[name], groups, lines[name], overlap, compute_s[name]
            ).step_s
        assert len(groups) == len(exchange.lazy.calls)
        rows.append(row | {"calls": len(groups)})
    return rows


def report(run: kit.Run, rows: list[dict]) -> dict:
    def cells(row):
        counts = [kit.number_of_bytes(row["theta"]), row["calls"], row["messages"], row["bytes"]]
        return counts + [
            cell for name in best for cell in (row[name], kit.seconds(row["predicted"][name]))
        ]

    best = {"plain": "no overlap", "overlapped": "overlap"}
    run.say(
        "a step: allreduce calls, messages and bytes that rank 0 sends, time [lowest..highest] without and with overlap"
    )
    header = [
        "theta",
        "calls",
        "messages",
        "bytes",
        "no overlap",
        "predicted",
        "overlap",
        "predicted",
    ]
    run.table(header, [cells(row) for row in rows])
    for name, told in [*best.items()]:
        run.say(
            f"{told}: {kit.apart([(row['predicted'][name], row[name].median_s) for row in rows])}"
        )
        measured = min(rows, key=lambda r: r[name].median_s)
        predicted = min(rows, key=lambda r: r["predicted"][name])
        best[name] = {"measured": measured["theta"], "predicted": predicted["theta"]}
        gain = rows[0][name].median_s / measured[name].median_s
        names = [kit.number_of_bytes(row["theta"]) for row in (measured, predicted, rows[0])]
        ties = [
            kit.number_of_bytes(r["theta"])
            for r in rows
            if r is not measured and r[name].low_s <= measured[name].high_s
        ]
        run.say(
            f"{told}: best theta {names[0]} measured, {names[1]} predicted; {gain:.2f} times as fast as theta = {names[2]}"
            + f"; within the noise of it: {', '.join(ties)}" * bool(ties)
        )
    return {"rows": rows, "best": best}


def learn(run: kit.Run, train, held_out, theta) -> dict:
    """Train with the best theta, so that it is seen to learn."""
    epochs = run.options.epochs or run.quick(1, 12 if run.options.network == "alexnet" else 6)
    run.section(f"Learning, {epochs} epochs with theta = {kit.number_of_bytes(theta)}")
    with flow.new(
        run, train, grouping=Theta(theta)
    ) as stack:  # the whole system of lesson 07, with this part switched on
        return {"epochs": flow.learn(run, stack, train, held_out, epochs), "theta": theta}


# ---- the picture ----


def draw(result: dict):
    title = "Lesson 03: lazy allreduce. How long should gradients wait for each other?"
    figure, (*sweeps, where) = axes.frame(title, 1, 3, (19, 5.4))
    titles = {
        "sweep": f"{result['network']} on images, forward to update",
        "resnet50": "ResNet-50's 161 gradients, replayed",
    }
    kinds = {"plain": ("no overlap", "tab:red"), "overlapped": ("overlap", "tab:blue")}
    for axis, (key, told) in zip(sweeps, titles.items()):
        rows = result[key]["rows"]
        calls = [str(row["calls"]) for row in rows]
        axes.against_theta(
            axis, rows, kinds, result[key]["compute_s"], "without any exchange", calls
        )
        axis.set(title=told, xlabel="theta (above it: number of calls)")
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
