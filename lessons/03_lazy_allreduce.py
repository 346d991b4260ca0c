"""Lesson 03: lazy allreduce - one message for many gradients.

    python -m refgf.cluster run --like v100-10gbe -- python lessons/03_lazy_allreduce.py
    mpiexec -n 8 python lessons/03_lazy_allreduce.py    waits for messages instead of sending slowly
    options: --network alexnet (26 large gradients instead of 161), --theta BYTES ...,
             --like this-machine (your laptop as a cluster), --quick, --full, --plot, ...

QUESTION    Backward makes one gradient after another, many of them small. Is it better to send each
            at once, or to wait for more?
IDEA        All gradients lie in one pool, in the order in which backward makes them. Wait until
            more than theta bytes are ready, then sum the whole slice in one call. No copy is
            needed. (refgf/exchange/pool.py, lazy.py)

                gradients      g0 g1 g2 | g3 | g4 g5
                waiting bytes  4  12 20 | 32 | 4  8        theta = 16
                calls          ^^^^^^^^   ^^   ^^^^^       the rest: backward has ended

PREDICTION  One call of m bytes takes T(m) = a + b m (lesson 01: a = 2(p-1) alpha). k calls pay the
            latency k times, k a: waiting saves latency. But a gradient that waits is sent later,
            so less of its time hides behind the backward pass:

                without overlap    step = compute + k a + b n
                with overlap       start of a call = max(end of the previous call,
                                                         its last gradient is ready)
                                   step = max(end of compute, end of the last call)

Before you run it, write down: which theta is best without overlap, and which with? 0, infinity, or
something between? On how many calls a step does the best one spend its latency?

This is weak scaling: each rank brings its own batch, whatever p is.

NOW CHANGE SOMETHING    (solutions: lessons/solutions/03_lazy_allreduce.py)
    1. Which theta sends exactly two calls? Compute it from the sizes, then try it.
    2. The rule says *greater than* theta. Find a theta where "greater or equal" gives another
       number of calls.
    3. A colleague forgets the flush after the last gradient. What would the losses show, and after
       how many steps?
"""

import refgf.launch  # noqa: F401  before MPI starts

import numpy as np

import kit
from kit import images
from kit.claims import GAIN, LIMIT, NOISE, Claim
from kit.replay import sizes_of
from lab import grouped_steps, lazy_here, lazy_steps
from lab.lazy_steps import sent_bytes, timing
from lab.predicted_places import compared, either, predicted
from refgf.comm import direct, ring
from refgf.comm.agreement import CheckedAllreduce, agree
from refgf.comm.schedule import collective
from refgf.exchange.lazy import LazyAllreduce, Theta
from refgf.exchange.overlap import AtOnce, CommunicationThread
from refgf.exchange.pool import Pool
from refgf.exchange.result import StepResult
from refgf.oracle.definitions import direct_allreduce, lazy_allreduce, lazy_calls, same_bits
from refgf.papers.scaling.workloads import resnet50

# ---- what you should see ----

FAST = "resnet50", "v100-56gbit"


def alexnet(r: dict) -> list:
    """Eager calls and the best theta for AlexNet: measured if this run did, else predicted."""
    measured = [timing(r, "overlapped", theta, "AlexNet") for theta in (0, "best")]
    return either(r, measured, ("alexnet", "v100-10gbe"), ("eager", "best theta"))


