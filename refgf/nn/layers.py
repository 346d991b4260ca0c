"""A layer, and the plain ones: fully connected, ReLU, dropout.

Every layer is a pair
    y  = forward(x, training)      x: (N, *input_shape) -> y: (N, *output_shape); remembers what backward needs
    dx = backward(dy, ready)       dy: gradient of the loss for y; ready(k) as soon as the gradient of tensor k is final
where N = 0 is allowed. Arrays that a layer returns are overwritten in its next call.
"""

import math
from dataclasses import dataclass

import numpy as np

from refgf.engine.fused import compiled, dropout, relu_gradient
from refgf.nn.workspace import resized

UNPACKED_OPERATIONS = 600_000  # multiply-adds; up to a million OpenBLAS (AVX-512) multiplies matrices where they lie


@dataclass(frozen=True)
class TensorSpec:
    """A learnable tensor. `decay`: whether weight decay applies (not to biases, not to normalisation)."""

    name: str
    shape: tuple
    decay: bool

    @property
    def size(self):
        return math.prod(self.shape)


class Layer:
    """What all layers have: a name, shapes of one image, tensors in the order in which backward finishes them.

    operations: (forward, backward) floating point operations for one image. A multiply-add counts 2; where a layer
    has matrix products only they are counted, elsewhere one operation per element and pass.
    """

    def __init__(self, name, input_shape, output_shape, workspace, operations, tensors=()):
        self.name, self.input_shape, self.output_shape = name, tuple(input_shape), tuple(output_shape)
        self.workspace, self.xp = workspace, workspace.xp
        self.operations = operations
        self.tensors = tuple(TensorSpec(f"{name}.{tensor}", shape, decay) for tensor, shape, decay in tensors)
        self.parameters, self.gradients = [], []
        self._kept = {}

    def bind(self, parameters, gradients):
        """Use these arrays, one per tensor of `tensors`: the parameters, and where backward writes the gradients."""
        self.parameters, self.gradients = list(parameters), list(gradients)

    def flops(self, images):
        """(forward, backward) floating point operations for so many images."""
        forward, backward = self.operations
        return forward * images, backward * images

    def keep(self, name, shape, dtype=None):
        """Memory of this layer alone, which stays until backward has read it."""
        return resized(self._kept, name, shape, dtype or self.workspace.dtype, self.xp)


class FullyConnected(Layer):
    """y = x W + b, with x flattened: W is (inputs, outputs). Threads share columns or rows of W, to read it once."""

    def __init__(self, name, input_shape, outputs, workspace):
        self.inputs, self.outputs = math.prod(input_shape), outputs
        product = 2 * self.inputs * outputs
        tensors = [("bias", (outputs,), False), ("weight", (self.inputs, outputs), True)]
        super().__init__(name, input_shape, (outputs,), workspace, (product, 2 * product), tensors)

    def forward(self, x, training):
        bias, weight = self.parameters
        self.x = x = x.reshape(len(x), self.inputs)  # (N, H, W, C) -> (N, inputs)
        y = self.keep("y", (len(x), self.outputs))

        def work(worker, columns):
            self.xp.matmul(x, weight[:, columns], out=y[:, columns])
            y[:, columns] += bias[columns]

        self.workspace.share(work, self.outputs)
        return y

    def backward(self, dy, ready):
        x, weight = self.x, self.parameters[1]
        bias_gradient, weight_gradient = self.gradients
        self.xp.sum(dy, axis=0, out=bias_gradient)
        ready(0)

        def weight_rows(worker, part):
            for rows in self.rows(part, len(dy)):
                self.xp.matmul(x[:, rows].T, dy, out=weight_gradient[rows])

        self.workspace.share(weight_rows, self.inputs)
        ready(1)
        dx = self.workspace.gradient(x.shape)

        def input_columns(worker, part):
            for columns in self.workspace.blocks(part, dy.shape[1] * dy.itemsize):
                dx[:, columns] = (weight[columns] @ dy.T).T  # BLAS is faster with the large matrix on the left

        self.workspace.share(input_columns, self.inputs)
        return dx.reshape(len(dx), *self.input_shape)

    def rows(self, part, images):
        """Cut rows of the weight gradient so that BLAS need not pack what it multiplies, or not where that is below 8 rows.

        Of a few images (up to 18 for 4096 outputs) the product is little work on much memory: packing is half the time.
        """
        unpacked = UNPACKED_OPERATIONS // max(1, images * self.outputs) // 8 * 8
        step = unpacked if unpacked and self.xp is np else max(1, self.inputs)
        return [slice(start, min(start + step, part.stop)) for start in range(part.start, part.stop, step)]


class ReLU(Layer):
    """y = max(x, 0), in place: the layer before must not need its own output. The gradient at 0 is 0, as in PyTorch."""

    def __init__(self, name, input_shape, workspace):
        elements = math.prod(input_shape)
        super().__init__(name, input_shape, input_shape, workspace, (elements, elements))
        self.zeros = self.xp.zeros(input_shape[-2:], workspace.dtype)  # of two arrays NumPy's maximum is 5 times faster

    def forward(self, x, training):
        self.y = x
        self.workspace.share(lambda worker, part: self.xp.maximum(x[part], self.zeros, out=x[part]), len(x))
        return x

    def backward(self, dy, ready):
        loop = compiled(relu_gradient, dy)

        def work(worker, part):
            for block in self.workspace.blocks(part, 3 * dy[:1].nbytes):
                if loop:
                    loop(dy[block], self.y[block])
                    continue
                positive = self.workspace.scratch("mask", dy[block].shape, worker, bool)
                self.xp.greater(self.y[block], 0, out=positive)
                dy[block] *= positive

        self.workspace.share(work, len(dy))
        return dy


class Dropout(Layer):
    """In training each value is zero with `probability`, the others are divided by 1 - probability (inverted dropout).

    `rng` is a numpy Generator, on a GPU too: the masks are then the same on both, and a checkpoint can hold its state.
    The mask is drawn in float32 whatever the type of the activations, so that float64 reproduces float32.
    """

    def __init__(self, name, input_shape, probability, workspace):
        if not 0 <= probability < 1:
            raise ValueError(f"dropout {name}: got probability {probability}, wanted 0 <= probability < 1")
        elements = math.prod(input_shape)
        super().__init__(name, input_shape, input_shape, workspace, (elements, elements))
        self.probability, self.rng, self.kept = probability, np.random.default_rng(0), None

    def forward(self, x, training):
        if not training or self.probability == 0:
            self.kept = None
            return x
        draws = self.rng.random(x.shape, dtype=np.float32)
        self.kept = self.xp.asarray(draws >= self.probability)
        return self.scaled(x, self.keep("y", x.shape))

    def backward(self, dy, ready):
        return dy if self.kept is None else self.scaled(dy, dy)

    def scaled(self, x, out):
        if loop := compiled(dropout, x):
            loop(x, self.kept, 1 / (1 - self.probability), out)
            return out
        self.xp.multiply(x, self.kept, out=out)
        out *= 1 / (1 - self.probability)
        return out
