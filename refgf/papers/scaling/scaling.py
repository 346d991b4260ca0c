"""Speedup from 4 to 2048 ranks: what the techniques of systems.py are predicted to reach, as intervals over the inputs.

    T(p) comes from a link by the ring's closed form, so a point costs as much on 2048 ranks as on 4. The best theta is
    searched for each point: the papers' own are not known, and the best one changes with p, as the start-ups do.
"""

from dataclasses import replace

from refgf.papers.scaling.interval import extremes
from refgf.papers.scaling.systems import chosen_chunks, speedup, step
from refgf.predict.cost import Link, ring_line
from refgf.predict.timeline import thresholds


def best_theta_step(ready, system, allreduce_s, per_octave=1):
    """Timeline of the step with the best theta for this cluster. A system with theta 0 is eager, and stays so."""
    if not system.threshold_bytes:
        return step(ready, system, allreduce_s)
    gradients = [(ready_s, system.itemsize * elements) for ready_s, elements in ready]
    if system.percent is not None:
        gradients, _ = chosen_chunks(ready, system)
    systems = [replace(system, threshold_bytes=theta) for theta in thresholds(gradients, per_octave)]
    return min((step(ready, candidate, allreduce_s) for candidate in systems), key=lambda timeline: timeline.step_s)


def ready_of(workload, batch, rate):
    """[(ready_s, elements)] of a rank that computes `rate` samples a second, shared out by flops."""
    compute_s = batch / rate
    forward_s = compute_s * workload.forward_flops / (workload.forward_flops + workload.backward_flops)
    return workload.gradients(compute_s - forward_s, forward_s, itemsize=1)


def speedup_on(workload, system, size, batch, rate, alpha_s, bandwidth, gamma_s_per_byte=0.0, small_batch=1.0):
    """Speedup of `size` ranks with a ring on links of alpha_s and bandwidth (bytes/s). small_batch: share of `rate` that is
    left at this batch."""
    ready = ready_of(workload, batch, rate * small_batch)
    line = ring_line(size, Link(alpha_s, 1 / bandwidth, gamma_s_per_byte))
    return speedup(size, best_theta_step(ready, system, line))


def curve(workload, system, sizes, inputs):
    """{size: (low, high) of the speedup over all combinations of the inputs}: interval.Input named as speedup_on's
    arguments."""
    return {
        size: extremes(lambda size=size, **given: speedup_on(workload, system, size, **given), inputs) for size in sizes
    }
