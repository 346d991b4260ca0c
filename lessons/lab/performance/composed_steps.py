"""Lesson 15: steps of 2, 4 and 8 ranks, composed of predicted kernels and a predicted ring.

layers = composed_steps.layers_of(run, network, models)       rank 0: seconds of one rank's layers
rows = composed_steps.measure(run, layers)                    all ranks: measured and predicted

What goes in is measured apart from the steps: kernels and other layers on one rank alone, and the
ring's alpha and beta between ranks that only wait. No measured step goes into its prediction. Where
p ranks share fewer cores, each computes p / cores times as long. That a ring itself takes cores and
memory bandwidth from computing is left out, as in the paper, whose ranks are nodes. Rings follow
backward. What rings next to it gain and cost on shared cores is lesson 04's.
"""

from functools import partial

import numpy as np

import kit
from kit import call_times, step_times
from lab.performance import held_out_steps, kernel_times
from lab.scaling import rank_subset
from refgf import launch
from refgf.comm.ring import ring_allreduce
from refgf.exchange.lazy import Theta
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.papers.barrachina import kernels
from refgf.papers.barrachina.kernels import DIRECTIONS
from refgf.predict.cost import Link
from refgf.training.gradientflow import GradientFlow
from refgf.training.step import replica

RANKS, BATCH = (2, 4, 8), 10  # images a rank: no kernel of the training set has this batch size
BLOCKING = "one after another"  # rings follow backward
EAGER = Theta(0)  # a ring for each tensor


def layers_of(run: kit.Run, network, models: dict) -> dict:
    """Of a step of BATCH images on one rank: seconds of each model and elements, by tensor.

    Layers that no model predicts, and the update, are CALIBRATED on this rank alone.
    """
    few = held_out_steps.STEP_BATCHES[0]
    calibrated, _ = kernel_times.step_times(run, network, few, run.quick(3, 7))
    shapes = kernels.shapes_of(held_out_steps.workload_of(network), BATCH)
    scaled = {name: [t * BATCH / few for t in times] for name, times in calibrated.items()}
    found = {
        "processors": run.device.processors,
        "size": network.image_shape[0],
        "width": held_out_steps.width_of(network),
    }
    found |= {"update_s": update_s(run, network), "elements": [], "seconds": {}}
    for layer in network.layers:
        found["elements"] += [spec.size for spec in layer.tensors] or [0]
    for name, model in models.items():
        known = {k: [model.seconds(s, d) for d in DIRECTIONS] for k, s in shapes.items()}
        found["seconds"][name] = []
        for layer in network.layers:  # a layer's time belongs to its last tensor
            own = (scaled | known)[layer.name]
            found["seconds"][name] += [[0.0, 0.0]] * (len(layer.tensors) - 1) + [own]
    return found


def update_s(run: kit.Run, network, repeats: int = 5) -> float:
    """Time of an update of the parameters, the least of a few."""
    twin = AlexNet(*arguments_of(network), workspace=Workspace(run.xp))
    model, times, clock = replica(twin, seed=1), [], kernel_times.clock_of(run)
    for _ in range(repeats):
        start_s = clock()
        model.optimizer.step(model.gradients.flat, 0.0)
        times.append(clock() - start_s)
    return min(times)


def arguments_of(network) -> tuple:
    return network.num_classes, network.image_shape[0], held_out_steps.width_of(network)


def measure(run: kit.Run, layers: dict) -> list[dict]:
    """A row for each number of ranks. layers: from rank 0. Collective."""
    run.section("Appendix: steps of several ranks, kernels and rings composed")
    layers = run.plain.bcast(layers, root=0)
    sizes, models = [p for p in RANKS if p <= run.size], list(layers["seconds"])
    found = [rank_subset.first(run, p, lambda part: measured(part, layers)) for p in sizes]
    rows, table = [], []
    for p, row in zip(sizes, found):
        if run.rank == 0:
            row["predicted_s"] = {m: predicted(p, layers, m, row["link"]) for m in models}
            rows.append(row)
            table.append([p, *cells(row, models)])
    run.table(["ranks", "measured", *models, "rings' share"], table)
    run.say("Rings follow backward. Predicted from kernels of one rank alone, and from rings")
    run.say("between ranks that wait.")
    return rows


def measured(part: kit.Run, layers: dict) -> dict:
    """Seconds of a step, and the ring's link. Collective on these ranks."""
    n = sum(layers["elements"])
    times = call_times.measure(part, ring_allreduce(part.comm), [256, n // 8, n], 5)
    line, steps = call_times.fit(part, times).line, 2 * (part.size - 1)
    link = Link(line.a_s / steps, line.b_s_per_byte * part.size / steps)
    images = np.random.default_rng(part.rank).standard_normal(
        (BATCH, layers["size"], layers["size"], 3), dtype=np.float32
    )
    shape = held_out_steps.CLASSES, layers["size"], layers["width"]
    network = AlexNet(*shape, workspace=Workspace(part.xp))
    with GradientFlow(part.comm, replica(network), grouping=EAGER) as flow:
        batch = images, np.zeros(BATCH, int), BATCH * part.size, 0.0
        steps = [partial(one_step, flow, batch)] * part.quick(4, 12)
        ends_s = step_times.since_first_start(part, steps, skip=2)[:, 0]
    timing = kit.Timing(float(np.median(ends_s)), ends_s.min(), ends_s.max(), len(ends_s))
    found = {"ranks": part.size, "link": [link.alpha_s, link.beta_s_per_byte]}
    return found | {"measured_s": {BLOCKING: timing}}


def one_step(flow: GradientFlow, batch: tuple) -> None:
    flow.step(*batch)


def predicted(p: int, layers: dict, model: str, link: list) -> dict:
    """Seconds of a step, and of its rings."""
    crowd = max(1.0, min(p, launch.job.on_machine) / layers["processors"])
    forward_s, backward_s = crowd * np.array(layers["seconds"][model]).T
    elements, update_s = np.array(layers["elements"]), crowd * layers["update_s"]
    compute_s = forward_s.sum() + backward_s.sum()
    alpha, beta = link
    rings_s = 2 * (p - 1) * (alpha * np.count_nonzero(elements) + 4 * elements.sum() / p * beta)
    return {BLOCKING: float(compute_s + rings_s + update_s), "rings": float(rings_s)}


def cells(row: dict, models: list[str]) -> list[str]:
    """Measured time; prediction and error of each model; the share of rings in the last."""
    measured_s = row["measured_s"][BLOCKING].median_s
    times = [row["predicted_s"][model] for model in models]
    share = times[-1]["rings"] / times[-1][BLOCKING]
    shown = [held_out_steps.with_error(t[BLOCKING], measured_s) for t in times]
    return [kit.seconds(measured_s), *shown, f"{share:.0%}"]
