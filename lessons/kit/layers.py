"""A step of one rank, layer by layer: measured, and predicted by a roofline.

steps = [events of a step, ...]
    event: (layer, "forward"), (number of a gradient, "ready") or (layer, "backward")
result = layers.compare(run, network, workload, batch, steps)
    {"rows": one for each layer, "ready_s": ..., ...}
"""

import numpy as np

import kit
from kit.gpu import Device
from refgf.exchange.pool import Pool
from refgf.papers.barrachina.roofline import Node, layer_times


def compare(run: kit.Run, network, workload, batch: int, steps) -> dict:
    """Measured and predicted seconds of each layer, and when each gradient is ready.

    steps: [[(event, seconds since the event before)] of each repeat]

    A time is the median of the repeats. Gradients are ready after the start of backward.
    """
    events = [event for event, _ in steps[0]]
    times = np.array([[seconds for _, seconds in step] for step in steps])  # (repeats, events)
    measured, ready_s = by_layer(events, np.median(times, axis=0))
    low, high = (by_layer(events, extreme)[0] for extreme in (times.min(axis=0), times.max(axis=0)))
    node = measured_node(run.device)
    roofline = {time.name: time for time in layer_times(workload, batch, node)}
    parameters = {layer.name: layer.parameters for layer in workload.layers}
    rows = []
    for layer in network.layers:
        name, roof = layer.name, roofline.get(layer.name)
        rows.append(
            {
                "name": name,
                "kind": name.rstrip("0123456789"),
                "parameters": parameters.get(name, 0),
                "flops": sum(layer.flops(batch)),
                "limit": roof.forward_limit if roof else "",
                "seconds": measured[name],
                "low_s": sum(low[name]),
                "high_s": sum(high[name]),
                "predicted_s": [roof.forward_s, roof.backward_s] if roof else [0.0, 0.0],
            }
        )
    backward_s = [time.backward_s for time in roofline.values()]
    return {
        "rows": rows,
        "node": vars(node),
        "steps_s": times.sum(axis=1).tolist(),
        "ready_s": ready_s,
        "predicted_ready_s": [
            t for t, _ in workload.gradients(sum(backward_s), layer_backward_s=backward_s)
        ],
        "tensors": [[spec.name, 4 * spec.size] for spec in network.tensors],
    }


def random_batch(run: kit.Run, network, batch: int, seed: int = 1):
    """(images, labels) of random numbers, for a network that gets parameters and gradients."""
    pools = [Pool(network.tensors, np.float32, run.xp.zeros) for _ in range(2)]
    network.bind(*(pool.views for pool in pools))
    network.initialize(seed)
    random = np.random.default_rng(seed)
    shape = (batch, *network.image_shape)
    images = run.array(random.standard_normal(shape, dtype=np.float32))
    return images, random.integers(0, network.num_classes, batch)


def by_layer(events, seconds) -> tuple[dict, list]:
    """({layer: [forward, backward]}, when each gradient was ready after the start of backward)."""
    found, ready_s, at_s, layer_s = {}, [], 0.0, 0.0
    for (name, what), t in zip(events, seconds.tolist()):
        if what == "forward":
            found[name] = [t, 0.0]
            continue
        at_s, layer_s = at_s + t, layer_s + t
        if what == "ready":
            ready_s.append(at_s)
        else:
            found[name][1], layer_s = layer_s, 0.0
    return found, ready_s


def measured_node(device: Device) -> Node:
    """Flop/s of a product of two 512 x 512 matrices, bytes/s of copying 64 MiB.

    Both are short, and the fastest of many repeats, so that other load on the machine matters
    little.
    """
    a, b, c = device.xp.ones((3, 512, 512), np.float32)
    x, y = device.xp.ones((2, 1 << 24), np.float32)

    def copy() -> None:
        y[...] = x

    return Node(
        2 * 512**3 / fastest(device, lambda: device.xp.matmul(a, b, out=c)),
        2 * x.nbytes / fastest(device, copy),
    )


def fastest(device: Device, function, repeats: int = 20) -> float:
    times = []
    for _ in range(repeats):
        start_s = device.clock()
        function()
        times.append(device.clock() - start_s)
    return min(times)


def backward_s(result: dict) -> float:
    """Seconds of backward, the sum over the layers. result: of `compare`."""
    return sum(row["seconds"][1] for row in result["rows"])
