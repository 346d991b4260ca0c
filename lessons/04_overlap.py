"""Lesson 04: overlap - communicate while computing.

    mpiexec -n 8 python lessons/04_overlap.py
    options: --theta BYTES ..., --quick, --full, --plot, --link ...

QUESTION    The last layer's gradient is ready long before the first layer's. Can it be sent in the
            meantime?
IDEA        A second thread sums the gradients that are ready while the first thread computes the
            rest. (refgf/exchange/overlap.py)
PREDICTION  Calls queue behind each other, and none starts before its last gradient is ready:

                start of call i = max(end of call i-1, last gradient of its group is ready)
                step            = max(end of backward, end of the last call)

            So overlap hides at most min(communication, the rest of backward after the first
            gradient). One giant call (theta = infinity) starts when backward is over, and hides
            nothing.

Before you run it, write down: backward takes B seconds, communication C < B. How long is a step
with overlap if theta is small? How long is it if theta is infinity?

This is weak scaling: each rank brings its own batch, whatever p is.

WHAT YOU SHOULD SEE    In the Gantt chart blocking calls interrupt the backward pass; the calls of a
            thread run concurrently with it. Where ranks sleep instead of computing, as when a GPU
            computes, prediction and measurement agree within some ten percent, and overlap hides
            nearly all that it can. Where ranks compute, the thread takes processor time from the
            computation, and its messages wait for a core. With more ranks than cores the calls then
            outlast backward, and a step gains nothing or becomes longer. The meter reports this. A
            non-blocking call alone gives hardly any overlap, because large messages only progress
            while a thread is inside MPI.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/04_overlap.py)
    1. Predict the smallest theta for which overlap hides nothing. Compute it from the sizes, then
       try it (--theta).
    2. A colleague measures overlap only by how long the main thread waits at the end of a step.
       Construct times for which this says "all hidden" although the step became longer.
    3. Put the small gradients first (reverse the order of the pool). What happens to the overlap?
       Why can we not choose the order of generation?
"""

import refgf.launch  # noqa: F401  before MPI starts

import json
import math
import os
import textwrap
import threading
import time
from functools import partial

import numpy as np

import kit
from kit import axes, flow, images
from lab import gantt
from kit.replay import replay_backward, sizes_of
from refgf.comm.ring import ring_allreduce
from refgf.machine.timeline import Timeline, chrome_trace, gather
from refgf.exchange.result import StepResult
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.machine.meter import ExposedTime
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.pool import Pool
from refgf.oracle.definitions import lazy_allreduce, same_bits
from refgf.predict.timeline import lazy, predict
from refgf.papers.scaling.workloads import alexnet

THETAS = [0, 2**18, 2**20, 2**22, math.inf]  # bytes; the replayed gradients have 31 MB
SHARE = 8  # the replayed gradients are those of the full AlexNet, each this many times smaller
BACKWARD_S = 0.2  # an assumption: a GPU's backward pass for 128 images
DRAWN_RANKS = 3


def measure(run: kit.Run) -> dict:
    thetas = run.options.theta or run.quick(THETAS[::2], THETAS)
    train, _ = images.load(run)
    check_against_oracle(run, train)
    replayed = sweep_replay(run, thetas)
    alexnet_rows, charts = real_steps(run, train)
    return {
        "replay": replayed,
        "alexnet": alexnet_rows,
        "charts": charts,
        "progress": measure_progress(run),
    }


# ---- one step: this is the whole of overlap ----


class Exchange:
    """pool -> lazy -> communication thread -> ring; without overlap there is no thread."""

    def __init__(self, run: kit.Run, pool: Pool, theta: float, overlap: bool) -> None:
        self.allreduce = ring_allreduce(run.comm.Dup())  # a communicator for the thread only
        self.worker = CommunicationThread() if overlap else AtOnce()
        self.lazy = LazyAllreduce(pool, self.send, Theta(theta))
        self.waited_s = 0.0

    def ready(self, i: int) -> None:
        self.lazy.ready(i)

    def send(self, x) -> None:
        self.worker.run(self.allreduce, x)

    def finish(self) -> StepResult:
        self.lazy.finish()
        start_s = time.perf_counter()
        self.worker.wait()
        self.waited_s = time.perf_counter() - start_s
        return StepResult()

    def close(self) -> None:
        self.worker.close()


