"""Lesson 04: overlap - communicate while computing.

    mpiexec -n 8 python lessons/04_overlap.py                (--theta BYTES ..., --quick, --full,
    --plot, --link ...)

QUESTION    The last layer's gradient is ready long before the first layer's. Can it travel in the
            meantime?
IDEA        A second thread sums what is ready while the first one computes the rest.
            (refgf/exchange/overlap.py)
PREDICTION  Calls queue behind each other, and none starts before its last gradient is ready:

                start of call i = max(end of call i-1, last gradient of its group is ready)
                step            = max(end of backward, end of the last call)

            So at most min(communication, what backward still does after the first gradient) can be
            hidden. One giant call (theta = infinity) starts when backward is over: it hides
            nothing.

Before you run it, write down: backward takes B seconds, communication C < B. How long is a step
with overlap, if theta is small? And if theta is infinity?

This is weak scaling: each rank brings a batch of its own, whatever p is.

WHAT YOU SHOULD SEE    In the Gantt chart blocking calls interrupt the backward pass; those of a
                       thread lie beside it. Where
            ranks sleep instead of computing, as when a GPU computes, measured and predicted agree
            within some ten percent, and nearly all of what can be hidden is. Where ranks compute
            themselves, the thread takes processor time from the computation, and its messages wait
            for a core: with more ranks than cores the calls outlast backward, a step gains nothing
            or becomes longer, and the meter says so instead of praising itself. A non-blocking call
            by itself is hardly overlap: large messages only move while somebody is inside MPI.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/04_overlap.py)
    1. Predict the theta from which on nothing is hidden any more. Compute it from the sizes, then
    try it (--theta). 2. The main thread calls the thread's allreduce and then looks only at how
    long it waited at the end. Construct times
       for which this says "all hidden" although the step has become longer.
    3. Put the small gradients first (order of the pool reversed). What happens to the overlap, and
    why is the order of
       generation not ours to choose?
"""

import refgf.launch  # noqa: F401  before MPI starts

import json
import math
import os
import threading
import time

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
SHARE = 8  # the replayed gradients are those of the full AlexNet, each so many times smaller
BACKWARD_S = 0.2  # an assumption: what a GPU might take for 128 images
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
        "progress": who_makes_progress(run),
    }


# ---- one step: this is all there is to overlap ----


class Exchange:
    """pool -> lazy -> communication thread -> ring; without overlap the thread is left out."""

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
    """On a real batch: with and without overlap the bits are those of the definition."""
    run.section("The oracle")
    theta = 2**14
    with flow.new(run, data) as stack:
        batch = next(images.steps(run, data, 1))
        stack.model.network.loss(*batch)
        stack.model.network.backward(lambda i: None)
        everybody = run.gather(stack.model.gradients.flat.copy())
        specs = stack.model.network.tensors
    wanted = lazy_allreduce(everybody, [spec.size for spec in specs], theta)[run.rank]
    for overlap in (False, True):
        pool = Pool(specs)
        pool.flat[:] = everybody[run.rank]
        exchange = Exchange(run, pool, theta, overlap)
        for i in range(len(specs)):
            exchange.ready(i)
        exchange.finish()
        exchange.close()
        if not same_bits(pool.flat, wanted):
            raise AssertionError(
                f"rank {run.rank}: overlap={overlap}: not the bits of the definition"
            )
    run.say("with and without the thread: the bits of the definition, on a real batch's gradients")


# ---- the measurement ----


def sweep_replay(run: kit.Run, thetas) -> dict:
    """The full AlexNet's gradients at the pace of a GPU that is not there: ranks sleep, so their
    cores are free.
    """
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
        row |= {
            "hidden_share": meter.hidden_share,
            "exposed_s": meter.exposed_s,
            "told": str(meter),
        }
    run.table(
        [
            "theta",
            "calls",
            "no overlap",
            "predicted",
            "overlap",
            "predicted",
            "of what can be hidden",
        ],
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
    run.say(min(rows, key=lambda row: row["overlapped"].median_s)["told"])
    return {"rows": rows, "backward_s": backward_s, "line": [line.a_s, line.b_s_per_byte]}


def share_of(share) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def one_theta(run: kit.Run, pool: Pool, theta: float, ready_s, gradients, line) -> dict:
    row, repeats, groups = (
        {"theta": theta, "predicted": {}},
        run.quick(2, 3, 7),
        lazy(gradients, theta),
    )
    for name in ("sequential", "overlapped"):
        exchange, waited = Exchange(run, pool, theta, name == "overlapped"), []

        def step(exchange=exchange, waited=waited):
            replay_backward(exchange, ready_s)
            waited.append(exchange.waited_s)

        row[name] = run.time(step, repeats)
        row["waited"] = run.slowest(waited[1:])
        if name == "sequential":
            row["alone"] = run.time(
                lambda e=exchange: replay_backward(e, [0.0] * len(ready_s)), repeats
            )
        exchange.close()
        overlap = name == "overlapped"
        row["predicted"][name] = predict(gradients, groups, line, overlap, ready_s[-1]).step_s
    assert len(exchange.lazy.calls) == len(groups)
    return row | {"calls": len(groups)}


def real_steps(run: kit.Run, data):
    """Ranks that compute: a training step without exchange, without overlap, with it, and what
    happened when.
    """
    count, theta = run.quick(4, 9, 21), 2**17
    run.section(f"{images.told(run)}, theta {kit.number_of_bytes(theta)}")
    alone, ready_s = flow.without_exchange(run, data, images.steps(run, data, count))
    times, charts, waited_s = {"alone": alone}, {}, 0.0
    for name in ("sequential", "overlapped"):
        timeline = Timeline()
        parts = {"grouping": Theta(theta), "overlap": name == "overlapped", "observe": timeline}
        with flow.new(run, data, **parts) as stack:
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
        alone.median_s,
        times["communication"].median_s,
        times["overlapped"].median_s,
        times["sequential"].median_s,
        waited_s,
        alone.median_s - ready_s[0],
    )
    run.table(["", "time of a step"], [[name, timing] for name, timing in times.items()])
    run.say(str(meter))
    if run.rank == 0:
        run.options.output.mkdir(parents=True, exist_ok=True)
        path = run.options.output / "04_overlap.trace.json"
        path.write_text(json.dumps(chrome_trace(charts["overlapped"])))
        run.say(f"what all {run.size} ranks did, on one clock: {path} (open it in ui.perfetto.dev)")
    few = {
        name: [gantt.bars(lanes) for lanes in chart[:DRAWN_RANKS]] for name, chart in charts.items()
    }
    return {**times, "told": str(meter), "theta": theta}, few