CLAIMS = (
    Claim(
        "With overlap, eager calls take at least 1.3 times as long as the best theta (ResNet-50).",
        lambda r: compared(timing(r, "overlapped", 0), ">", timing(r, "overlapped"), 1.3),
        unless="latencies that are short next to the bytes, or that backward hides",
        kind=GAIN,
    ),
    Claim(
        "With overlap, one call at the end takes at least 1.1 times as long as the best theta.",
        lambda r: compared(timing(r, "overlapped", "inf"), ">", timing(r, "overlapped"), 1.1),
        unless="a backward pass that is short next to the exchange",
    ),
    Claim(
        "Without overlap, eager calls take longer than one call.",
        lambda r: compared(timing(r, "plain", 0), ">", timing(r, "plain", "inf")),
        unless="latencies that are short next to the bytes",
    ),
    Claim(
        "Without overlap, one call gains less than a twentieth over theta = 16 MiB (6 calls).",
        lambda r: compared(timing(r, "plain", 2**24), "<", timing(r, "plain", "inf"), 1.05),
        unless="a latency of a call that is long next to all bytes",
        expected=NOISE,
    ),
    Claim(
        "The theta that is predicted to be best is at most a twentieth slower than the best one.",
        lambda r: compared(
            timing(r, "overlapped", "predicted"), "<", timing(r, "overlapped"), 1.05
        ),
        unless="processor time that the prediction leaves out",
    ),
    Claim(
        "Lazy allreduce saves no bytes: a rank sends as many in one call as in eager calls.",
        lambda r: compared(sent_bytes(r, "inf"), ">", sent_bytes(r, 0), 0.999),
        unless="tensors with fewer elements than ranks",
    ),
    Claim(
        "AlexNet's 26 gradients: eager calls take less than 1.2 times as long as the best theta "
        "(predicted for 10 Gbit/s; measured with --network alexnet).",
        lambda r: compared(alexnet(r)[0], "<", alexnet(r)[1], 1.2),
        unless="latencies that are long next to the bytes",
        kind=LIMIT,
    ),
    Claim(
        "On 56 Gbit/s backward hides eager calls too: the best theta gains less than a hundredth "
        "(ResNet-50 on 4 ranks, predicted).",
        lambda r: compared(
            predicted(r, *FAST, "eager"), "<", predicted(r, *FAST, "best theta"), 1.01
        ),
        unless="latencies that backward does not hide",
    ),
)


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
        check: bool = False,
    ) -> None:
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


# ---- the oracle ----


def check_against_oracle(run: kit.Run, thetas=(0, 2**10, 2**14, float("inf"))) -> None:
    """Compare calls and bits with the definition, for ResNet-50's last layers in small."""
    run.section("The oracle")
    pool = Pool(sizes_of(resnet50(), 256)[:24])
    sizes = [spec.shape[0] for spec in pool.specs]
    xs = [
        np.random.default_rng(rank).standard_normal(pool.flat.size).astype(np.float32)
        for rank in range(run.size)
    ]
    for theta in thetas:
        for algorithm, order in ((ring.allreduce, "ring"), (direct.allreduce, "direct")):
            pool.flat[:] = xs[run.rank]
            exchange = Exchange(run, pool, theta, False, algorithm, check=True)
            for i in range(len(sizes)):
                exchange.ready(i)
            exchange.finish()
            calls = [(call.start, call.stop) for call in exchange.lazy.calls]
            wanted = lazy_allreduce(xs, sizes, theta, order=order)[run.rank]
            where = f"lazy {order} allreduce on rank {run.rank}, theta {theta}"
            if calls != lazy_calls(sizes, 4, theta) or not same_bits(pool.flat, wanted):
                raise AssertionError(f"{where}: got other calls or bits; wanted the definition's")
            if order == "direct" and not same_bits(pool.flat, direct_allreduce(xs)[run.rank]):
                raise AssertionError(f"{where}: got bits that depend on theta; wanted the same")
    run.say("theta: bytes that may wait. ring: lesson 01's allreduce. direct: adds in rank order.")
    run.say(f"{len(thetas)} values of theta, each with ring and with direct: calls and bits are as")
    run.say("defined. The bits of direct do not depend on theta.")


def measure(run: kit.Run) -> dict:
    options, emulated = run.options, run.regime.like is not None
    options.network = options.network or ("resnet50" if emulated else "alexnet")
    agree(run.plain.Dup(), "network and theta", f"{options.network} {options.theta}")
    check_against_oracle(run)
    return (lazy_steps if emulated else lazy_here).measure(run, Exchange)


def draw(result: dict):
    return (lazy_steps if "rows" in result else lazy_here).draw(result)


if __name__ == "__main__":
    lesson = kit.Lesson(
        __file__,
        __doc__,
        probe=True,
        like="v100-10gbe",
        claims=CLAIMS,
        picture="The time of a training step against theta, with and without overlap, measured "
        "and predicted; eager calls over the best theta on three clusters.",
    )
    images.arguments(lesson)
    lesson.argument(
        "--network", choices=list(images.NETWORKS), help="resnet50; on this machine alexnet"
    )
    lesson.argument(
        "--theta",
        nargs="+",
        type=kit.threshold_bytes,
        metavar="BYTES",
        help="thresholds to sweep: 0 65536 1e6 inf",
    )
    lesson.main(measure, draw)
