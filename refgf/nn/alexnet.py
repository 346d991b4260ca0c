"""AlexNet (Krizhevsky et al. 2012) with ungrouped convolutions: 62,378,344 parameters at 227 x 227 and 1000 classes.

    conv1 11x11/4, 96 - pool1 3x3/2 - conv2 5x5, 256 - pool2 - conv3 3x3, 384 - conv4 3x3, 384 - conv5 3x3, 256 - pool5
    fc6 4096 - dropout - fc7 4096 - dropout - fc8 num_classes

    normalization="batch"  conv - batch normalisation - ReLU - pool, for conv1 to 5: 26 tensors, 62,381,096 parameters
                  "local"  conv - ReLU - local response normalisation - pool, for conv1 and 2 (the paper): 16 tensors
                  "none"   conv - ReLU - pool: 16 tensors

Dropout follows the ReLU of fc6 and of fc7, as in the paper. Two deviations: no grouped convolutions (they were there
for two GPUs), and He et al. (2015) initial weights, with which it trains at any width.
"""

import numpy as np

from refgf.engine.minimal import kind_of_convolution
from refgf.nn.layers import Dropout, FullyConnected, ReLU
from refgf.nn.loss import softmax_cross_entropy
from refgf.nn.normalization import BatchNorm, LocalResponseNorm
from refgf.nn.pooling import MaxPool
from refgf.nn.workspace import Workspace

CONVOLUTIONS = [  # channels, kernel, stride, padding, pooling after it
    (96, 11, 4, 0, True),
    (256, 5, 1, 2, True),
    (384, 3, 1, 1, False),
    (384, 3, 1, 1, False),
    (256, 3, 1, 1, True),
]
HIDDEN_UNITS = [4096, 4096]
SMALLEST_IMAGE = 67  # leaves 1 x 1 pixels before fc6


