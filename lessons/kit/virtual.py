"""GradientFlow around a virtual accelerator: the full-size networks of the papers, time dilated.

with virtual.flow(run, "alexnet", overlap=True, wire=np.float16) as stack:
    timing = virtual.time_steps(run, stack, count)
off = virtual.without_exchange(run, "alexnet", count)          the same step, nothing sent
work_s = virtual.own_work(run, "alexnet", ...)                 the processor's work in a step
ready, compute_s = virtual.ready(run, "alexnet")               for predictions

New pools of all gradients take seconds to touch, so stacks that are compared share a model's:

model = virtual.model(run, "alexnet")
with virtual.flow(run, "alexnet", shared=model, overlap=True) as stack: ...

Times are this machine's; timing.divided(run.regime.dilation) is the cluster's.
"""

import copy
import gc
import time
from dataclasses import replace
from functools import partial

import numpy as np

import kit
from kit import images
from refgf.comm.ring import ring_allreduce
from refgf.exchange.precision import LossScale
from refgf.exchange.result import StepResult
from refgf.machine.accelerator import InstantComm, Pace, VirtualNetwork
from refgf.nn.layers import TensorSpec
from refgf.papers.scaling.workloads import alexnet, resnet50
from refgf.training.gradientflow import GradientFlow
from refgf.training.sgd import MomentumSGD
from refgf.training.step import Replica, replica, train_step

FULL = {"alexnet": alexnet, "resnet50": resnet50}
QUICK = {"alexnet": partial(alexnet, width=1 / 8), "resnet50": partial(alexnet, width=1 / 8)}
MODEL = ("half_weights", "loss_scale", "momentum", "when")
WARMUP = 1  # the first step allocates
AT_ONCE = 1e-6  # of the pace: nothing is slept
NOTHING = np.empty((0, 1), np.float32), np.empty(0, np.int64), 1  # images, labels, global batch


def workload(run: kit.Run, name: str):
    """The shapes of the network; with --quick those of a small AlexNet."""
    return run.quick(QUICK, FULL)[name]()


def pace(run: kit.Run, name: str) -> Pace:
    """When an accelerator of the emulated cluster has computed each gradient, dilated."""
    shapes = workload(run, name)
    _, step_s = run.regime.like.step_s(name)
    step_s *= shapes.step_flops / FULL[name]().step_flops
    forward_s = step_s * shapes.forward_flops / shapes.step_flops
    ready_s = tuple(t for t, _ in shapes.gradients(step_s - forward_s, forward_s))
    return Pace(forward_s, ready_s, step_s).dilated(run.regime.dilation)


def ready(run: kit.Run, name: str):
    """([(ready_s, elements)], seconds of computing) of a step, as predict.timeline takes them."""
    when = pace(run, name)
    sizes = [tensor.elements for tensor in workload(run, name).tensors]
    return list(zip(when.ready_s, sizes)), when.end_s


def real_norms(run: kit.Run, data, chunks: int) -> np.ndarray:
    """Mean |g| of each of `chunks` equal chunks of a real network's pool, after one backward. (C,)

    A full-size pool with these norms is as uneven as that of the small network, chunk by chunk.
    """
    real = images.model(run, data)
    real.network.loss(*next(iter(images.steps(run, data, 1))))
    real.network.backward(lambda i: None)
    flat = np.abs(real.gradients.flat)  # (n,)
    edges = np.linspace(0, flat.size, min(chunks, flat.size) + 1).astype(int)
    return np.add.reduceat(flat, edges[:-1]) / np.diff(edges)  # (C,)


def model(run: kit.Run, name: str, norms=None, momentum: float = 0.9, when=None, **more):
    """A replica with the tensors of this network, whose computing is slept. when: its Pace."""
    gc.collect()  # or pools of earlier stacks stay, because their stacks are in cycles
    specs = [
        TensorSpec(tensor.name, tensor.shape, tensor.name.endswith("weight"))
        for tensor in workload(run, name).tensors
    ]
    network = VirtualNetwork(specs, when or pace(run, name), norms, seed=run.rank)
    return replica(network, partial(MomentumSGD, momentum=momentum), **more)


def flow(
    run: kit.Run,
    name: str,
    *,
    norms=None,
    shared: Replica | None = None,
    allreduce=ring_allreduce,
    comm=None,
    **arguments,
):
    """GradientFlow around a virtual accelerator. shared: a model whose pools and norms it uses.

    MPI's own call runs on the plain communicator: it cannot wait for a latency.
    """
    gc.collect()  # as in `model`: a stack of CSC has pools of its own
    more = {key: arguments.pop(key) for key in MODEL if key in arguments}
    if comm is None:
        comm = run.native if allreduce is kit.mpi_allreduce else run.comm
    replica_ = sharing(shared, **more) if shared else model(run, name, norms, **more)
    return GradientFlow(comm, replica_, allreduce=allreduce, **arguments)


