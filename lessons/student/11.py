"""Exercises of lesson 11, large batches. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 11 lessons/student/11.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/11_large_batch.py --mine lessons/student/11.py

Import only NumPy and Python's own modules. The marks do not know this file's other functions, so
add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/11.py
"""

import numpy as np


# Exercise 1 (given)
def accumulated(gradients: list[np.ndarray]) -> np.ndarray:
    """The gradient of a batch that is computed as K micro-batches. -> float32 (n,)

    gradients: K arrays, float32 (n,). Each micro-batch's loss is already divided by the size of the
    whole batch. The gradients are added from the first to the last, in float32: the bits count.

    accumulated([[1, 2], [10, 20], [100, 200]]) -> [111, 222]
    """
    total = gradients[0].copy()
    for gradient in gradients[1:]:
        total += gradient
    return total


# Exercise 2 (easy, 15 minutes)
def learning_rate(
    base_rate: float, batch: int, base_batch: int, step: int, steps: int, warmup_steps: int
) -> float:
    """The learning rate of a step of a large batch. step: 0 to steps - 1 in training.

    Linear scaling: base_rate is right for base_batch images; a batch k times as large has k times
    the rate. Polynomial decay: times (1 - step / steps) squared, from step 0 on; 0 from step
    `steps` on. Warm-up: in the first warmup_steps steps this decayed rate is multiplied by 1, 2, 3,
    ... / warmup_steps. warmup_steps may be 0.

    learning_rate(0.1, 256, 64, 0, 10, 0) -> 0.4
    learning_rate(0.1, 256, 64, 5, 10, 2) -> 0.1
    learning_rate(0.1, 256, 64, 0, 10, 2) -> 0.2      learning_rate(0.1, 256, 64, 1, 10, 2) -> 0.324

    Hint: what would your formula return for step > steps?
    """
    raise NotImplementedError


# Exercise 3 (easy, 15 minutes)
def lars_ratio(w: np.ndarray, g: np.ndarray, trust: float, decay: float) -> float:
    """The factor by which LARS multiplies the rate of a layer: trust |w| / (|g| + decay |w|).

    w, g: float32 (n,), the layer's weights and gradient. |x| is the Euclidean norm. Norms and ratio
    are in float64: the squares may be too large for float32. The ratio is 1.0 where |w| is 0 or the
    denominator is 0.

    lars_ratio([3, 4], [0, 10], 0.1, 0.0) -> 0.05
    lars_ratio([3, 4], [0, 10], 0.1, 2.0) -> 0.025
    lars_ratio([0, 0], [0, 10], 0.1, 2.0) -> 1.0

    Hint: np.linalg.norm computes in the type of its array.
    """
    raise NotImplementedError


# Exercise 4 (medium, 25 minutes)
def lars_step(
    w: np.ndarray,
    v: np.ndarray,
    g: np.ndarray,
    rate: float,
    trust: float,
    momentum: float,
    decay: float,
    adapted: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """One LARS step of one layer. -> (new w, new v), float32 (n,) each

    w, v, g: float32 (n,), weights, velocity and gradient. The new velocity is momentum times the
    old one plus rate * ratio * (g + decay w), with the ratio of `lars_ratio`. The weights move
    against the new velocity. The rate is part of the velocity.
    adapted: False for biases and normalisation, which have ratio 1 and no decay.

    lars_step([3, 4], [1, 1], [0, 10], 2.0, 0.1, 0.5, 0.0, True) -> ([2.5, 2.5], [0.5, 1.5])
    lars_step([3, 4], [1, 1], [0, 10], 2.0, 0.1, 0.5, 2.0, True) -> ([2.2, 2.6], [0.8, 1.4])
    lars_step([3, 4], [1, 1], [0, 10], 2.0, 0.1, 0.5, 2.0, False) -> ([2.5, -16.5], [0.5, 20.5])

    Hint: a Python float times a float32 array is float32, but np.float64 times it is float64.
    """
    raise NotImplementedError
