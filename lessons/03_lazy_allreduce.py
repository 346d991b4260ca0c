"""Lesson 03: lazy allreduce - one message for many gradients.

    mpiexec -n 8 python lessons/03_lazy_allreduce.py         (--data PATH, --theta BYTES ..., --quick, --full, --plot, ...)

QUESTION    Backward makes one gradient after another, many of them small. Is it better to send each at once, or to wait?
IDEA        All gradients lie in one pool, in the order in which they are made. Let them wait until more than theta bytes
            are together, then sum the whole slice in one call. No copy is needed. (refgf/exchange/pool.py, lazy.py)
PREDICTION  One call of m bytes takes T(m) = a + b m (lesson 01: a = 2(p-1) alpha). k calls cost k a: waiting saves
            start-ups. But a gradient that waits travels later, so less of it hides behind the backward pass:

                without overlap    step = compute + k a + b n                      fewer calls are always better
                with overlap       start of a call = max(end of the one before, its last gradient ready)
                                   step = max(end of compute, end of the last call)     one giant call hides nothing

Before you run it, write down: which theta is best without overlap, and which with? 0, infinity, or something between?

This is weak scaling: each rank brings a batch of its own (--batch images), whatever p is.

WHAT YOU SHOULD SEE    Without overlap the curve falls to the right: infinity is best. With overlap there is an optimum
            between, and eager is not always worst. In shared memory a start-up is cheap and ranks that communicate take
            the cores from ranks that compute, so the AlexNet gains little there; over a network the start-ups are dear.
            Beyond some size the bytes decide, and laziness gains nothing: that is where sparsity (lesson 06) begins.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/03_lazy_allreduce.py)
    1. Which theta sends exactly two calls? Compute it from the sizes, then try it.
    2. The rule says *greater than* theta. Find a theta where "greater or equal" gives another number of calls.
    3. Someone forgets the flush after the last gradient. What would the losses show, and after how many steps?
"""

import refgf.launch  # noqa: F401  before MPI starts

import math
import time
from pathlib import Path

import kit
import numpy as np

from refgf.comm import direct, ring
from refgf.comm.agreement import agree, checked
from refgf.comm.schedule import collective
from refgf.exchange.lazy import LazyAllreduce, require_threshold
from refgf.exchange.overlap import CommunicationThread
from refgf.exchange.pool import Pool
from refgf.nn.alexnet import AlexNet
from refgf.oracle.definitions import direct_allreduce, lazy_allreduce, lazy_calls, same_bits
from refgf.predict.fit import fit_line
from refgf.predict.timeline import lazy, predict
from refgf.predict.workloads import resnet50
from refgf.training.data import batches, digits
from refgf.training.folders import image_folder
from refgf.training.step import evaluate, replica, require_same_parameters, train_step

THETAS = [0, 2**12, 2**14, 2**16, 2**18, 2**20, math.inf]  # bytes; the AlexNet of this lesson has 1.4 MB of gradients
RESNET_THETAS = [0, 2**16, 2**18, 2**20, 2**22, 2**24, 2**26, math.inf]
RESNET_BACKWARD_S = 0.16  # a GPU that makes 250 images/s, batch 64, two thirds of the step backward: an assumption
SEED = 1


def measure(run: kit.Run) -> dict:
    options = run.options
    thetas = [require_threshold(theta) for theta in options.theta or run.quick(THETAS[::3], THETAS)]
    train, held_out = load(run)
    run.say(train.note)
    model = new_model(run, train)
    agree(run.plain.Dup(), "gradient pool", model.gradients.layout()[:100])
    agree(run.plain.Dup(), "theta", str(thetas))
    check_against_oracle(run, model, train, thetas)
    losses = compare_losses(run, train, thetas)
    line, points = measure_allreduce(run, model.gradients.flat.size)
    alexnet = sweep_alexnet(run, train, thetas, line)
    resnet = sweep_resnet(run, line)
    best = min(alexnet["rows"], key=lambda row: row["plain"].median_s)["theta"]
    accuracy = learn(run, train, held_out, best)
    return {"fit": {"a_s": line.a_s, "b_s_per_byte": line.b_s_per_byte, "points": points}, "losses": losses,
            "alexnet": alexnet, "resnet50": resnet, "accuracy": accuracy, "data": train.note}  # fmt: skip


