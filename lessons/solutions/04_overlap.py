"""Solutions of lesson 04: overlap.            python lessons/solutions/04_overlap.py"""

from refgf.machine.meter import ExposedTime
from refgf.predict.cost import Line
from refgf.predict.timeline import lazy, predict
from refgf.papers.scaling.workloads import alexnet

LINE = Line(1e-3, 1.5 / 125e6)  # 4 ranks at 1 Gbit/s, a millisecond a call


def theta_that_hides_nothing() -> None:
    """1. Nothing is hidden when the first call waits for the last gradient: theta at least all
    bytes but its own.
    """
    gradients = alexnet().gradients(backward_s=2.0)
    theta = sum(nbytes for _, nbytes in gradients[:-1])
    assert len(lazy(gradients, theta)) == 1 and len(lazy(gradients, theta - 1)) == 2
    for value in (theta, theta - 1):
        step = predict(gradients, lazy(gradients, value), LINE)
        print(
            f"1. theta = {value:,}: {len(step.calls)} calls, exposed {step.exposed_s:.3f} s of {step.communication_s:.3f} s"
        )
    assert predict(gradients, lazy(gradients, theta), LINE).exposed_s == LINE(
        sum(b for _, b in gradients)
    )
    print(
        "   One byte less, and all but the last gradient goes as soon as the last but one is ready: still nearly nothing"
    )
    print(
        "   is hidden, because the last gradients are small and quickly made. Useful thetas are far below."
    )


def a_step_that_waits_for_nothing_and_is_longer() -> None:
    """2. A thread that spins takes its time from the computation: no wait at the end, and nothing
    gained.
    """
    meter = ExposedTime(
        compute_s=1.0, communication_s=0.5, together_s=1.6, sequential_s=1.5, waited_s=0.0
    )
    print(f"2. waited {meter.waited_s} s at the end, so 'all hidden'? {meter}")
    assert meter.hidden_share is None and meter.slowdown == 1.6


def small_gradients_first() -> None:
    """3. A pool in another order than that of generation: its first gradients are ready last, and
    all others wait.
    """
    gradients = alexnet().gradients(backward_s=2.0)
    turned, latest = [], 0.0
    for ready_s, nbytes in reversed(gradients):
        latest = max(
            latest, ready_s
        )  # a slice of the pool can only go when everything before it has gone
        turned.append((latest, nbytes))
    theta = 2**22
    as_made, reversed_ = (predict(g, lazy(g, theta), LINE).exposed_s for g in (gradients, turned))
    print(
        f"3. exposed {as_made:.3f} s in the order of generation, {reversed_:.3f} s in the opposite order"
    )
    assert reversed_ > as_made
    print(
        "   Backward makes the last layer's gradient first, because each layer needs the gradient of the one above it."
    )


if __name__ == "__main__":
    theta_that_hides_nothing()
    a_step_that_waits_for_nothing_and_is_longer()
    small_gradients_first()
