"""Weights to and from PyTorch's layout, and images to it. tests/baselines compares with PyTorch.

               here            PyTorch
images         (N, H, W, C)    (N, C, H, W)
convolution    (K, K, C, O)    (O, C, K, K)
first fully
connected      (H*W*C, O)      (O, C*H*W)      its inputs, the flattened pixels, differ in order
others         (I, O)          (O, I)
bias, gamma..  (O,)            (O,)
"""

from refgf.nn.conv import Convolution
from refgf.nn.layers import FullyConnected, Layer, TensorSpec
from refgf.nn.network import Network
from refgf.nn.workspace import Array


def images_to_torch(images: Array) -> Array:
    return images.transpose(0, 3, 1, 2)  # (N, H, W, C) -> (N, C, H, W)


def to_torch(layer: Layer, array: Array) -> Array:
    """A tensor of `layer`, parameter or gradient, in PyTorch's layout."""
    if isinstance(layer, Convolution) and array.ndim == 4:
        return array.transpose(3, 2, 0, 1)  # (K, K, C, O) -> (O, C, K, K)
    if isinstance(layer, FullyConnected) and array.ndim == 2:
        if len(layer.input_shape) == 3:
            pixels = array.reshape(*layer.input_shape, -1)
            array = pixels.transpose(2, 0, 1, 3).reshape(
                array.shape
            )  # rows in order H, W, C -> C, H, W
        return array.T  # (I, O) -> (O, I)
    return array


def from_torch(layer: Layer, array: Array) -> Array:
    """The inverse of to_torch."""
    if isinstance(layer, Convolution) and array.ndim == 4:
        return array.transpose(2, 3, 1, 0)  # (O, C, K, K) -> (K, K, C, O)
    if isinstance(layer, FullyConnected) and array.ndim == 2:
        array = array.T  # (O, I) -> (I, O)
        if len(layer.input_shape) == 3:
            height, width, channels = layer.input_shape
            pixels = array.reshape(channels, height, width, -1)
            array = pixels.transpose(1, 2, 0, 3).reshape(
                array.shape
            )  # rows in order C, H, W -> H, W, C
    return array


def state_to_torch(network: Network) -> dict[str, Array]:
    """{"conv1.weight": array, ...} of all parameters under PyTorch's names and in its layout."""
    return {
        torch_name(spec): to_torch(layer, array)
        for layer in network.layers
        for spec, array in zip(layer.tensors, layer.parameters)
    }


def torch_name(spec: TensorSpec) -> str:
    """PyTorch calls gamma of a normalisation weight, and beta bias."""
    return spec.name.replace(".gamma", ".weight").replace(".beta", ".bias")