class AlexNet:
    """The layers in a row, and the list of their tensors in the order in which backward finishes their gradients.

    image_size: height and width; width: factor on the channels and hidden units; channels: of the images;
    xp: numpy or cupy; images_per_block: how many images a layer works on at a time, None to choose by cache size;
    threads: see Workspace; minimal_filtering: convolutions of 3 x 3 and 5 x 5 with fewer products and larger rounding
    errors, on the CPU only (minimal.py).

    Use:  bind(parameters, gradients), initialize(seed); then in each step
          loss(images, labels, global_batch), backward(on_ready), accept()
    """

    def __init__(self, num_classes, image_size=227, width=1.0, normalization="batch", dropout=0.5, channels=3,
                 dtype=np.float32, xp=np, images_per_block=None, threads=1, minimal_filtering=False):  # fmt: skip
        check_settings(num_classes, image_size, width, normalization, channels)
        self.num_classes, self.image_shape = num_classes, (image_size, image_size, channels)
        self.workspace = Workspace(xp, dtype, threads, images_per_block)
        self.dtype, self.xp = self.workspace.dtype, xp
        self.layers = []
        self.add_convolutions(width, normalization, minimal_filtering)
        self.add_fully_connected(width, dropout)
        backwards = self.layers[::-1]
        self.tensors = [spec for layer in backwards for spec in layer.tensors]  # the order of generation
        self.normalizations = [layer for layer in self.layers if isinstance(layer, BatchNorm)]
        self.logits_gradient = None
        self.bound = False
        self.dropout_rng = np.random.default_rng(0)

    def add_convolutions(self, width, normalization, minimal_filtering):
        for number, (outputs, kernel, stride, padding, pooled) in enumerate(CONVOLUTIONS, start=1):
            options = {"stride": stride, "padding": padding, "input_gradient": number > 1}
            kind = kind_of_convolution(kernel, stride, minimal_filtering)
            self.add(kind, f"conv{number}", scaled(outputs, width), kernel, **options)
            if normalization == "batch":
                self.add(BatchNorm, f"norm{number}")
            self.add(ReLU, f"relu{number}")
            if normalization == "local" and number <= 2:
                self.add(LocalResponseNorm, f"norm{number}")
            if pooled:
                self.add(MaxPool, f"pool{number}", 3, 2)

    def add_fully_connected(self, width, dropout):
        for number, units in enumerate(HIDDEN_UNITS, start=6):
            self.add(FullyConnected, f"fc{number}", scaled(units, width))
            self.add(ReLU, f"relu{number}")
            self.add(Dropout, f"dropout{number}", dropout)
        self.add(FullyConnected, "fc8", self.num_classes)

    def add(self, kind, name, *arguments, **options):
        input_shape = self.layers[-1].output_shape if self.layers else self.image_shape
        self.layers.append(kind(name, input_shape, *arguments, workspace=self.workspace, **options))

    @property
    def dropout_rng(self):
        """The numpy Generator of all dropout masks; set one per rank, or ranks drop the same units."""
        return self._dropout_rng

    @dropout_rng.setter
    def dropout_rng(self, rng):
        self._dropout_rng = rng
        for layer in self.layers:
            if isinstance(layer, Dropout):
                layer.rng = rng

    @property
    def running(self):
        """Running mean and variance of each batch normalisation, first layer first; change the arrays in place."""
        return [array for layer in self.normalizations for array in (layer.running_mean, layer.running_variance)]

    def bind(self, parameters, gradients):
        """Work on these arrays, one of each per tensor in `tensors`, usually views of two pools; nothing is copied."""
        for what, arrays in (("parameters", parameters), ("gradients", gradients)):
            got = [(array.shape, array.dtype) for array in arrays]
            wanted = [(spec.shape, self.dtype) for spec in self.tensors]
            if got != wanted:
                raise ValueError(f"AlexNet.bind: {what}: {first_difference(got, wanted, self.tensors)}")
            if not all(array.flags.c_contiguous for array in arrays):
                raise ValueError(f"AlexNet.bind: {what}: got a non-contiguous array, wanted contiguous views of a pool")
        start = 0
        for layer in reversed(self.layers):
            stop = start + len(layer.tensors)
            layer.bind(parameters[start:stop], gradients[start:stop])
            start = stop
        self.bound = True

    def initialize(self, seed):
        """He initialisation: weights normal with variance 2 / inputs, gamma 1, the rest 0; running statistics 0 and 1.

        Drawn in float32 on the host, in the order of `tensors`: the same on every rank, on a GPU, and in float64.
        """
        self.check_bound("initialize")
        rng = np.random.default_rng(seed)
        for layer in reversed(self.layers):
            for spec, array in zip(layer.tensors, layer.parameters):
                if spec.name.endswith("weight"):
                    std = (2 / (spec.size // spec.shape[-1])) ** 0.5
                    array[...] = self.xp.asarray(rng.standard_normal(spec.shape, dtype=np.float32) * np.float32(std))
                else:
                    array[...] = spec.name.endswith("gamma")
        for layer in self.normalizations:
            layer.running_mean[...], layer.running_variance[...], layer.batch = 0, 1, None

    def forward(self, images, training, observe=None):
        self.check_bound("forward")
        if images.shape[1:] != self.image_shape:
            raise ValueError(f"AlexNet: got images of shape {images.shape}, wanted (N, *{self.image_shape})")
        x = self.xp.asarray(images, dtype=self.dtype, order="C")  # (N, H, W, C)
        for layer in self.layers:
            x = layer.forward(x, training)
            if observe:
                observe(layer.name, "forward")
        return x  # (N, num_classes)

    def loss(self, images, labels, global_batch, observe=None):
        """Cross-entropies of these samples, added up and divided by global_batch, the samples of all ranks.

        A float; on a GPU an array (), for which the host waits only when somebody takes its float().

        images (N, H, W, C), labels (N,) integers below num_classes; N = 0 gives 0. The images must not change before
        backward. observe(layer name, "forward") is called after each layer.
        """
        labels = check_labels(labels, len(images), self.num_classes)
        if global_batch < max(1, len(images)):
            raise ValueError(
                f"AlexNet.loss: got global_batch {global_batch} with {len(images)} images here; "
                "wanted the number of images of all ranks together, at least 1"
            )
        logits = self.forward(images, True, observe)
        value, self.logits_gradient = softmax_cross_entropy(logits, self.xp.asarray(labels), global_batch)
        return value

    def backward(self, on_ready, observe=None):
        """Gradients of the last `loss` into the bound arrays; on_ready(i) as soon as number i is final: 0, 1, 2, ...

        Zero images give zero gradients, all announced. observe(layer name, "backward") is called after each layer.
        """
        if self.logits_gradient is None:
            raise ValueError("AlexNet.backward: no loss to differentiate; next: call loss before each backward")
        gradient, self.logits_gradient = self.logits_gradient.astype(self.dtype, copy=False), None
        start = 0
        for layer in reversed(self.layers):
            gradient = layer.backward(gradient, lambda k, start=start: on_ready(start + k))
            start += len(layer.tensors)
            if observe:
                observe(layer.name, "backward")

    def accept(self):
        """The step counts: fold its batch statistics into the running ones. A step not accepted leaves no trace."""
        for layer in self.normalizations:
            layer.accept()

    def predict(self, images):
        """Logits (N, num_classes) in evaluation mode: running statistics, no dropout. Drops a pending backward."""
        self.logits_gradient = None
        return self.forward(images, False).copy()

    def check_bound(self, operation):
        if not self.bound:
            raise ValueError(f"AlexNet.{operation}: no parameters yet; next: call bind(parameters, gradients)")


def scaled(count, width):
    return max(1, int(count * width + 0.5))


def check_settings(num_classes, image_size, width, normalization, channels):
    if num_classes < 1 or channels < 1 or not width > 0:
        raise ValueError(f"AlexNet: got {num_classes} classes, {channels} channels, width {width}, wanted all above 0")
    if image_size < SMALLEST_IMAGE:
        raise ValueError(f"AlexNet: got image_size {image_size}, wanted {SMALLEST_IMAGE} or more; next: enlarge images")
    if normalization not in ("batch", "local", "none"):
        raise ValueError(f'AlexNet: got normalization "{normalization}", wanted "batch", "local" or "none"')


def check_labels(labels, images, num_classes):
    labels = np.asarray(labels)
    if labels.shape != (images,) or (labels.size and labels.dtype.kind not in "iu"):
        raise ValueError(f"AlexNet.loss: got labels {labels.dtype} {labels.shape}, wanted integers, ({images},)")
    if labels.size and not 0 <= labels.min() <= labels.max() < num_classes:
        got = f"{labels.min()} to {labels.max()}"
        raise ValueError(f"AlexNet.loss: got labels from {got}, wanted 0 to {num_classes - 1}")
    return labels.astype(np.int64)


def first_difference(got, wanted, tensors):
    if len(got) != len(wanted):
        return f"got {len(got)} arrays, wanted {len(wanted)}, one per tensor"
    i = next(i for i in range(len(got)) if got[i] != wanted[i])
    return f"got {got[i]} for {tensors[i].name}, wanted {wanted[i]}; the order is that of network.tensors"
