"""A network: layers in a row, the list of their tensors, loss and backward.

bind(parameters, gradients), initialize(seed); then in each step
loss(images, labels, global_batch), backward(on_ready), accept()
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from refgf.nn.layers import Layer, Observe, Ready, TensorSpec, backward_layers, bind_layers
from refgf.nn.loss import softmax_cross_entropy
from refgf.nn.normalization import BatchNorm
from refgf.nn.workspace import Array, Shape, Workspace

NO_LOSS: Array = np.empty(())
UNBOUND = "got no parameters; wanted arrays; next: bind(parameters, gradients)"


class Network:
    """Base class of networks. A subclass's constructor calls `add` for each layer.

    image_shape: (height, width, channels). width: factor on the channels and units of layers.
    workspace: array library and dtype, one per network; None for NumPy and float32.
    """

    def __init__(
        self, num_classes: int, image_shape: Shape, width: float, workspace: Workspace | None = None
    ):
        got = f"got {num_classes} classes, images {image_shape}, width {width}"
        positive = min(num_classes, *image_shape) > 0 and 0 < width < np.inf
        self.require(positive, "", f"{got}; wanted all above 0 and finite; next: correct it")
        self.num_classes, self.image_shape, self.width = num_classes, image_shape, width
        self.workspace = workspace or Workspace()
        self.dtype, self.xp = self.workspace.dtype, self.workspace.xp
        self.layers: list[Layer] = []  # in order of forward
        self.logits_gradient, self.bound = NO_LOSS, False
        self.dropout_rng = np.random.default_rng(0)  # set one per rank: see Dropout

    def add(self, kind: Callable[..., Layer], name: str, *arguments: Any, **options: Any) -> None:
        """Append kind(name, input_shape, *arguments, workspace=..., **options)."""
        input_shape = self.layers[-1].output_shape if self.layers else self.image_shape
        layer = kind(name, input_shape, *arguments, workspace=self.workspace, **options)
        self.layers.append(layer)

    def scaled(self, count: int) -> int:
        return max(1, int(count * self.width + 0.5))

    @cached_property
    def tensors(self) -> list[TensorSpec]:
        """All tensors in order of generation, in which backward finishes their gradients."""
        return [spec for layer in reversed(self.layers) for spec in layer.tensors]

    @cached_property
    def normalizations(self) -> list[BatchNorm]:
        """Batch normalisations, first layer first."""
        inner = [each for layer in self.layers for each in layer.sublayers()]
        return [layer for layer in inner if isinstance(layer, BatchNorm)]

    @property
    def running(self) -> list[Array]:
        """Running mean and variance of each batch normalisation; change them in place."""
        return [a for n in self.normalizations for a in (n.running_mean, n.running_variance)]

    def bind(self, parameters: Sequence[Array], gradients: Sequence[Array]) -> None:
        """Work on these arrays, one of each per tensor, usually views of two pools. No copies."""
        self.require_arrays("parameters", parameters)
        self.require_arrays("gradients", gradients)
        bind_layers(self.layers, parameters, gradients)
        self.bound = True

    def initialize(self, seed: int) -> None:
        """Weights normal with variance 2 / inputs (He et al. 2015), gamma 1, others 0.

        Drawn in float32 on the host, in order of generation: the same on every rank, on a GPU and
        in float64. Running statistics become 0 and 1.
        """
        self.require(self.bound, ".initialize", UNBOUND)
        rng = np.random.default_rng(seed)
        arrays = [array for layer in reversed(self.layers) for array in layer.parameters]
        for spec, array in zip(self.tensors, arrays):
            array[...] = spec.name.endswith("gamma")
            if spec.name.endswith("weight"):
                std = np.float32((2 / (spec.size // spec.shape[-1])) ** 0.5)
                array[...] = self.xp.asarray(rng.standard_normal(spec.shape, np.float32) * std)
        for layer in self.normalizations:
            layer.running_mean[...], layer.running_variance[...], layer.batch = 0, 1, None

    def forward(self, images: Array, training: bool, observe: Observe | None = None) -> Array:
        """Logits (N, num_classes) of images (N, height, width, channels)."""
        self.require(self.bound, ".forward", UNBOUND)
        message = f"got images {images.shape}; wanted (N, *{self.image_shape}); next: resize them"
        self.require(images.shape[1:] == self.image_shape, ".forward", message)
        x = self.xp.asarray(images, dtype=self.dtype, order="C")  # (N, H, W, C)
        for layer in self.layers:
            x = layer.forward(x, training)
            if observe:
                observe(layer.name, "forward")
        return x  # (N, num_classes)

    def loss(
        self, images: Array, labels: Array, global_batch: int, observe: Observe | None = None
    ) -> float:
        """`softmax_cross_entropy` of images (N, H, W, C), which must not change before backward.

        labels (N,) integers below num_classes; N = 0 gives 0. global_batch: the samples of all
        ranks. observe(layer name, "forward") is called after each layer.
        """
        labels = self.required_labels(labels, len(images))
        got = f"got global_batch {global_batch} with {len(images)} images on this rank"
        message = f"{got}; wanted the images of all ranks; next: add them up"
        self.require(global_batch >= max(1, len(images)), ".loss", message)
        logits = self.forward(images, True, observe)
        labels = self.xp.asarray(labels)
        value, self.logits_gradient = softmax_cross_entropy(logits, labels, global_batch)
        return value

    def backward(self, on_ready: Ready, observe: Observe | None = None) -> None:
        """Gradients of the last `loss`; on_ready(i) once gradient i is final: 0, 1, 2, ...

        Zero images give zero gradients, all announced. observe(layer name, "backward").
        """
        gradient, self.logits_gradient = self.logits_gradient, NO_LOSS
        message = "got no loss; wanted one; next: loss before backward"
        self.require(gradient is not NO_LOSS, ".backward", message)
        backward_layers(self.layers, gradient.astype(self.dtype, copy=False), on_ready, observe)

    def accept(self) -> None:
        """Add the batch statistics to the running ones. A step not accepted leaves no trace."""
        for layer in self.normalizations:
            layer.accept()

    def predict(self, images: Array) -> Array:
        """Logits (N, num_classes) with running statistics, no dropout. Drops a pending backward."""
        self.logits_gradient = NO_LOSS
        return self.forward(images, False).copy()

    def require(self, ok: bool, operation: str, message: str) -> None:
        if not ok:
            raise ValueError(f"{type(self).__name__}{operation}: {message}")

    def require_arrays(self, what: str, arrays: Sequence[Array]) -> None:
        counts = f"{what}: got {len(arrays)} arrays; wanted {len(self.tensors)}"
        self.require(len(arrays) == len(self.tensors), ".bind", f"{counts}; next: network.tensors")
        for spec, array in zip(self.tensors, arrays):
            got, wanted = (array.shape, array.dtype), (spec.shape, self.dtype)
            contiguous = array.flags.c_contiguous
            message = f"{what}: got {got} for {spec.name}, contiguous {contiguous}; wanted {wanted}"
            next_step = "contiguous; next: the order of network.tensors"
            self.require(got == wanted and contiguous, ".bind", f"{message}, {next_step}")

    def required_labels(self, labels: Array, images: int) -> np.ndarray:
        labels = np.asarray(labels)
        first, last = (labels.min(), labels.max()) if labels.size else (0, 0)
        integers = not labels.size or labels.dtype.kind in "iu"
        ok = labels.shape == (images,) and integers and 0 <= first <= last < self.num_classes
        got = f"got labels {labels.dtype} {labels.shape} from {first} to {last}"
        wanted = f"wanted integers ({images},) from 0 to {self.num_classes - 1}"
        self.require(ok, ".loss", f"{got}; {wanted}; next: a class number for each image")
        return labels.astype(np.int64)
