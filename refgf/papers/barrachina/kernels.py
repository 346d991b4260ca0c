"""Times of unseen kernels: a roofline and small multi-layer perceptrons, both fitted to kernels measured here.

Barrachina et al. predict training steps piece by piece: perceptrons for the kernels, a formula for the ring (stated).
Their features, sizes and errors are not at hand, so these are ours:

    one perceptron for each kind of kernel (convolution, fully connected) and direction, or rather the mean of five
    that differ in their seed; input: logarithms of sizes, flops and bytes; output: logarithm of the flop/s that the
    kernel reaches, so that shapes beyond those it has seen are as fast as these, not as short; loss: squares of the
    logarithm, that is of relative errors; training set and held-out set differ in their shapes, not only in their
    measurements; a time is the least of several rounds over all shapes.

Nothing is measured in this module: `measure` is given a function shape -> (forward_s, backward_s). Needs scikit-learn
(the extra `lessons`) for the perceptrons only.
"""

import random
import warnings
from dataclasses import dataclass, replace
from math import ceil, exp, isqrt, log

from refgf.papers.barrachina.roofline import Node

DIRECTIONS = ("forward", "backward")
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
SIDES = (6, 7, 8, 10, 12, 13, 14, 16, 20, 24, 27, 28, 32, 40, 48, 56, 64)
IMAGES = (64, 80, 96, 112, 128, 160, 192, 224)  # sides; of 3 channels, before the first convolution
CHANNELS = tuple(int(part * 2**power) for power in range(3, 9) for part in (1, 1.5))
FEATURES = tuple(int(part * 2**power) for power in range(5, 13) for part in (1, 1.5))
FIRST = 0.15  # share of first convolutions
WINDOWS = ((1, 1), (1, 1), (1, 2), (3, 1), (3, 1), (3, 1), (3, 2), (5, 1), (7, 2), (11, 4))  # kernel, stride; as often


