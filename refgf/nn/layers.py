"""The layer interface, and the plain layers: fully connected, ReLU, dropout.

N = 0 is allowed. A layer overwrites in its next call the arrays that it returned. After ready(k) it
neither reads nor writes gradient k: the exchange may sum it.
"""

import abc
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refgf import ops
from refgf.device import Memory, resized
from refgf.nn.workspace import Array, Shape, Workspace, cut

UNPACKED_OPERATIONS = 600_000  # multiply-adds of a product that OpenBLAS computes without packing

Arrays = Sequence[Array]
Ready = Callable[[int], None]
Observe = Callable[[str, str], None]
Rng = Callable[[], np.random.Generator]


@dataclass(frozen=True)
class TensorSpec:
    """A learnable tensor. decay: whether weight decay applies (not to biases, normalisation)."""

    name: str
    shape: tuple[int, ...]
    decay: bool

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Layer(abc.ABC):
    """A name, the shapes of one image, and tensors in the order in which backward finishes them.

    operations: (forward, backward) floating-point operations for one image. A multiply-add counts
    2. Where a layer has matrix products, only these count; else one per element and pass.
    tensors: (name, shape, decay) of each.
    """

    def __init__(
        self,
        name: str,
        input_shape: Shape,
        output_shape: Shape,
        workspace: Workspace,
        operations: tuple[int, int],
        tensors: Sequence[tuple[str, Shape, bool]] = (),
    ):
        self.name, self.operations = name, operations
        self.input_shape, self.output_shape = tuple(input_shape), tuple(output_shape)
        self.workspace, self.xp = workspace, workspace.xp
        self.tensors = [TensorSpec(f"{name}.{of}", shape, decay) for of, shape, decay in tensors]
        self.parameters, self.gradients, self._memory = list[Array](), list[Array](), Memory()

    @abc.abstractmethod
    def forward(self, x: Array, training: bool) -> Array:
        """x (N, *input_shape) -> y (N, *output_shape). Stores what backward needs."""

    @abc.abstractmethod
    def backward(self, dy: Array, ready: Ready) -> Any:
        """Gradient for y -> gradient for x; ready(k) once tensor k's gradient is final."""

    def bind(self, parameters: Arrays, gradients: Arrays) -> None:
        """Use these arrays, one per tensor; backward writes the gradients."""
        self.parameters, self.gradients = list(parameters), list(gradients)

    def sublayers(self) -> list["Layer"]:
        """The layers inside this one in order of forward, or the layer itself."""
        return [self]

    def flops(self, images: int) -> tuple[int, int]:
        """(forward, backward) floating-point operations for this many images."""
        return self.operations[0] * images, self.operations[1] * images

    def memory(self, name: str, shape: Shape, dtype: Any = None) -> Array:
        """Memory of this layer alone, valid until it asks for the same name again."""
        return resized(self._memory, name, shape, dtype or self.workspace.dtype, self.xp)


def bind_layers(layers: Sequence[Layer], parameters: Arrays, gradients: Arrays) -> None:
    """Bind layers to consecutive arrays in order of generation: the last layer's come first."""
    start = 0
    for layer in reversed(layers):
        own = slice(start, start + len(layer.tensors))
        layer.bind(parameters[own], gradients[own])
        start = own.stop


def backward_layers(
    layers: Sequence[Layer], dy: Array, ready: Ready, observe: Observe | None = None
) -> Array | None:
    """Backward through layers, last first; ready numbers their tensors in that order. -> dx"""
    start = 0
    for layer in reversed(layers):
        dy = layer.backward(dy, functools.partial(lambda first, k: ready(first + k), start))
        start += len(layer.tensors)
        if observe:
            observe(layer.name, "backward")
    return dy


