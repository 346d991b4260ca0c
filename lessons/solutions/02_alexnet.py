"""Solutions of lesson 02. Every answer is checked by the code below it: python lessons/solutions/02_alexnet.py"""

from fractions import Fraction
from itertools import accumulate

import numpy as np

from refgf.comm.slices import slices
from refgf.predict.roofline import Node, layer_times
from refgf.predict.workloads import alexnet

NODE = Node(flops=190e9, bandwidth=29e9)  # one core of 2026: a matrix product, and a copy


def images_that_keep_a_core_busy() -> None:
    """1. From N = 2 R / W images on, here 13. A weight of 4 bytes is used for 2 operations an image, so N images take
    2 N / R seconds a weight to compute and 4 / W to read. Backward does twice of both. Up to there more images should
    cost the fully connected layers nothing. Measured, they cost several times the reading, as BLAS copies the weights into
    another order first; but that cost does not grow with N either."""
    crossing = 2 * NODE.flops / NODE.bandwidth
    for batch in range(1, 40):
        for layer in layer_times(alexnet(), batch, NODE):
            if layer.name in ("fc6", "fc7") and abs(batch / crossing - 1) > 0.05:  # activations are read too
                assert (layer.forward_limit, layer.backward_limit) == (("flops",) if batch > crossing else ("memory",)) * 2
    assert round(crossing) == 13


def average_of_averages_is_the_average() -> None:
    """2. Only for shards of equal size: rank r's samples then weigh 1 / (p n_r) = 1 / B each. With 7 images on 3 ranks the
    three of rank 0 weigh 1/9 each, those of the others 1/6. (Shards of different size can agree only by chance.)"""

    def average_of_averages(values, parts):
        return sum(sum(values[part]) / len(values[part]) for part in parts) / len(parts)

    random = np.random.default_rng(0)
    for samples, p in ((7, 3), (17, 8), (6, 3), (8, 4), (5, 1)):
        values = [Fraction(int(v)) for v in random.integers(-1000, 1000, samples)]  # exact: no rounding in the way
        right = average_of_averages(values, slices(samples, p)) == sum(values) / samples
        assert right == (samples % p == 0)


def first_quarter_of_a_pool() -> None:
    """3. Only after the last gradient: the first quarter then holds conv1, which backward finishes last. In the order of
    generation it holds fc8 and most of fc7, and can go after two hundredths of backward's flops."""
    gradients = alexnet().gradients(backward_s=1.0, itemsize=1)
    quarter = sum(elements for _, elements in gradients) / 4

    def ready_s(pool):
        """When everything in the first quarter of this pool is final."""
        before = [end - elements for end, (_, elements) in zip(accumulate(e for _, e in pool), pool)]
        return max(at_s for (at_s, _), start in zip(pool, before) if start < quarter)

    assert ready_s(gradients[::-1]) == 1.0
    assert ready_s(gradients) < 0.02


if __name__ == "__main__":
    for answer in (images_that_keep_a_core_busy, average_of_averages_is_the_average, first_quarter_of_a_pool):
        answer()
        print(answer.__doc__.strip() + "\n")
