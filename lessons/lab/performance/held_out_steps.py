"""Lesson 15: steps of one rank at batch sizes that are not in the training set, layer by layer."""

import kit
from lab.performance import kernel_times
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.papers.barrachina import kernels
from refgf.papers.barrachina.kernels import DIRECTIONS
from refgf.papers.scaling.workloads import alexnet
from refgf.training.step import replica

CLASSES = 100
STEP_BATCHES = (5, 10, 20)  # none of them is in kernels.BATCHES


def network_of(run: kit.Run):
    """(an AlexNet whose steps are predicted, its shapes at batch 1, which are held out)"""
    width = run.options.width or run.quick(1 / 8, 1 / 4)
    size = run.options.image_size or run.quick(67, 131)
    shapes = kernels.shapes_of(alexnet(CLASSES, size, width), 1)
    network = AlexNet(CLASSES, size, width, workspace=Workspace(run.xp))
    return replica(network, seed=1).network, shapes


def workload_of(network):
    return alexnet(network.num_classes, network.image_shape[0], width_of(network))


def width_of(network) -> float:
    return next(layer for layer in network.layers if layer.name == "fc6").outputs / 4096


def predict(run: kit.Run, network, models: dict) -> list[dict]:
    """A row for each batch size: seconds of its layers, measured and by each model, and totals."""
    name = f"AlexNet of width {width_of(network):g} on {network.image_shape[0]} x "
    name += f"{network.image_shape[1]} pixels"
    run.section(f"Held-out steps: {name}")
    steps, table = [], []
    for batch in STEP_BATCHES:
        step = {"network": name} | step_of(run, network, models, batch)
        rest_s = (steps or [step])[0]["rest_s"] * batch / STEP_BATCHES[0]
        measured_s = total_s(step, "measured") + step["rest_s"]
        step["totals_s"] = {"measured": measured_s}
        step["totals_s"] |= {name: total_s(step, name) + rest_s for name in models}
        steps.append(step)
        share = f"{step['rest_s'] / measured_s:.0%}"
        found = [with_error(step["totals_s"][name], measured_s) for name in models]
        table.append([batch, kit.seconds(measured_s), share, *found])
    run.table(["images", "measured step", "other layers", *models], table)
    run.say("Other layers (normalisation, pooling, ReLU, dropout) are CALIBRATED:")
    run.say(f"their time at {STEP_BATCHES[0]} images, in proportion to the images.")
    table = []
    for layer, times in steps[-1]["measured"].items():
        found = [with_error(sum(steps[-1][name][layer]), sum(times)) for name in models]
        table.append([layer, kit.seconds(sum(times)), *found])
    run.table(["layer", "measured", *models], table)
    return steps


def step_of(run: kit.Run, network, models: dict, batch: int) -> dict:
    """One batch size: seconds of the layers that a model predicts, and of the rest."""
    measured, whole_s = kernel_times.step_times(run, network, batch, run.quick(3, 7))
    shapes = kernels.shapes_of(workload_of(network), batch)
    rest_s = sum(sum(t) for name, t in measured.items() if name not in shapes)
    step = {"batch": batch, "measured": {name: measured[name] for name in shapes}}
    for name, model in models.items():
        step[name] = {k: [model.seconds(s, d) for d in DIRECTIONS] for k, s in shapes.items()}
    return step | {"rest_s": rest_s, "repeats_s": whole_s}


def total_s(step: dict, name: str) -> float:
    return sum(map(sum, step[name].values()))


def with_error(predicted_s: float, measured_s: float) -> str:
    return f"{kit.seconds(predicted_s)} ({predicted_s / measured_s - 1:+.0%})"
