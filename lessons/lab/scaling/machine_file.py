"""The machine file of lesson 08: what was measured here, and predictions for another machine.

machine = machine_file.measured(run, points)    links, fitted rings and layer times of this run
machine_file.scale(run, machine, sizes)         what lesson 08 predicts for it

The format of the file: refgf/papers/scaling/machine.py.
"""

import statistics
import textwrap
import time

import numpy as np

import kit
from kit import layers
from kit.record import machine as facts_of_machine
from refgf.comm.topology import nodes
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.predict.cost import ring_line
from refgf.predict.fit import fit_line
from refgf.papers.scaling.headlines import BATCH, V100_RATE
from refgf.papers.scaling.machine import Machine, load, save
from refgf.papers.scaling.scaling import best_theta_step, ready_of
from refgf.papers.scaling.systems import scaling_efficiency, stack
from refgf.papers.scaling.workloads import alexnet

# elements of ping-pongs: a traffic shaper does not delay the first quarter of a megabyte
LENGTHS = (1, 256, 16_384, 1_048_576)
IMAGES = 4


def measured(run: kit.Run, points) -> Machine | None:
    """The Machine of this run, saved next to the lesson's JSON; None on ranks > 0. Collective."""
    fits, groups = {}, nodes(run.plain)
    for name, group in (("inside", groups[0]), ("between", [each[0] for each in groups])):
        if len(group) > 1:
            fits[name] = ping_pong(run, group[1])
            run.say(f"ping-pong {name} nodes, ranks 0 and {group[1]}:\n    {fits[name]}")
    traced = run.on_rank_0(lambda: () if run.options.quick else layer_times(run))
    if run.rank:
        return None
    # a fitted beta of 0 means that the link is too fast to measure: left out
    fits = {name: fit for name, fit in fits.items() if fit.b_s_per_byte > 0}
    lines = {
        p["ranks"]: ring_line(p["ranks"], p["links"]["float32"]) for p in points if p["ranks"] > 1
    }
    facts = "; ".join(f"{name} {fact}" for name, fact in facts_of_machine(run.options).items())
    machine = Machine(
        name=run.place,
        source=f"lesson 08, {time.strftime('%Y-%m-%d')}; {facts}",
        label="measured",
        links={name: fit.link for name, fit in fits.items()},
        lines={p: line for p, line in lines.items() if line.b_s_per_byte > 0},
        errors={name: (fit.a_error_s, fit.b_error_s_per_byte) for name, fit in fits.items()},
        workload="AlexNet" if traced else None,
        batch=IMAGES if traced else None,
        layers=traced,
    )
    run.options.output.mkdir(parents=True, exist_ok=True)
    path = run.options.output / "08_scaling.machine.json"
    save(machine, path)
    if load(path) != machine:
        raise AssertionError(f"machine file {path}: got another machine than was saved")
    run.say(f"machine file, for this lesson's --machine on another machine: {path}")
    return machine


def ping_pong(run: kit.Run, peer: int):
    """Half round trips between rank 0 and `peer` while the others sleep. -> Fit, on all ranks"""
    points = (
        [(4 * n, half_round_trip_s(run, peer, n)) for n in LENGTHS]
        if run.rank in (0, peer)
        else None
    )
    run.on_rank_0(lambda: None)
    return fit_line(run.plain.bcast(points))


def half_round_trip_s(run: kit.Run, peer: int, n: int) -> float:
    x, times_s = np.zeros(n, np.float32), []
    for _ in range(1 + run.quick(5, 15)):
        start_s = time.perf_counter()
        if run.rank == 0:
            run.comm.Send(x, peer)
            run.comm.Recv(x, peer)
        else:
            run.comm.Recv(x, 0)
            run.comm.Send(x, 0)
        times_s.append((time.perf_counter() - start_s) / 2)
    return statistics.median(times_s[1:])


def layer_times(run: kit.Run) -> tuple:
    """((layer, forward_s, backward_s), ...) of the full AlexNet on one rank: medians of steps."""
    network = AlexNet(1000, workspace=Workspace(run.xp))
    data = layers.random_batch(run, network, IMAGES)
    steps = [events_of_step(network, *data, run.clock) for _ in range(4)]
    steps = steps[1:]  # the first step allocates memory
    seconds = np.median([np.diff([0.0, *(at_s for _, at_s in step)]) for step in steps], axis=0)
    times_s, _ = layers.by_layer([event for event, _ in steps[0]], seconds)
    return tuple((name, *seconds) for name, seconds in times_s.items())


def events_of_step(network, images, labels, clock=time.perf_counter) -> list:
    """[((layer or gradient, what), seconds since the start)]"""
    start_s, events = clock(), []

    def mark(name, what="ready"):
        events.append(((name, what), clock() - start_s))

    network.loss(images, labels, len(images), mark)
    network.backward(mark, mark)
    return events


def given(path) -> Machine:
    """The machine in a file. ValueError if the file is missing or invalid."""
    if not path.exists():
        raise ValueError(
            f"--machine: got {path}, which is not there; wanted a machine file; "
            "next: run this lesson on that machine, which writes one"
        )
    return load(path)


def scale(run: kit.Run, machine: Machine, far: list[int]) -> dict:
    """Scaling efficiency of AlexNet in percent, with the best theta.

    Layer times are those of the file, or follow from a V100's rate. Returns {technique: {p: ...}}.
    """
    run.section("PREDICTED: AlexNet on the machine of --machine")
    run.say(f"{machine.name}, lazy allreduce with its best theta")
    run.say(textwrap.fill(f"{machine.label}: {machine.source}", 100, break_on_hyphens=False))
    sizes = far if "between" in machine.links else sorted(machine.lines)
    if machine.layers and machine.workload == "AlexNet":
        ready = machine.gradients(itemsize=1)
        rate = f"layer times of the file, {machine.batch} images"
    else:
        ready = ready_of(alexnet(), BATCH.values[0], V100_RATE.values[0])
        rate = "a V100's rate, as in the tables below"
    run.say(f"compute: {rate}")
    run.say(
        f"allreduce: the file's lines for {sorted(machine.lines)} ranks, else a ring of its link"
    )
    systems = {system.name: system for system in stack(np.inf)}
    found = {
        name: {
            p: scaling_efficiency(best_theta_step(ready, system, machine.allreduce_s(p)))
            for p in sizes
        }
        for name, system in systems.items()
    }
    run.say("scaling efficiency in percent")
    run.table(
        ["ranks", *(name.partition(",")[0] for name in systems)],
        [[p, *(f"{found[name][p]:.1f}" for name in systems)] for p in sizes],
    )
    return found
