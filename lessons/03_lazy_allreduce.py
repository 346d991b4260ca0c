"""Lesson 03: lazy allreduce - one message for many gradients.

    mpiexec -n 8 python lessons/03_lazy_allreduce.py     8 ranks; the link's time is waited for
    python -m refgf.cluster run --like mgwfbp-10gbe -- python lessons/03_lazy_allreduce.py
                                                         8 nodes on 10 Gbit/s, 20 times slower
    options: --predict "64 KiB", -v (all tables), --network alexnet (26 gradients instead of 161),
             --theta 0 16MiB inf, --like this-machine (your laptop as it is), --quick, --plot, ...

QUESTION    Backward makes one gradient after another, many of them small. Is it better to send each
            at once, or to wait until more than theta bytes are ready? Which theta is best?
IDEA        All gradients lie in one pool, in the order in which backward makes them. Wait until
            more than theta bytes are ready, then sum the whole slice in one call. No copy is
            needed: `lazy_sums` below, for real in refgf/exchange/pool.py and lazy.py (drawing:
            lessons/drawings/03.svg).

                gradients      g0 g1 g2 | g3 | g4 g5
                waiting bytes  4  12 20 | 32 | 4  8        theta = 16
                calls          ^^^^^^^^   ^^   ^^^^^       the rest: backward has ended

            Naive is a call for each gradient. By hand: three small gradients are ready after 1, 2
            and 3 ms, and any call takes 3 ms, nearly all of it latency.

                eager      |g0 g0 g0|g1 g1 g1|g2 g2 g2|       from 1 to 10 ms
                one call         |g0 g1 g2|                   from 3 to 6 ms

PREDICTION  One call of m bytes takes T(m) = a + b m (lesson 01: a = 2(p-1) alpha). k calls pay the
            latency k times, k a: waiting saves latency. But a gradient that waits is sent later,
            so less of its time hides behind the backward pass:

                without overlap    step = compute + k a + b (bytes of all gradients)
                with overlap       start of a call = max(end of the previous call,
                                                         its last gradient is ready)
                                   step = max(end of compute, end of the last call)

Before you run it, write down: which theta is best without overlap, and which with? 0, infinity, or
something between? How many calls a step does the best one make? (--predict takes the best theta
with overlap.)

This is weak scaling: each rank brings its own batch, whatever p is. After this lesson you can
predict the calls for a theta, derive both steps, and say when waiting wins and when not.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/03_lazy_allreduce.py)
    1. Which theta sends exactly two calls? Compute it from the sizes that -v prints (--quick has
       other sizes), then try yours with --theta and --output results/mine.
    2. The rule says *greater than* theta. Find a theta where "greater or equal" gives another
       number of calls; try both rules in `lazy_calls` of student/03.py with --mine FILE.
    3. A colleague forgets the flush after the last gradient. What would the losses show, and after
       how many steps? Leave it out of your `lazy_calls`, then: --mine FILE --wrong-anyway

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/03.md)
    a. "One message for many gradients sends fewer bytes." --theta 0 inf -v, without --quick: the
       verdict on bytes.
    b. "The later, the better: with few calls there is little latency." The two rows of one call,
       and the best theta with overlap.
    c. "The best theta is a constant: take the paper's." --network alexnet, then --like v100-56gbit.
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import images
from lab.lazy import grouped_steps, here, oracle, steps
from lab.lazy.claims import REVEAL
from lab.lazy.picture import draw
from refgf.comm import ring
from refgf.comm.agreement import CheckedAllreduce, agree
from refgf.comm.schedule import collective
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.result import StepResult

# ---- the idea, for all ranks in one process ----


def lazy_sums(gradients: list[list[np.ndarray]], theta: float) -> tuple[list, list]:
    """gradients[rank][i], in backward's order -> (a pool of sums per rank, slices of the calls)."""
    pools = [np.concatenate(mine) for mine in gradients]  # (n,)
    stops = np.cumsum([g.size for g in gradients[0]]).tolist()
    calls, start = [], 0
    for stop in stops:  # the gradient that ends here is ready
        waiting_bytes = (stop - start) * pools[0].itemsize
        if waiting_bytes > theta or waiting_bytes and stop == stops[-1]:
            total = sum(pool[start:stop] for pool in pools)  # one allreduce
            for pool in pools:
                pool[start:stop] = total
            calls.append((start, stop))
            start = stop
    return pools, calls


# ---- one step ----


class Exchange:
    """This lesson's stack: pool -> lazy -> (communication thread ->) checked -> ring or direct."""

    def __init__(self, run, pool, theta, overlap, algorithm=ring.allreduce, check=False) -> None:
        allreduce = collective(grouped_steps.sleeping_comm(run), algorithm)
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


# ---- the lesson ----


def measure(run: kit.Run) -> dict:
    options, emulated = run.options, run.regime.like is not None
    options.network = options.network or ("resnet50" if emulated else "alexnet")
    agree(run.plain.Dup(), "network and theta", f"{options.network} {options.theta}")
    oracle.check(run, Exchange)
    return (steps if emulated else here).measure(run, Exchange)


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, probe=True, like="mgwfbp-10gbe")
    images.arguments(lesson)
    networks, theta = list(images.NETWORKS), steps.theta_bytes
    lesson.argument("--network", choices=networks, help="resnet50; on this machine alexnet")
    lesson.argument("--theta", nargs="+", type=theta, help="thresholds: 0 65536 1e6 16MiB inf")
    lesson.main(measure, draw)
