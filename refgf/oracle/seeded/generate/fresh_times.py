"""Fresh cases of the times of collectives."""

from collections.abc import Callable
from functools import partial

import numpy as np

from refgf.oracle.seeded.generate.costs import ALGORITHMS, FORMS, bound_of
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.draw import Draw, Drawn, pick


def link(d: Draw) -> list[float]:
    """alpha, beta, gamma: over decades, and nothing now and then."""
    scales = [10 ** d.rng.uniform(low, low + 3) for low in (-7, -11, -13)]
    return [float(pick(d.rng, 0.0, 1.0, 1.0) * scale) for scale in scales]


def flat(d: Draw) -> Drawn:
    """The drawn p and n, and a few smaller ones."""
    entries = [(d.n, d.p), (d.n, 1), *((d.integer(0, 9999), d.integer(2, 70)) for _ in range(4))]
    columns = zip(("n", "p"), zip(*entries))
    return {"itemsize": pick(d.rng, 2, 4, 8), "link": link(d)}, dict(columns)


def line(d: Draw) -> Drawn:
    ranks = [d.p, *(d.integer(2, 70) for _ in range(4))]
    return {"algorithm": pick(d.rng, *ALGORITHMS), "link": link(d)}, {"p": ranks}


def over_nodes(d: Draw, rounded: bool = False, sparse: bool = False) -> Drawn:
    """rounded: all slices, and their halves, have the same length."""
    columns = {"n": [], "nodes": [], "ranks_per_node": []}
    for _ in range(4):
        nodes, k = d.integer(1, 6), d.integer(1, 6)
        whole = nodes * k * 2 ** (nodes.bit_length() - 1)
        n = d.n - d.n % whole if rounded else d.n
        for name, value in zip(columns, (n, nodes, k)):
            columns[name].append(value)
    if sparse:
        columns["chosen"] = [d.integer(0, n) for n in columns["n"]]
    return {"itemsize": pick(d.rng, 2, 4), "inside": link(d), "between": link(d)}, columns


def gathers(d: Draw) -> Drawn:
    columns = {"p": [d.p, 1, d.integer(2, 70)], "chosen": [d.n, d.n, d.integer(0, 9999)]}
    return {"itemsize": pick(d.rng, 2, 4, 8), "link": link(d)}, columns


# function: (its statements, how its arguments and inputs are drawn)
TIMES: dict[str, tuple[str, Callable[[Draw], Drawn]]] = {
    **{name: (statements, flat) for name, statements in FORMS.items()},
    "allreduce_line": ("E5", line),
    "three_phase_s": ("E1 E6", over_nodes),
    "two_level_s": ("E1 E6", partial(over_nodes, rounded=True)),
    "log_phases_s": ("E1 E6", partial(over_nodes, rounded=True)),
    "topk_s": ("E1 E7", gathers),
    "hitopk_s": ("E1 E7", partial(over_nodes, sparse=True)),
    "hitopk_pairs_s": ("E1 E7", partial(over_nodes, sparse=True)),
}


def time_bounds(case: Case) -> dict[str, np.ndarray]:
    """As in the golden cases."""
    t = case.tensors
    if "out.seconds" in t:
        ranks = t["in.p"] if "in.p" in t else t["in.nodes"] * t["in.ranks_per_node"]
        return {"bound.seconds": bound_of(ranks) * t["out.seconds"]}
    return {"bound.line": bound_of(t["in.p"])[:, None] * t["out.line"]} if "out.line" in t else {}
