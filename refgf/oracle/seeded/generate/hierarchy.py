"""Cases of tree, doubling, hierarchies, and what their ranks send."""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.definitions import (
    doubling_allreduce,
    on_wire,
    ring_allreduce,
    same_bits,
    three_phase_allreduce,
    tree_allreduce,
)
from refgf.oracle.seeded.generate.families import inputs, make, random_source, require
from refgf.oracle.spec.case import Case
from refgf.oracle.spec.families import FAMILY_SAYS

NODES = {
    "one-rank": [[0]],
    "one-node": [[0, 1, 2]],
    "alone": [[0], [1], [2]],
    "2-2": [[0, 1], [2, 3]],
    "uneven": [[0, 1], [2, 3, 4], [5]],
    "dealt": [[4, 0], [1, 5], [3, 2]],
    "3x3": [[0, 1, 2], [3, 4, 5], [6, 7, 8]],
    "4x3": [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]],
}
LONG_NODE = {
    "5-1-1": [[0, 1, 2, 3, 4], [5], [6]]
}  # a node whose tree and ring differ, and one node too many


def cases() -> Iterator[Case]:
    groups = flat_cases, extra_cases, node_cases, log_phases_cases, hybrid_cases, traffic_cases
    for group in groups:
        yield from group()


def proving(
    name: str, function: str, statements: str, arguments: dict, p: int, n: int, family: str
) -> Case:
    """A case whose numbers give other bits in ring order, if its family claims this."""
    for seed in range(20):
        x = inputs(family, p, n, "float32", random_source(name, seed), arguments["wire"])
        case = make(
            name,
            function,
            statements,
            f"{FAMILY_SAYS[family]}; n = {n}, p = {p}",
            arguments,
            family,
            x=x,
        )
        flat = ring_allreduce(list(x), arguments["wire"])[0]
        if family != "sensitive" or p < 4 or n < 8 or not same_bits(flat, case["out.x"][0]):
            return case
    require(False, case, "the order shows")


def flat_cases() -> Iterator[Case]:
    """p = 5 and 9 are those where tree and doubling pair the ranks differently."""
    for name, statements in (("tree", "H1"), ("doubling", "H2")):
        for p, n, wire in (
            (1, 5, "float16"),
            (2, 0, None),
            (3, 7, None),
            (4, 13, None),
            (5, 13, None),
            (6, 13, "float16"),
            (8, 21, "float16"),
            (9, 2, None),
            (9, 25, "float16"),
            (13, 9, None),
            (17, 21, None),
        ):
            for family in ("invariant", "sensitive")[n < 8 :]:
                title = f"{name}-p{p}-n{n}-{family}" + (f"-wire-{wire}" if wire else "")
                more = " H3" if name == "doubling" and wire and p > 1 else ""
                case = proving(
                    title, f"{name}_allreduce", statements + more, {"wire": wire}, p, n, family
                )
                if p == 5 and family == "sensitive":
                    others = [
                        f(list(case["in.x"]))[0] for f in (tree_allreduce, doubling_allreduce)
                    ]
                    require(not same_bits(*others), case, "tree and doubling differ for p = 5")
                yield case


def extra_cases() -> Iterator[Case]:
    """Numbers that the wire rounds: it shows who hands over, and who rounds before adding."""
    why = "of two ranks that pair up first only what is sent is rounded"
    for p, wire in ((3, "float16"), (7, "bfloat16")):
        name = f"doubling-extras-p{p}-wire-{wire}"
        x = random_source(name).standard_normal((p, 80)).astype(np.float32)
        arguments = {"wire": wire}
        case = make(name, "doubling_allreduce", "H2 H3", why, arguments, "sensitive", x=x)
        first = 2 * (p - 2 ** (p.bit_length() - 1))
        swapped = [*x[:first].reshape(-1, 2, 80)[:, ::-1].reshape(first, 80), *x[first:]]
        rounded = [*on_wire(x[:first], wire), *x[first:]]
        for other in (swapped, rounded):
            got = doubling_allreduce(list(other), wire)[0]
            require(not same_bits(got, case["out.x"][0]), case, "pairing shows")
        yield case


def node_cases() -> Iterator[Case]:
    for where, nodes in NODES.items():
        p = sum(map(len, nodes))
        for name, statement in (("three-phase", "H4"), ("two-level", "H5")):
            if name == "two-level" and len({len(node) for node in nodes}) > 1:
                continue
            for n, wire in ((29, None), (29, "float16"), (1, None)):
                title = f"{name}-{where}-n{n}" + (f"-wire-{wire}" if wire else "")
                arguments = {"nodes": nodes, "wire": wire}
                yield proving(
                    title,
                    name.replace("-", "_") + "_allreduce",
                    statement,
                    arguments,
                    p,
                    n,
                    "sensitive",
                )


def log_phases_cases() -> Iterator[Case]:
    for where, nodes in (NODES | LONG_NODE).items():
        p = sum(map(len, nodes))
        for n, wire in ((29, None), (29, "float16"), (1, None), (0, None)):
            title = f"log-phases-{where}-n{n}" + (f"-wire-{wire}" if wire else "")
            case = proving(
                title,
                "log_phases_allreduce",
                "H8",
                {"nodes": nodes, "wire": wire},
                p,
                n,
                "sensitive",
            )
            if where in LONG_NODE and n > 8:
                x = list(case["in.x"])
                masters = [tree_allreduce([x[r] for r in node], wire)[0] for node in nodes]
                others = three_phase_allreduce(x, nodes, wire)[0], ring_allreduce(masters, wire)[0]
                require(
                    not any(same_bits(other, case["out.x"][0]) for other in others),
                    case,
                    "tree and doubling show",
                )
            yield case


def hybrid_cases() -> Iterator[Case]:
    for n in (12, 13, 14):
        arguments = {"nodes": NODES["2-2"], "threshold": 13, "wire": None}
        x = inputs("sensitive", 4, n, "float32", random_source(f"hybrid-{n}", 3))
        yield make(
            f"hybrid-n{n}",
            "hybrid_allreduce",
            "H6",
            f"{n} elements, a threshold of 13",
            arguments,
            "sensitive",
            x=x,
        )


def traffic_cases() -> Iterator[Case]:
    for algorithm in (
        "tree",
        "recursive_doubling",
        "halving_doubling",
        "three_phase",
        "two_level",
        "log_phases",
    ):
        places = (
            "one-rank",
            "one-node",
            "dealt",
            "3x3",
            *(["uneven"] if algorithm != "two_level" else []),
        )
        for where in (*places, *(LONG_NODE if algorithm == "log_phases" else ())):
            for n in (0, 100):
                arguments = {"algorithm": algorithm, "n": n, "nodes": (NODES | LONG_NODE)[where]}
                why = f"{n} elements" + (
                    ": empty messages count" if n == 0 else ", slices of different length"
                )
                yield make(
                    f"traffic-{algorithm.replace('_', '-')}-{where}-n{n}",
                    "schedule_traffic",
                    "H7",
                    why,
                    arguments,
                )
