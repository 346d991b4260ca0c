"""Lesson 04: overlap - communicate while computing.

    python -m refgf.cluster run --like v100-56gbit -- python lessons/04_overlap.py
    mpiexec -n 4 python lessons/04_overlap.py                         waits for the same links
    mpiexec -n 2 python lessons/04_overlap.py --like this-machine     your laptop as a cluster
    options: --theta BYTES ..., --quick, --full, --plot, --link ...

QUESTION    The last layer's gradient is ready long before the first layer's. Can it be sent in the
            meantime?
IDEA        A second thread sums the gradients that are ready while the first thread computes the
            rest. (refgf/exchange/overlap.py)

                main thread     backward 8 | backward 7 | backward 6 | ... | wait
                communication              | allreduce 8   | allreduce 7   | ...

PREDICTION  Calls queue behind each other, and none starts before its last gradient is ready:

                start of call i = max(end of call i-1, last gradient of its group is ready)
                step            = max(end of backward, end of the last call) + update

                can be hidden   = min(communication, backward left after the first gradient)
                exposed         = step with overlap - step without exchange
                hidden          = communication - exposed

            The timeline computes these from the link, the pace of the accelerator and the
            processor's own work. Each is measured too: communication by itself, what is left of
            backward in a trace, and the steps.

Before you run it, write down: forward takes F seconds, backward B, and all calls together C > B.
The first gradient is ready when backward begins. How long is a step with overlap, if theta is 0?
How long is it, if theta is infinity?

This is weak scaling: each rank brings its own batch, whatever p is.

With --like this-machine the ranks compute for real, on the cores that also communicate.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/04_overlap.py)
    1. Predict the smallest theta for which overlap hides nothing. Compute it from the sizes, then
       try it (--theta).
    2. A colleague measures overlap only by how long the main thread waits at the end of a step.
       Construct times for which this says "all hidden" although the step became longer.
    3. Put the small gradients first (reverse the order of the pool). What happens to the overlap?
       Why can we not choose the order of generation?
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import images
from kit.claims import GAIN, LIMIT, Claim
from lab import gantt, message_progress, overlap_here, overlap_picture, overlap_steps
from lab.message_progress import NON_BLOCKING, THREAD
from lab.overlap_steps import EAGER, ONE_CALL, row_of
from refgf import ops
from refgf.comm.ring import ring_allreduce
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.pool import Pool
from refgf.nn.layers import TensorSpec
from refgf.oracle.definitions import lazy_allreduce, same_bits
from refgf.papers.scaling.workloads import alexnet

# ---- what you should see ----


def at(theta: float, compare):
    """Compares the numbers of one theta; None where it was not measured."""
    return lambda result: (row := row_of(result, theta)) and compare(row)


def eager_against_one_call(result: dict):
    eager, one = row_of(result, EAGER), row_of(result, ONE_CALL)
    return eager and one and (eager["overlapped"], "<", one["overlapped"])


def thread_against_non_blocking(result: dict):
    left = result.get("progress", {}).get("left")
    return left and (left[THREAD], "<", left[NON_BLOCKING])


CORE = "whether the communication thread has processor time without taking it from computing"
CLAIMS = (
    Claim(
        "With a call per gradient, overlap makes the step shorter.",
        at(EAGER, lambda row: (row["overlapped"], "<", row["sequential"])),
        unless=CORE,
    ),
    Claim(
        "With a call per gradient, overlap hides at least 80 % of what can be hidden.",
        at(EAGER, lambda row: (row["hidden"], ">", row["hideable_s"], 0.8)),
        unless=CORE,
        kind=GAIN,
    ),
    Claim(
        "With one call a step, overlap gains nothing: at most 5 %.",
        at(ONE_CALL, lambda row: (row["overlapped"], ">", row["sequential"], 0.95)),
        unless="how a rank waits: a thread sleeps between polls, a blocking call does not",
        kind=LIMIT,
    ),
    Claim(
        "With overlap, a call per gradient gives a shorter step than one call.",
        eager_against_one_call,
        unless="the latency, which many small calls pay often",
    ),
    Claim(
        "The timeline predicts each step within 10 %.",
        lambda result: (steps := result.get("steps")) and (steps["largest_error"], "<", 0.1),
        unless="the processor's work, which is slower next to messages than without a network",
    ),
    Claim(
        "After a sleep, a thread's blocking call leaves less to wait for than a non-blocking call.",
        thread_against_non_blocking,
        unless="whether MPI has a progress thread, and whether the message is small",
    ),
    Claim(
        "Where ranks compute on the cores that communicate, overlap makes the step longer.",
        lambda result: (
            (here := result.get("here")) and (here["overlapped"], ">", here["sequential"])
        ),
        unless="whether each rank's thread finds a free core",
        here=True,
    ),
)


# ---- one step: this is the whole of overlap ----


class Exchange:
    """pool -> lazy -> communication thread -> ring in float16. Without overlap: no thread."""

    def __init__(self, comm, pool: Pool, theta: float, overlap: bool) -> None:
        comm = comm.Dup()  # the thread must be the only user of its communicator
        self.allreduce = ring_allreduce(ops.background(comm) if overlap else comm, wire=np.float16)
        self.worker = CommunicationThread() if overlap else AtOnce()
        self.lazy = LazyAllreduce(pool, self.send, Theta(theta), itemsize=2)

    def ready(self, i: int) -> None:
        """Backward calls this for each gradient."""
        self.lazy.ready(i)

    def send(self, group) -> None:
        """A group is complete. With a thread this returns at once."""
        self.worker.run(self.allreduce, group)

    def finish(self) -> None:
        """Backward has ended: send what is left, then wait for all sums."""
        self.lazy.finish()
        self.worker.wait()
        self.worker.close()


def check_against_oracle(run: kit.Run) -> None:
    """Compare the bits with and without overlap with the definition."""
    run.section("The oracle")
    specs = [TensorSpec(t.name, t.shape, False) for t in alexnet(width=1 / 16).tensors]
    pool, theta = Pool(specs), 2**14
    own = np.random.default_rng(run.rank).standard_normal(pool.flat.size).astype(np.float32)
    xs = run.gather(own)
    wanted = lazy_allreduce(xs, [spec.size for spec in specs], theta, "float16")[run.rank]
    for overlap in (False, True):
        pool.flat[:] = own
        exchange = Exchange(run.comm, pool, theta, overlap)
        for i in range(len(specs)):
            exchange.ready(i)
        exchange.finish()
        if not same_bits(pool.flat, wanted):
            raise AssertionError(
                f"lazy allreduce on rank {run.rank}, overlap {overlap}: got other bits; "
                "wanted those of the definition"
            )
    run.say(f"{len(specs)} gradients, with the thread and without it: the definition's bits.")


# ---- the measurement ----


def measure(run: kit.Run) -> dict:
    check_against_oracle(run)
    if run.regime.like is None:
        here, charts = overlap_here.measure(run, images.load(run)[0])
        found = {"here": here}
    else:
        thetas = {EAGER, *(run.options.theta or ()), ONE_CALL}
        run.section("AlexNet's gradients in float16, computing slept")
        steps = overlap_steps.measure(run, sorted(thetas))
        overlap_steps.show(run, steps)
        charts = steps.pop("charts")
        found = {"steps": steps}
    gantt.save_trace(run, run.options.lesson, charts["overlapped"])
    bars = {kind: [gantt.bars(lanes) for lanes in chart] for kind, chart in charts.items()}
    return found | {"charts": bars, "progress": message_progress.measure(run)}


PICTURE = "Bars of training steps without and with overlap; the share hidden against theta."

if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, like="v100-56gbit", claims=CLAIMS, picture=PICTURE)
    images.arguments(lesson)
    lesson.argument(
        "--theta",
        nargs="+",
        type=kit.threshold_bytes,
        metavar="BYTES",
        help="thresholds to measure besides 0 and inf: 65536 1e6",
    )
    lesson.main(measure, overlap_picture.draw)
