"""Times of lesson 02: one step of one rank, layer by layer, while the others sleep."""

import kit
from kit import layers
from lab.alexnet import tables
from refgf.nn.alexnet import AlexNet
from refgf.nn.workspace import Workspace
from refgf.papers.scaling.workloads import alexnet

CLASSES = 1000


def measure(run: kit.Run, timed_step) -> dict:
    """timed_step: (run, network, images, labels) -> events, as kit.layers.compare wants them."""
    options = run.options
    size, width = options.image_size or 227, options.width or 1.0
    batch = options.batch or run.quick(8, 8, 32)
    step = f"{size} x {size} pixels, width {width:g}, {batch} images, {CLASSES} classes"
    run.section("One step, layer by layer")
    run.say(step)

    def steps_of_rank_0() -> dict:
        network = AlexNet(CLASSES, size, width, workspace=Workspace(run.xp))
        data = layers.random_batch(run, network, batch)
        steps = [timed_step(run, network, *data) for _ in range(1 + run.quick(3, 7, 11))]
        del steps[0]  # it allocates memory
        return layers.compare(run, network, alexnet(CLASSES, size, width), batch, steps)

    result = run.on_rank_0(steps_of_rank_0)
    if run.rank == 0:
        result["step"] = step
        tables.show_sizes_and_times(run, result)
        tables.show_ready(run, result)
    return result
