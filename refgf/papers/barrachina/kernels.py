"""Times of unseen kernels: a roofline and multi-layer perceptrons fitted to measured kernels.

Barrachina et al. predict a training step kernel by kernel: perceptrons for the kernels, a formula
for the ring (stated). Their features, sizes and errors are not at hand, so these choices are ours:

  - the mean of five perceptrons for each kind of kernel (convolution, fully connected), and for
    forward and backward;
  - input: logarithms of sizes, flops and bytes;
  - output: logarithm of the kernel's flop/s, so shapes larger than any in the training set get the
    speed of the largest ones, not their time;
  - loss: squares of the logarithm, that is, of relative errors;
  - the held-out set has other shapes than the training set, not only other measurements;
  - a time is the minimum of several rounds over all shapes.

Nothing is measured here: `measure` takes a function shape -> (forward_s, backward_s). Only the
perceptrons need scikit-learn (the extra `lessons`).
"""

import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, exp, isqrt, log
from typing import Any, Protocol

from refgf.arguments import checked, require
from refgf.papers.barrachina.roofline import Node

DIRECTIONS = ("forward", "backward")
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
SIDES = (6, 7, 8, 10, 12, 13, 14, 16, 20, 24, 27, 28, 32, 40, 48, 56, 64)
IMAGES = (64, 80, 96, 112, 128, 160, 192, 224)  # sides of images, inputs of first convolutions
CHANNELS = tuple(int(factor * 2**power) for power in range(3, 9) for factor in (1, 1.5))
FEATURES = tuple(int(factor * 2**power) for power in range(5, 13) for factor in (1, 1.5))
FIRST = 0.15  # fraction of first convolutions
COMMON = ((1, 1), (1, 1), (1, 2), (3, 1), (3, 1), (3, 1), (3, 2))
WINDOWS = (*COMMON, (5, 1), (7, 2), (11, 4))  # (kernel, stride), drawn with equal probability


