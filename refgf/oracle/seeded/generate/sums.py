"""Cases of ring, direct, any order."""

from collections.abc import Iterator

import numpy as np

from refgf.oracle import definitions
from refgf.oracle.definitions import direct_in_calls, ring_allreduce, ring_states, same_bits
from refgf.oracle.seeded.generate.families import inputs, make, random_source, require
from refgf.oracle.seeded.generate.updates import beyond_float32, nans
from refgf.oracle.spec.case import Case

FAMILY_SAYS = {
    "invariant": (
        "sums are exact in any order: a wrong result is a wrong algorithm, not another order"
    ),
    "sensitive": (
        "large numbers cancel beside small ones: only this order of summation gives these bits"
    ),
    "provenance": (
        "rank r contributes 2^r: the result names the ranks that were lost or counted twice"
    ),
    "special": "signed zeros, infinities, NaN and the largest numbers",
    "denormal": "denormal numbers: flushing them to zero shows",
}


def allreduce_case(
    order: str, p: int, n: int, dtype: str, family: str, wire: str | None = None, seed: int = 0
) -> Case:
    """The case of the first of 20 seeds whose numbers prove what the family claims."""
    for attempt in range(seed, seed + 19):
        try:
            return seeded_case(order, p, n, dtype, family, wire, attempt)
        except AssertionError:
            continue
    return seeded_case(order, p, n, dtype, family, wire, seed + 19)


def seeded_case(
    order: str, p: int, n: int, dtype: str, family: str, wire: str | None, seed: int
) -> Case:
    """One case for ring or direct. bfloat16 is its own wire type: that is bfloat16 addition."""
    wire = "bfloat16" if dtype == "bfloat16" else wire
    name = f"{order}-p{p}-n{n}-{dtype}-{family}" + (
        f"-wire-{wire}" if wire and dtype != wire else ""
    )
    x = inputs(family, p, n, dtype, random_source(name, seed), wire)
    statements = {"ring": "R1 R2 R4", "direct": "D1 D3"}[order]
    statements += {"ring": " R3", "direct": " D2"}[order] if wire else ""
    why = f"{FAMILY_SAYS[family]}; {shape_says(p, n)}" + (f"; sent as {wire}" if wire else "")
    short = ["x"] if dtype == "bfloat16" else []
    case = make(name, f"{order}_allreduce", statements, why, {"wire": wire}, family, short, x=x)
    if order == "ring" and n <= 32 and p <= 5:
        case.statements.append("R5")
        case.tensors["state.x"] = np.array(ring_states(list(x), wire))
        if "in.x" in case.bfloat16 and same_bits(
            definitions.on_wire(case["state.x"], "bfloat16"), case["state.x"]
        ):
            case.bfloat16 += ("state.x",)
    check_allreduce(case, order, p, n, family, wire)
    return case


def shape_says(p: int, n: int) -> str:
    if p == 1:
        return "one rank: nothing is sent"
    if n == 0:
        return "no elements: empty messages"
    if n < p:
        return f"n = {n} below p = {p}: some slices are empty"
    return f"n = {n}, p = {p}: " + ("slices of different length" if n % p else "equal slices")


