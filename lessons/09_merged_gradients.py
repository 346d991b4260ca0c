"""Lesson 09: merged gradients - MG-WFBP computes which gradients are sent together.

    python -m refgf.cluster run --like v100-10gbe -- python lessons/09_merged_gradients.py
    mpiexec -n 8 python lessons/09_merged_gradients.py  waits for messages instead of sending slowly
    options: --network alexnet (26 large gradients instead of 161), --quick, --full, --plot, ...
             --like this-machine (your links; also --network densenet201, --share N)

QUESTION    Lesson 03 sweeps theta. Can you compute from measured times which gradients should be
            sent together?
IDEA        Measure when each gradient is ready and what an allreduce costs. Choose the groups whose
            last call ends first. Send each group when its last gradient is ready.
            (refgf/papers/mgwfbp/merged.py, merge.py)

                ready      g0    g1 g2       g3    g4 g5
                calls      |g0 g1 |          |g2 g3|     |g4 g5|
                           merged: the wait for g1 costs less than a latency

PREDICTION  A call of m bytes takes T(m) = a + b m. Merging two calls saves one latency a, and costs
            waiting:

                start of a call = max(end of the call before, its last gradient ready)
                step            = end of the last call

                greedy rule     gradient i joins i+1 if ready(i+1) - start(i) < a; never revised
                                (Shi et al. 2019)
                exact, any T    F(j) = min over i < j of max(F(i), ready(j)) + T(bytes of i .. j-1)

            F(j) is the earliest end of all calls for the first j gradients. It takes L(L+1)/2
            values of T instead of 2^(L-1) merges.

            The authors call their rule optimal. Each of its decisions is right if what follows
            stays the same. A gradient that waits may spoil a better group later, and many waits,
            each shorter than a, may add up to more than a. The smallest example: ready after 1, 2
            and 4, one byte each, a = 2, b = 1.

Before you run it, write down: with 161 gradients and a latency of 0.4 ms a call, how many calls
does the best merge make? Does some theta of lesson 03 make the same groups? How long are the steps
of the smallest example, greedy and best?

This is weak scaling: each rank has a backward pass of its own, whatever p is.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/09_merged_gradients.py)
    1. Show that for two gradients the greedy rule gives the best merge, whatever a, b, times and
       sizes are.
    2. How many times as long as the best step can a greedy step take? Build a network that comes
       near this bound.
    3. Backward gets a quarter faster or slower than it was profiled. How much time do groups
       computed from the old times lose?
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import virtual
from kit.claims import GAIN, LIMIT, Claim
from kit.replay import replay_backward, sizes_of
from lab import greedy_misses, grouped_steps, merge_here, merge_steps, predicted_places
from lab.merge_picture import draw
from lab.merge_steps import EXACT, GREEDY, missed, timing
from lab.predicted_places import compared, either, predicted
from refgf.comm import direct, ring
from refgf.comm.agreement import agree
from refgf.comm.schedule import collective
from refgf.exchange.lazy import LazyAllreduce
from refgf.exchange.overlap import CommunicationThread
from refgf.exchange.pool import Pool
from refgf.exchange.result import StepResult
from refgf.oracle.definitions import direct_allreduce, ring_allreduce, same_bits
from refgf.papers.mgwfbp.merge import compare, exact_merge, greedy_merge
from refgf.papers.mgwfbp.merged import Groups
from refgf.papers.scaling.workloads import resnet50
from refgf.predict.cost import Line
from refgf.predict.timeline import eager, one_call

EXAMPLE = [(1.0, 1), (2.0, 1), (4.0, 1)], Line(2.0, 1.0)
SLOW, FAST = ("resnet50", "v100-10gbe"), ("resnet50", "v100-56gbit")

# ---- what you should see ----


def alexnet(r: dict) -> list:
    """Eager calls and the best merge for AlexNet: measured if this run did, else predicted."""
    measured = [timing(r, name, "AlexNet") for name in ("eager (WFBP)", EXACT)]
    return either(r, measured, ("alexnet", "v100-10gbe"), ("eager", "exact"))


CLAIMS = (
    Claim(
        "Without a sweep, the best merge is within a tenth of the sweep's best theta (ResNet-50).",
        lambda r: compared(timing(r, EXACT), "<", timing(r, "best theta"), 1.1),
        unless="ready times or call times that were measured at another moment",
    ),
    Claim(
        "Eager calls take at least 1.3 times as long as the best merge.",
        lambda r: compared(timing(r, "eager (WFBP)"), ">", timing(r, EXACT), 1.3),
        unless="latencies that are short next to the bytes, or that backward hides",
        kind=GAIN,
    ),
    Claim(
        "The greedy rule's groups do not beat the best merge by more than a tenth.",
        lambda r: compared(timing(r, EXACT), "<", timing(r, GREEDY), 1.1),
        unless="ready times or call times that were measured at another moment",
    ),
    Claim(
        "Merging gains little over a theta that is known to be best: less than a tenth.",
        lambda r: compared(timing(r, "best theta"), "<", timing(r, EXACT), 1.1),
        unless="a sweep without a theta near the best one",
        kind=LIMIT,
    ),
    Claim(
        "The greedy rule misses the best merge of ResNet-50 on 10 Gbit/s (computed for 8 ranks).",
        lambda r: compared(predicted(r, *SLOW, "greedy"), ">", predicted(r, *SLOW, "exact")),
        unless="another pace or latency",
    ),
    Claim(
        "The greedy rule is optimal for two gradients, for a = 0, for b = 0, if all gradients are "
        "ready within one latency, and if each is sent before the next is ready (computed).",
        lambda r: (1 - missed(r, greedy_misses.BEST_FOR), ">", 0.9999),
        unless="a bug: the solutions prove the case of two gradients",
    ),
    Claim(
        "On 56 Gbit/s merging gains less than a hundredth over eager calls: backward hides both "
        "(ResNet-50 on 4 ranks, predicted).",
        lambda r: compared(predicted(r, *FAST, "eager"), "<", predicted(r, *FAST, "exact"), 1.01),
        unless="latencies that backward does not hide",
    ),
    Claim(
        "AlexNet's 26 gradients are limited by the bandwidth: eager calls take less than 1.2 times "
        "as long as the best merge (predicted for 10 Gbit/s; measured with --network alexnet).",
        lambda r: compared(alexnet(r)[0], "<", alexnet(r)[1], 1.2),
        unless="latencies that are long next to the bytes",
    ),
)


# ---- one step: profile, fit and merge are in lab/merge_steps.py; this runs the groups ----


class Exchange:
    """pool -> merged or lazy -> communication thread -> ring."""

    def __init__(self, run: kit.Run, pool: Pool, grouping) -> None:
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


# ---- the oracle ----


def check_against_oracle(run: kit.Run) -> None:
    """One call per group: the bits of ring and direct allreduce as defined, for any groups."""
    run.section("The oracle")
    pool = Pool(sizes_of(resnet50(), 256)[:40])
    everybody = [
        np.random.default_rng(r).standard_normal(pool.flat.size).astype(np.float32)
        for r in range(run.size)
    ]
    gradients = [(float(i), view.nbytes) for i, view in enumerate(pool.views)]
    line = Line(2.0, 1 / np.median([nbytes for _, nbytes in gradients]))
    algorithms = (ring.allreduce, ring_allreduce), (direct.allreduce, direct_allreduce)
    merged = greedy_merge(gradients, line), exact_merge(gradients, line)
    for groups in (eager(gradients), one_call(gradients), *merged):
        bounds = [(pool.offsets[group[0]], pool.offsets[group[-1] + 1]) for group in groups]
        for algorithm, define in algorithms:
            pool.flat[:] = everybody[run.rank]
            exchange = LazyAllreduce(pool, collective(run.comm, algorithm), Groups(tuple(groups)))
            replay_backward(exchange, [0.0] * len(gradients))
            wanted = np.concatenate(
                [define([x[i:j] for x in everybody])[run.rank] for i, j in bounds]
            )
            place = f"merged allreduce on rank {run.rank}, {len(groups)} groups"
            if [(c.start, c.stop) for c in exchange.calls] != bounds:
                raise AssertionError(f"{place}: got other calls; wanted one for each group")
            if not same_bits(pool.flat, wanted):
                raise AssertionError(f"{place}: got other bits than defined")
    got = compare(*EXAMPLE)
    if (got["greedy"], got["exact"]) != (9, 8):
        raise AssertionError(f"smallest example: got {got}; wanted greedy 9, exact 8")
    run.say("eager, one call, greedy and exact groups: one ring or direct allreduce per group,")
    run.say("each bit for bit as defined; direct gives the same bits for all groups.")
    run.say("The smallest example (ready after 1, 2, 4; a = 2, b = 1): greedy 9, best merge 8.")


def measure(run: kit.Run) -> dict:
    """Compare all groupings on the emulated cluster, or on this machine's links."""
    options, emulated = run.options, run.regime.like is not None
    names = [options.network] if options.network else ["resnet50"]
    known = virtual.FULL if emulated else merge_here.NETWORKS
    if names[0] not in known:
        raise ValueError(
            f"--network {names[0]}: got a network without a pace here; wanted one of "
            f"{', '.join(known)}; next: --like {'this-machine' if emulated else 'v100-10gbe'}"
        )
    agree(run.plain.Dup(), "network and share", f"{names} {options.share}")
    check_against_oracle(run)
    if not (emulated or options.network):
        names = list(merge_here.NETWORKS)
    make = (grouped_steps if emulated else merge_here).bench
    networks = {name: merge_steps.measure(run, make(run, name), name, Exchange) for name in names}
    line = Line(*(networks[names[0]]["fit"][key] for key in ("a_s", "b_s_per_byte")))
    groupings = ("eager", "best theta", "one call", "greedy", "exact")
    return {
        "regime": run.regime.record(),
        "networks": networks,
        "elsewhere": predicted_places.rows(run, groupings),
        "misses": greedy_misses.count(run, line),
    }


if __name__ == "__main__":
    lesson = kit.Lesson(
        __file__,
        __doc__,
        like="v100-10gbe",
        claims=CLAIMS,
        picture="The time of a training step with eager calls, with several thetas, with one call "
        "and with merged gradients, measured and predicted.",
    )
    networks = sorted({*virtual.FULL, *merge_here.NETWORKS})
    lesson.argument("--network", choices=networks, help="default resnet50")
    lesson.argument(
        "--share",
        type=kit.positive,
        metavar="N",
        help=f"on this machine: tensors N times smaller ({merge_here.SHARE}; 1: full size)",
    )
    lesson.main(measure, draw)