@dataclass(frozen=True)
class KernelShape:
    """A layer at a batch size: `batch` images of side x side x channels, kernel x kernel windows, `outputs` channels.

    kind "conv" or "fc"; a fully connected layer has side 1 and as many channels as inputs. A convolution of images (3
    channels or fewer) is the first of its network: nobody wants the gradient of its input.
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
    def output_side(self):
        return (self.side + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def rows(self):
        """Rows of the matrix of columns: places of the output in the whole batch."""
        return self.batch * self.output_side**2

    @property
    def patch(self):
        return self.kernel**2 * self.channels

    @property
    def first(self):
        return self.kind == "conv" and self.channels <= 3

    def products(self, direction):
        """Backward has two products where forward has one: for the weights, and for the input unless it is the first."""
        return 2 if direction == "backward" and not self.first else 1

    def flops(self, direction):
        return self.products(direction) * 2 * self.rows * self.patch * self.outputs

    def bytes(self, direction, itemsize=4):
        """Input, weights and output, each once a product."""
        elements = self.batch * self.side**2 * self.channels + self.patch * self.outputs + self.rows * self.outputs
        return self.products(direction) * itemsize * elements

    def inputs_of_perceptron(self):
        sizes = (self.batch, self.side, self.channels, self.outputs, self.kernel, self.stride, self.output_side)
        work = (self.flops("forward"), self.bytes("forward"), self.flops("forward") / self.bytes("forward"))
        image = self.side**2 * self.channels, self.output_side**2 * self.outputs, self.output_side**2 * self.patch
        row = self.kernel * self.channels  # an image row's windows decide how many images fit a cache
        strips = self.side * self.output_side * row
        products = (self.rows, self.patch, self.rows * self.patch, self.rows * self.outputs, self.patch * self.outputs)
        values = (*sizes, *work, *image, *products, row, strips, strips * self.batch, self.batch * image[0])
        return [*map(log, values), float(self.first)]


@dataclass(frozen=True)
class Sample:
    shape: KernelShape
    forward_s: float
    backward_s: float

    def seconds(self, direction):
        return self.forward_s if direction == "forward" else self.backward_s


def draw_shapes(kind, count, seed, least_flops=3e6, most_flops=3e9):
    """`count` different shapes of `kind`, with forward flops in a range that can be measured in short time."""
    rng, shapes = random.Random(seed), {}
    for _ in range(200 * count):
        if kind == "conv":
            kernel, stride = rng.choice(WINDOWS)
            first = rng.random() < FIRST
            inside = (rng.choice(IMAGES), 3) if first else (rng.choice(SIDES), rng.choice(CHANNELS))
            sizes = rng.choice(BATCHES), *inside, rng.choice(CHANNELS)
            shape = KernelShape(kind, *sizes, kernel, stride, kernel // 2)
        else:
            batch = rng.choice((*BATCHES, 48, 64, 96, 128))
            shape = KernelShape(kind, batch, 1, rng.choice(FEATURES), rng.choice(FEATURES))
        if shape.kernel <= shape.side and least_flops <= shape.flops("forward") <= most_flops:
            shapes[shape] = None
        if len(shapes) == count:
            return list(shapes)
    raise ValueError(f"draw_shapes: got {len(shapes)} {kind} shapes in the range of flops, wanted {count}: widen it")


def shapes_of(workload, batch):
    """{layer name: KernelShape} of the layers that multiply, with square windows; stride and padding are inferred."""
    shapes = {}
    for layer in workload.layers:
        weight = layer.tensors[-1].shape if layer.kind in ("conv", "fc") else ()
        if layer.kind == "fc":
            shapes[layer.name] = KernelShape("fc", batch, 1, *weight)
        elif layer.kind == "conv" and weight[0] == weight[1]:
            kernel, _, channels, outputs = weight
            side, out = isqrt(layer.input_elements // channels), isqrt(layer.output_elements // outputs)
            stride = max(1, side // out)
            padding = max(0, ceil(((out - 1) * stride + kernel - side) / 2))
            shapes[layer.name] = KernelShape("conv", batch, side, channels, outputs, kernel, stride, padding)
    return shapes


def measure(shapes, timer, rounds=1, seed=0):
    """[Sample]: for each shape the least forward_s and backward_s of `rounds` calls timer(shape) -> (forward_s, backward_s).

    A round goes through all shapes, in another order each time: what slows the machine for a while hits one round of
    a shape, and not all of them. No model predicts better than the timer repeats itself (`repeatability`); on a shared
    machine a thread's processor time (time.thread_time) repeats better than the clock.
    """
    found = {shape: [] for shape in shapes}
    for number in range(rounds):
        order = list(found)
        random.Random(seed + number).shuffle(order)
        for shape in order:
            forward_s, backward_s = timer(shape)
            if not (forward_s > 0 and backward_s > 0):
                told = f"got {forward_s} s and {backward_s} s for {shape}"
                raise ValueError(f"measure: {told}, wanted times > 0: time more repeats of it")
            found[shape].append((forward_s, backward_s))
    return [Sample(shape, *map(min, zip(*times))) for shape, times in found.items()]


def repeatability(samples, again):
    """Median of |one / other - 1| over both directions of the same shapes, measured twice: the floor of any error."""
    times = {sample.shape: (sample.forward_s, sample.backward_s) for sample in again}
    pairs = [pair for s in samples if s.shape in times for pair in zip((s.forward_s, s.backward_s), times[s.shape])]
    return sorted(abs(one / other - 1) for one, other in pairs)[len(pairs) // 2]


def held_out(samples, share=0.25, seed=0):
    """(training, held out): split by shape, so that no held-out shape and batch size was seen."""
    order = sorted(samples, key=lambda sample: repr(sample.shape))
    random.Random(seed).shuffle(order)
    count = max(1, round(share * len(order)))
    return order[count:], order[:count]


def fit_roofline(samples, direction, steps=40):
    """Node whose roofline has the least mean |log(predicted / measured)| on the samples: by search over both roofs."""
    work = [(s.shape.flops(direction), s.shape.bytes(direction), s.seconds(direction)) for s in samples]
    fastest, widest = max(f / t for f, _, t in work), max(b / t for _, b, t in work)
    candidates = [0.02 ** (1 - i / (steps - 1)) for i in range(steps)]
    nodes = [Node(fastest * flops, widest * memory) for flops in candidates for memory in candidates]
    return min(nodes, key=lambda node: sum(abs(log(node.kernel_s(f, b) / t)) for f, b, t in work))


class Roofline:
    """Predicts every kernel as max(flops / peak, bytes / bandwidth), with the roofs fitted to the training samples."""

    def __init__(self, samples):
        kinds = {sample.shape.kind for sample in samples}
        self.nodes = {
            (kind, direction): fit_roofline([s for s in samples if s.shape.kind == kind], direction)
            for kind in kinds
            for direction in DIRECTIONS
        }

    def seconds(self, shape, direction):
        return self.nodes[shape.kind, direction].kernel_s(shape.flops(direction), shape.bytes(direction))


class Perceptrons:
    """Predicts how many flop/s a kernel reaches. hidden: neurons of each layer; penalty: of the weights."""

    def __init__(self, samples, hidden=(32, 32), penalty=0.5, members=5):
        self.networks = {
            (kind, direction): self.train([s for s in samples if s.shape.kind == kind], direction, hidden, penalty, members)
            for kind in {sample.shape.kind for sample in samples}
            for direction in DIRECTIONS
        }

    def train(self, samples, direction, hidden, penalty, members):
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
                warnings.simplefilter("ignore", ConvergenceWarning)  # stopping early is a penalty too
                networks[-1].fit(inputs, speeds)
        return networks

    def seconds(self, shape, direction):
        networks, inputs = self.networks[shape.kind, direction], [shape.inputs_of_perceptron()]
        speeds = [float(network.predict(inputs)[0]) for network in networks]
        return shape.flops(direction) / exp(sum(speeds) / len(speeds))


def errors(model, samples):
    """{(kind, direction): sorted relative errors |predicted / measured - 1|}"""
    found = {}
    for sample in samples:
        for direction in DIRECTIONS:
            error = abs(model.seconds(sample.shape, direction) / sample.seconds(direction) - 1)
            found.setdefault((sample.shape.kind, direction), []).append(error)
    return {key: sorted(values) for key, values in found.items()}


def at_batch(shapes, batch):
    """The same layers at another batch size."""
    return {name: replace(shape, batch=batch) for name, shape in shapes.items()}
