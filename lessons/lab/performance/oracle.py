"""Lesson 15 against the definition: kernels, the flops of a network, and the time of the ring."""

import kit
from lab.performance import held_out_steps, kernel_times
from refgf.comm import ring
from refgf.papers.barrachina import kernels
from refgf.papers.barrachina.kernels import DIRECTIONS, KernelShape
from refgf.papers.scaling.simulate import from_schedules
from refgf.predict.cost import Link, ring_allreduce_s

SMALL = [
    KernelShape("conv", 2, 6, 3, 4, 3, 1, 1),
    KernelShape("conv", 3, 9, 4, 5, 5, 2, 2),
    KernelShape("fc", 5, 1, 7, 3),
]
LINK = Link(3e-5, 8e-9, 2e-10)


def check(run: kit.Run, network) -> None:
    """Raises AssertionError at the first difference."""
    run.section("The oracle")
    for shape in SMALL:
        kernel_times.check(run, shape)
    check_flops(network)
    ranks = run.quick((2, 3, 8), range(1, 33))
    check_ring(ranks)
    run.say("timed kernels: the definition's numbers within the bound of rounding, and the flops")
    run.say("that the network counts; ring: the formula equals the time of the schedule on up to")
    run.say(f"{ranks[-1]} ranks")


def check_flops(network, batch: int = 3) -> None:
    """The network and the planned workload count the same flops."""
    layers = [layer for layer in network.layers if layer.name[:2] in ("co", "fc")]
    counted = {layer.name: layer.flops(batch) for layer in layers}
    shapes = kernels.shapes_of(held_out_steps.workload_of(network), batch)
    planned = {name: tuple(shape.flops(d) for d in DIRECTIONS) for name, shape in shapes.items()}
    if counted != planned:
        raise AssertionError(f"flops of the layers: got {counted}; wanted {planned}")


def check_ring(ranks) -> None:
    for p in ranks:
        for n in (0, p - 1, 1000):
            schedules = [ring.allreduce(rank, p, n) for rank in range(p)]
            formula_s = ring_allreduce_s(p, n, 4, LINK)
            if abs(formula_s - from_schedules(schedules, 4, LINK)) > 1e-12:
                raise AssertionError(
                    f"ring on {p} ranks, {n} elements: formula and schedule differ in time"
                )