def load(run: kit.Run):
    if run.options.data is None:
        return digits(run.options.image_size)
    return image_folder(run.options.data, run.options.image_size, skip_bad_images=run.options.skip_bad_images, comm=run.plain)


def new_model(run: kit.Run, data):
    network = AlexNet(data.num_classes, data.image_size, width=run.options.width, channels=data.channels)
    network.dropout_rng = np.random.default_rng([SEED, run.rank])
    return replica(network, SEED, weight_decay=5e-4)


def steps_of(run: kit.Run, data, count: int):
    """`count` batches of this rank, epoch after epoch."""
    epoch = 0
    while count > 0:
        for batch in batches(data, run.options.batch * run.size, epoch, SEED, run.rank, run.size):
            if count == 0:
                return
            yield batch
            count -= 1
        epoch += 1


# ---- one step: this is all there is to lazy allreduce ----


class Exchange:
    """The stack of this lesson: pool -> lazy -> (communication thread ->) checked -> ring or direct."""

    def __init__(self, run: kit.Run, pool: Pool, theta: float, overlap: bool, algorithm=ring.allreduce, check=True):
        comm = run.comm.Dup() if overlap else run.comm
        allreduce = collective(comm, algorithm)
        self.check = allreduce = checked(run.plain.Dup(), allreduce) if check else allreduce
        self.thread = CommunicationThread(allreduce) if overlap else None
        wait = self.thread.wait if overlap else lambda: None
        self.lazy = LazyAllreduce(pool, self.thread or allreduce, theta, wait=wait)
        self.ready, self.finish = self.lazy.ready, self.lazy.finish

    def close(self) -> None:
        if self.thread:
            self.thread.close()


# ---- the oracle ----


def check_against_oracle(run: kit.Run, model, data, thetas) -> None:
    """On one real batch: the calls and the bits of every theta are those of the definition."""
    run.section("The oracle")
    images, labels, global_batch = next(steps_of(run, data, 1))
    model.network.loss(images, labels, global_batch)
    model.network.backward(lambda i: None)
    sizes = [spec.size for spec in model.network.tensors]
    everybody = run.plain.allgather(model.gradients.flat.copy())
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
                raise AssertionError(f"rank {run.rank}: theta = {theta}, {order}: not what the definition says")
            if order == "direct" and not same_bits(pool.flat, direct_allreduce(everybody)[run.rank]):
                raise AssertionError(f"rank {run.rank}: theta = {theta}: direct depends on theta")
    run.say(f"{len(thetas)} values of theta, ring and direct: calls and bits as defined, on a real batch's gradients")
    cost_s = run.slowest([exchange.check.seconds / max(1, exchange.check.calls)])
    run.say(f"before every call the ranks compare what they are about to sum: {cost_s} a call (not while timing)")


def compare_losses(run: kit.Run, data, thetas) -> dict:
    """Train a few steps with each theta. The losses of `direct` must not depend on it; those of the ring may, a little."""
    run.section("Does theta change what is learnt?")
    losses = {}
    for name, algorithm in (("direct", direct.allreduce), ("ring", ring.allreduce)):
        for theta in thetas:
            model = new_model(run, data)
            exchange = Exchange(run, model.gradients, theta, overlap=False, algorithm=algorithm)
            mine = [train_step(model, exchange, *batch, rate=0.01) for batch in steps_of(run, data, run.quick(2, 4))]
            losses[name, theta] = np.sum(run.plain.allgather(mine), axis=0).tolist()  # (steps,)
            require_same_parameters(run.plain, model.parameters.flat)
    for name in ("direct", "ring"):
        curves = np.array([losses[name, theta] for theta in thetas])  # (thetas, steps)
        spread = np.ptp(curves, axis=0)
        run.say(f"{name:>6}: losses {', '.join(f'{v:.6f}' for v in curves[0])};  largest difference between thetas "
                f"{', '.join(f'{v:.1e}' for v in spread)}")  # fmt: skip
        if name == "direct" and spread.any():
            raise AssertionError(f"direct: the losses depend on theta: {curves.tolist()}")
    run.say("The ring cuts each message into p slices, and a slice's order of summation starts at its own rank; another theta")
    run.say("cuts elsewhere, so other elements are added in another order. `direct` always adds in rank order.")
    return {name: {str(theta): losses[name, theta] for theta in thetas} for name in ("direct", "ring")}


