"""Lesson 04: overlap - communicate while computing.

    python -m refgf.cluster run --like v100-56gbit -- python lessons/04_overlap.py
    mpiexec -n 4 python lessons/04_overlap.py                         waits for the same links
    mpiexec -n 2 python lessons/04_overlap.py --like this-machine     your laptop as a cluster
    options: --predict "3 and 2", -v (all tables), --theta BYTES ..., --quick, --full, --plot, ...

QUESTION    The last layer's gradient is ready long before the first layer's. Can it be sent in the
            meantime?
IDEA        A second thread sums the gradients that are ready while the first thread computes the
            rest: `step_timeline` below, for real in refgf/exchange/overlap.py. (drawing:
            lessons/drawings/04.svg)

                main thread     backward 8 | backward 7 | backward 6 | ... | wait
                communication              | allreduce 8   | allreduce 7   | ...

            Naive is to send when backward has ended. By hand: gradients are ready after 10, 20 and
            30 ms, and each call takes 8 ms. Naive: 30 + 24 = 54 ms. With overlap the calls go from
            10 to 18, 20 to 28 and 30 to 38 ms: only the last one is exposed.

PREDICTION  Calls queue behind each other, and none starts before its last gradient is ready:

                start of call i = max(end of call i-1, last gradient of its group is ready)
                step            = max(end of backward, end of the last call) + update

                communication   = step without overlap - step without exchange
                can be hidden   = min(communication, backward left after the first gradient)
                hidden          = step without overlap - step with overlap
                exposed         = communication - hidden

            The timeline computes these from the link, the pace of the accelerator and the
            processor's own work. Each is measured too: by three steps, and what is left of backward
            by a trace.

Before you run it, write down: forward takes 13 ms, backward 26 ms, and all calls together 32 ms.
The first gradient is ready when backward begins. How long is a step with overlap, if theta is 0?
How long is it, if theta is infinity? How many times as fast as without overlap is each of them?

This is weak scaling: each rank brings its own batch, whatever p is. With --like this-machine the
ranks compute for real, on the cores that also communicate. After this lesson you can draw a step
with and without overlap, say what can be hidden and what never is, and see in a chart whether it
was.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/04_overlap.py)
    1. Predict the smallest theta for which overlap hides nothing. Compute it from the sizes (those
       of lesson 03 with --network alexnet -v, halved for float16), then try it: --theta, --output
       results/mine.
    2. A colleague measures overlap only by how long the main thread waits at the end of a step.
       Construct times for which this says "all hidden" although the step became longer.
    3. Put the small gradients first: reverse the order of the pool. `predicted` in
       lessons/lab/overlap/steps.py has the list `gradients`; a slice of the reversed pool is ready
       when all before it are. What happens to the overlap? Why can we not choose the order of
       generation?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/04.md)
    a. "A non-blocking call runs in the background." --like this-machine -v: "Which calls progress
       while the program sleeps?"
    b. "Overlap hides all communication, whatever theta is." -v: "can be hidden" next to
       "communication", and the row of one call.
    c. "Overlap costs nothing, so it can only gain." --like this-machine, with as many ranks as
       cores and with half as many.
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
import numpy as np

import kit
from kit import images
from lab.overlap import gantt, here, message_progress, oracle, picture, steps
from lab.overlap.claims import REVEAL
from refgf import ops
from refgf.comm.ring import ring_allreduce
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.exchange.overlap import AtOnce, CommunicationThread

# ---- the idea: when each call starts and ends, without overlap and with it ----


def step_timeline(ready_s, call_s, compute_s: float, overlap: bool) -> tuple:
    """One step of one rank. -> (start of each call (n,), end of each call (n,), end of the step)

    ready_s (n,): when call i has its last gradient, if nothing delays computing; ascending.
    call_s (n,): how long call i takes. compute_s: how long forward and backward take.
    """
    start_s, end_s = np.zeros(len(call_s)), np.zeros(len(call_s))
    free_s = delay_s = 0.0  # the end of the last call; how late computing is
    for i, (ready, duration) in enumerate(zip(ready_s, call_s)):
        start_s[i] = max(free_s, ready + delay_s)
        end_s[i] = free_s = start_s[i] + duration
        if not overlap:  # the only thread is busy with the call
            delay_s += duration
    return start_s, end_s, max(compute_s + delay_s, free_s)


# ---- one step ----


class OverlappedExchange:
    """pool -> lazy -> communication thread -> ring in float16. overlap False: no thread."""

    def __init__(self, comm, pool, theta: float, overlap: bool) -> None:
        comm = comm.Dup()  # the thread must be the only user of its communicator
        self.allreduce = ring_allreduce(ops.background(comm) if overlap else comm, wire=np.float16)
        self.worker = CommunicationThread() if overlap else AtOnce()
        self.lazy = LazyAllreduce(pool, self.send, Theta(theta), np.float16)

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


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    oracle.check(run, OverlappedExchange)
    found, charts = (steps if run.regime.like else here).measure(run)
    gantt.save_trace(run, charts["overlapped"])
    bars = {kind: [gantt.bars(lanes) for lanes in chart] for kind, chart in charts.items()}
    yield found | {"charts": bars}
    yield {"progress": message_progress.measure(run)}


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, like="v100-56gbit")
    images.arguments(lesson)
    lesson.argument(
        "--theta",
        nargs="+",
        type=kit.threshold_bytes,
        metavar="BYTES",
        help="thresholds to measure besides 0 and inf: 65536 1e6",
    )
    lesson.main(measure, picture.draw)
