"""The CUDA kernels against CuPy's own passes and against the memory limit, float32.

    python tests/gpu/speed_kernels.py [results.json]

CSC's accumulate is a whole step of the residual over AlexNet's 62 million gradients, the norms
included: `FusedResidual` against `Residual`. A kernel of a layer is measured against the function
of `refgf.ops` whose place it takes. The limit moves the bytes that a kernel has to read and write,
once each, as fast as this GPU copies an array. Sides take turns, and a side ends when the GPU has
finished it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from refgf import device, engine
from refgf.engine.fused_gpu import KERNELS
from refgf.engine.residual import FusedResidual
from refgf.exchange.momentum_correction import CSCSettings, Residual
from refgf.exchange.pool import Pool
from tests.gpu.measure import TURNS, alternate, judge, over, save

N = 62_000_000  # AlexNet's gradients
IMAGES = (128, 55, 55, 96)  # of AlexNet's first pooling
WINDOW, STRIDE = 3, 2
CHUNK = 32_768
OF_THE_LIMIT = 1.5  # CSC's accumulate, at most
T = np.float32


@dataclass(frozen=True)
class Case:
    """Two ways of the same work. arrays: how many of n numbers it has to read or write."""

    kernel: Callable[[], None]
    passes: Callable[[], None]
    arrays: float | None = None  # None: some numbers are read again, so there is no simple limit
    limit: float | None = None  # the bar


def main(arguments: list[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    save(measure(), arguments[0] if arguments else None)


def measure(n: int = N, images: tuple = IMAGES, turns: int = TURNS) -> list[dict]:
    """The rows; each group's arrays are freed before the next one's are made."""
    xp, rows = device.module("gpu"), []
    numbers = xp.asarray(np.random.default_rng(0).standard_normal(n, T))
    for group in (of_csc, of_the_optimizer, of_layers):
        for name, case in group(xp, numbers).items():
            rows += rows_of(name, case, numbers, turns)
    for name, case in of_pooling(xp, images).items():
        rows += rows_of(name, case, numbers, turns)
    return rows


def rows_of(name: str, case: Case, numbers, turns: int) -> list[dict]:
    target = numbers.copy()

    def copied() -> None:
        target[...] = numbers

    sides = {"kernel": case.kernel, "passes": case.passes, "copy": copied}
    seconds = alternate({side: finished(work, numbers) for side, work in sides.items()}, turns)
    ratios = over(seconds["kernel"], seconds["passes"])
    rows = [judge.bar(f"{name}: kernels over CuPy's passes", ratios, 1)]
    if case.arrays:
        limit_s = [case.arrays * copy_s / 2 for copy_s in seconds["copy"]]  # a copy moves two
        title, ratios = f"{name}: over the memory limit", over(seconds["kernel"], limit_s)
        bar = case.limit
        rows.append(judge.bar(title, ratios, bar) if bar else judge.ratio(title, ratios))
    return rows


def finished(work: Callable[[], None], x) -> Callable[[], None]:
    """The work, with the wait for the GPU after it."""

    def step() -> None:
        work()
        device.synchronize(x)

    return step


def of_csc(xp, numbers) -> dict[str, Case]:
    """A step reads w, g, u and v, and writes v and the next u."""
    tensor = SimpleNamespace(name="weight", shape=(numbers.size,), decay=True)
    settings, weights = CSCSettings(chunk=CHUNK), numbers.copy()

    def step(kind: type) -> Callable[[], None]:
        pool = Pool([tensor], T, xp.zeros)
        pool.flat[...] = numbers
        residual = kind(pool, weights, settings, 0.9, 5e-4, 8)

        def accumulate() -> None:
            residual.accumulate(0, 1.0)
            residual.update([], False)

        return accumulate

    return {"CSC's accumulate": Case(step(FusedResidual), step(Residual), 6, OF_THE_LIMIT)}


def of_the_optimizer(xp, numbers) -> dict[str, Case]:
    w, v, factors = numbers.copy(), numbers.copy(), (0.9, 5e-4, 1e-6)
    plain = engine.PLAIN["momentum_sgd"]
    return {
        "momentum SGD": Case(
            lambda: KERNELS["momentum_sgd"](w, v, numbers, *map(T, factors), True),
            lambda: plain(w, v, numbers, *factors),
            5,
        ),
        "pack a tenth of the chunks": packing(xp, numbers, v),
    }


def packing(xp, g, v) -> Case:
    whole = g.size // CHUNK
    numbers = np.arange(0, whole, 10)
    out, on_device = xp.empty(numbers.size * CHUNK, T), xp.asarray(numbers)

    def passes() -> None:
        rows_g, rows_v = (x[: whole * CHUNK].reshape(whole, CHUNK) for x in (g, v))
        packed = out.reshape(numbers.size, CHUNK)
        packed[...] = rows_v[on_device]
        packed += rows_g[on_device]
        packed *= T(2)

    return Case(
        lambda: KERNELS["pack"](v, g, numbers, CHUNK, T(2), out), passes, 3 * out.size / g.size
    )


def of_layers(xp, numbers) -> dict[str, Case]:
    """Blocks of images, which the vectors of a normalisation repeat over."""
    rows = numbers.size // 1000
    x = numbers[: rows * 1000].reshape(rows, 1000)
    y, scratch, kept = x.copy(), x.copy(), x > 0
    mean, scale, slope, offset = (xp.full(1000, value, T) for value in (0.1, 0.9, 0.01, 0.001))
    given = {  # arguments; arrays read and written
        "relu_gradient": ((y, x, kept), 3),
        "dropout": ((x, kept, 2.0, y), 2.25),
        "normalize": ((x, mean, scale, offset, y), 2),
        "normalize_gradient": ((x, mean, scale, slope, offset, y, scratch), 3),
    }
    return {name: layer(name, *case) for name, case in given.items()}


def of_pooling(xp, images: tuple) -> dict[str, Case]:
    n, height, width, channels = images
    out = n, (height - WINDOW) // STRIDE + 1, (width - WINDOW) // STRIDE + 1, channels
    x = xp.asarray(np.random.default_rng(0).standard_normal(images, T))
    y, winner, dx = xp.zeros(out, T), xp.zeros(out, np.uint8), xp.zeros(images, T)
    return {
        "largest_in_windows": layer("largest_in_windows", (x, y, winner, WINDOW, STRIDE)),
        "to_winners": layer("to_winners", (y, winner, dx, WINDOW, STRIDE)),
    }


def layer(name: str, arguments: tuple, arrays: float | None = None) -> Case:
    kernel, plain = KERNELS[name], engine.PLAIN[name]
    return Case(lambda: kernel(*arguments), lambda: plain(*arguments), arrays)


if __name__ == "__main__":
    main()
