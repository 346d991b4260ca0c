"""Lesson 12: how long choosing takes on one core, and what MSTopK's threshold search loses.

Choosing is the processor's own work. It is measured on rank 0 while the other ranks sleep, because
on a cluster each rank has a processor of its own. Its memory should be as fast as a V100's
900 GB/s (assumed) in this machine's time: 16 GB/s with the links of 56 Gbit/s, whose dilation is
56, but 90 GB/s with those of 10 Gbit/s and a dilation of 10.
"""

import functools

import numpy as np

import kit
from kit import flow
from refgf.comm.slices import chunks
from refgf.device import array_module, to_host
from refgf.exchange.chunk_choice import add_norms
from refgf.papers.mstopk.topk import ROUNDS, exact_top_k, keep_count, mstopk

WAYS = ("full sort", "exact selection", "MSTopK", "CSC's norms")
SORTED_UP_TO = 10**6  # elements; sorting more would take too much of the lesson's time
PASSES = ROUNDS + 6  # magnitude, largest, mean, count above it, the rounds, two at the end
GPU_BYTES_PER_S = 900e9  # of a V100's memory (assumed)


def measure(run: kit.Run, n: int) -> list[dict]:
    """Rows of `time_choices`: sizes up to n at 1 %, then a tenth of n at other densities."""
    run.section("How long does choosing take?")
    run.say(f"{place(run)}; the other ranks sleep")
    sizes = [size for size in (10**5, 10**6, 10**7) if size < n]
    cases = [(size, 1.0) for size in (*sizes, n)] + [(n // 10, 0.1), (n // 10, 10.0)]
    repeats = run.quick(2, 3, 7)
    rows = run.plain.bcast(
        run.on_rank_0(lambda: [time_choices(run, *case, repeats=repeats) for case in cases])
    )
    run.table(
        ["n", "density", *WAYS, "MSTopK loses"],
        [
            [
                f"{row['n']:,}",
                f"{row['percent']:g} %",
                *(median(row["times"].get(name)) for name in WAYS),
                f"{100 * row['lost']:.2g} %",
            ]
            for row in rows
        ],
    )
    run.say("Medians of this machine. MSTopK loses: of the magnitude that the exact choice has.")
    if run.regime.like:
        say_of_a_gpu(run, n, next(row["bytes_per_s"] for row in rows if row["n"] == n))
    return rows


def place(run: kit.Run) -> str:
    return "one GPU" if run.on_gpu else "one core"


def median(timing: kit.Timing | None) -> str:
    return "-" if timing is None else kit.seconds(timing.median_s)


def say_of_a_gpu(run: kit.Run, n: int, bytes_per_s: float) -> None:
    """One core's memory next to a GPU's in this machine's time, and MSTopK's passes there."""
    gpu_s, factor = PASSES * 4 * n / GPU_BYTES_PER_S, run.regime.dilation
    run.say(
        f"One core reads {1e-9 * bytes_per_s:.3g} GB/s. A V100's memory: "
        f"{1e-9 * GPU_BYTES_PER_S:g} GB/s (assumed), "
        f"{1e-9 * GPU_BYTES_PER_S / factor:.3g} GB/s divided by {factor:.4g}.\n"
        f"There MSTopK's passes in order, at most {PASSES}, take {kit.seconds(gpu_s)} "
        f"for {n:,} gradients."
    )


def time_choices(run: kit.Run, n: int, percent: float, repeats: int) -> dict:
    """The Timings of four ways to choose `percent` of n numbers, on this rank."""
    x, xp = run.array(heavy_tail(n)), run.xp
    k, chunk = keep_count(n, percent), flow.chunk_elements(n)
    norms, scratch = xp.zeros(len(chunks(n, chunk))), xp.empty_like(x)
    ways = {
        "full sort": lambda: xp.argsort(xp.abs(x))[n - k :],
        "exact selection": functools.partial(exact_top_k, x, k),
        "MSTopK": functools.partial(mstopk, x, k),
        "CSC's norms": functools.partial(chunk_norms, norms, x, chunk, scratch),
    }
    if n > SORTED_UP_TO or percent != 1.0:
        del ways["full sort"]
    times = {name: time_on_one_rank(run, way, repeats) for name, way in ways.items()}
    best, found = (
        np.abs(to_host(x[way(x, k)])).sum(dtype=np.float64) for way in (exact_top_k, mstopk)
    )
    row = {"n": n, "percent": percent, "k": k, "times": times, "lost": 1 - found / best}
    return row | {"bytes_per_s": x.nbytes / time_on_one_rank(run, x.max, repeats).median_s}


def heavy_tail(n: int):
    """Numbers (n,) of which few are large, as gradients are."""
    x = np.random.default_rng(0).standard_normal(n, np.float32)
    x *= x * x
    return x


def time_on_one_rank(run: kit.Run, function, repeats: int) -> kit.Timing:
    """The Timing of function() on this rank only, after a warm-up."""
    times_s = []
    for _ in range(1 + repeats):
        start_s = run.clock()
        function()
        times_s.append(run.clock() - start_s)
    times_s = times_s[1:]
    return kit.Timing(float(np.median(times_s)), min(times_s), max(times_s), repeats)


def chunk_norms(norms, x, chunk: int, scratch) -> None:
    """norms (C,) <- the L1 norms of the chunks of x (n,). scratch: as x."""
    norms[:] = 0
    add_norms(norms, array_module(x).abs(x, out=scratch), 0, chunk)
