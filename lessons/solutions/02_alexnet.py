"""Solutions of lesson 02. The code below each answer checks it.

python lessons/solutions/02_alexnet.py
"""

from fractions import Fraction
from itertools import accumulate

import numpy as np

from refgf.comm.slices import slices
from refgf.nn.alexnet import AlexNet
from refgf.engine.minimal import MinimalConvolution, minimal_filtering
from refgf.papers.barrachina.roofline import Node, layer_times
from refgf.papers.scaling.workloads import alexnet

NODE = Node(flops=190e9, bandwidth=29e9)  # one core of 2026: a matrix product, and a copy


def images_that_keep_a_core_busy() -> None:
    """1. From N = 2 R / W images on, here 13.

    A weight has 4 bytes and takes 2 operations per image. So N images take 2 N / R seconds per
    weight to compute and 4 / W to read. Backward takes twice as long for both. Below 13 images an
    additional image should cost the fully connected layers no time. Measured, they take several
    times as long as reading. A cause that this lesson does not measure: for few images BLAS first
    copies the weights into another order, which takes a time that does not grow with N either.
    """
    crossing = 2 * NODE.flops / NODE.bandwidth
    for batch in range(1, 40):
        limit = "flops" if batch > crossing else "memory"
        for layer in layer_times(alexnet(), batch, NODE):
            near = abs(batch / crossing - 1) <= 0.05  # activations are read too
            if layer.name in ("fc6", "fc7") and not near:
                assert (layer.forward_limit, layer.backward_limit) == (limit, limit)
    assert round(crossing) == 13


def average_of_averages_is_the_average() -> None:
    """2. Only for shards of equal size.

    Each sample of rank r then has the weight 1 / (p n_r) = 1 / B. With 7 images on 3 ranks the
    three of rank 0 have the weight 1/9 each, those of the others 1/6. With shards of different
    sizes the two can only agree by chance.
    """

    def average_of_averages(values, shards):
        return sum(sum(values[shard]) / len(values[shard]) for shard in shards) / len(shards)

    random = np.random.default_rng(0)
    for samples, p in ((7, 3), (17, 8), (6, 3), (8, 4), (5, 1)):
        values = [Fraction(int(v)) for v in random.integers(-1000, 1000, samples)]  # no rounding
        right = average_of_averages(values, slices(samples, p)) == sum(values) / samples
        assert right == (samples % p == 0)


def first_quarter_of_a_pool() -> None:
    """3. Only after the last gradient.

    The first quarter then holds conv1, which backward finishes last. In the order of generation it
    holds fc8 and most of fc7, and can be sent after 2 % of backward's flops.
    """
    gradients = alexnet().gradients(backward_s=1.0, itemsize=1)
    quarter = sum(elements for _, elements in gradients) / 4

    def ready_s(pool):
        """When everything in the first quarter of this pool is final."""
        before = [
            end - elements for end, (_, elements) in zip(accumulate(e for _, e in pool), pool)
        ]
        return max(at_s for (at_s, _), start in zip(pool, before) if start < quarter)

    assert ready_s(gradients[::-1]) == 1.0
    assert ready_s(gradients) < 0.02


def two_outputs_by_four_products() -> None:
    """4. The prediction counts the products of the definition, and minimal filtering needs fewer.

    With 3 taps w and inputs x it computes 4 products instead of 6:

        a = (x0 - x2) w0
        b = (x1 + x2) (w0 + w1 + w2) / 2
        c = (x2 - x1) (w0 - w1 + w2) / 2
        d = (x3 - x1) w2

    The outputs are a + b + c and b - c + d. With 5 x 5 kernels 8 products make 4 rows, instead of
    20. The 27 rows of conv2 are 7 tiles and take 0.41 of the products. The 13 rows of conv3 to
    conv5 are 7 tiles and take 0.72. The price is accuracy, because terms cancel.
    """
    random = np.random.default_rng(0)
    x, w = random.integers(-9, 10, 4), 2 * random.integers(-9, 10, 3)  # halves are whole
    a, b = (x[0] - x[2]) * w[0], (x[1] + x[2]) * (w[0] + w[1] + w[2]) // 2
    c, d = (x[2] - x[1]) * (w[0] - w[1] + w[2]) // 2, (x[3] - x[1]) * w[2]
    assert [a + b + c, b - c + d] == [sum(x[i : i + 3] * w) for i in (0, 1)]
    network = AlexNet(10, convolution=minimal_filtering)
    layers = [layer for layer in network.layers if isinstance(layer, MinimalConvolution)]
    shares = [
        layer.tiles * layer.terms / (layer.output_shape[0] * layer.kernel) for layer in layers
    ]
    assert [f"{layer.name} {share:.2f}" for layer, share in zip(layers, shares)] == [
        "conv2 0.41",
        "conv3 0.72",
        "conv4 0.72",
        "conv5 0.72",
    ]


if __name__ == "__main__":
    for answer in (
        images_that_keep_a_core_busy,
        average_of_averages_is_the_average,
        first_quarter_of_a_pool,
        two_outputs_by_four_products,
    ):
        answer()
        print(answer.__doc__.strip() + "\n")