@checked
@dataclass(frozen=True)
class KernelShape:
    """A layer at a batch size: `batch` inputs of side x side x channels, kernel x kernel windows.

    kind is "conv" or "fc". A fully connected layer has side 1, and its channels are its inputs. A
    convolution of images (at most 3 channels) is the first of its network: it computes no input
    gradient.
    """

    kind: str
    batch: int
    side: int
    channels: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0

    @property
    def output_side(self) -> int:
        return (self.side + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def rows(self) -> int:
        """Rows of the im2col matrix: output positions of the whole batch."""
        return self.batch * self.output_side**2

    @property
    def patch(self) -> int:
        return self.kernel**2 * self.channels

    @property
    def first(self) -> bool:
        return self.kind == "conv" and self.channels <= 3

    def products(self, direction: str) -> int:
        """Matrix products. Backward has two, for weights and input; a first layer has one."""
        return 2 if direction == "backward" and not self.first else 1

    def flops(self, direction: str) -> int:
        return self.products(direction) * 2 * self.rows * self.patch * self.outputs

    def bytes(self, direction: str, itemsize: int = 4) -> int:
        """Input, weights and output, once per product."""
        inputs, outputs = self.batch * self.side**2 * self.channels, self.rows * self.outputs
        elements = inputs + self.patch * self.outputs + outputs
        return self.products(direction) * itemsize * elements

    def inputs_of_perceptron(self) -> list[float]:
        batch, side, out = self.batch, self.side, self.output_side
        sizes = batch, side, self.channels, self.outputs, self.kernel, self.stride, out
        flops, nbytes = self.flops("forward"), self.bytes("forward")
        image = side**2 * self.channels, out**2 * self.outputs, out**2 * self.patch
        rows, patch = self.rows, self.patch
        matrices = rows, patch, rows * patch, rows * self.outputs, patch * self.outputs
        row = self.kernel * self.channels
        strips = side * out * row  # the windows of an image row: do they fit in a cache?
        cache = row, strips, strips * batch, batch * image[0]
        values = (*sizes, flops, nbytes, flops / nbytes, *image, *matrices, *cache)
        return [*map(log, values), float(self.first)]


@checked
@dataclass(frozen=True)
class Sample:
    shape: KernelShape
    forward_s: float
    backward_s: float

    def seconds(self, direction: str) -> float:
        return self.forward_s if direction == "forward" else self.backward_s


class Model(Protocol):
    """Predicts the time of a kernel."""

    def seconds(self, shape: KernelShape, direction: str) -> float: ...


def draw_shapes(
    kind: str, count: int, seed: int, least_flops: float = 3e6, most_flops: float = 3e9
) -> list[KernelShape]:
    """`count` different shapes of `kind`, with forward flops in a range that is fast to measure."""
    rng, shapes = random.Random(seed), {}
    for _ in range(200 * count):
        if kind == "conv":
            kernel, stride = rng.choice(WINDOWS)
            first = rng.random() < FIRST
            image = (rng.choice(IMAGES), 3) if first else (rng.choice(SIDES), rng.choice(CHANNELS))
            sizes = rng.choice(BATCHES), *image, rng.choice(CHANNELS)
            shape = KernelShape(kind, *sizes, kernel, stride, kernel // 2)
        else:
            batch = rng.choice((*BATCHES, 48, 64, 96, 128))
            shape = KernelShape(kind, batch, 1, rng.choice(FEATURES), rng.choice(FEATURES))
        if shape.kernel <= shape.side and least_flops <= shape.flops("forward") <= most_flops:
            shapes[shape] = None
        if len(shapes) == count:
            return list(shapes)
    raise ValueError(
        f"draw_shapes: got {len(shapes)} {kind} shapes in the range of flops; wanted {count}; "
        "next: widen it"
    )


def shapes_of(workload: Any, batch: int) -> dict[str, KernelShape]:
    """{layer name: KernelShape} of the convolutions with square windows and the fc layers.

    workload: a refgf.papers.scaling.shapes.Workload. Stride and padding are inferred.
    """
    shapes = {}
    for layer in workload.layers:
        weight = layer.tensors[-1].shape if layer.kind in ("conv", "fc") else ()
        if layer.kind == "fc":
            shapes[layer.name] = KernelShape("fc", batch, 1, *weight)
        elif layer.kind == "conv" and weight[0] == weight[1]:
            kernel, _, channels, outputs = weight
            side, out = (
                isqrt(layer.input_elements // channels),
                isqrt(layer.output_elements // outputs),
            )
            stride = max(1, side // out)
            padding = max(0, ceil(((out - 1) * stride + kernel - side) / 2))
            sizes = side, channels, outputs, kernel, stride, padding
            shapes[layer.name] = KernelShape("conv", batch, *sizes)
    return shapes


def measure(
    shapes: Iterable[KernelShape],
    timer: Callable[[KernelShape], tuple[float, float]],
    rounds: int = 1,
    seed: int = 0,
) -> list[Sample]:
    """The minimum of `rounds` calls timer(shape) -> (forward_s, backward_s) for each shape.

    Every round times all shapes in another order, so a slow phase of the machine affects one round
    of a shape, not all. No model predicts better than the timer repeats (`repeatability`). On a
    shared machine a thread's processor time (time.thread_time) repeats better than wall time.
    """
    found = {shape: [] for shape in shapes}
    for number in range(rounds):
        order = list(found)
        random.Random(seed + number).shuffle(order)
        for shape in order:
            forward_s, backward_s = timer(shape)
            if not (forward_s > 0 and backward_s > 0):
                raise ValueError(
                    f"measure: got {forward_s} s and {backward_s} s for {shape}; wanted times > 0; "
                    "next: time more repeats of it"
                )
            found[shape].append((forward_s, backward_s))
    return [Sample(shape, *map(min, zip(*times))) for shape, times in found.items()]


def repeatability(samples: Sequence[Sample], again: Sequence[Sample]) -> float:
    """Median of |one / other - 1| over kernels measured twice: the floor of any model's error."""
    other = {sample.shape: sample for sample in again}
    twice = [s for s in samples if s.shape in other]
    pairs = [(s.seconds(d), other[s.shape].seconds(d)) for s in twice for d in DIRECTIONS]
    return sorted(abs(first / second - 1) for first, second in pairs)[len(pairs) // 2]


def held_out(
    samples: Sequence[Sample], share: float = 0.25, seed: int = 0
) -> tuple[list[Sample], list[Sample]]:
    """(training, held out), split by shape: no held-out shape and batch size is in training."""
    order = sorted(samples, key=lambda sample: repr(sample.shape))
    random.Random(seed).shuffle(order)
    count = max(1, round(share * len(order)))
    return order[count:], order[:count]


def fit_roofline(samples: Iterable[Sample], direction: str, steps: int = 40) -> Node:
    """The node whose roofline has the least mean |log(predicted / measured)|, by grid search."""
    work = [
        (s.shape.flops(direction), s.shape.bytes(direction), s.seconds(direction)) for s in samples
    ]
    fastest, widest = max(f / t for f, _, t in work), max(b / t for _, b, t in work)
    roofs = [0.02 ** (1 - i / (steps - 1)) for i in range(steps)]
    nodes = [Node(fastest * flops, widest * memory) for flops in roofs for memory in roofs]
    return min(nodes, key=lambda node: sum(abs(log(node.kernel_s(f, b) / t)) for f, b, t in work))


@checked
class Roofline:
    """Predicts max(flops / peak, bytes / bandwidth), with both roofs fitted to the samples."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        kinds = {sample.shape.kind for sample in samples}
        self.nodes = {
            (kind, direction): fit_roofline([s for s in samples if s.shape.kind == kind], direction)
            for kind in kinds
            for direction in DIRECTIONS
        }

    def seconds(self, shape: KernelShape, direction: str) -> float:
        node = self.nodes[shape.kind, direction]
        return node.kernel_s(shape.flops(direction), shape.bytes(direction))


@checked
class Perceptrons:
    """Predicts the flop/s of a kernel as the mean of `members` perceptrons.

    hidden: neurons of each hidden layer. penalty: L2 regularisation of the weights.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        hidden: tuple[int, ...] = (32, 32),
        penalty: float = 0.5,
        members: int = 5,
    ) -> None:
        require(
            min([*hidden, members]) > 0 and 0 <= penalty < float("inf"),
            "Perceptrons",
            f"hidden={hidden}, penalty={penalty}, members={members}",
            "hidden and members above 0, a finite penalty of 0 or more",
            "leave them out",
        )
        self.networks = {}
        for kind in {sample.shape.kind for sample in samples}:
            own = [sample for sample in samples if sample.shape.kind == kind]
            for direction in DIRECTIONS:
                network = self.train(own, direction, hidden, penalty, members)
                self.networks[kind, direction] = network

    def train(
        self,
        samples: Sequence[Sample],
        direction: str,
        hidden: tuple[int, ...],
        penalty: float,
        members: int,
    ) -> list:
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        inputs = [sample.shape.inputs_of_perceptron() for sample in samples]
        speeds = [log(s.shape.flops(direction) / s.seconds(direction)) for s in samples]
        settings = {"activation": "tanh", "solver": "lbfgs", "alpha": penalty, "max_iter": 500}
        networks = []
        for seed in range(members):
            perceptron = MLPRegressor(hidden_layer_sizes=hidden, random_state=seed, **settings)
            network = make_pipeline(StandardScaler(), perceptron)
            networks.append(TransformedTargetRegressor(network, transformer=StandardScaler()))
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", ConvergenceWarning
                )  # early stopping regularises too
                networks[-1].fit(inputs, speeds)
        return networks

    def seconds(self, shape: KernelShape, direction: str) -> float:
        networks, inputs = self.networks[shape.kind, direction], [shape.inputs_of_perceptron()]
        speeds = [float(network.predict(inputs)[0]) for network in networks]
        return shape.flops(direction) / exp(sum(speeds) / len(speeds))


def errors(model: Model, samples: Iterable[Sample]) -> dict[tuple[str, str], list[float]]:
    """{(kind, direction): sorted relative errors |predicted / measured - 1|}."""
    found = {}
    for sample in samples:
        for direction in DIRECTIONS:
            error = abs(model.seconds(sample.shape, direction) / sample.seconds(direction) - 1)
            found.setdefault((sample.shape.kind, direction), []).append(error)
    return {key: sorted(values) for key, values in found.items()}
