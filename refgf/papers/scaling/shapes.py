"""Layers as arithmetic: which gradients a layer produces, and how many flops and bytes that takes.

A workload is a list of layers in forward order. Its gradient tensors appear in the order of
generation: the last layer first, and in a layer the normalisation's beta and gamma, then bias, then
weight. Here normalisation is a layer of its own that follows its convolution, so one rule gives
this order: layers backwards, tensors as listed.

Counting rules (ours; they are conventions, not measurements):
  - one multiply-add is two flops;
  - flops and activations are per sample (an image or a sequence); weights count once per step;
  - activation functions, dropout and shortcut additions count no flops and no bytes;
  - normalisation: 7 flops per element forward; backward 1 for beta, 2 for gamma, 5 for the input.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import ceil, prod

from refgf.arguments import checked

Shape = tuple[int, ...]
Window = int | tuple[int, int]  # the same in both directions, or (height, width)


@checked
@dataclass(frozen=True)
class Tensor:
    """One gradient tensor. flops: per sample, once the gradient of its layer's output is there."""

    name: str
    shape: Shape
    flops: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


@checked
@dataclass(frozen=True)
class PlannedLayer:
    """One layer; flops and elements are per sample.

    tensors: in the order in which backward finishes them.
    """

    name: str
    kind: str
    tensors: tuple[Tensor, ...]
    forward_flops: int
    input_gradient_flops: int
    input_elements: int
    output_elements: int

    @property
    def parameters(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def backward_flops(self) -> int:
        return sum(tensor.flops for tensor in self.tensors) + self.input_gradient_flops

    def forward_bytes(self, batch: int, itemsize: int) -> int:
        """The fewest bytes that a kernel moves: input and weights read, output written, once."""
        activations = batch * (self.input_elements + self.output_elements)
        return itemsize * (activations + self.parameters)

    def backward_bytes(self, batch: int, itemsize: int) -> int:
        """Reads input, output gradient and weights; writes their gradients.

        The first layer has no input gradient.
        """
        inputs = 2 if self.input_gradient_flops else 1
        activations = batch * (inputs * self.input_elements + self.output_elements)
        return itemsize * (activations + 2 * self.parameters)


@checked
@dataclass(frozen=True)
class Workload:
    """A network as prediction needs it.

    sample: what one sample is. layers: in forward order.
    """

    name: str
    sample: str
    layers: tuple[PlannedLayer, ...]

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Gradient tensors in the order of generation: last layer first."""
        return tuple(tensor for layer in reversed(self.layers) for tensor in layer.tensors)

    @cached_property
    def parameters(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @cached_property
    def forward_flops(self) -> int:
        return sum(layer.forward_flops for layer in self.layers)

    @cached_property
    def backward_flops(self) -> int:
        return sum(layer.backward_flops for layer in self.layers)

    @property
    def step_flops(self) -> int:
        return self.forward_flops + self.backward_flops

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """Fraction of backward that has finished when each gradient is final, by flops."""
        return self.shares_of([layer.backward_flops for layer in self.layers])

    def shares_of(self, layer_backward_s: Sequence[float]) -> tuple[float, ...]:
        """As `shares`, from measured backward times of the layers; within a layer by flops.

        layer_backward_s: seconds, in forward order.
        """
        if len(layer_backward_s) != len(self.layers):
            raise ValueError(
                f"shares_of {self.name}: got {len(layer_backward_s)} layer times; wanted "
                f"{len(self.layers)}, one for each entry of .layers (pooling included); next: give "
                "0 for a layer that was not measured"
            )
        spans = []  # (seconds, the tensor that is final at their end, or None)
        for layer, seconds in zip(reversed(self.layers), reversed(layer_backward_s)):
            per_flop = seconds / layer.backward_flops if layer.backward_flops else 0.0
            spans += [(per_flop * tensor.flops, tensor) for tensor in layer.tensors]
            spans.append((seconds - per_flop * sum(t.flops for t in layer.tensors), None))
        ends = list(accumulate(seconds for seconds, _ in spans))
        if not ends or not ends[-1] > 0:
            raise ValueError(
                f"shares_of {self.name}: got layer times of {sum(layer_backward_s)} s in total; "
                "wanted more than 0 s; next: measure a real step"
            )
        return tuple(end / ends[-1] for end, (_, tensor) in zip(ends, spans) if tensor is not None)

    def gradients(
        self,
        backward_s: float,
        forward_s: float = 0.0,
        itemsize: int = 4,
        layer_backward_s: Sequence[float] | None = None,
    ) -> list[tuple[float, int]]:
        """[(ready_s, bytes)] in the order of generation, as refgf.predict.timeline takes them.

        layer_backward_s: measured seconds per layer, in forward order; without it, backward_s is
        divided by flops. A gradient is ready once it is final, before its layer's input gradient.
        """
        shares = self.shares if layer_backward_s is None else self.shares_of(layer_backward_s)
        return [
            (forward_s + share * backward_s, itemsize * tensor.elements)
            for share, tensor in zip(shares, self.tensors)
        ]

    def step_gradients(self, compute_s: float, itemsize: int = 4) -> list[tuple[float, int]]:
        """`gradients` of a step that computes compute_s: forward and backward divided by flops."""
        forward_s = compute_s * self.forward_flops / self.step_flops
        return self.gradients(compute_s - forward_s, forward_s, itemsize)


def pooled(length: int, kernel: int, stride: int, pad: int, whole: bool) -> int:
    """Output length of windows of `kernel` every `stride` over `length` padded by `pad`.

    whole: no window reaches beyond the padded input.
    """
    steps = (length + 2 * pad - kernel) / stride
    if steps < 0:
        raise ValueError(
            f"pooled: got a window of {kernel} for {length} elements padded by {pad}; wanted one "
            "that fits; next: use a larger input"
        )
    return int(steps if whole else ceil(steps)) + 1


@checked
class Builder:
    """Follows the shape (height, width, channels) of one sample through the layers added to it."""

    def __init__(self, name: str, height: int, width: int, channels: int) -> None:
        self.name, self.shape, self.layers = name, (height, width, channels), []
        self.sample = f"{height} x {width} x {channels} image"

    def add(
        self,
        name: str,
        kind: str,
        tensors: Sequence[tuple[str, Shape, int]],
        forward_flops: int,
        input_gradient_flops: int,
        shape: Shape,
    ) -> None:
        """Append a layer with output `shape`. The first layer computes no input gradient."""
        inputs, self.shape = prod(self.shape), shape
        backward_flops = input_gradient_flops if self.layers else 0
        named = tuple(Tensor(f"{name}.{what}", dims, flops) for what, dims, flops in tensors)
        layer = PlannedLayer(name, kind, named, forward_flops, backward_flops, inputs, prod(shape))
        self.layers.append(layer)

    def conv(
        self,
        name: str,
        filters: int,
        kernel: Window,
        stride: int = 1,
        pad: Window = 0,
        bias: bool = True,
        norm: bool = False,
    ) -> None:
        """Convolution, then normalisation if `norm`."""
        (kh, kw), (ph, pw) = [v if isinstance(v, tuple) else (v, v) for v in (kernel, pad)]
        h, w, c = self.shape
        shape = pooled(h, kh, stride, ph, True), pooled(w, kw, stride, pw, True), filters
        self.product(name, "conv", (kh, kw, c, filters), shape[0] * shape[1], bias, shape)
        if norm:
            convolution = name.startswith("conv")
            self.norm("norm" + name.removeprefix("conv") if convolution else name + ".norm")

    def fc(self, name: str, features: int, bias: bool = True) -> None:
        """Fully connected layer over the whole current shape."""
        self.product(name, "fc", (prod(self.shape), features), 1, bias, (1, 1, features))

    def product(
        self, name: str, kind: str, weight: Shape, positions: int, bias: bool, shape: Shape
    ) -> None:
        """A layer that multiplies by its weight at `positions` places."""
        flops = 2 * positions * prod(weight)
        tensors = [("weight", weight, flops)]
        if bias:
            tensors.insert(0, ("bias", weight[-1:], prod(shape)))
        self.add(name, kind, tensors, flops + bias * prod(shape), flops, shape)

    def norm(self, name: str) -> None:
        elements, channels = prod(self.shape), self.shape[-1:]
        tensors = [("beta", channels, elements), ("gamma", channels, 2 * elements)]
        self.add(name, "norm", tensors, 7 * elements, 5 * elements, self.shape)

    def pool(self, name: str, kernel: int, stride: int, pad: int = 0, whole: bool = True) -> None:
        h, w, c = self.shape
        height, width = (pooled(length, kernel, stride, pad, whole) for length in (h, w))
        flops = height * width * c * kernel * kernel
        self.add(name, "pool", [], flops, flops, (height, width, c))

    def global_pool(self, name: str) -> None:
        self.add(name, "pool", [], prod(self.shape), prod(self.shape), (1, 1, self.shape[2]))

    def branches(self, *branches: Callable[[], None]) -> None:
        """Run each branch from the current shape and concatenate the results by channel."""
        start, channels = self.shape, 0
        for branch in branches:
            self.shape = start
            branch()
            channels += self.shape[2]
        self.shape = (*self.shape[:2], channels)

    def workload(self) -> Workload:
        return Workload(self.name, self.sample, tuple(self.layers))
