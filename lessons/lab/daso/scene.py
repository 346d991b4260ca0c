"""Lesson 13's two scenes, of which one is timed.

virtual_scene   full-size ResNet-50, whose computing is slept, on emulated or waited links
this_machine    your laptop as a cluster: a small network computes for real, on shared cores.
                Sending takes time from computing there, so less than what DASO hides is gained.
                tests/speed/daso_speed.py compares both.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import kit
from kit import flow, images, virtual
from refgf import ops
from refgf.comm.schedule import collective
from refgf.exchange.lazy import Theta
from refgf.machine.link import LinkComm
from refgf.papers.jia.hierarchical import two_level_ring
from refgf.predict.cost import Link
from refgf.training.gradientflow import GradientFlow

SYNCHRONOUS, OVERLAPPED, HALF = "synchronous", "+ overlap", "+ float16"
NETWORK = "resnet50"
TIMED_BATCH = 32  # images a rank: a step is long compared with starting a sum, as on a GPU


@dataclass(frozen=True)
class Scene:
    """What is timed.

    comm     communicator of the exchange; `nodes` its ranks, node by node
    model    model(**settings) makes a replica
    batches  endless: the arguments of each step
    alone    the Timing of a step without exchange, update included
    link     the link of a rank that sends alone; None: unknown, sums between nodes are measured
    sharing  ranks that share such a link
    ready    ([(ready_s, elements)], seconds of computing) of a step; None: unknown
    theta    bytes of gradients that a baseline sums in one call
    """

    comm: object
    nodes: list[list[int]]
    model: Callable
    batches: Iterator
    alone: kit.Timing
    link: Link | None = None
    sharing: int = 1
    ready: tuple | None = None
    theta: float = 2**22


def virtual_scene(run: kit.Run, nodes) -> Scene:
    """Full-size ResNet-50 on virtual accelerators, on the emulated or waited links."""
    link, comm, sharing = run.regime.goodput(), run.comm, len(nodes[0])
    if run.regime.links_are_waited_for:  # each rank has a link of its own
        near, sharing = next(node for node in nodes if run.rank in node), 1
        comm = run.comm.over(lambda comm: LinkComm(run.plain, link, near))
    plain = virtual.model(run, NETWORK)  # all stacks use its pools: rate 0 changes no parameter
    alone = virtual.without_exchange_of(run, plain, run.quick(2, 3, 7))
    model = functools.partial(virtual.sharing, plain)
    batches, ready = itertools.repeat(virtual.NOTHING), virtual.ready(run, NETWORK)
    return Scene(comm, nodes, model, batches, alone, link, sharing, ready)


def this_machine(run: kit.Run, data, nodes) -> Scene:
    """The lesson's small network on this machine's cores. Nothing is known of the links."""
    batches = images.whole_batches(run, data, 8, run.quick(4, TIMED_BATCH))
    alone, _ = flow.without_exchange(run, data, batches[: run.quick(4, 8)])
    model = functools.partial(images.model, run, data)
    return Scene(run.comm, nodes, model, itertools.cycle(batches), alone, theta=2**18)


def synchronous(scene: Scene, loss_scale=None, **settings) -> GradientFlow:
    """Sums gradients in every step. Waiting ranks sleep where others compute on their cores."""

    def two_level(comm, wire=None):
        return collective(comm, two_level_ring(scene.nodes), wire)

    comm = scene.comm if scene.link else ops.background(scene.comm)
    model, grouping = scene.model(loss_scale=loss_scale), Theta(scene.theta)
    return GradientFlow(comm, model, allreduce=two_level, grouping=grouping, **settings)


def place_of(run: kit.Run, scene: Scene) -> int:
    """The number of this rank in its node."""
    return next(node.index(run.rank) for node in scene.nodes if run.rank in node)
