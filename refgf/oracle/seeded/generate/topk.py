"""Cases of top-k, MSTopK, error feedback, HiTopKComm, and what they send."""

from collections.abc import Iterator

import numpy as np

from refgf.oracle.definitions import exact_sum, mstopk, top_k
from refgf.oracle.seeded.generate.families import inputs, make, random_source, require
from refgf.oracle.spec.case import Case


def cases() -> Iterator[Case]:
    yield from count_cases()
    yield from choice_cases()
    yield from bisection_cases()
    yield from run_cases()
    yield from traffic_cases()
    yield from pairs_traffic_cases()


def count_cases() -> Iterator[Case]:
    for n in (0, 1, 7, 1000, 3000, 62_378_344):
        why = "rounded up, at least 1, none of 0; 1.1 % of 1000 is 11"
        yield make(
            f"keep-count-{n}",
            "keep_count",
            "T1",
            why,
            {"n": n},
            percent=np.array([0.01, 0.1, 1, 1.1, 10, 33, 100]),
        )


def numbers(name: str, n: int) -> np.ndarray:
    """A heavy tail of both signs, with ties."""
    x = random_source(name).standard_normal(n).astype(np.float32) ** 3
    x[1::5] = np.where(np.arange(len(x[1::5])) % 2, 0.5, -0.5)
    return x


def choice_cases() -> Iterator[Case]:
    for n, k in ((0, 0), (1, 1), (40, 0), (40, 7), (40, 21), (40, 40)):
        name = f"top-k-{k}-of-{n}"
        case = make(
            name,
            "top_k",
            "T2",
            "magnitudes of both signs, and many that are equal",
            {"k": k},
            x=numbers(name, n),
        )
        if k == 21:
            size = np.abs(case["in.x"])
            cut = np.sort(size)[-k]
            require((size >= cut).sum() > k, case, "a tie is cut")
        yield case


def bisection_cases() -> Iterator[Case]:
    why = {
        30: "30 halvings find nearly the k largest",
        3: "3 halvings leave much to the neighbours",
    }
    for rounds in (30, 3):
        for k in (0, 1, 25, 160, 300):
            for start in (0.0, 0.6):
                name, arguments = (
                    f"mstopk-{k}-rounds-{rounds}-start-{start:g}",
                    {"k": k, "start": start, "rounds": rounds},
                )
                x = numbers(name.rsplit("-start")[0], 300)
                case = make(name, "mstopk", "T3", why[rounds], arguments, x=x)
                require(len(case["out.chosen"]) == k, case, "exactly k")
                if rounds == 3 and k == 25:
                    require(
                        not np.array_equal(case["out.chosen"], top_k(x, k)),
                        case,
                        "not the k largest",
                    )
                    require(
                        not np.array_equal(mstopk(x, k, 0.6 - start, 3), case["out.chosen"]),
                        case,
                        "the start counts",
                    )
                yield case


def run_cases() -> Iterator[Case]:
    """Order-sensitive gradients; at 100 % of whole numbers the dense sum."""
    nodes = {
        "2-2": [[0, 1], [2, 3]],
        "dealt": [[4, 0], [1, 5], [3, 2]],
        "one-node": [[0, 1, 2]],
        "alone": [[0], [1], [2]],
    }
    whole = {"nodes": nodes["2-2"], "percent": 10}  # 3 of each slice of 30
    yield run_case("hitopk-whole-share", "hitopk_run", 4, 60, whole)
    for percent in (5, 30, 100):
        for p, n in ((1, 20), (3, 53), (5, 3)):
            yield run_case(f"topk-p{p}-n{n}-{percent}", "topk_run", p, n, {"percent": percent})
        for where, split in nodes.items():
            arguments = {"nodes": split, "percent": percent}
            yield run_case(
                f"hitopk-{where}-{percent}", "hitopk_run", sum(map(len, split)), 53, arguments
            )


def run_case(name: str, function: str, p: int, n: int, arguments: dict) -> Case:
    percent = arguments["percent"]
    family = "invariant" if percent == 100 else "sensitive"
    g = np.stack([inputs(family, p, n, "float32", random_source(name, t)) for t in range(4)])
    own = "T5" if function == "topk_run" else "T6"
    why = (
        "100 % is the dense sum, for n that p does not divide too"
        if percent == 100
        else "what is not sent is kept, 4 steps"
    )
    case = make(name, function, f"{own} T4", why, arguments, family, g=g)
    if percent == 100:
        require(
            all(np.array_equal(exact_sum(list(gs)), x[0]) for gs, x in zip(g, case["out.x"])),
            case,
            "dense",
        )
        require(not case["out.kept"].any(), case, "nothing is kept")
    else:
        require(case["out.kept"].any(), case, "something is kept")
    return case


def traffic_cases() -> Iterator[Case]:
    for hierarchical in (False, True):
        for nodes in ([[0]], [[0, 1, 2]], [[0, 1], [2, 3]], [[4, 0], [1, 5], [3, 2]]):
            arguments = {"n": 1003, "nodes": nodes, "percent": 1, "hierarchical": hierarchical}
            sizes = "-".join(str(len(node)) for node in nodes)
            name = f"topk-traffic-{'nodes' if hierarchical else 'flat'}-{sizes}"
            yield make(
                name,
                "topk_traffic",
                "T7",
                "values and indices; 1003 elements in uneven slices",
                arguments,
            )
        arguments = {
            "n": 1000,
            "nodes": [[0, 1], [2, 3]],
            "percent": 1,
            "hierarchical": hierarchical,
        }
        name = f"topk-traffic-{'nodes' if hierarchical else 'flat'}-whole-share"
        yield make(name, "topk_traffic", "T7", "1 % of 1000 and of 500 are whole", arguments)


def pairs_traffic_cases() -> Iterator[Case]:
    """Nodes that divide n; at 10 % the pairs outweigh the dense slices of T7."""
    for nodes in ([[0]], [[0, 1, 2]], [[0], [1], [2]], [[0, 1], [2, 3]], [[4, 0, 2], [1, 5, 3]]):
        sizes = "-".join(str(len(node)) for node in nodes)
        for n, percent in ((1002, 1), (1002, 10), (0, 1)):
            arguments = {"n": n, "nodes": nodes, "percent": percent}
            name = f"hitopk-pairs-traffic-{sizes}-n{n}-{percent}"
            why = "pairs are sent in the node too; k is that of a slice"
            yield make(name, "hitopk_pairs_traffic", "T8", why, arguments)