# ---- who makes progress? ----


def who_makes_progress(run: kit.Run) -> dict:
    """Each rank sends a large message to its neighbour while it is busy with something else, for
    longer than that takes.
    """
    run.section("Who makes progress while the program computes?")
    if run.size == 1 or run.options.link:
        run.say("one rank alone, or a stated link, has no non-blocking messages to show")
        return {}
    n, busy_s = run.quick(1 << 16, 1 << 21), run.quick(0.02, 0.1)
    send, receive = np.ones(n), np.zeros(n)  # float64: 16 MiB
    right, left = (run.rank + 1) % run.size, (run.rank - 1) % run.size
    comm, private = run.plain, run.plain.Dup()
    run.opaque = True  # these messages are not counted
    takes = run.time(lambda: comm.Sendrecv(send, right, 0, receive, left, 0), 2)
    busy_s = max(busy_s, 1.25 * takes.high_s)

    def busy(between=lambda: None):
        """Work outside MPI; the ranks sleep, so that the processor is not what they wait for."""
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

    def helped():
        thread = threading.Thread(target=lambda: private.Sendrecv(send, right, 0, receive, left, 0))
        thread.start()
        busy()
        thread.join()

    progress_thread = os.environ.get("MPIR_CVAR_ASYNC_PROGRESS", "0") not in ("", "0")
    named = {
        "blocking call, then work": blocking,
        "non-blocking call, MPI's progress thread"
        if progress_thread
        else "non-blocking call": non_blocking,
        "non-blocking call, polled every ms": lambda: non_blocking(test=True),
        "blocking call in a thread of ours": helped,
    }
    alone_s = run.time(busy, run.quick(2, 5)).median_s
    exposed = {
        name: run.time(step, run.quick(2, 5)).median_s - alone_s for name, step in named.items()
    }
    run.table(
        ["", f"on top of {kit.seconds(alone_s)} of work"],
        [[k, kit.seconds(max(0, v))] for k, v in exposed.items()],
    )
    if not progress_thread and not run.options.threads:
        run.say(
            "MPI's own thread: try it with MPIR_CVAR_ASYNC_PROGRESS=1 (MPICH); it spins, and needs a core for itself"
        )
    return {"bytes": send.nbytes, "exposed_s": exposed}


# ---- the picture ----


def draw(result: dict):
    title = "Lesson 04: overlap. What is ready travels while the rest is computed"
    figure, (left, right, sweep, progress) = axes.frame(title, 2, 2, (15, 9))
    gantt.side_by_side((left, right), result["charts"])
    rows, kinds = (
        result["replay"]["rows"],
        {"sequential": ("no overlap", "tab:red"), "overlapped": ("overlap", "tab:blue")},
    )
    hidden = [share_of(row["hidden_share"]) for row in rows]
    axes.against_theta(sweep, rows, kinds, result["replay"]["backward_s"], "backward alone", hidden)
    sweep.set(
        title="AlexNet's gradients replayed (below: share of what can be hidden)", xlabel="theta"
    )
    draw_progress(progress, result["progress"])
    axes.finish(figure, sweep)
    sweep.legend(
        fontsize=8, loc="center", bbox_to_anchor=(0.5, 0.42)
    )  # the notes at the bottom stay free
    return figure


def draw_progress(axis, progress: dict) -> None:
    exposed = progress.get("exposed_s", {})
    axis.barh(
        list(exposed)[::-1],
        [max(0, 1e3 * exposed[name]) for name in list(exposed)[::-1]],
        color="tab:purple",
    )
    told = kit.number_of_bytes(progress.get("bytes", 0))
    axis.set(
        title="Who makes progress?",
        xlabel=f"ms that a message of {told} adds to work it could hide behind",
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
