"""Lesson 09: merged gradients - MG-WFBP computes which gradients are sent together.

    mpiexec -n 8 python lessons/09_merged_gradients.py  waits for messages instead of sending slowly
    python -m refgf.cluster run --like mgwfbp-10gbe -- python lessons/09_merged_gradients.py
    options: --predict "20 calls", -v (all tables), --network alexnet (26 gradients, not 161),
             --like this-machine (your links; also --network densenet201, --share N), --quick, ...

QUESTION    Lesson 03 tries one theta after the other. Can you compute from measured times which
            gradients should be sent together?
IDEA        Measure when each gradient is ready and what an allreduce costs. Then go through the
            gradients in backward's order. If waiting for the next gradient costs less than a
            latency, merge it into the call; else send what waits. No theta, and groups of any
            size: `greedy_groups` below, for real in refgf/papers/mgwfbp/merge.py and merged.py
            (drawing: lessons/drawings/09.svg).

                ready     g0  g1      g2   g3       g4
                eager     |~~~~~g0|~~~~~g1|~~~~~g2|~~~~~g3|~~~~~g4|      ~ is latency
                greedy        |~~~~~g0g1   |~~~~~g2g3|~~~~~g4|

            Naive is all or nothing: a call for each gradient, or one for all. By hand: three
            gradients are ready after 1, 2 and 6 ms, the latency is 3 ms, and each gradient takes
            1 ms more. Three calls end after 5, 9 and 13 ms. One call goes from 6 to 12 ms. Greedy
            sends g0 and g1 from 2 to 7 ms, because g1 is only 1 ms later and g2 is 4 ms later
            still, then g2 from 7 to 11 ms.

PREDICTION  A call of m bytes takes T(m) = a + b m. Merging two calls saves one latency a, and costs
            waiting:

                start of a call = max(end of the call before, its last gradient ready)
                step            = end of the last call

                greedy rule     gradient i joins i+1 if ready(i+1) - start(i) < a; never revised
                                (Shi et al. 2019)
                exact, any T    F(j) = min over i < j of max(F(i), ready(j)) + T(bytes of i .. j-1)

            F(j) is the earliest end of all calls for the first j gradients. It takes L(L+1)/2
            values of T instead of trying 2^(L-1) groupings.

Before you run it, write down: with 161 gradients and a latency of 0.7 ms a call, how many calls
does the best merge make? Does some theta of lesson 03 make the same groups? The authors' abstract
calls their solution optimal; their code has this rule (unverified that they mean it). Is the rule
optimal? Try gradients of one byte, ready after 1, 2 and 4, with a = 2, b = 1.

This is weak scaling: each rank has a backward pass of its own. On these few ranks several groupings
are within a tenth of the best. So the step is measured again with the latency of a ring on 128
ranks, slept in each call: does theta still fit there? A small network then trains with the merged
groups, and formulas go on from 4 to 2048 GPUs, which nobody measured here. After this lesson you
can apply the greedy rule, find where it is not optimal, and derive the recursion for the best
merge.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/09_merged_gradients.py)
    1. Show that for two gradients the greedy rule gives the best merge, for any a, b, times, sizes.
    2. How many times as long as the best step can a greedy one take? Build a network near this.
    3. Backward gets a quarter faster or slower than it was profiled. How much time do groups
       computed from the old times lose?

A COLLEAGUE SAYS the following, and is wrong. Show it. (answers: lessons/teaching/09.md)
    a. "A rule that decides each step rightly is optimal." -v: how often does the greedy rule miss?
    b. "The fewer calls, the better." The row of one call next to the best merge.
    c. "An exact algorithm must be much faster than a tuned parameter." -v, and --network alexnet.
"""

import refgf.launch  # noqa: F401  before MPI starts

from collections.abc import Iterator
import numpy as np

import kit
from kit import virtual
from lab.lazy import grouped_steps
from lab.merge import curves, here, oracle, steps, training
from lab.merge.claims import REVEAL
from lab.merge.picture import draw
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.exchange.lazy import LazyAllreduce
from refgf.exchange.overlap import CommunicationThread
from refgf.exchange.result import StepResult

# ---- the idea, for all ranks in one process ----


def greedy_groups(ready_s: list, nbytes: list, a_s: float, b_s_per_byte: float) -> tuple:
    """In backward's order -> (range of gradients of each call, end of the last call)."""
    groups, begin, start_s = [], 0, 0.0
    for i, now_s in enumerate(ready_s):
        start_s = max(start_s, now_s)  # of a call that ends with gradient i
        if i + 1 == len(ready_s) or ready_s[i + 1] - start_s >= a_s:  # waiting costs a latency
            groups.append(range(begin, i + 1))
            start_s += a_s + b_s_per_byte * sum(nbytes[begin : i + 1])  # the link is busy
            begin = i + 1
    return groups, start_s


def merged_sums(gradients: list[list[np.ndarray]], groups: list[range]) -> list[np.ndarray]:
    """gradients[rank][i] -> the pool of sums of every rank; one allreduce for each group."""
    sums = []
    for group in groups:
        messages = [np.concatenate([mine[i] for i in group]) for mine in gradients]
        sums.append(sum(messages))  # one allreduce
    return [np.concatenate(sums) for _ in gradients]


# ---- one step ----


class Exchange:
    """This lesson's stack: pool -> merged or lazy -> communication thread -> ring."""

    def __init__(self, run, pool, grouping) -> None:
        """grouping: a Theta, or Groups."""
        self.allreduce = collective(grouped_steps.sleeping_comm(run), ring.allreduce)
        self.thread = CommunicationThread()
        self.lazy = LazyAllreduce(pool, self.send, grouping)

    def ready(self, i: int) -> None:
        self.lazy.ready(i)

    def send(self, x) -> None:
        self.thread.run(self.allreduce, x)

    def finish(self) -> StepResult:
        self.lazy.finish()
        self.thread.wait()
        return StepResult()

    def close(self) -> None:
        self.thread.close()


# ---- the lesson ----


def measure(run: kit.Run) -> Iterator[dict]:
    oracle.check(run)
    yield steps.measure(run, Exchange)
    yield {"training": training.compare(run)}
    yield {"curves": run.on_rank_0(lambda: curves.predict(run)) or {}}


if __name__ == "__main__":
    lesson = kit.Lesson(__file__, __doc__, REVEAL, like="mgwfbp-10gbe")
    networks = sorted({*virtual.FULL, *here.NETWORKS})
    share = f"on this machine: tensors N times smaller ({here.SHARE}; 1: full size)"
    lesson.argument("--network", choices=networks, help="default resnet50")
    lesson.argument("--share", type=kit.positive, metavar="N", help=share)
    lesson.main(measure, draw)
