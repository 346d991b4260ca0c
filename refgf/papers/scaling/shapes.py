"""Layers as arithmetic: which gradients a layer makes, and how many flops and bytes that takes.

A workload is a list of layers in forward order. Its gradient tensors appear in the order of generation: the last
layer first, and inside a layer the normalisation's beta and gamma, then bias, then weight. Normalisation is a layer
of its own here that follows its convolution, so that one rule, "layers backwards, tensors as listed", gives this order.

Counting rules (ours; they are conventions, not measurements):
  - one multiply-add is two flops;
  - flops and activations are per sample: an image, or a sequence; weights are counted once per step;
  - activation functions, dropout and additions of shortcuts cost no flops (they cost bytes that nobody counts here);
  - normalisation: 7 flops an element forwards; backwards 1 for beta, 2 for gamma, 5 for the input.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil, prod


@dataclass(frozen=True)
class Tensor:
    """One gradient tensor. `flops`: the work per sample that produces it, once its layer's output gradient is there."""

    name: str
    shape: tuple[int, ...]
    flops: int

    @property
    def elements(self):
        return prod(self.shape)


@dataclass(frozen=True)
class Layer:
    """One layer; flops and elements are per sample. `tensors` stand in the order in which backward finishes them."""

    name: str
    kind: str
    tensors: tuple[Tensor, ...]
    forward_flops: int
    input_gradient_flops: int
    input_elements: int
    output_elements: int

    @property
    def parameters(self):
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def backward_flops(self):
        return sum(tensor.flops for tensor in self.tensors) + self.input_gradient_flops

    def forward_bytes(self, batch, itemsize):
        """Bytes a kernel must at least move: it reads its input and its weights and writes its output, each once."""
        return itemsize * (batch * (self.input_elements + self.output_elements) + self.parameters)

    def backward_bytes(self, batch, itemsize):
        """Reads input, output gradient, weights; writes weight gradients and, unless it is the first, the input's."""
        inputs = 2 if self.input_gradient_flops else 1
        return itemsize * (batch * (inputs * self.input_elements + self.output_elements) + 2 * self.parameters)


@dataclass(frozen=True)
class Workload:
    """A network as prediction sees it. `layers` in forward order; `sample` says what one sample is."""

    name: str
    sample: str
    layers: tuple[Layer, ...]

    @cached_property
    def tensors(self):
        """Gradient tensors in the order of generation: last layer first."""
        return tuple(tensor for layer in reversed(self.layers) for tensor in layer.tensors)

    @cached_property
    def parameters(self):
        return sum(tensor.elements for tensor in self.tensors)

    @cached_property
    def forward_flops(self):
        return sum(layer.forward_flops for layer in self.layers)

    @cached_property
    def backward_flops(self):
        return sum(layer.backward_flops for layer in self.layers)

    @cached_property
    def shares(self):
        """Fraction of the backward pass that is over when each gradient is final, by flops; the last is 1."""
        return self.shares_of([layer.backward_flops for layer in self.layers])

    def shares_of(self, layer_backward_s):
        """As `shares`, from measured backward times (s) of the layers in forward order; inside a layer by flops."""
        if len(layer_backward_s) != len(self.layers):
            raise ValueError(
                f"shares_of {self.name}: got {len(layer_backward_s)} layer times, wanted {len(self.layers)}, one for "
                "each entry of .layers (pooling included); give 0 for a layer that was not measured"
            )
        pieces = []
        for layer, seconds in zip(reversed(self.layers), reversed(layer_backward_s)):
            unit = seconds / layer.backward_flops if layer.backward_flops else 0.0
            pieces += [(unit * tensor.flops, tensor) for tensor in layer.tensors]
            pieces.append((seconds - unit * sum(tensor.flops for tensor in layer.tensors), None))
        ends = list(accumulate(seconds for seconds, _ in pieces))
        if not ends or not ends[-1] > 0:
            raise ValueError(f"shares_of {self.name}: layer times sum to {sum(layer_backward_s)} s, wanted > 0")
        return tuple(end / ends[-1] for end, (_, tensor) in zip(ends, pieces) if tensor is not None)

    def gradients(self, backward_s, forward_s=0.0, itemsize=4, layer_backward_s=None):
        """[(ready_s, bytes)] in the order of generation, as refgf.predict.timeline takes them.

        Without `layer_backward_s` (measured, per layer in forward order) the backward pass is shared out by flops.
        A gradient counts as ready once it is final, before its layer's input gradient is computed.
        """
        shares = self.shares if layer_backward_s is None else self.shares_of(layer_backward_s)
        return [(forward_s + share * backward_s, itemsize * t.elements) for share, t in zip(shares, self.tensors)]


