"""T4 to T6: what is not sent is kept; top-k over all ranks, and over nodes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from refgf.oracle.spec.calls import Outputs, Run, select, steps_of
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, pick, random_source, some_nodes
from refgf.oracle.spec.exercise import Exercise
from refgf.oracle.spec.families import inputs
from refgf.oracle.spec.hierarchy.nodes import Nodes, node_slices
from refgf.oracle.spec.ring import Arrays, slice_bounds
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement
from refgf.oracle.spec.sums import exact_sum
from refgf.oracle.spec.topk.choice import keep_count, often_equal, top_k

# ---- T4: error feedback ----


def sparsify(residual: np.ndarray, g: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """T4: the residual is added to the gradient; what is sent is cleared, the rest is the new
    residual: sent + residual = accumulated, and one of the two is 0.

    Source: error feedback.

    -> (sent, new residual), (n,) each
    """
    accumulated = residual + g
    chosen = top_k(accumulated, k)
    sent = np.zeros_like(g)
    sent[chosen] = accumulated[chosen]
    accumulated[chosen] = 0
    return sent, accumulated


T4 = Statement("T4", sparsify)
T4.given("the residual is dropped", residual=np.zeros_like)


@T4.mistake("sent elements stay in the residual")
def not_cleared(kept, g, k):
    return sparsify(kept, g, k)[0], kept + g


def with_chosen(
    kept: np.ndarray, g: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """T4 with these indices."""
    accumulated, sent = kept + g, np.zeros_like(g)
    sent[chosen] = accumulated[chosen]
    accumulated[chosen] = 0
    return sent, accumulated


@T4.mistake("chosen by the new gradient alone")
def chosen_too_early(kept, g, k):
    return with_chosen(kept, g, top_k(g, k))


# ---- T5: top-k ----


def topk_run(gs: list[Arrays], percent: float) -> list[dict[str, Any]]:
    """T5: top-k: all ranks add up what each rank sent, in rank order from 0 on.

    Source: allgather; the order chosen.

    -> per step {"x": the sum, "kept": the residual of each rank}, p arrays each
    """
    residuals, reports = [np.zeros_like(g) for g in gs[0]], []
    for step in gs:
        k = keep_count(len(step[0]), percent)
        pairs = [sparsify(residual, g, k) for residual, g in zip(residuals, step)]
        total = np.zeros_like(step[0])
        for sent, _ in pairs:
            total = total + sent
        residuals = [residual for _, residual in pairs]
        reports.append({"x": [total.copy() for _ in step], "kept": residuals})
    return reports


def sparse_run(name: str, *arguments: str) -> Run:
    """Steps with error feedback: the sum and the residual per step and rank."""

    def run(module: Any, case: Case) -> Outputs:
        settings = select(case, *arguments).values()
        steps = getattr(module, name)(steps_of(case["in.g"]), *settings)
        return {f"out.{key}": np.array([step[key] for step in steps]) for key in AXES}

    return run


AXES = {key: ("step", "rank", "element") for key in ("x", "kept")}
T5 = Statement("T5", topk_run)
TOPK = JudgedFunction(topk_run, "T4 T5", AXES, "g", sparse_run("topk_run", "percent"))


@TOPK.fresh
def some_steps(d: Draw) -> Given:
    g = often_equal(d, 3, d.p, min(d.n, 200))
    return {"percent": pick(d.rng, 1, 1.1, 10, 25, 50, 100), "g": g}


@TOPK.golden
def topk_cases() -> Cases:
    for percent in (5, 30, 100):
        for p, n in ((1, 20), (3, 53), (5, 3)):
            yield run_case(TOPK, f"topk-p{p}-n{n}-{percent}", p, n, percent=percent)


def run_case(function: JudgedFunction, name: str, p: int, n: int, **given: Any) -> Case:
    """Order-sensitive gradients; at 100 % of whole numbers the dense sum."""
    family = "invariant" if given["percent"] == 100 else "sensitive"
    g = np.stack([inputs(family, p, n, "float32", random_source(name, t)) for t in range(4)])
    own = "T5" if function is TOPK else "T6"
    why = (
        "100 % is the dense sum, for n that p does not divide too"
        if family == "invariant"
        else "what is not sent is kept, 4 steps"
    )
    case = function.case(name, why, f"{own} T4", family, **given, g=g)
    if family == "invariant":
        sums = [np.array_equal(exact_sum(list(gs)), x[0]) for gs, x in zip(g, case["out.x"])]
        case.shows(all(sums), "dense")
        return case.shows(not case["out.kept"].any(), "nothing is kept")
    return case.shows(case["out.kept"].any(), "something is kept")


@T5.mistake("divided by p")
def averaged(gs, percent):
    return [
        {"x": [x / np.float32(len(gs[0])) for x in step["x"]], "kept": step["kept"]}
        for step in topk_run(gs, percent)
    ]


@T5.mistake("all ranks together send k, not each of them")
def shared_k(gs, percent):
    return topk_run(gs, percent / len(gs[0]))


# ---- T6: HiTopKComm ----


def hitopk_run(gs: list[Arrays], nodes: Nodes, percent: float) -> list[dict[str, Any]]:
    """T6: HiTopKComm: the node's sum (slices as in H4), T4 of each slice by its owner (rank s-1,
    mod g, of the node's g ranks owns slice s), with k of the slice's length, then the sum over
    nodes in their order, which all ranks receive.

    Source: Shi et al. 2021 by public code of others; the order of sums, and slices of unequal
    length: chosen.

    Reports as in T5; "kept" is zero outside the owner's slice.
    """
    n, g = len(gs[0][0]), len(nodes[0])
    bounds, reports = slice_bounds(n, g), []
    residuals = [np.zeros_like(x) for x in gs[0]]
    for step in gs:
        total = np.zeros_like(step[0])
        for node in nodes:
            folds = node_slices([step[r] for r in node])
            for j, rank in enumerate(node):
                own, residual = slice(*bounds[(j + 1) % g]), residuals[rank]
                k = keep_count(own.stop - own.start, percent)
                sent, residual[own] = sparsify(residual[own], folds[(j + 1) % g], k)
                total[own] = total[own] + sent
        kept = [residual.copy() for residual in residuals]
        reports.append({"x": [total.copy() for _ in step], "kept": kept})
    return reports


T6 = Statement("T6", hitopk_run)
HITOPK = JudgedFunction(
    hitopk_run, "T4 T6", AXES, "g", sparse_run("hitopk_run", "nodes", "percent")
)


@HITOPK.fresh
def some_steps_on_nodes(d: Draw) -> Given:
    return {"nodes": some_nodes(d.rng, d.p, True), **some_steps(d)}


@HITOPK.golden
def hitopk_cases() -> Cases:
    nodes = {
        "2-2": [[0, 1], [2, 3]],
        "dealt": [[4, 0], [1, 5], [3, 2]],
        "one-node": [[0, 1, 2]],
        "alone": [[0], [1], [2]],
    }
    whole = {"nodes": nodes["2-2"], "percent": 10}  # 3 of each slice of 30
    yield run_case(HITOPK, "hitopk-whole-share", 4, 60, **whole)
    for percent in (5, 30, 100):
        for where, split in nodes.items():
            name, given = f"hitopk-{where}-{percent}", {"nodes": split, "percent": percent}
            yield run_case(HITOPK, name, sum(map(len, split)), 53, **given)


@T6.mistake("k of the whole vector, not of the slice")
def k_of_all(gs, nodes, percent):
    n, g = len(gs[0][0]), len(nodes[0])
    return hitopk_run(gs, nodes, min(100.0, 100.0 * keep_count(n, percent) / max(1, n // g)))


@T6.mistake("every rank chooses before the node's sum")
def chosen_before_the_sum(gs, nodes, percent):
    kept, reports = [np.zeros_like(x) for x in gs[0]], []
    for step in gs:
        pairs = [sparsify(h, g, keep_count(len(g), percent)) for h, g in zip(kept, step)]
        total = np.zeros_like(step[0])
        for node in nodes:
            total = total + np.concatenate(node_slices([pairs[r][0] for r in node]))
        kept = [h for _, h in pairs]
        reports.append({"x": [total.copy() for _ in step], "kept": kept})
    return reports


# ---- exercise: a step ----


def topk_step(
    gradients: Arrays, residuals: Arrays, k: int, sparsified: Callable[..., Any] = sparsify
) -> tuple[np.ndarray, Arrays]:
    """A step of T5. -> (the sum, the residual of each rank)"""
    pairs = [sparsified(h, g, k) for h, g in zip(residuals, gradients)]
    return sum(sent for sent, _ in pairs), [unsent for _, unsent in pairs]


def step_case(
    random: np.random.Generator, n: int, large: list[list[int]], with_residuals: bool
) -> tuple[Any, ...]:
    """A case: rank r sends the elements large[r]. Whole numbers, whose float32 sums are exact.

    Magnitudes are different, of the accumulated gradients and of the gradients. With residuals
    the gradient is smallest where the accumulated gradient is largest.
    """
    gradients, residuals, k = [], [], len(large[0])
    for chosen in large:
        signs, size = random.choice([-1, 1], n), random.permutation(n) + 1
        accumulated = size.copy()
        accumulated[chosen] += 10 * n
        gradient = size + k
        gradient[chosen] = np.arange(k) + 1
        wanted = signs * (2049 + 4 * accumulated)  # not in float16
        g = signs * (2049 + 4 * gradient) if with_residuals else wanted
        gradients.append(g.astype(np.float32))
        residuals.append((wanted - g).astype(np.float32))
    return gradients, residuals, k


def step_cases(with_residuals: bool, *shapes: tuple[Any, ...]) -> Callable[..., Any]:
    return lambda random: [step_case(random, n, large, with_residuals) for n, large in shapes]


APART = [(4, [[1], [2]]), (12, [[1, 4], [0, 11], [5, 6]])]  # no element twice
TOGETHER = [(4, [[1, 2], [2, 3]]), (8, [[0, 2, 5], [2, 5, 7], [1, 4, 5]])]
ONE, EVERYTHING = (5, [[2, 4]]), (4, [list(range(4))] * 2)
STEP_12 = Exercise("12.4", topk_step)
STEP_12.part("the first step: residuals are 0", 2, step_cases(False, *APART))
STEP_12.part("with residuals of earlier steps", 2, step_cases(True, *APART))
STEP_12.part("two ranks send the same element", 1, step_cases(False, *TOGETHER))
STEP_12.part("one rank, k = n", 1, step_cases(True, ONE, EVERYTHING))


@STEP_12.mistake("what you do not send is lost: it is the residual of the next step")
def unsent_is_lost(gradients, residuals, k):
    return topk_step(gradients, residuals, k)[0], [np.zeros_like(g) for g in gradients]


@STEP_12.mistake("you do not add the residual to the gradient: small gradients would never be sent")
def residual_not_added(gradients, residuals, k):
    return topk_step(gradients, [np.zeros_like(h) for h in residuals], k)


@STEP_12.mistake("you do not clear what was sent: it would be sent a second time")
def residual_not_cleared(gradients, residuals, k):
    return topk_step(gradients, residuals, k, not_cleared)


@STEP_12.mistake("you choose by the gradient; wanted the largest of gradient + residual")
def chosen_by_the_gradient(gradients, residuals, k):
    return topk_step(gradients, residuals, k, chosen_too_early)


@STEP_12.mistake(
    "all your ranks send the same elements, the largest of the sum, which no rank knows yet: "
    "each rank chooses its own"
)
def chosen_for_all_ranks(gradients, residuals, k):
    chosen = top_k(sum(h + g for h, g in zip(residuals, gradients)), k)
    return topk_step(gradients, residuals, k, lambda h, g, k: with_chosen(h, g, chosen))


@STEP_12.mistake("you overwrite the sum where two ranks have sent the same element: add (+=)")
def overwrites(gradients, residuals, k):
    sums, unsent = topk_step(gradients, residuals, k)
    for g, h, rest in zip(gradients, residuals, unsent):
        sent = g + h - rest
        sums = np.where(sent != 0, sent, sums)
    return sums, unsent


@STEP_12.mistake(
    "you clear on all ranks what any rank has sent: a rank clears only what it has sent itself"
)
def cleared_on_all_ranks(gradients, residuals, k):
    sums, unsent = topk_step(gradients, residuals, k)
    return sums, [np.where(sums != 0, np.float32(0), rest) for rest in unsent]


@STEP_12.mistake("you return the mean over the ranks; wanted the sum")
def mean_of_ranks(gradients, residuals, k):
    sums, unsent = topk_step(gradients, residuals, k)
    return sums / np.float32(len(gradients)), unsent


@STEP_12.mistake("your arrays are float64: the gradients are float32")
def float64_arrays(gradients, residuals, k):
    sums, unsent = topk_step(gradients, residuals, k)
    return sums.astype(np.float64), [rest.astype(np.float64) for rest in unsent]