def sharing(model: Replica, loss_scale: LossScale | None = None, when: Pace | None = None):
    """A replica with the pools of `model`. when: its own Pace."""
    network = copy.copy(model.network)
    network.pace = when or network.pace
    return replace(model, network=network, loss_scale=loss_scale or LossScale())


def seconds_of_steps(
    run: kit.Run, stack, count: int, rate: float = 0.0, warmup: int = WARMUP
) -> list[float]:
    """This rank's seconds of each step after the warm-up. CSC's first step is dense."""
    step = partial(stack.step, *NOTHING, rate=rate)
    return timed(run, stack.model.network, step, warmup + bool(stack.csc), count)


def timed(run: kit.Run, network: VirtualNetwork, step, warmup: int, count: int) -> list[float]:
    """This rank's seconds of each step() after `warmup` ones, in which nothing is slept."""
    real, mine = network.pace, []
    for number in range(warmup + count):
        network.pace = real if number >= warmup else real.dilated(AT_ONCE)
        mine.append(run.timed(step))
    return mine[warmup:]


def time_steps(run: kit.Run, stack, count: int, warmup: int = WARMUP) -> kit.Timing:
    """The Timing of steps after the warm-up.

    warmup 0: in float32, and in pools that are used already, a first step allocates nothing.
    """
    return run.slowest(seconds_of_steps(run, stack, count, warmup=warmup))


def own_work(run: kit.Run, name: str, count: int = 2, **arguments) -> float:
    """Seconds of the processor's own work in a step of this stack: nothing slept, no network.

    Casts, additions, packing, choosing, the update, and writing the gradients (`idle_work`). All
    ranks work at once, because they share the cores.
    """
    if arguments.get("allreduce") is kit.mpi_allreduce:
        arguments["allreduce"] = ring_allreduce
    with alone(run, name, **arguments) as stack:
        return time_steps(run, stack, count).median_s


def alone(run: kit.Run, name: str, **arguments) -> GradientFlow:
    """This stack without a network; nothing is slept."""
    comm, at_once = InstantComm(run.rank, run.size), pace(run, name).dilated(AT_ONCE)
    stack = flow(run, name, comm=comm, when=at_once, **arguments)
    if stack.csc:  # without a network the sum of the flags is a norm: it rejects every step
        stack.csc.sum_norms = lambda norms: None
    return stack


def own_work_of_csc(run: kit.Run, name: str, count: int = 1, **arguments) -> tuple[float, float]:
    """(seconds of the processor's own work in a step, its part after the last gradient).

    The communication thread does the first part during backward: it accumulates, adds up norms,
    packs and sends. The second part is choosing, delivering and the update.
    """
    with alone(run, name, **arguments) as stack:
        finish, last_s, after_s = stack.finish, [], []

        def after_the_thread():
            stack.csc.transport.worker.wait()
            run.plain.Barrier()
            last_s.append(time.perf_counter())
            return finish()

        def step() -> None:
            stack.step(*NOTHING, rate=0.0)
            after_s.append(time.perf_counter() - last_s[-1])

        stack.finish = after_the_thread
        whole_s = timed(run, stack.model.network, step, WARMUP + 1, count)  # the first is dense
        return run.slowest(whole_s).median_s, run.slowest(after_s[-count:]).median_s


def idle_work(run: kit.Run, shared: Replica, count: int = 2) -> tuple[float, float]:
    """(seconds of writing the gradients, which sleeps hide; seconds of the update)."""
    replica_ = sharing(shared, when=shared.network.pace.dilated(AT_ONCE))
    update = partial(replica_.update, 0.0, StepResult())
    update_s = run.time(update, count).median_s
    both_s = without_exchange_of(run, replica_, count).median_s
    return max(0.0, both_s - update_s), update_s


class NoExchange:
    """An exchange that sends nothing."""

    def ready(self, index: int) -> None:
        pass

    def finish(self) -> StepResult:
        return StepResult()


def without_exchange(run: kit.Run, name: str, count: int, **more) -> kit.Timing:
    """The Timing of a step in which nothing is sent; the update is included."""
    return without_exchange_of(run, model(run, name, **more), count)


def without_exchange_of(run: kit.Run, replica_, count: int) -> kit.Timing:
    return run.slowest(seconds_without_exchange(run, replica_, count))


def seconds_without_exchange(run: kit.Run, replica_, count: int) -> list[float]:
    """This rank's seconds of each step in which nothing is sent."""
    step = partial(train_step, replica_, NoExchange(), *NOTHING, rate=0.0)
    return timed(run, replica_.network, step, WARMUP, count)
