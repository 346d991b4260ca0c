"""C1, C4: the pool is cut into chunks, and each has an importance."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, bounds_of
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.draw import random_source, wide_integers
from refgf.oracle.spec.exercise import Drawn, Exercise, tenths
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement, differs_with
from refgf.oracle.spec.sums import exact_sum

# ---- C1: chunks ----


def chunk_bounds(n: int, chunk: int) -> list[tuple[int, int]]:
    """C1: the pool is divided into chunks of `chunk` elements (32768 by default); the last one is
    shorter where n is not divisible.

    Source: chunks of 32K gradients: GradientFlow by the article; 32K as 32768, and the last one:
    chosen. AlexNet has 1903 full chunks, the stated number, and a rest; ResNet-50 has 779 and a
    rest where 797 are stated: unexplained.
    """
    return [(start, min(start + chunk, n)) for start in range(0, n, chunk)]


C1 = Statement("C1", chunk_bounds)
CHUNKS = JudgedFunction(
    chunk_bounds,
    "C1",
    {"bounds": ("chunk", "start, stop")},
    run=bounds_of("chunk_bounds", "n", "chunk"),
)
CHUNKS.fresh(lambda d: {"n": d.n, "chunk": d.integer(1, 40)})


@CHUNKS.golden
def chunk_cases() -> Cases:
    why = "the last chunk is shorter where n is not divisible"
    networks = (62378344, 32768), (25557032, 32768)  # AlexNet and ResNet-50, as in lesson 06
    for n, chunk in ((0, 8), (7, 8), (8, 8), (53, 8), *networks):
        yield CHUNKS.case(f"chunks-n{n}-chunk{chunk}", why, n=n, chunk=chunk)
    why = "chosen chunks of 7 elements, the last one of 4"
    yield CHUNKS.case("chunks-n53-chunk7", why, n=53, chunk=7)


DIVIDES, SHORTER = "chunk divides n", "a shorter last chunk"
CHUNKS_06 = Exercise("06.1", chunk_bounds)
CHUNKS_06.part(DIVIDES, 1, lambda random: [(c * k, c) for c, k in random.integers(1, 9, (4, 2))])
CHUNKS_06.part(SHORTER, 1, lambda random: [(10, 4), (9, 2), (int(random.integers(50)) * 3 + 1, 3)])
CHUNKS_06.part(
    "one chunk, no elements",
    1,
    lambda random: [(3, 8), (0, 4), (int(random.integers(1, 99)), int(random.integers(100, 999)))],
)


@C1.mistake("the short last chunk is lost")
def last_chunk_lost(n, chunk):
    full = [(start, start + chunk) for start in range(0, n - chunk + 1, chunk)]
    return full or chunk_bounds(n, chunk)


@C1.mistake("the remainder joins the last chunk")
def last_chunk_longer(n, chunk):
    bounds = chunk_bounds(n, chunk)
    return [*bounds[:-2], (bounds[-2][0], n)] if n % chunk and len(bounds) > 1 else bounds


@CHUNKS_06.mistake("your last chunk is lost when the chunk's length does not divide n")
def whole_chunks(n, chunk):
    return [(c * chunk, (c + 1) * chunk) for c in range(n // chunk)]


@CHUNKS_06.mistake("your last chunk goes on after element n-1: it may be shorter")
def last_chunk_too_long(n, chunk):
    return [(start, start + chunk) for start in range(0, n, chunk)]


# ---- C4: importance ----


def importance(per_rank: Arrays, chunk: int) -> np.ndarray:
    """C4: importance of a chunk: the sum over ranks of the L1 norm of its accumulated gradient
    (option `after`: of its residual), in float64, divided by its length.

    Source: allreduced L1 norm: GradientFlow by the notes; which tensor, and the length: chosen.

    Sums are exact and rounded once to float64, then divided. per_rank: each rank's accumulated
    gradient (C2) or, with the option `after`, its v or h after C3. p arrays (n,) -> float64 (C,)
    """
    values = []
    for start, stop in chunk_bounds(len(per_rank[0]), chunk):
        magnitudes = [np.abs(a[e : e + 1]) for a in per_rank for e in range(start, stop)]
        values.append(exact_sum(magnitudes)[0] / (stop - start))
    return np.array(values, np.float64)


def run_importance(module: Any, case: Case) -> Outputs:
    return {"out.importance": module.importance(list(case["in.x"]), case.arguments["chunk"])}


C4 = Statement("C4", importance)
IMPORTANCE = JudgedFunction(importance, "C4", {"importance": ("chunk",)}, "x", run_importance)
IMPORTANCE.fresh(lambda d: {"chunk": d.integer(1, 9), "x": wide_integers(d.rng, d.p, min(d.n, 60))})


@IMPORTANCE.golden
def importance_cases() -> Cases:
    x = random_source("importance").integers(-8, 9, (3, 53)).astype(np.float32)
    x[:, 48:] = 6  # the short last chunk is first by its mean, not by its sum
    why = "divided by the chunk's length: the short last chunk is not starved"
    case = IMPORTANCE.case("importance", why, chunk=8, x=x)
    sums = np.add.reduceat(np.abs(x).sum(axis=0), range(0, 53, 8))
    yield case.shows(
        np.argmax(case["out.importance"]) == 6 != np.argmax(sums), "the length decides"
    )
    x = np.zeros((3, 53), np.float32)
    nearly_twins(x[None])
    why = "a large number and small ones that float32 cannot add to it"
    yield IMPORTANCE.case("importance-float64", why, chunk=8, x=x)
    x = random_source("importance-7").integers(-8, 9, (3, 53)).astype(np.float32)
    why = "divided by a chunk's 7 elements: times 1/7 has other bits"
    case = IMPORTANCE.case("importance-chunk-7", why, chunk=7, x=x)
    other = differs_with(case, importance=times_one_over_length)
    yield case.shows(other, "the reciprocal shows")


def nearly_twins(g: np.ndarray) -> None:
    """Chunks 1 and 3: one large number and seven small ones, of which chunk 3 has a larger one."""
    g[:, :, 8:16] = g[:, :, 24:32] = [2.0**12, *[2.0**-16] * 7]
    g[:, :, 25] = 2.0**-15


def waiting(*shapes: tuple[int, int, int]) -> Drawn:
    """Cases of p ranks with n random float32 numbers. shapes: (p, n, chunk) of each case."""
    return lambda random: [(list(tenths(random, p, n)), chunk) for p, n, chunk in shapes]


def rank_0(per_rank: Arrays) -> Arrays:
    return per_rank[:1]


def sum_of_ranks(per_rank: Arrays) -> Arrays:
    return [np.sum(np.asarray(per_rank, np.float64), axis=0)]


# float64 sums in any order: a few roundings of 1e-16
IMPORTANCE_06 = Exercise("06.2", importance, relative=1e-12)
IMPORTANCE_06.part(DIVIDES, 2, waiting((2, 4, 2), (3, 30, 10), (5, 40, 5)))
IMPORTANCE_06.part(SHORTER, 2, waiting((2, 5, 2), (3, 31, 6), (4, 38, 9)))
IMPORTANCE_06.part("one rank, one chunk, no elements", 1, waiting((1, 6, 3), (1, 3, 8), (2, 0, 4)))
C4.given("norms of rank 0 only, not summed over ranks", per_rank=rank_0)
IMPORTANCE_06.given(
    "you use rank 0's norms only: the other ranks would choose other chunks", per_rank=rank_0
)
C4.given("norm of the sum instead of sum of the norms", per_rank=sum_of_ranks)
IMPORTANCE_06.given(
    "you take magnitudes of the ranks' sum, which no rank knows before the exchange: each rank "
    "takes those of its own numbers, and the norms are summed",
    per_rank=sum_of_ranks,
)


@C4.mistake("not divided by the chunk's length: the short last chunk starves")
@IMPORTANCE_06.mistake(
    "you do not divide by the chunk's length: a short last chunk is hardly ever chosen"
)
def not_divided(per_rank, chunk):
    return importance(per_rank, chunk) * [j - i for i, j in chunk_bounds(len(per_rank[0]), chunk)]


@C4.mistake("Euclidean norms")
def euclidean(per_rank, chunk):
    squares = np.sum([np.float64(a) ** 2 for a in per_rank], axis=0)
    bounds = chunk_bounds(len(squares), chunk)
    return np.array([math.sqrt(squares[i:j].sum()) / (j - i) for i, j in bounds])


@C4.mistake("times a chunk's 1 / length, not divided by its length")
def times_one_over_length(per_rank, chunk):
    lengths = [j - i for i, j in chunk_bounds(len(per_rank[0]), chunk)]
    sums = importance(per_rank, chunk) * lengths  # exact sums, but for the last bit
    return np.rint(sums * 2.0**30) * 2.0**-30 * (1 / np.array(lengths, np.float64))


@C4.mistake("norms are summed in float32")
def norms_in_float32(per_rank, chunk):
    with np.errstate(over="ignore", invalid="ignore"):
        magnitudes = np.abs(np.asarray(per_rank, np.float32))
        bounds = chunk_bounds(magnitudes.shape[1], chunk)
        norms = [magnitudes[:, i:j].sum(dtype=np.float32) / np.float32(j - i) for i, j in bounds]
    return np.array(norms, np.float64)


def means(
    per_rank: Arrays,
    chunk: int,
    magnitude: Callable[..., Any] = np.abs,
    total: Callable[..., Any] = np.sum,
) -> np.ndarray:
    """total over a chunk's elements and all ranks; the keywords make the typical mistakes."""
    values = []
    for start, stop in chunk_bounds(len(per_rank[0]), chunk):
        norm = sum(total(magnitude(x[start:stop].astype(np.float64))) for x in per_rank)
        values.append(norm / (stop - start))
    return np.array(values, np.float64)