# ---- the oracle ----


def check_against_oracle(run: kit.Run, data) -> None:
    """Compare the bits with and without overlap with the definition, for a real batch."""
    run.section("The oracle")
    theta = 2**14
    with flow.new(run, data) as stack:
        batch = next(images.steps(run, data, 1))
        stack.model.network.loss(*batch)
        stack.model.network.backward(lambda i: None)
        xs = run.gather(stack.model.gradients.flat.copy())
        specs = stack.model.network.tensors
    wanted = lazy_allreduce(xs, [spec.size for spec in specs], theta)[run.rank]
    for overlap in (False, True):
        pool = Pool(specs)
        pool.flat[:] = xs[run.rank]
        exchange = Exchange(run, pool, theta, overlap)
        for i in range(len(specs)):
            exchange.ready(i)
        exchange.finish()
        exchange.close()
        if not same_bits(pool.flat, wanted):
            raise AssertionError(
                f"lazy allreduce on rank {run.rank}, overlap {overlap}: got other bits; "
                "wanted those of the definition"
            )
    run.say(
        "With and without the thread: a real batch's gradients have the bits of the definition."
    )


# ---- the measurement ----


def sweep_replay(run: kit.Run, thetas) -> dict:
    """Send the full AlexNet's gradients at the pace of a GPU, while the ranks sleep."""
    share, backward_s = run.quick(64, SHARE, 1), run.quick(0.03, BACKWARD_S)
    pool = Pool(sizes_of(alexnet(), share))
    run.section(
        f"AlexNet's {len(pool.specs)} gradients, {kit.number_of_bytes(pool.flat.nbytes)}, replayed"
    )
    run.say(f"The ranks sleep instead of computing ({backward_s} s of backward, an assumption).")
    ready_s = [t for t, _ in alexnet().gradients(backward_s)]
    gradients = [(t, view.nbytes) for t, view in zip(ready_s, pool.views)]
    n = pool.flat.size
    line = flow.fit_allreduce(run, [256, n // 64, n // 8, n], repeats=run.quick(2, 5)).line
    rows = [one_theta(run, pool, theta, ready_s, gradients, line) for theta in thetas]
    best_s = min(row["sequential"].median_s for row in rows)
    for row in rows:
        meter = ExposedTime(
            backward_s,
            row["alone"].median_s,
            row["overlapped"].median_s,
            best_s,
            row["waited"].median_s,
            backward_s - ready_s[0],
        )
        row |= {"hidden_share": meter.hidden_share, "exposed_s": meter.exposed_s}
        row["summary"] = str(meter)
    run.table(
        ["theta", "calls", "no overlap", "predicted", "overlap", "predicted", "hidden"],
        [
            [
                kit.number_of_bytes(row["theta"]),
                row["calls"],
                row["sequential"],
                kit.seconds(row["predicted"]["sequential"]),
                row["overlapped"],
                kit.seconds(row["predicted"]["overlapped"]),
                share_of(row["hidden_share"]),
            ]
            for row in rows
        ],
    )
    run.say("hidden: share of the time that can be hidden.")
    say_wrapped(run, min(rows, key=lambda row: row["overlapped"].median_s)["summary"])
    return {"rows": rows, "backward_s": backward_s, "line": [line.a_s, line.b_s_per_byte]}


def say_wrapped(run: kit.Run, text: str) -> None:
    run.say(textwrap.fill(text, 100))


def share_of(share) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def one_theta(run: kit.Run, pool: Pool, theta: float, ready_s, gradients, line) -> dict:
    """Times of a step with this theta, without and with overlap, measured and predicted."""
    row, groups = {"theta": theta, "predicted": {}}, lazy(gradients, theta)
    repeats = run.quick(2, 3, 7)
    for name in ("sequential", "overlapped"):
        exchange, waited = Exchange(run, pool, theta, name == "overlapped"), []

        def step(exchange=exchange, waited=waited):
            replay_backward(exchange, ready_s)
            waited.append(exchange.waited_s)

        row[name] = run.time(step, repeats)
        row["waited"] = run.slowest(waited[1:])
        if name == "sequential":
            at_once = partial(replay_backward, exchange, [0.0] * len(ready_s))
            row["alone"] = run.time(at_once, repeats)
        exchange.close()
        overlap = name == "overlapped"
        row["predicted"][name] = predict(gradients, groups, line, overlap, ready_s[-1]).step_s
    assert len(exchange.lazy.calls) == len(groups)
    return row | {"calls": len(groups)}


def real_steps(run: kit.Run, data):
    """Time training steps without exchange, without overlap and with it; record timelines."""
    count, theta = run.quick(4, 9, 21), 2**17
    run.section(f"{images.in_words(run)}, theta {kit.number_of_bytes(theta)}")
    compute, ready_s = flow.without_exchange(run, data, images.steps(run, data, count))
    times, charts, waited_s = {"alone": compute}, {}, 0.0
    for name in ("sequential", "overlapped"):
        timeline = Timeline()
        settings = {"grouping": Theta(theta), "overlap": name == "overlapped"}
        with flow.new(run, data, observe=timeline, **settings) as stack:
            times[name] = flow.time_steps(run, stack, images.steps(run, data, count))
            timeline.clear()
            run.plain.Barrier()
            stack.step(*next(images.steps(run, data, 1)), rate=0.0)
            charts[name] = gather(run.plain, timeline)
            calls = len(stack.calls)
        waited_s = sum(
            e.stop_s - e.start_s for e in timeline.lanes["compute"] if e.name == "WAIT_FOR_DATA"
        )
    n = sum(spec.size for spec in stack.model.network.tensors)
    x, allreduce = np.zeros(n // calls, np.float32), ring_allreduce(run.comm)
    times["communication"] = run.time(lambda: [allreduce(x) for _ in range(calls)], run.quick(2, 5))
    meter = ExposedTime(
        compute.median_s,
        times["communication"].median_s,
        times["overlapped"].median_s,
        times["sequential"].median_s,
        waited_s,
        compute.median_s - ready_s[0],
    )
    titles = {
        "alone": "no exchange",
        "sequential": "no overlap",
        "overlapped": "overlap",
        "communication": "communication only",
    }
    run.table(["", "time"], [[titles[name], timing] for name, timing in times.items()])
    say_wrapped(run, str(meter))
    if run.rank == 0:
        run.options.output.mkdir(parents=True, exist_ok=True)
        path = run.options.output / "04_overlap.trace.json"
        path.write_text(json.dumps(chrome_trace(charts["overlapped"])))
        run.say(f"The timeline of all {run.size} ranks, on one clock: {path}")
        run.say("Open it in ui.perfetto.dev.")
    few = {
        name: [gantt.bars(lanes) for lanes in chart[:DRAWN_RANKS]] for name, chart in charts.items()
    }
    return {**times, "summary": str(meter), "theta": theta}, few


# ---- progress of messages ----


def measure_progress(run: kit.Run) -> dict:
    """Time what a message to the neighbour adds to work that lasts longer than the message."""
    run.section("Which messages progress while the program computes?")
    if run.size == 1 or run.options.link:
        run.say("This section needs two ranks or more, and no --link: non-blocking messages.")
        return {}
    n, busy_s = run.quick(1 << 16, 1 << 21), run.quick(0.02, 0.1)
    send, receive = np.ones(n), np.zeros(n)  # float64: 16 MiB
    right, left = (run.rank + 1) % run.size, (run.rank - 1) % run.size
    comm, private = run.plain, run.plain.Dup()
    run.opaque = True  # these messages are not counted
    takes = run.time(lambda: comm.Sendrecv(send, right, 0, receive, left, 0), 2)
    busy_s = max(busy_s, 1.25 * takes.high_s)

    def busy(between=lambda: None):
        """Work outside MPI: the ranks sleep, so that no message waits for a core."""
        end_s = time.perf_counter() + busy_s
        while time.perf_counter() < end_s:
            time.sleep(0.001)
            between()

    def blocking():
        comm.Sendrecv(send, right, 0, receive, left, 0)
        busy()

    def non_blocking(test=False):
        requests = [comm.Irecv(receive, left), comm.Isend(send, right)]
        busy((lambda: [request.Test() for request in requests]) if test else lambda: None)
        for request in requests:
            request.Wait()

    def in_thread():
        thread = threading.Thread(target=lambda: private.Sendrecv(send, right, 0, receive, left, 0))
        thread.start()
        busy()
        thread.join()

    progress_thread = os.environ.get("MPIR_CVAR_ASYNC_PROGRESS", "0") not in ("", "0")
    helped = ", MPI's progress thread" * progress_thread
    named = {
        "blocking call, then work": blocking,
        f"non-blocking call{helped}": non_blocking,
        "non-blocking call, polled every ms": lambda: non_blocking(test=True),
        "blocking call in our own thread": in_thread,
    }
    work_s = run.time(busy, run.quick(2, 5)).median_s
    exposed = {
        name: run.time(step, run.quick(2, 5)).median_s - work_s for name, step in named.items()
    }
    run.table(
        ["", f"in addition to {kit.seconds(work_s)} of work"],
        [[k, kit.seconds(max(0, v))] for k, v in exposed.items()],
    )
    if not progress_thread and not run.options.threads:
        run.say("MPICH has its own progress thread: try it with MPIR_CVAR_ASYNC_PROGRESS=1.")
        run.say("It spins and needs a core of its own.")
    return {"bytes": send.nbytes, "exposed_s": exposed}


# ---- the figure ----


def draw(result: dict):
    title = "Lesson 04: overlap. Gradients that are ready are sent while backward goes on"
    figure, (left, right, sweep, progress) = axes.frame(title, 2, 2, (15, 9))
    gantt.side_by_side((left, right), result["charts"])
    kinds = {"sequential": ("no overlap", "tab:red"), "overlapped": ("overlap", "tab:blue")}
    rows, backward_s = result["replay"]["rows"], result["replay"]["backward_s"]
    hidden = [share_of(row["hidden_share"]) for row in rows]
    axes.against_theta(sweep, rows, kinds, backward_s, "backward only", hidden)
    sweep.set(title="AlexNet's gradients replayed (below: share hidden)", xlabel="theta")
    draw_progress(progress, result["progress"])
    axes.finish(figure, sweep)
    sweep.legend(fontsize=8, loc="center", bbox_to_anchor=(0.5, 0.42))  # above the notes
    return figure


def draw_progress(axis, progress: dict) -> None:
    exposed = progress.get("exposed_s", {})
    names = list(exposed)[::-1]
    axis.barh(names, [max(0, 1e3 * exposed[name]) for name in names], color="tab:purple")
    size = kit.number_of_bytes(progress.get("bytes", 0))
    axis.set(
        title="Which messages progress during work?",
        xlabel=f"ms that a message of {size} adds to work that could hide it",
    )
    axis.grid(alpha=0.3, axis="x")


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__)
    images.arguments(lesson)
    lesson.argument(
        "--theta",
        nargs="+",
        type=kit.threshold_bytes,
        metavar="BYTES",
        help="thresholds to sweep: 0 65536 1e6 inf",
    )
    lesson.main(measure, draw)