def check_allreduce(case: Case, order: str, p: int, n: int, family: str, wire: str | None) -> None:
    xs, want = list(case["in.x"]), case["out.x"][0]
    backwards = ring_allreduce(xs[::-1], wire)[0]
    if family == "sensitive" and n >= 8 and p >= 3:
        other = "direct_allreduce" if order == "ring" else "ring_allreduce"
        require(
            not same_bits(want, getattr(definitions, other)(xs, wire)[0]),
            case,
            "ring and direct differ",
        )
        require(not same_bits(want, backwards), case, "the order backwards differs")
    if family in ("invariant", "provenance") and n:
        require(same_bits(want, backwards), case, "any order gives these bits")
    if family == "special" and n:
        require(
            np.isnan(want).any() and np.isinf(want).any(), case, "the result has NaN and infinity"
        )
        require((np.signbit(want) & (want == 0)).any(), case, "the result has -0")
    if family == "denormal" and n:
        tiny = (
            2.0**-14 if "float16" in (wire, xs[0].dtype.name) else float(np.finfo(xs[0].dtype).tiny)
        )
        require((np.abs(want[want != 0]) < tiny).any(), case, "the result has denormals")
    if order == "direct":
        results = direct_in_calls(xs, sorted({n // 3, n // 2}), wire)
        require(same_bits(results[0], want), case, "cutting into calls keeps the bits (D3)")


def allreduce_cases() -> Iterator[Case]:
    for order in ("ring", "direct"):
        for p in range(1, 10):
            yield allreduce_case(order, p, 2 * p + 3, "float32", "sensitive")
        yield allreduce_case(order, 17, 37, "float32", "sensitive")
        yield allreduce_case(order, 19, 21, "float32", "provenance")
        yield allreduce_case(order, 12, 5, "float64", "sensitive", "float16")
        for n in (0, 1, 4, 5, 6):
            yield allreduce_case(order, 5, n, "float32", "sensitive")
        for dtype in ("float16", "bfloat16", "float64"):
            yield allreduce_case(order, 3, 13, dtype, "sensitive")
            yield allreduce_case(order, 7, 18, dtype, "sensitive")
            yield allreduce_case(order, 4, 9, dtype, "invariant")
        for wire in ("float16", "bfloat16"):
            for p, n in ((1, 5), (2, 9), (4, 11), (8, 37)):
                yield allreduce_case(order, p, n, "float32", "sensitive", wire)
        yield allreduce_case(order, 4, 11, "float64", "sensitive", "float32")
        yield allreduce_case(order, 6, 1000, "float32", "sensitive")
        yield allreduce_case(order, 8, 29, "float32", "invariant")
        yield allreduce_case(order, 9, 25, "float32", "provenance")
        yield allreduce_case(order, 5, 17, "float16", "provenance")
        for dtype in ("float16", "bfloat16", "float32", "float64"):
            yield allreduce_case(order, 3, 40, dtype, "special")
            yield allreduce_case(order, 4, 21, dtype, "denormal")
        yield allreduce_case(order, 3, 40, "float32", "special", "float16")


def narrow_cases() -> Iterator[Case]:
    """Sums of numbers that are sent as float16 or bfloat16: only rank 0 has other than -0."""
    for order, statements in (("ring", "R3 R4"), ("direct", "D2")):
        for wire, numbers, why in (
            ("float16", beyond_float32(), "float64 becomes float16 in one rounding"),
            ("bfloat16", nans(), "a NaN stays a NaN, whatever its payload"),
        ):
            x = np.stack([numbers, *[np.full_like(numbers, -0.0)] * 2])
            name = f"{order}-p3-{numbers.dtype}-narrow-wire-{wire}"
            settings = {"wire": wire}
            yield make(name, f"{order}_allreduce", statements, why, settings, "special", x=x)


def plan_cases() -> Iterator[Case]:
    """Slices and traffic: numbers only."""
    for n, p in ((0, 3), (2, 5), (7, 7), (13, 4), (62378344, 512)):
        yield make(f"slices-n{n}-p{p}", "slice_bounds", "R1", shape_says(p, n), {"n": n, "p": p})
    for n, p in ((5, 1), (0, 4), (3, 5), (13, 4), (1000, 9)):
        for order, statement in (("ring", "R6"), ("direct", "D4")):
            why = f"messages and elements that each rank sends; {shape_says(p, n)}"
            name = f"{order}-traffic-n{n}-p{p}"
            yield make(name, f"{order}_traffic", statement, why, {"n": n, "p": p})


def agreement_cases() -> Iterator[Case]:
    x = np.array([[1.5, np.nan, -0.0], [1.5, np.nan, -0.0], [1.5, np.nan, -0.0]], np.float32)
    x[1].view(np.uint32)[1] ^= 1  # another payload
    yield make(
        "agree-nan-payload",
        "agree",
        "R4",
        "NaNs agree whatever their payload",
        family="special",
        x=x,
    )
    x = x.copy()
    x[2, 2] = 0.0
    yield make("agree-zero-sign", "agree", "R4", "+0 and -0 do not agree", family="special", x=x)


def exact_cases() -> Iterator[Case]:
    for family, p, dtype in (
        ("sensitive", 9, "float64"),
        ("special", 4, "float64"),
        ("sensitive", 5, "float16"),
    ):
        name = f"exact-sum-p{p}-{dtype}-{family}"
        x = inputs(family, p, 24, dtype, random_source(name))
        why = f"summed exactly, rounded once: {FAMILY_SAYS[family]}"
        case = make(name, "exact_sum", "S1", why, family=family, x=x)
        if family == "sensitive" and dtype == "float64":
            require(
                not same_bits(case["out.sum"], x.sum(axis=0)), case, "summing in float64 differs"
            )
        yield case
    for wire in (None, "float16", "bfloat16"):
        x = inputs("sensitive", 4, 24, "float32", random_source("bound"), "float16")
        x[:, 0] = 3e38
        why = (
            "how far any order may end from the exact sum; element 0 overflows, so nothing "
            "is promised there"
        )
        case = make(f"bound-wire-{wire}", "summation_bound", "S2", why, {"wire": wire}, x=x)
        open_ended = np.isinf(case["out.bound"])
        require(open_ended[0] and not open_ended[1:].any(), case, "only element 0 is open")
        case.tensors["bound.bound"] = np.nan_to_num(case["out.bound"] * 2.0**-40, posinf=0.0)
        yield case


def cases() -> Iterator[Case]:
    for group in (
        allreduce_cases,
        narrow_cases,
        plan_cases,
        agreement_cases,
        exact_cases,
    ):
        yield from group()
