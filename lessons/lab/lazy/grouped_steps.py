"""Steps with several groupings of the gradients, measured in turn and predicted: lessons 03, 09.

    bench = grouped_steps.bench(run, "resnet50")       a virtual accelerator around a gradient pool
    bench = grouped_steps.replayed(run, resnet50(), backward_s, share=8)
    off = grouped_steps.without_exchange(run, bench)
    costs = grouped_steps.costs(run, bench)            T(m) of a call, from the link
    step_s = bench.predicted_s(groups, costs.call, overlap=True) + update_s

All exchanges share one model, so memory is that of one rank's replica, and one step warms up.
"""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import kit
from kit import virtual
from kit.replay import replay_backward, sizes_of
from kit.reveal import COLUMNS
from refgf import ops
from refgf.comm import ring
from refgf.comm.schedule import collective
from refgf.exchange.pool import Pool
from refgf.machine.accelerator import InstantComm
from refgf.predict.cost import Line, ring_line
from refgf.predict.timeline import predict
from refgf.training.step import train_step

SHORT = 256  # elements of a call that is nearly all latency


@dataclass(frozen=True)
class Bench:
    """What a grouping is tried on.

    step       one step with an exchange
    gradients  [(ready_s, bytes)] in order of generation, in this machine's time
    compute_s  seconds of computing in a step
    """

    title: str
    pool: Pool
    step: Callable
    gradients: list
    compute_s: float

    def predicted_s(self, groups, call_s, overlap: float = True) -> float:
        """Seconds of a step without its update; call_s: T(m) of a call."""
        return predict(self.gradients, groups, call_s, overlap, self.compute_s).step_s


def bench(run: kit.Run, network: str) -> Bench:
    """A full-size network on a virtual accelerator of the emulated cluster."""
    ready, compute_s = virtual.ready(run, network)
    model = virtual.model(run, network)

    def step(exchange) -> None:
        train_step(model, exchange, *virtual.NOTHING, rate=0.0)

    title = virtual.workload(run, network).name
    title += run.quick(" at 1/8 of its width", "")
    gradients = [(t, 4 * elements) for t, elements in ready]
    return Bench(title, model.gradients, step, gradients, compute_s)


def replayed(run: kit.Run, workload, backward_s: float, share: int) -> Bench:
    """A backward pass of this length that is slept through, around a pool of smaller tensors."""
    pool = Pool(sizes_of(workload, share), np.float32, run.xp.zeros)
    ready_s = [t for t, _ in workload.gradients(backward_s)]
    gradients = [(t, view.nbytes) for t, view in zip(ready_s, pool.views)]
    size = f"each 1/{share} of its size" if share > 1 else "at full size"

    def step(exchange) -> None:
        replay_backward(exchange, ready_s)

    return Bench(f"{workload.name}, {size}", pool, step, gradients, backward_s)


def show_sizes(run: kit.Run, pool: Pool) -> None:
    """Print the bytes of each gradient, with which calls can be counted for any theta."""
    run.say("Bytes of the gradients, in the order in which backward makes them:")
    run.say(textwrap.fill(" ".join(str(view.nbytes) for view in pool.views), COLUMNS))


def without_exchange(run: kit.Run, bench: Bench, repeats: int = 3) -> kit.Timing:
    """The Timing of a step in which nothing is sent. The update is included."""
    return run.time(lambda: bench.step(virtual.NoExchange()), repeats)


@dataclass(frozen=True)
class Costs:
    """T(m) of a ring allreduce.

    link  by formula: 2(p-1) alpha, and 2(p-1)/p of the bytes at the link's rate
    own   this machine's part: what a short call takes beyond the link, and, measured without a
          network, one copy of each message and the additions
    call  their sum, for predictions
    """

    link: Line
    own: Line
    call: Line


def link_here(run: kit.Run) -> Line:
    """T(m) of the link that this run emulates; nothing where none is emulated."""
    if not run.regime.like:
        return Line(0.0, 0.0)
    return ring_line(run.size, run.regime.goodput())


def sleeping_comm(run: kit.Run):
    """A duplicate of run.comm. On an emulated cluster its waits sleep: all nodes share the cores.

    A rank that polls takes the core from one that has something to send.
    """
    comm = run.comm.Dup()
    return ops.background(comm) if run.regime.like else comm


def costs(run: kit.Run, bench: Bench) -> Costs:
    """T(m) for this run. Collective: short calls, and calls that send nothing."""
    line = link_here(run)
    allreduce = collective(sleeping_comm(run), ring.allreduce)
    short = run.xp.zeros(SHORT, np.float32)
    short_s = run.time(lambda: allreduce(short), run.quick(5, 15)).median_s
    own = own_line(run, bench.pool, short_s)
    call = Line(line.a_s + own.a_s, line.b_s_per_byte + own.b_s_per_byte)
    link_s, found_s = (t / run.regime.dilation for t in (line.a_s, call.a_s))
    run.say(f"A short call takes {2 * (run.size - 1)} latencies, {kit.seconds(link_s)} by the link")
    run.say(f"and {kit.seconds(found_s)} here: messages cost this machine time too.")
    return Costs(line, own, call)


def own_line(run: kit.Run, pool: Pool, short_s: float) -> Line:
    """This machine's part of a ring allreduce. short_s: seconds of a short call.

    Latency: what a short call takes beyond the link. Bytes: calls on all ranks without a network.
    """
    allreduce = collective(InstantComm(run.rank, run.size), ring.allreduce)
    all_s = run.time(lambda: allreduce(pool.flat), run.quick(2, 3)).median_s
    return Line(max(0.0, short_s - link_here(run).a_s), all_s / pool.flat.nbytes)


def own_s(groups, gradients, own: Line) -> float:
    """Seconds that the calls of a step take of the processor."""
    return sum(own(sum(gradients[i][1] for i in group)) for group in groups)