class FullyConnected(Layer):
    """y = x W + b, with x flattened: W is (inputs, outputs). Workers share W's columns or rows."""

    def __init__(self, name: str, input_shape: Shape, outputs: int, workspace: Workspace):
        self.inputs, self.outputs = math.prod(input_shape), outputs
        operations = 2 * self.inputs * outputs, 4 * self.inputs * outputs
        tensors = [("bias", (outputs,), False), ("weight", (self.inputs, outputs), True)]
        super().__init__(name, input_shape, (outputs,), workspace, operations, tensors)

    def forward(self, x: Array, training: bool) -> Array:
        bias, weight = self.parameters
        self.x = x = x.reshape(len(x), self.inputs)  # (N, H, W, C) -> (N, inputs)
        y = self.memory("y", (len(x), self.outputs))

        def work(worker: int, columns: slice) -> None:
            self.xp.matmul(x, weight[:, columns], out=y[:, columns])
            y[:, columns] += bias[columns]

        self.workspace.share(work, self.outputs)
        return y

    def backward(self, dy: Array, ready: Ready) -> Array:
        x, weight = self.x, self.parameters[1]
        bias_gradient, weight_gradient = self.gradients
        self.xp.sum(dy, axis=0, out=bias_gradient)
        ready(0)

        def weight_rows(worker: int, span: slice) -> None:
            for rows in self.rows(span, len(dy)):
                self.xp.matmul(x[:, rows].T, dy, out=weight_gradient[rows])

        self.workspace.share(weight_rows, self.inputs)
        ready(1)
        dx = self.workspace.gradient(x.shape)

        def input_columns(worker: int, span: slice) -> None:
            for columns in self.workspace.cache_blocks(span, dy.shape[1] * dy.itemsize):
                dx[:, columns] = (weight[columns] @ dy.T).T  # faster with the large matrix first

        self.workspace.share(input_columns, self.inputs)
        return dx.reshape(len(dx), *self.input_shape)

    def rows(self, span: slice, images: int) -> list[slice]:
        """Rows of the weight gradient, cut so that BLAS need not pack; uncut if below 8 rows.

        For few images (up to 18 with 4096 outputs) packing takes half the time of the product.
        """
        unpacked = UNPACKED_OPERATIONS // max(1, images * self.outputs) // 8 * 8
        return cut(span, unpacked if unpacked and self.xp is np else max(1, self.inputs))


class ReLU(Layer):
    """y = max(x, 0), in place: the layer before must not need its output. Gradient at 0: 0."""

    def __init__(self, name: str, input_shape: Shape, workspace: Workspace):
        super().__init__(name, input_shape, input_shape, workspace, (math.prod(input_shape),) * 2)
        self.zeros = self.xp.zeros(input_shape[-2:], workspace.dtype)  # 5 times faster than 0

    def forward(self, x: Array, training: bool) -> Array:
        self.y, maximum = x, self.xp.maximum
        self.workspace.share(lambda _, span: maximum(x[span], self.zeros, out=x[span]), len(x))
        return x

    def backward(self, dy: Array, ready: Ready) -> Array:
        def work(worker: int, block: slice) -> None:
            positive = self.workspace.scratch("mask", dy[block].shape, worker, bool)
            ops.relu_gradient(dy[block], self.y[block], positive)

        self.workspace.each_block(work, len(dy), 3 * dy[:1].nbytes)
        return dy


class Dropout(Layer):
    """In training a value is 0 with `probability`, the others are divided by 1 - probability.

    rng() is a numpy Generator, on a GPU too: the masks are the same, and a checkpoint can hold its
    state. Each rank needs its own, or ranks drop the same units. Masks are drawn in float32 for
    every dtype, so that float64 reproduces float32.
    """

    def __init__(
        self, name: str, input_shape: Shape, probability: float, workspace: Workspace, rng: Rng
    ):
        if not 0 <= probability < 1:
            got = f"got probability {probability}; wanted 0 <= probability < 1"
            raise ValueError(f"dropout {name}: {got}; next: 0 turns dropout off")
        super().__init__(name, input_shape, input_shape, workspace, (math.prod(input_shape),) * 2)
        self.probability, self.rng = probability, rng

    def forward(self, x: Array, training: bool) -> Array:
        self.mask = None
        if not training or self.probability == 0:
            return x
        draws = self.rng().random(x.shape, dtype=np.float32)
        self.mask = self.xp.asarray(draws >= self.probability)
        return self.scaled(x, self.mask, self.memory("y", x.shape))

    def backward(self, dy: Array, ready: Ready) -> Array:
        return dy if self.mask is None else self.scaled(dy, self.mask, dy)

    def scaled(self, x: Array, mask: Array, out: Array) -> Array:
        ops.dropout(x, mask, 1 / (1 - self.probability), out)
        return out
