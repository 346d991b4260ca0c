"""Other rules for lesson 15: what a kernel reaches, which batches count, how a step is rated."""

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.roofline import BATCH_15, ROOFLINE_15
from refgf.oracle.spec.step_time import STEP_15

# ---- what a kernel reaches ----


def share_of_peak(function):
    def roofline(flops, nbytes, peak, bandwidth):
        seconds, rate, limit = function(flops, nbytes, peak, bandwidth)
        return seconds, rate / peak, limit

    return roofline


def bytes_per_second(function):
    def roofline(flops, nbytes, peak, bandwidth):
        seconds, _, limit = function(flops, nbytes, peak, bandwidth)
        return seconds, nbytes / seconds if seconds else 0.0, limit

    return roofline


REACHED = "(seconds, flop/s, limit) of a kernel"
THOSE = "flop/s: those that the kernel reaches."
PEAK = "your flop/s are the peak even where memory limits the kernel"
OTHERS = "you return bytes per second; wanted flop/s"
SHARE = {
    REACHED: "(seconds, share of the peak, limit) of a kernel",
    THOSE: "share: the flop/s that the kernel reaches, over the peak.",
    PEAK: "your share is 1 even where memory limits the kernel",
    OTHERS: "",
}
BYTES = {
    REACHED: "(seconds, bytes/s, limit) of a kernel",
    THOSE: "bytes/s: those that the kernel moves.",
    PEAK: "",
    OTHERS: "",
}

# ---- which batches count ----


def below_the_ridge(function):
    def ridge_batch(*a):
        batch = function(*a)
        return 1000 if batch is None else batch - 1

    return ridge_batch


def above_the_ridge(function):
    def ridge_batch(*a):
        batch = function(*a)
        return 0 if batch is None else 1001 - batch

    return ridge_batch


SMALLEST = 'The smallest batch (1 or more) whose limit is "flops" in a fully connected layer.'
NONE = "None if\n    memory limits the layer with 1000 images, too."
COUNTED = {
    "bandwidth: float) -> int | None:": "bandwidth: float) -> int:",
    "         7 images: 1.27 flops a byte": "         7 images have 1.27 flops a byte",
    "            4 images: 1 flop a byte, exactly the ridge point": (
        "         4 images have 1 flop a byte, exactly the ridge point"
    ),
    "then you see why no batch may be large enough.": "then you see that there may be no ridge.",
    "you return the last batch that memory limits; the next one is wanted": "",
    "a batch is a whole number: round up": "a number of batches is a whole number",
}
BELOW = {
    SMALLEST: "How many of the batches 1, 2, ..., 1000 memory limits in a fully connected layer.",
    NONE: "A batch at\n    the ridge point is not among them.",
    **COUNTED,
}
ABOVE = {
    SMALLEST: "How many of the batches 1, 2, ..., 1000 flops limit in a fully connected layer.",
    NONE: "A batch at\n    the ridge point is among them.",
    **COUNTED,
}

# ---- how a step is rated ----


def step_and_share(function):
    def step(*a):
        seconds, percent = function(*a)
        return seconds, percent / 100

    return step


def step_and_slowdown(function):
    def step(*a):
        seconds, percent = function(*a)
        return seconds, 100 / percent

    return step


STEP = "(seconds, scaling efficiency in percent) of a step whose rings"
RATED = "Efficiency: the time of all kernels over the time of the step; 100 if there are no layers."
UPSIDE = "your efficiency is upside down: it is the kernels' time over that of the step"
FRACTION = {"your efficiency is a fraction; wanted percent": ""}
AS_SHARE = {
    STEP: "(seconds, scaling efficiency from 0 to 1) of a step whose rings",
    RATED: "Efficiency: the time of all kernels over the time of the step; 1 if there are no "
    "layers.",
    **FRACTION,
}
AS_SLOWDOWN = {
    STEP: "(seconds, slowdown) of a step whose rings",
    RATED: "Slowdown: the time of the step over the time of all kernels; 1 if there are no layers.",
    UPSIDE: "your slowdown is upside down: it is the step's time over that of the kernels",
    **FRACTION,
}

CHANGES["15"] = [
    [
        [Change(ROOFLINE_15, "here it is the share of the peak", share_of_peak, words=SHARE)],
        [Change(ROOFLINE_15, "here it is bytes per second", bytes_per_second, words=BYTES)],
    ],
    [
        [Change(BATCH_15, "here batches below the ridge count", below_the_ridge, words=BELOW)],
        [Change(BATCH_15, "here batches from the ridge on count", above_the_ridge, words=ABOVE)],
    ],
    [
        [Change(STEP_15, "here the efficiency is a share of 1", step_and_share, words=AS_SHARE)],
        [Change(STEP_15, "here it is a slowdown", step_and_slowdown, words=AS_SLOWDOWN)],
    ],
]