# ---- the measurement ----


def measure_allreduce(run: kit.Run, elements: int):
    """T(m) = a + b m, fitted to ring allreduces of this run's sizes."""
    run.section("What one call costs here")
    points = []
    for n in sorted({256, 4096, elements // 4, elements, run.quick(elements, 1 << 20, 1 << 22)}):
        x, allreduce = np.zeros(n, np.float32), collective(run.comm, ring.allreduce)
        points.append((4 * n, run.time(lambda x=x, allreduce=allreduce: allreduce(x), run.quick(3, 9)).median_s))
    if run.size == 1:
        points = [(1, 1e-9), (10**9, 1e-9)]
    fit = fit_line(points)
    run.say(f"T(m) = a + b m with a = {kit.seconds(fit.a_s)}, 1/b = {rate(fit.b_s_per_byte)}: below "
            f"{kit.number_of_bytes(fit.a_s / fit.b_s_per_byte) if fit.b_s_per_byte else 'any size'} the start-up is more than half")  # fmt: skip
    return fit.line, points


def rate(b_s_per_byte: float) -> str:
    return f"{1e-9 / b_s_per_byte:.3g} GB/s" if b_s_per_byte else "too fast to see"


def sweep_alexnet(run: kit.Run, data, thetas, line) -> dict:
    run.section(f"AlexNet, width {run.options.width:g}, {run.options.batch} images a rank: theta from 0 to infinity")
    model = new_model(run, data)
    ready_s, compute_s = pace_of_backward(run, model, data)
    gradients = [(t, 4 * spec.size) for t, spec in zip(ready_s, model.network.tensors)]
    count = run.quick(3, 11, 21)
    rows = []
    for theta in thetas:
        times = {}
        for name in ("plain", "overlapped"):
            exchange = Exchange(run, model.gradients, theta, overlap=name == "overlapped", check=False)
            run.comm.reset()
            mine = []
            for batch in steps_of(run, data, count):
                run.plain.Barrier()
                start_s = time.perf_counter()
                train_step(model, exchange, *batch, rate=0.0)
                mine.append(time.perf_counter() - start_s)
            times[name] = run.slowest(mine[1:])
            sent = run.comm.messages // count, run.comm.bytes // count
            exchange.close()
        rows.append(row_of(theta, exchange.lazy.calls, sent, times, gradients, line, compute_s))
    return report(run, rows) | {"ready_s": ready_s, "compute_s": compute_s}


def pace_of_backward(run: kit.Run, model, data):
    """When each gradient is ready after the start of a step, and how long the step computes, without any exchange."""
    ready, steps = [], []

    class Clock:
        def ready(self, i):
            ready[-1].append(time.perf_counter() - start_s)

        def finish(self):
            pass

    for batch in steps_of(run, data, run.quick(3, 7)):
        run.plain.Barrier()
        start_s = time.perf_counter()
        ready.append([])
        train_step(model, Clock(), *batch, rate=0.0)
        steps.append(time.perf_counter() - start_s)
    return np.max(run.plain.allgather(np.median(ready[1:], axis=0)), axis=0).tolist(), run.slowest(steps[1:]).median_s


def sweep_resnet(run: kit.Run, line) -> dict:
    """ResNet-50's 161 gradient sizes, in the order and at the pace of a backward pass on a GPU that is not there."""
    backward_s = run.quick(0.02, RESNET_BACKWARD_S)
    workload = resnet50()
    run.section("ResNet-50's 161 gradients, replayed at the pace of a backward pass")
    run.say(f"The ranks sleep instead of computing ({backward_s} s of backward, an assumption): the cores are free, as with a GPU.")
    share = run.quick(64, 1)  # --quick sends a 64th of each tensor
    gradients = [(t, 4 * max(1, n // 4 // share)) for t, n in workload.gradients(backward_s)]
    sizes = [Size(t.name, (nbytes // 4,)) for t, (_, nbytes) in zip(workload.tensors, gradients)]
    pool = Pool(sizes)
    durations = np.diff([0.0] + [ready_s for ready_s, _ in gradients])
    rows = []
    for theta in map(require_threshold, run.options.theta or run.quick(RESNET_THETAS[1::3], RESNET_THETAS)):
        times = {}
        for name in ("plain", "overlapped"):
            exchange = Exchange(run, pool, theta, overlap=name == "overlapped", check=False)
            run.comm.reset()
            repeats = run.quick(1, 3, 5)
            times[name] = run.time(lambda e=exchange: replay_backward(e, durations), repeats, warmup=1)
            sent = run.comm.messages // (repeats + 1), run.comm.bytes // (repeats + 1)
            exchange.close()
        rows.append(row_of(theta, exchange.lazy.calls, sent, times, gradients, line, backward_s))
    return report(run, rows) | {"backward_s": backward_s}


class Size:
    """A tensor of which only the size matters."""

    def __init__(self, name, shape):
        self.name, self.shape = name, shape


def replay_backward(exchange: Exchange, durations) -> None:
    """Announce each gradient after the time that computing it would take; time spent in the exchange comes on top."""
    due_s = time.perf_counter()
    for i, duration_s in enumerate(durations):
        due_s += duration_s
        time.sleep(max(0.0, due_s - time.perf_counter()))
        start_s = time.perf_counter()
        exchange.ready(i)
        due_s += time.perf_counter() - start_s
    exchange.finish()


def row_of(theta, calls, sent, times, gradients, line, compute_s) -> dict:
    """One theta: counts, measured times, and the timeline's predictions."""
    groups = lazy(gradients, theta)
    assert len(groups) == len(calls)
    predicted = {
        name: predict(gradients, groups, line, overlap=name == "overlapped", compute_s=compute_s).step_s for name in times
    }
    return {"theta": theta, "calls": len(calls), "messages": sent[0], "bytes": sent[1], **times, "predicted": predicted}


def report(run: kit.Run, rows: list[dict]) -> dict:
    run.table(
        ["theta", "calls", "messages", "bytes sent", "no overlap", "predicted", "overlap", "predicted"],
        [
            [kit.number_of_bytes(r["theta"]), r["calls"], r["messages"], r["bytes"], r["plain"], kit.seconds(r["predicted"]["plain"]),
             r["overlapped"], kit.seconds(r["predicted"]["overlapped"])]
            for r in rows
        ],
    )  # fmt: skip
    best = {}
    for name, told in (("plain", "no overlap"), ("overlapped", "overlap")):
        measured = min(rows, key=lambda r: r[name].median_s)
        predicted = min(rows, key=lambda r: r["predicted"][name])
        best[name] = {"measured": measured["theta"], "predicted": predicted["theta"]}
        gain = rows[0][name].median_s / measured[name].median_s
        run.say(f"{told}: best theta {kit.number_of_bytes(measured['theta'])} measured, {kit.number_of_bytes(predicted['theta'])} "
                f"predicted; {gain:.2f} times as fast as theta = {kit.number_of_bytes(rows[0]['theta'])}")  # fmt: skip
    return {"rows": rows, "best": best}


def learn(run: kit.Run, train, held_out, theta) -> dict:
    """Train with the best theta, so that it is seen to learn."""
    epochs = run.options.epochs if run.options.epochs is not None else run.quick(1, 8, 20)
    run.section(f"Learning, {epochs} epochs with theta = {kit.number_of_bytes(theta)}")
    model = new_model(run, train)
    exchange = Exchange(run, model.gradients, theta, overlap=False)
    epoch_rows, start_s = [], time.perf_counter()
    for epoch in range(epochs):
        mine = []
        for batch in batches(train, run.options.batch * run.size, epoch, SEED, run.rank, run.size):
            mine.append(train_step(model, exchange, *batch, rate=run.options.rate * min(1, (epoch + 1) / 2)))
        loss = np.mean(np.sum(run.plain.allgather(mine), axis=0))
        average_running_statistics(run, model.network)
        right, samples = np.sum(run.plain.allgather(evaluate(model.network, held_out, run.rank, run.size)), axis=0)
        epoch_rows.append({"loss": float(loss), "accuracy": float(right / samples)})
        run.say(f"epoch {epoch + 1:2d}: loss {loss:.4f}, {100 * right / samples:5.1f} % of {samples} held-out images right")
    same = require_same_parameters(run.plain, model.parameters.flat)
    run.say(f"{time.perf_counter() - start_s:.1f} s; all ranks hold the same parameters: {same[:16]}...")
    return {"epochs": epoch_rows, "theta": theta}


def average_running_statistics(run: kit.Run, network) -> None:
    """Batch normalisation's running statistics are each rank's own until they are averaged for evaluation."""
    for array in network.running:
        array[...] = np.mean(run.plain.allgather(array.copy()), axis=0)


# ---- the picture ----


def draw(result: dict):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(13, 5))
    titles = {"alexnet": "AlexNet on images, forward to update", "resnet50": "ResNet-50's 161 gradients, replayed backward pass"}
    for axis, (key, title) in zip(axes, titles.items()):
        rows = result[key]["rows"]
        labels = [kit.number_of_bytes(float(row["theta"])) for row in rows]
        for name, told, colour in (("plain", "no overlap", "tab:red"), ("overlapped", "overlap", "tab:blue")):
            median = [1e3 * row[name]["median_s"] for row in rows]
            spread = [[m - 1e3 * row[name]["low_s"] for m, row in zip(median, rows)],
                      [1e3 * row[name]["high_s"] - m for m, row in zip(median, rows)]]  # fmt: skip
            axis.errorbar(labels, median, spread, marker="o", ls="none", capsize=3, color=colour, label=f"{told}, measured")
            axis.plot(labels, [1e3 * row["predicted"][name] for row in rows], "--", color=colour, label=f"{told}, predicted")
        compute_ms = 1e3 * result[key].get("compute_s", result[key].get("backward_s"))
        axis.axhline(compute_ms, color="grey", lw=1, label="without any exchange")
        for x, row in enumerate(rows):
            axis.annotate(f"{row['calls']} calls", (x, 0.02), xycoords=("data", "axes fraction"), ha="center", fontsize=7)
        axis.set(title=title, xlabel="theta", ylabel="time of a step, ms", ylim=(0, None))
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.suptitle("Lesson 03: lazy allreduce. Waiting saves start-ups; with overlap, waiting too long hides nothing")
    figure.tight_layout(rect=(0, 0.02, 1, 1))
    return figure


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    lesson.argument("--data", type=Path, metavar="PATH", help="images as PATH/train/CLASS/*.jpg; default: bundled digits")
    lesson.argument("--skip-bad-images", action="store_true", help="go on without images that cannot be read")
    lesson.argument("--image-size", type=kit.positive, default=67, metavar="PIXELS", help="67 or more")
    lesson.argument("--width", type=float, default=1 / 8, help="share of AlexNet's channels (1 = full size)")
    lesson.argument("--batch", type=kit.positive, default=8, help="images per rank and step")
    lesson.argument("--rate", type=float, default=0.02, help="learning rate")
    lesson.argument("--epochs", type=kit.positive, help="epochs of the training at the end")
    lesson.argument("--theta", nargs="+", metavar="BYTES", help="thresholds to sweep: 0 65536 1e6 inf")
    lesson.main(measure, draw)