def pooled(length, kernel, stride, pad, whole):
    """Output length of a window of `kernel` every `stride` over `length` padded by `pad`; whole: no partial windows."""
    steps = (length + 2 * pad - kernel) / stride
    if steps < 0:
        raise ValueError(f"a window of {kernel} does not fit {length} elements padded by {pad}: use a larger input")
    return int(steps if whole else ceil(steps)) + 1


class Builder:
    """Follows the shape (height, width, channels) of one sample through the layers added to it."""

    def __init__(self, name, height, width, channels):
        self.name, self.shape, self.layers = name, (height, width, channels), []
        self.sample = f"{height} x {width} x {channels} image"

    def add(self, name, kind, tensors, forward_flops, input_gradient_flops, shape):
        """Append a layer that turns the present shape into `shape`. The first one owes nobody an input gradient."""
        inputs, self.shape = prod(self.shape), shape
        owed = input_gradient_flops if self.layers else 0
        named = tuple(Tensor(f"{name}.{what}", dims, flops) for what, dims, flops in tensors)
        self.layers.append(Layer(name, kind, named, forward_flops, owed, inputs, prod(shape)))

    def conv(self, name, filters, kernel, stride=1, pad=0, bias=True, norm=False):
        """Convolution of kernel k or (kh, kw), padded by pad or (ph, pw), then normalisation if `norm`."""
        (kh, kw), (ph, pw) = [value if isinstance(value, tuple) else (value, value) for value in (kernel, pad)]
        h, w, c = self.shape
        shape = pooled(h, kh, stride, ph, True), pooled(w, kw, stride, pw, True), filters
        self.product(name, "conv", (kh, kw, c, filters), shape[0] * shape[1], bias, shape)
        if norm:
            self.norm("norm" + name.removeprefix("conv") if name.startswith("conv") else name + ".norm")

    def fc(self, name, features, bias=True):
        """Fully connected layer over everything in the present shape."""
        self.product(name, "fc", (prod(self.shape), features), 1, bias, (1, 1, features))

    def product(self, name, kind, weight, positions, bias, shape):
        """A layer that multiplies by its weight at `positions` places: convolution, or fully connected."""
        flops = 2 * positions * prod(weight)
        tensors = [("weight", weight, flops)]
        if bias:
            tensors.insert(0, ("bias", weight[-1:], prod(shape)))
        self.add(name, kind, tensors, flops + bias * prod(shape), flops, shape)

    def norm(self, name):
        elements, channels = prod(self.shape), self.shape[-1:]
        tensors = [("beta", channels, elements), ("gamma", channels, 2 * elements)]
        self.add(name, "norm", tensors, 7 * elements, 5 * elements, self.shape)

    def pool(self, name, kernel, stride, pad=0, whole=True):
        h, w, c = self.shape
        shape = pooled(h, kernel, stride, pad, whole), pooled(w, kernel, stride, pad, whole), c
        flops = prod(shape) * kernel * kernel
        self.add(name, "pool", [], flops, flops, shape)

    def global_pool(self, name):
        self.add(name, "pool", [], prod(self.shape), prod(self.shape), (1, 1, self.shape[2]))

    def branches(self, *branches):
        """Run each branch from the present shape and concatenate the results along the channels."""
        start, channels = self.shape, 0
        for branch in branches:
            self.shape = start
            branch()
            channels += self.shape[2]
        self.shape = (*self.shape[:2], channels)

    def workload(self):
        return Workload(self.name, self.sample, tuple(self.layers))
