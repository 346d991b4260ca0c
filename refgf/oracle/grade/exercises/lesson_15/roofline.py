"""Exercise roofline(flops, nbytes, peak, bandwidth)."""

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_15.cases import ROUNDINGS

FLOPS, MEMORY = "flops limit the kernel", "memory limits the kernel"
RIDGE, NO_FLOPS = "exactly at the ridge point", "a kernel without flops"


def roofline(flops, nbytes, peak, bandwidth):
    compute_s, memory_s = flops / peak, nbytes / bandwidth
    seconds = max(compute_s, memory_s)
    return seconds, flops / seconds, "flops" if compute_s >= memory_s else "memory"


def one_after_the_other(flops, nbytes, peak, bandwidth):
    seconds = flops / peak + nbytes / bandwidth
    return seconds, flops / seconds, roofline(flops, nbytes, peak, bandwidth)[2]


def the_shorter_time(flops, nbytes, peak, bandwidth):
    seconds = min(flops / peak, nbytes / bandwidth)
    return seconds, flops / seconds if seconds else 0.0, roofline(flops, nbytes, peak, bandwidth)[2]


def always_peak(flops, nbytes, peak, bandwidth):
    seconds, _, limit = roofline(flops, nbytes, peak, bandwidth)
    return seconds, peak, limit


def bytes_a_second(flops, nbytes, peak, bandwidth):
    seconds, _, limit = roofline(flops, nbytes, peak, bandwidth)
    return seconds, nbytes / seconds, limit


def more_flops_than_bytes(flops, nbytes, peak, bandwidth):
    seconds, rate, _ = roofline(flops, nbytes, peak, bandwidth)
    return seconds, rate, "flops" if flops >= nbytes else "memory"


def memory_at_the_ridge(flops, nbytes, peak, bandwidth):
    seconds, rate, _ = roofline(flops, nbytes, peak, bandwidth)
    return seconds, rate, "flops" if flops / peak > nbytes / bandwidth else "memory"


PEAK, BANDWIDTH = 8e12, 1e12  # the ridge point is at 8 flops a byte


def kernels(random, *flops_a_byte):
    """As many kernels, each of a random number of bytes."""
    rows = zip(random.integers(10**6, 10**8, len(flops_a_byte)).tolist(), flops_a_byte)
    return [(round(nbytes * x), nbytes, PEAK, BANDWIDTH) for nbytes, x in rows]


def limited_by_flops(random):
    return kernels(random, 9, 12, float(random.uniform(10, 200)))


def limited_by_memory(random):
    return kernels(random, 0.25, 7, float(random.uniform(1.5, 6)))


def at_the_ridge(random):
    both = 1, int(random.integers(3, 999))
    return [(2**20 * k, 2**17 * k, 2.0**43, 2.0**40) for k in both]


def no_flops(random):
    return [(0, n, PEAK, BANDWIDTH) for n in (10**6, int(random.integers(1, 10**8)))]


ROOFLINE = Exercise(
    "roofline",
    roofline,
    (
        Part(FLOPS, 2, limited_by_flops),
        Part(MEMORY, 2, limited_by_memory),
        Part(RIDGE, 1, at_the_ridge),
        Part(NO_FLOPS, 1, no_flops),
    ),
    (
        Mistake(
            "you add both times, but a kernel computes while it reads and writes: the longer "
            "time counts",
            one_after_the_other,
            (FLOPS, MEMORY, RIDGE),
        ),
        Mistake(
            "you take the shorter time; the slower resource limits the kernel",
            the_shorter_time,
            (FLOPS, MEMORY, NO_FLOPS),
        ),
        Mistake(
            "your flop/s are the peak even where memory limits the kernel",
            always_peak,
            (MEMORY, NO_FLOPS),
        ),
        Mistake(
            "you return bytes per second; wanted flop/s",
            bytes_a_second,
            (FLOPS, MEMORY, RIDGE, NO_FLOPS),
        ),
        Mistake(
            "you compare flops with bytes; compare their times, at the peak and at the bandwidth",
            more_flops_than_bytes,
            (MEMORY,),
        ),
        Mistake('where both take equally long, wanted "flops"', memory_at_the_ridge, (RIDGE,)),
    ),
    relative=ROUNDINGS,
)
