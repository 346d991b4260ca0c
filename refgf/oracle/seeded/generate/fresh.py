"""Cases that nobody can know before: other numbers, p and n for each seed.

The golden cases are public, so an implementation may be right for them only. Case i of a function
is one of three kinds: more ranks and elements than in any golden case (0), one, three, five or
seven ranks with fewer elements than ranks or none (1), and few ranks that do not divide n (2).
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.definitions import conv, fully_connected
from refgf.oracle.seeded.generate.families import inputs, random_source
from refgf.oracle.seeded.generate.network import U, gamma
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.costs import flat as costs
from refgf.oracle.spec.draw import (
    Draw,
    Drawn,
    daso,
    dense_layer,
    layer,
    pick,
    relative,
    shape,
    some_nodes,
    some_sizes,
    wide_integers,
)
from refgf.oracle.spec.merge.times import within
from refgf.oracle.spec.plain_sums import PLAIN_SUMS
from refgf.oracle.spec.statement import FUNCTIONS, JudgedFunction, fill

LARGE = 3 << 15  # elements: 384 KiB of float32, and more than 16 bits count


def cast(d: Draw) -> Drawn:
    dtype = pick(d.rng, "float32", "float64")
    x = d.floats(40).astype(dtype)
    if dtype == "float64":
        x = x * (1 + pick(d.rng, -1, 0, 1) * 2.0**-40)
    return {"wire": pick(d.rng, "float16", "bfloat16")}, {"x": x}


def next_scale(d: Draw) -> Drawn:
    finite = (d.rng.random(30) < 0.8).astype(np.uint8)
    return {"scale": 2.0 ** d.integer(0, 23), "interval": d.integer(1, 4)}, {"finite": finite}


def scaled_run(d: Draw) -> Drawn:
    g = d.normal(5, d.p, d.n) * np.float32(2.0**-8)
    if d.n:
        g[d.integer(0, 4), d.integer(0, d.p - 1), d.integer(0, d.n - 1)] = pick(
            d.rng, np.inf, 999.0
        )
    settings = {"rate": 0.1, "momentum": 0.9, "scale": 2.0**10, "interval": 2, "wire": "float16"}
    return settings, {"w": d.normal(d.n), "g": g}


def momentum(d: Draw) -> Drawn:
    n = d.n + 1
    settings = {"rate": 0.1, "momentum": 0.9, "decay": pick(d.rng, 0.0, 0.01)}
    decayed = d.rng.integers(0, 2, n).astype(np.uint8)
    return settings, {"w": d.normal(n), "g": d.normal(3, n), "decayed": decayed}


def decay(d: Draw) -> Drawn:
    """Some numbers are special: an infinity of w must not reach g where nothing decays."""
    special = np.float32([-0.0, 0.0, np.inf, -np.inf, np.nan, 2.0**-149, -(2.0**-130)])
    w, g = (np.where(d.rng.random(40) < 0.5, d.rng.choice(special, 40), d.normal(40)) for _ in "wg")
    arrays = {"w": w, "g": g, "decayed": d.rng.integers(0, 2, 40).astype(np.uint8)}
    return {"decay": pick(d.rng, 0.0, 0.01, 0.3)}, arrays


def lars(d: Draw, ranks: bool = False) -> Drawn:
    sizes = some_sizes(d.rng, d.n)
    settings = {"rate": pick(d.rng, 0.1, 0.3), "momentum": 0.9, "trust": 0.001, "decay": 0.0005}
    settings |= {"scale": 1024.0, "interval": 2, "wire": "float16"} if ranks else {}
    decayed = d.rng.integers(0, 2, len(sizes)).astype(np.uint8)
    g = d.normal(3, d.p, d.n) * np.float32(2.0**-6) if ranks else d.normal(3, d.n)
    return settings, {"w": d.normal(d.n), "g": g, "sizes": sizes, "decayed": decayed}


def squares(d: Draw) -> Drawn:
    sizes = some_sizes(d.rng, d.n)
    decayed = d.rng.integers(0, 2, len(sizes)).astype(np.uint8)
    w, g = (wide_integers(d.rng, d.n) for _ in "wg")
    arguments = {"p": d.p, "by": pick(d.rng, "slices", "layers")}
    return arguments, {"w": w, "g": g, "sizes": sizes, "decayed": decayed}


def ties(d: Draw, *shape: int) -> np.ndarray:
    """Magnitudes that are often equal, of both signs."""
    x = d.normal(*shape)
    return np.where(d.rng.random(shape) < 0.3, np.float32(0.5) * np.sign(x), x)


def topk_run(d: Draw, nodes: bool = False) -> Drawn:
    arguments = {"nodes": some_nodes(d.rng, d.p, True)} if nodes else {}
    g = ties(d, 3, d.p, min(d.n, 200))
    return {**arguments, "percent": pick(d.rng, 1, 1.1, 10, 25, 50, 100)}, {"g": g}


def topk_traffic(d: Draw) -> Drawn:
    nodes, percent = some_nodes(d.rng, d.p, True), pick(d.rng, 1, 1.1, 10, 100)
    arguments = {"n": d.n, "nodes": nodes, "percent": percent}
    return {**arguments, "hierarchical": pick(d.rng, False, True)}, {}


def pairs_traffic(d: Draw) -> Drawn:
    """Every node divides n."""
    nodes, percent = some_nodes(d.rng, d.p, True), pick(d.rng, 1, 1.1, 10, 100)
    return {"n": d.n - d.n % len(nodes[0]), "nodes": nodes, "percent": percent}, {}


def late_sum(d: Draw) -> Drawn:
    arguments = {"nodes": d.p, "waited": d.integer(0, 9)}
    return arguments, {"w": d.normal(d.n), "total": d.normal(d.n)}


def daso_traffic(d: Draw, beyond: int = 0) -> Drawn:
    """A few chunks: an implementation may count by sending."""
    arguments, _ = daso(d, beyond)
    of_epoch = {"batches": arguments["batches"], "phase": arguments["phases"][d.integer(0, 1)]}
    p, chunk = min(d.p, 12), 1 + d.n // d.integer(1, 5)
    nodes = len(some_nodes(d.rng, p, True))
    return {"n": d.n, "p": p, "nodes": nodes, "chunk": chunk, **of_epoch}, {}


def of(*names: str) -> dict[str, tuple[str, Callable[[Draw], Drawn]]]:
    """Functions that are records in spec/."""
    return {name: (FUNCTIONS[name].statements, partial(divided, FUNCTIONS[name])) for name in names}


def divided(function: JudgedFunction, d: Draw) -> Drawn:
    arguments, tensors = function.divided(function.draw(d))
    return arguments, {name.removeprefix("in."): array for name, array in tensors.items()}


# function: (its statements, how its arguments and inputs are drawn)
DRAWN: dict[str, tuple[str, Callable[[Draw], Drawn]]] = {
    **of("slice_bounds", "ring_allreduce", "ring_traffic"),
    **of("direct_allreduce", "direct_traffic", "exact_sum"),
    **of("lazy_calls", "lazy_allreduce", "merged_allreduce"),
    "on_wire": ("P1 P2", cast),
    "bfloat16_bits": ("P2", lambda d: ({}, {"x": d.floats(40)})),
    "underflow_share": (
        "P3",
        lambda d: ({"wire": "float16"}, {"x": d.normal(50) * np.float32(2.0**-24)}),
    ),
    "scaled_allreduce": (
        "P4",
        lambda d: (
            {"scale": pick(d.rng, 2.0 ** d.integer(0, 12), 1000.0, 0.3), "wire": "float16"},
            {"x": d.normal(d.p, d.n) * np.float32(2.0**-12)},
        ),
    ),
    "next_scale": ("P6", next_scale),
    "working_copy": ("P7", lambda d: ({"wire": "float16"}, {"w": d.floats(40)})),
    "scaled_run": ("P4 P5 P6 P7 P8", scaled_run),
    "decayed_gradient": ("M2", decay),
    "momentum_step": ("M1 M2", momentum),
    "warmup_rate": (
        "M3",
        lambda d: (
            {
                "step": d.integer(0, 12),
                "warmup_steps": d.integer(1, 9),
                "base_rate": 0.1,
                "batch_factor": d.integer(1, 64),
            },
            {},
        ),
    ),
    "lars_ratio": (
        "M4",
        lambda d: (
            {"trust": pick(d.rng, 2.0 ** d.integer(-8, 8), 0.001, 0.3), "decay": 0.01},
            {"w": wide_integers(d.rng, 1 + d.n % 40), "g": wide_integers(d.rng, 1 + d.n % 40)},
        ),
    ),
    "lars_step": ("M4 M5", lars),
    "polynomial_rate": (
        "M6",
        lambda d: (
            {
                "step": d.integer(0, 12),
                "steps": d.integer(1, 12),
                "rate": 0.3,
                "power": pick(d.rng, 1.0, 1.5, 2.0, 3.0),
            },
            {},
        ),
    ),
    "accumulated": ("M7", lambda d: ({}, {"x": inputs("sensitive", d.p, d.n, "float32", d.rng)})),
    "lars_partial_squares": ("M8", squares),
    "scaled_lars_run": ("M9", partial(lars, ranks=True)),
    **of("chunk_bounds", "importance", "choose", "percent_of_step", "csc_payload_bytes", "csc_run"),
    **of("tree_allreduce", "doubling_allreduce", "three_phase_allreduce", "two_level_allreduce"),
    **of("log_phases_allreduce", "hybrid_allreduce", "schedule_traffic"),
    "keep_count": ("T1", lambda d: ({"n": d.n}, {"percent": d.rng.integers(1, 1001, 9) / 10})),
    "top_k": ("T2", lambda d: ({"k": d.integer(0, d.n)}, {"x": ties(d, d.n)})),
    "topk_run": ("T4 T5", topk_run),
    "hitopk_run": ("T4 T6", partial(topk_run, nodes=True)),
    "topk_traffic": ("T7", topk_traffic),
    "hitopk_pairs_traffic": ("T8", pairs_traffic),
    "daso_merge": ("A6", late_sum),
    "daso_traffic": ("A12", daso_traffic),
    "daso_run": ("A2 A3 A4 A5 A6 A7 A8 A11", daso),
    "heat_merge": ("A15", late_sum),
    "heat_traffic": ("A20", partial(daso_traffic, beyond=2)),
    "heat_run": ("A13 A14 A15 A16 A17 A18", partial(daso, beyond=2)),
    **of("node_shards", "node_batches", "cache_levels"),
    "conv": ("N1", layer),
    "max_pool": ("N2", partial(layer, window=True)),
    "relu": ("N3", lambda d: ({}, {"x": d.floats(40).astype(np.float64)})),
    "fully_connected": ("N6", dense_layer),
    **of("reduce_scatter_s", "allgather_s", "ring_s", "direct_s", "tree_s"),
    **of("recursive_doubling_s", "halving_doubling_s", "allreduce_line"),
    **of("three_phase_s", "two_level_s", "log_phases_s", "topk_s", "hitopk_s", "hitopk_pairs_s"),
    **of("step_times", "lazy_step", "greedy_counts", "best_counts"),
}


def bounds(case: Case) -> dict[str, np.ndarray]:
    """How far results may be off whose order of summation is open: as in the golden cases."""
    t, a = case.tensors, case.arguments
    if "out.step_s" in t:
        return within(case).with_prefix("bound")
    if "out.seconds" in t or "out.line" in t:
        return costs.within(case).with_prefix("bound")
    if case.function in ("lars_step", "scaled_lars_run"):
        names = [name for name in ("w", "v") if f"out.{name}" in t and t[f"out.{name}"].size]
        return {f"bound.{name}": relative(t[f"out.{name}"], 2.0**-20) for name in names}
    if case.function == "lars_ratio":
        return {"bound.ratio": 4 * (len(t["in.w"]) + 4) * U * t["out.ratio"]}
    if case.function == "warmup_rate":
        return {"bound.rate": 8 * U * t["out.rate"]}
    if case.function == "polynomial_rate":  # 1 - step / steps cancels
        return {"bound.rate": 8 * a["steps"] * U * t["out.rate"]}
    if case.function in ("conv", "fully_connected"):
        x, w, b = (np.abs(t[f"in.{name}"]) for name in "xwb")
        y = conv(x, w, b, a["stride"], a["pad"]) if "pad" in a else fully_connected(x, w, b)
        return {"bound.y": gamma(w[..., 0].size + 1) * y}
    return {}


def large_cases(seed: int, wanted: Callable[[Case], bool]) -> Iterator[Case]:
    """One long vector for each plain sum: beyond 2^16, where libraries change their algorithm."""
    for function in PLAIN_SUMS:
        statements, _ = DRAWN[function]
        name, why = f"large-{function}-{seed}", "a long vector may get another algorithm"
        case = Case(name, function, statements.split(), why, "sensitive", {})
        if wanted(case):
            rng = random_source(name, seed)
            n = LARGE + 1 + 3 * int(rng.integers(1000))  # 3 does not divide it
            x = inputs("sensitive", 3, n, "float32", rng)
            yield drawn(case, ({"wire": None}, {"x": x}))


def fresh_cases(count: int, seed: int, wanted: Callable[[Case], bool]) -> Iterator[Case]:
    """`count` cases of each function, made by the definitions, if `wanted` accepts their names."""
    for function, (statements, draw) in DRAWN.items():
        for i in range(count):
            name, why = f"random-{function}-{seed}-{i}", f"drawn by --random {count} --seed {seed}"
            case = Case(name, function, statements.split(), why, "values", {})
            if wanted(case):
                rng = random_source(f"{function}-{i}", seed)
                yield drawn(case, draw(Draw(rng, *shape(rng, i % 3))))


def drawn(case: Case, found: Drawn) -> Case:
    """The case with these arguments and inputs, and the definitions' results."""
    arguments, arrays = found
    tensors = {f"in.{name}": np.asarray(array) for name, array in arrays.items()}
    with np.errstate(all="ignore"):
        case = fill(replace(case, arguments=arguments, tensors=tensors), definitions)
        case.tensors |= bounds(case)
    if arguments.get("wire", "") is None:  # the statements on rounding say nothing here
        case.statements = [s for s in case.statements if s not in ("R3", "D2", "H3")]
    return case
