"""Cases of the times of collectives. A case has many entries, a time for each."""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.seeded.generate.families import make, require
from refgf.oracle.spec.case import Case

U = 2.0**-53
FAST, SLOW = [3.0e-6, 6.0e-11, 2.5e-12], [4.5e-5, 8.7e-10, 2.5e-12]  # seconds; per byte, added byte
RANKS = [*range(1, 10), 12, 16, 17, 31, 32, 33, 100]
ALEXNET = 62378344
NODES = [(1, 1), (1, 4), (4, 1), (2, 2), (3, 5), (8, 4), (5, 8), (16, 4)]  # nodes, ranks on each
MANY = [(64, 16)]
FORMS = {  # function: statements
    "reduce_scatter_s": "E1 E2",
    "allgather_s": "E1 E2",
    "ring_s": "E1 E2",
    "direct_s": "E1 E2",
    "tree_s": "E1 E3",
    "recursive_doubling_s": "E1 E3",
    "halving_doubling_s": "E1 E3 E4",
}
ALGORITHMS = ("ring", "tree", "recursive_doubling", "halving_doubling")


def cases() -> Iterator[Case]:
    for group in (flat_cases, line_cases, node_cases, sparse_cases):
        yield from group()


def within(case: Case, p: np.ndarray) -> Case:
    """The bound of SPEC.md, E: 32 p u of the time itself."""
    case.tensors["bound.seconds"] = bound_of(p) * case["out.seconds"]
    return case


def bound_of(p: np.ndarray) -> np.ndarray:
    """Of a time over p ranks, as a share of it.

    No collective has more than 4 p rounds. A round's time is three products and their sum, and no
    term is negative: 6 u for each round, in a result and in the definition's. The rest is for forms
    that divide by p.
    """
    return 32 * np.asarray(p) * U


def sizes(p: int) -> list[int]:
    """None, fewer than ranks, awkward ones, and a network."""
    return sorted({0, 1, p - 1, p, p + 1, 100 * p, 1003, ALEXNET})


def flat_cases() -> Iterator[Case]:
    entries = [(n, p) for p in RANKS for n in sizes(p)]
    n, p = (np.array(column, np.int64) for column in zip(*entries))
    why = "1 to 100 ranks; none, fewer elements than ranks, awkward sizes, and AlexNet"
    for name, statements in FORMS.items():
        for itemsize, link in ((4, SLOW), (2, FAST)):
            arguments = {"itemsize": itemsize, "link": link}
            title = f"seconds-{name.removesuffix('_s').replace('_', '-')}-{8 * itemsize}-bit"
            case = within(make(title, name, statements, why, arguments, n=n, p=p), p)
            alone = case["out.seconds"][p == 1]
            require((alone == 0).all(), case, "one rank takes no time")
            yield case


def line_cases() -> Iterator[Case]:
    p = np.array(RANKS, np.int64)
    why = "a is the latencies, b the bytes and additions"
    for algorithm in ALGORITHMS:
        arguments = {"algorithm": algorithm, "link": SLOW}
        title = f"line-{algorithm.replace('_', '-')}"
        case = make(title, "allreduce_line", "E5", why, arguments, p=p)
        case.tensors["bound.line"] = bound_of(p)[:, None] * case["out.line"]
        yield case


def places(rounded: bool = False) -> dict[str, np.ndarray]:
    """Entries over nodes; rounded: every slice has the same length, in halves too."""
    entries = []
    for nodes, k in NODES if rounded else NODES + MANY:
        whole = nodes * k * 2 ** (nodes.bit_length() - 1)
        odd = [] if rounded else [1, nodes * k + 1, 1003]
        entries += [(n, nodes, k) for n in (0, whole, 40 * whole, *odd)]
    columns = zip(*entries)
    return dict(zip(("n", "nodes", "ranks_per_node"), (np.array(c, np.int64) for c in columns)))


def node_cases() -> Iterator[Case]:
    links = {"itemsize": 4, "inside": FAST, "between": SLOW}
    why = "one node, nodes of one rank, and both; slices of {} length"
    for name in ("three_phase_s", "two_level_s", "log_phases_s"):
        arrays = places(rounded=name != "three_phase_s")
        lengths = "the same" if name != "three_phase_s" else "any"
        title = f"seconds-{name.removesuffix('_s').replace('_', '-')}"
        case = make(title, name, "E1 E6", why.format(lengths), links, **arrays)
        yield within(case, arrays["nodes"] * arrays["ranks_per_node"])


def sparse_cases() -> Iterator[Case]:
    entries = [(p, k) for p in RANKS for k in (0, 1, 1003, ALEXNET // 100)]
    p, chosen = (np.array(column, np.int64) for column in zip(*entries))
    why = "values of {} bytes, and their indices"
    for itemsize in (2, 4):
        arguments = {"itemsize": itemsize, "link": SLOW}
        title = f"seconds-topk-{8 * itemsize}-bit"
        case = make(title, "topk_s", "E1 E7", why.format(itemsize), arguments, p=p, chosen=chosen)
        yield within(case, p)
        arrays = places()
        arrays["chosen"] = -(-arrays["n"] // 50)
        links = {"itemsize": itemsize, "inside": FAST, "between": SLOW}
        for name in ("hitopk", "hitopk-pairs"):
            title, function = f"seconds-{name}-{8 * itemsize}-bit", name.replace("-", "_") + "_s"
            case = make(title, function, "E1 E7", why.format(itemsize), links, **arrays)
            yield within(case, arrays["nodes"] * arrays["ranks_per_node"])
