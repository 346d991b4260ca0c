"""Solutions of lesson 04: overlap. The code below each answer checks it.

python lessons/solutions/04_overlap.py
"""

import textwrap

from refgf.machine.meter import ExposedTime
from refgf.predict.cost import Line
from refgf.predict.timeline import lazy, predict
from refgf.papers.scaling.workloads import alexnet

LINE = Line(1e-3, 1.5 / 125e6)  # 4 ranks at 1 Gbit/s, a millisecond a call


def theta_that_hides_nothing() -> None:
    """1. All bytes without the last gradient's.

    Overlap hides nothing if the first call waits for the last gradient.
    """
    gradients = alexnet().gradients(backward_s=2.0)
    theta = sum(nbytes for _, nbytes in gradients[:-1])
    assert len(lazy(gradients, theta)) == 1 and len(lazy(gradients, theta - 1)) == 2
    for value in (theta, theta - 1):
        step = predict(gradients, lazy(gradients, value), LINE)
        exposed = f"{step.exposed_s:.3f} s of {step.communication_s:.3f} s"
        print(f"1. theta = {value:,}: {len(step.calls)} calls, {exposed} exposed")
    everything_s = LINE(sum(nbytes for _, nbytes in gradients))
    assert predict(gradients, lazy(gradients, theta), LINE).exposed_s == everything_s
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
    gradients = alexnet().gradients(backward_s=2.0)
    backwards, latest_s = [], 0.0
    for ready_s, nbytes in reversed(gradients):
        latest_s = max(latest_s, ready_s)  # a slice is sent only after everything before it
        backwards.append((latest_s, nbytes))
    theta = 2**22
    usual_s, reversed_s = (
        predict(each, lazy(each, theta), LINE).exposed_s for each in (gradients, backwards)
    )
    print(f"3. exposed: {usual_s:.3f} s in the order of generation, {reversed_s:.3f} s reversed")
    assert reversed_s > usual_s
    print(
        "   Backward makes the last layer's gradient first, because each layer needs the gradient"
    )
    print("   of the layer after it.")


if __name__ == "__main__":
    theta_that_hides_nothing()
    longer_step_without_waiting()
    small_gradients_first()
