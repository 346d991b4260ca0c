"""Exercises of lesson 15, a performance model. Fill in the functions, then let them be marked:

    python -m refgf.oracle grade 15 lessons/student/15.py

and let the lesson measure them, next to the project's (--quick: in short):

    mpiexec -n 4 python lessons/15_performance_model.py --mine lessons/student/15.py

Plain Python is all you need; import only Python's own modules and NumPy. The marks do not know
this file's other functions, so add as many as you like. Exercise 1 is done, as an example.

`grade` shows what a function prints; a teacher's platform does not. To call one yourself:

    python -i lessons/student/15.py

A processor computes at most `peak` flop/s, and its memory moves at most `bandwidth` bytes/s. A
kernel does both at the same time; the one that takes longer is its limit. (A step has a bottleneck,
which is another word: lessons/glossary.md.) Numbers are float32, 4 bytes each.
"""


# Exercise 1 (given)
def fully_connected(batch: int, inputs: int, outputs: int) -> tuple[int, int]:
    """(flops, bytes) of a fully connected layer's forward pass for `batch` images, without bias.

    A multiplication and an addition are two flops. Inputs and weights are read once, outputs are
    written once.

    fully_connected(1, 8, 8) -> (128, 320)          fully_connected(10, 8, 8) -> (1280, 896)
    """
    flops = 2 * batch * inputs * outputs
    elements = batch * inputs + inputs * outputs + batch * outputs
    return flops, 4 * elements


# Exercise 2 (easy, 10 minutes)
def roofline(
    flops: float, nbytes: float, peak: float, bandwidth: float
) -> tuple[float, float, str]:
    """(seconds, flop/s, limit) of a kernel that is as fast as the roofline allows.

    flop/s: those that the kernel reaches. limit: "flops" or "memory", the resource that limits it;
    "flops" if both take equally long.

    roofline(6e9, 1e9, 2e9, 1e9) -> (3.0, 2e9, "flops")
    roofline(1e9, 4e9, 2e9, 1e9) -> (4.0, 2.5e8, "memory")

    Hint: how long would the kernel take if memory were infinitely fast? And if flops cost nothing?
    """
    raise NotImplementedError


# Exercise 3 (medium, 20 minutes)
def ridge_batch(inputs: int, outputs: int, peak: float, bandwidth: float) -> int | None:
    """The smallest batch (1 or more) whose limit is "flops" in a fully connected layer.

    The layer's flops and bytes are those of exercise 1, the limit that of exercise 2. None if
    memory limits the layer with 1000 images, too.

    ridge_batch(8, 8, 1.25e9, 1e9) -> 7         7 images: 1.27 flops a byte
    ridge_batch(8, 8, 1e9, 1e9) -> 4            4 images: 1 flop a byte, exactly the ridge point
    ridge_batch(8, 8, 2e9, 1e9) -> None

    Hint: try one batch after the other. Or write down flops/peak >= bytes/bandwidth and bring
    everything with the batch to the left; then you see why no batch may be large enough.
    """
    raise NotImplementedError


# Exercise 4 (medium, 30 minutes)
def step(
    forward_s: list[float],
    backward_s: list[float],
    elements: list[int],
    p: int,
    alpha: float,
    beta: float,
) -> tuple[float, float]:
    """(seconds, scaling efficiency in percent) of a step whose rings run next to backward.

    forward_s, backward_s: seconds of each layer, in forward order. elements: float32 gradients of
    each layer. p ranks, links with a latency of alpha seconds and beta seconds per byte.
    Backward begins with the last layer when the forward pass has ended. When a layer's backward has
    ended, its gradients can be summed by a ring of their own: 2(p-1) messages, each of a p-th of
    the bytes. One ring at a time, in backward's order. A layer without gradients has no ring.
    Efficiency: the time of all kernels over the time of the step; 100 if there are no layers.

    step([1.0, 1.0], [2.0, 3.0], [5, 10], 2, 0.5, 0.05) -> (10.0, 70.0)
    step([1.0, 1.0], [2.0, 3.0], [0, 10], 2, 0.5, 0.05) -> (8.0, 87.5)

    Hint: in the first example backward of the last layer ends at 5.0, and its ring takes 3.0.
    """
    raise NotImplementedError