@IMPORTANCE_06.mistake("you add signed numbers, and these cancel: a norm adds magnitudes")
def without_magnitudes(per_rank, chunk):
    return means(per_rank, chunk, magnitude=np.array)


@IMPORTANCE_06.mistake("you add squares: the L1 norm adds magnitudes")
def squares(per_rank, chunk):
    return means(per_rank, chunk, magnitude=np.square)


@IMPORTANCE_06.mistake("you take Euclidean norms: the L1 norm adds magnitudes")
def euclidean_norms(per_rank, chunk):
    return means(per_rank, chunk, total=np.linalg.norm)


@IMPORTANCE_06.mistake("you divide the last chunk's norm by the length of the others")
def divided_by_the_full_length(per_rank, chunk):
    return not_divided(per_rank, chunk) / chunk


@IMPORTANCE_06.mistake("you divide by the number of ranks: norms are summed over the ranks")
def mean_over_ranks(per_rank, chunk):
    return importance(per_rank, chunk) / len(per_rank)


@IMPORTANCE_06.mistake(
    "you compute in float32; wanted float64: x.astype(np.float64) before the sum"
)
def float32_norms(per_rank, chunk):
    bounds = chunk_bounds(len(per_rank[0]), chunk)
    norms = [[np.abs(x[i:j]).sum() for i, j in bounds] for x in per_rank]
    lengths = np.array([j - i for i, j in bounds], np.float32)
    return np.array(norms, np.float32).sum(0) / lengths


@IMPORTANCE_06.mistake("you sum in float32; wanted float64: x.astype(np.float64) before the sum")
def float32_sums(per_rank, chunk):
    return float32_norms(per_rank, chunk).astype(np.float64)
