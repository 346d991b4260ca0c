"""Solutions of lesson 15, checked by the code: python lessons/solutions/15_performance_model.py"""

from dataclasses import replace
from functools import partial
from math import ceil, isclose
from statistics import median

from refgf.predict.cost import Link
from refgf.papers.barrachina.kernels import Perceptrons, Sample, draw_shapes, held_out
from refgf.papers.barrachina.roofline import Node, layer_times, study
from refgf.papers.scaling.systems import System, step
from refgf.papers.scaling.workloads import alexnet, resnet50

V100 = Node(15.7e12, 900e9)
LAZY, EAGER = System("lazy", threshold_bytes=2**22), System("eager")


def fc6_limit(batch: int) -> str:
    return next(
        layer.forward_limit for layer in layer_times(alexnet(), batch, V100) if layer.name == "fc6"
    )


def from_memory_to_flops() -> None:
    """1. From 36 images. A batch of b takes 2 b n d flops and 4 (b (n + d) + n d) bytes. The roofs
    meet at r = F/W = 17.4 flops a byte. So b = 2r / (1 - 2r (1/n + 1/d)) with n = 9216 and
    d = 4096: hardly more than 2r = 34.9, because the weights are nearly all of the bytes. The
    lesson's table agrees: memory at 8 images, flops at 64."""
    r, n, d = V100.flops / V100.bandwidth, 9216, 4096
    batch = ceil(2 * r / (1 - 2 * r * (1 / n + 1 / d)))
    assert batch == 36 and (fc6_limit(batch - 1), fc6_limit(batch)) == ("memory", "flops")


def law(shape, direction) -> float:
    """A synthetic machine: a fixed overhead, a product that is faster with many rows, a memory."""
    return (
        2e-5 + shape.flops(direction) * (1 + 30 / shape.rows) / 1e11 + shape.bytes(direction) / 2e10
    )


class InSeconds(Perceptrons):
    """Learns the time itself: errors count in seconds, so long kernels count most."""

    def train(self, samples, direction, hidden, penalty, members):
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.neural_network import MLPRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        settings = {
            "activation": "tanh",
            "solver": "lbfgs",
            "alpha": penalty,
            "max_iter": 5000,
            "random_state": 0,
        }
        network = MLPRegressor(hidden_layer_sizes=hidden, **settings)
        scaled = TransformedTargetRegressor(
            make_pipeline(StandardScaler(), network), transformer=StandardScaler()
        )
        return scaled.fit(
            [s.shape.inputs_of_perceptron() for s in samples],
            [s.seconds(direction) for s in samples],
        )

    def seconds(self, shape, direction):
        return float(
            self.networks[shape.kind, direction].predict([shape.inputs_of_perceptron()])[0]
        )


def errors_by_length(model, samples) -> tuple[float, float]:
    """Median relative errors of forward: of the shorter half of the kernels, of the longer half."""
    order = sorted(samples, key=lambda s: s.forward_s)
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    return tuple(
        median(abs(model.seconds(s.shape, "forward") / s.forward_s - 1) for s in half)
        for half in halves
    )


def errors_in_seconds() -> None:
    """2. The short ones. An error of 50 us is nothing in a sum of squares where the longest kernels
    take 50 ms, but it doubles a kernel of 50 us. Errors of the logarithm count equally for all
    kernels, and the step of a small network consists of short kernels."""
    shapes = draw_shapes("fc", 120, seed=1)
    training, unseen = held_out([Sample(s, law(s, "forward"), law(s, "backward")) for s in shapes])
    (short, long), (short_log, _) = (
        errors_by_length(model(training, (16,), 0.1, 1), unseen)
        for model in (InSeconds, Perceptrons)
    )
    assert short > 2 * short_log and short > long


def step_s(node: Node, link: Link, workload=None, system: System = LAZY) -> float:
    return study(workload or resnet50(), 64, node, link, 64, partial(step, system=system)).step_s


def twice_as_fast() -> None:
    """3. Twice as fast is nearly enough for the lesson's lazy allreduce. ResNet-50 then takes 1.01
    times half of its step and AlexNet 1.07 times, because the latencies alpha stay. The eager
    allreduce of ResNet-50 makes 161 calls on 64 ranks, and their latencies are so large that no
    rate is enough. Exactly half the time needs all times halved: flops, memory, rate, and alpha."""
    link, faster = Link(7.9e-6, 1 / 7e9), Node(2 * V100.flops, 2 * V100.bandwidth)
    twice = replace(link, beta_s_per_byte=link.beta_s_per_byte / 2)
    for workload, over in ((resnet50(), 1.01), (alexnet(), 1.07)):
        assert isclose(
            step_s(faster, twice, workload) / (step_s(V100, link, workload) / 2),
            over,
            abs_tol=0.005,
        )
    half_s = step_s(V100, link, system=EAGER) / 2
    assert step_s(faster, replace(link, beta_s_per_byte=1e-18), system=EAGER) > 1.5 * half_s
    for system in (LAZY, EAGER):
        halved = Link(link.alpha_s / 2, link.beta_s_per_byte / 2)
        assert isclose(step_s(faster, halved, system=system), step_s(V100, link, system=system) / 2)


if __name__ == "__main__":
    for exercise in (from_memory_to_flops, errors_in_seconds, twice_as_fast):
        exercise()
        print(exercise.__doc__.strip() + "\n")
