"""Exercises of lesson 02, AlexNet's gradients. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 02 lessons/student/02.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/02_alexnet.py --mine lessons/student/02.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/02.py

Images are float32 arrays (N, H, W, C): images, rows, columns, channels. Weights of a convolution
are (K, K, C, O): rows and columns of the kernel, input channels, output channels.
"""

import numpy as np


# Exercise 1 (given)
def output_size(size: int, kernel: int, stride: int, pad: int) -> int:
    """In how many positions the kernel fits into `size` pixels with `pad` zeros on both sides.

    output_size(227, 11, 4, 0) -> 55      output_size(27, 5, 1, 2) -> 27
    """
    return (size + 2 * pad - kernel) // stride + 1


# Exercise 2 (medium, 40 minutes)
def convolution(x: np.ndarray, w: np.ndarray, stride: int, pad: int) -> np.ndarray:
    """y (N, OH, OW, O), float32: the convolution of x (N, H, W, C) with w (K, K, C, O).

    x gets `pad` rows and columns of zeros on all four sides. The kernel then moves by `stride`:

        y[n, i, j, o] = sum over u, v, c of x[n, i*stride + u, j*stride + v, c] * w[u, v, c, o]

    1 image, 1 channel, [[1, 2, 3], [4, 5, 6]], kernel [[1, 0], [0, 10]], stride 1, pad 0:

    convolution([[[[1], [2], [3]], [[4], [5], [6]]]], [[[[1]], [[0]]], [[[0]], [[10]]]], 1, 0)
        -> [[[[51], [62]]]]

    Hint: np.lib.stride_tricks.sliding_window_view gives all windows, as (N, OH, OW, C, K, K). In
    which order of axes does a window fit a column of w.reshape(K*K*C, O)? Or loop over u and v.
    """
    raise NotImplementedError


# Exercise 3 (medium, 25 minutes)
def weight_gradient(x: np.ndarray, dy: np.ndarray, kernel: int, stride: int) -> np.ndarray:
    """dw (K, K, C, O), float32, of a convolution without padding: K = kernel.

    x (N, H, W, C): its input. dy (N, OH, OW, O): how the loss changes with each of its outputs.

        dw[u, v, c, o] = sum over n, i, j of x[n, i*stride + u, j*stride + v, c] * dy[n, i, j, o]

    1 image, 1 channel, [[1, 2, 3], [4, 5, 6]], dy [[1, 10]], kernel 2, stride 1:

    weight_gradient([[[[1], [2], [3]], [[4], [5], [6]]]], [[[[1], [10]]]], 2, 1)
        -> [[[[21]], [[32]]], [[[54]], [[65]]]]

    Hint: dw = x' dy, a product of the matrix whose rows are the windows of x, and of dy.
    """
    raise NotImplementedError


# Exercise 4 (easy, 15 minutes)
def ready_order(weight_s: list[float], input_s: list[float]) -> list[tuple[int, float]]:
    """[(layer, seconds), ...]: when backward has each weight gradient, in this order.

    weight_s[i], input_s[i]: how long layer i takes for the gradient of its weights, and after that
    for the gradient of its input, which the layer before it needs. Layer 0 is the network's first.
    The seconds count from the start of backward.

    ready_order([1.0, 2.0, 0.5], [0.25, 3.0, 1.0]) -> [(2, 0.5), (1, 3.5), (0, 7.5)]

    Hint: which layer does backward begin with? What has ended when it reaches the next one?
    """
    raise NotImplementedError
