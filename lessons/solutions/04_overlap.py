"""Solutions of lesson 04: overlap. The code below each answer checks it.

python lessons/solutions/04_overlap.py
"""

import textwrap
from math import isclose

from refgf.cluster.like import load
from refgf.machine.meter import ExposedTime
from refgf.papers.scaling.workloads import alexnet
from refgf.predict.cost import Link, ring_line
from refgf.predict.timeline import lazy, predict

LIKE = load("v100-56gbit")
LINE = ring_line(LIKE.nodes, Link(LIKE.latency_s, 1 / LIKE.rate))  # seconds of the cluster's time
NETWORK = alexnet()
BACKWARD_S = LIKE.step_s("alexnet")[1] * NETWORK.backward_flops / NETWORK.step_flops
GRADIENTS = NETWORK.gradients(BACKWARD_S, itemsize=2)  # bytes of float16


def theta_that_hides_nothing() -> None:
    """1. All bytes without the last gradient's.

    Overlap hides nothing if the first call waits for the last gradient.
    """
    theta = sum(nbytes for _, nbytes in GRADIENTS[:-1])
    assert len(lazy(GRADIENTS, theta)) == 1 and len(lazy(GRADIENTS, theta - 1)) == 2
    for value in (theta, theta - 1):
        step = predict(GRADIENTS, lazy(GRADIENTS, value), LINE)
        exposed = f"{1e3 * step.exposed_s:.2f} ms of {1e3 * step.communication_s:.2f} ms"
        print(f"1. theta = {value:,}: {len(step.calls)} calls, {exposed} exposed")
    everything_s = LINE(sum(nbytes for _, nbytes in GRADIENTS))
    assert isclose(predict(GRADIENTS, lazy(GRADIENTS, theta), LINE).exposed_s, everything_s)
    print("   With one byte less, all gradients but the last are sent as soon as the last but one")
    print("   is ready. Still nearly nothing is hidden, because backward makes the last gradients")
    print("   quickly. Useful thetas are far smaller.")


def longer_step_without_waiting() -> None:
    """2. A spinning thread takes its time from the computation: no wait at the end, and no gain."""
    meter = ExposedTime(
        compute_s=1.0, communication_s=0.5, together_s=1.6, sequential_s=1.5, waited_s=0.0
    )
    print(f"2. The main thread waited {meter.waited_s} s at the end. All hidden?")
    print(textwrap.indent(textwrap.fill(str(meter), 97), "   "))
    assert meter.hidden_share is None and meter.slowdown == 1.6


def small_gradients_first() -> None:
    """3. Less is hidden, because the pool's first gradients are now ready last and all others wait.

    Backward determines the order of generation.
    """
    backwards, latest_s = [], 0.0
    for ready_s, nbytes in reversed(GRADIENTS):
        latest_s = max(latest_s, ready_s)  # a slice is sent only after everything before it
        backwards.append((latest_s, nbytes))
    theta = 2**22
    usual_s, reversed_s = (
        predict(each, lazy(each, theta), LINE).exposed_s for each in (GRADIENTS, backwards)
    )
    usual, other = (f"{1e3 * t:.2f} ms" for t in (usual_s, reversed_s))
    print(f"3. exposed: {usual} in the order of generation, {other} reversed")
    assert reversed_s > usual_s
    print(
        "   Backward makes the last layer's gradient first, because each layer needs the gradient"
    )
    print("   of the layer after it.")


if __name__ == "__main__":
    theta_that_hides_nothing()
    longer_step_without_waiting()
    small_gradients_first()
