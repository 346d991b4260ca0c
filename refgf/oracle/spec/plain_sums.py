"""Golden and fresh cases of ring and direct, the sums of one vector a rank."""

import numpy as np

from refgf.oracle.spec.calls import same_bits
from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.direct import DIRECT, direct_allreduce, direct_in_calls
from refgf.oracle.spec.draw import TYPES, Draw, random_source
from refgf.oracle.spec.families import FAMILY_SAYS, any_vectors, inputs
from refgf.oracle.spec.floats import beyond_float32, nans
from refgf.oracle.spec.precision.wire import on_wire
from refgf.oracle.spec.ring import RING, ring_allreduce, shape_says
from refgf.oracle.spec.ring_steps import ring_states
from refgf.oracle.spec.statement import Cases, JudgedFunction

FUNCTIONS = {"ring": RING, "direct": DIRECT}
OTHER = {"ring": direct_allreduce, "direct": ring_allreduce}
PLAIN_SUMS = (RING.name, DIRECT.name)  # the profiles `sum` and `agreement` apply to these


@RING.fresh
@DIRECT.fresh
def any_type(d: Draw) -> Given:
    dtype, wire = TYPES[d.rng.integers(len(TYPES))]
    return {"wire": wire, "x": any_vectors(d, dtype, wire)}


def plain_case(
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
    short = ("in.x",) if dtype == "bfloat16" else ()
    case = FUNCTIONS[order].case(name, why, statements, family, short, wire=wire, x=x)
    if order == "ring" and n <= 32 and p <= 5:
        case.statements.append("R5")
        case.tensors["state.x"] = np.array(ring_states(list(x), wire))
        if "in.x" in case.bfloat16 and same_bits(
            on_wire(case["state.x"], "bfloat16"), case["state.x"]
        ):
            case.bfloat16 += ("state.x",)
    check_sum(case, order, p, n, family, wire)
    return case


def check_sum(case: Case, order: str, p: int, n: int, family: str, wire: str | None) -> None:
    xs, want = list(case["in.x"]), case["out.x"][0]
    backwards = ring_allreduce(xs[::-1], wire)[0]
    if family == "sensitive" and n >= 8 and p >= 3:
        other = OTHER[order](xs, wire)[0]
        case.shows(not same_bits(want, other), "ring and direct differ")
        case.shows(not same_bits(want, backwards), "the order backwards differs")
    if family in ("invariant", "provenance") and n:
        case.shows(same_bits(want, backwards), "any order gives these bits")
    if family == "special" and n:
        both = np.isnan(want).any() and np.isinf(want).any()
        case.shows(both, "the result has NaN and infinity")
        case.shows((np.signbit(want) & (want == 0)).any(), "the result has -0")
    if family == "denormal" and n:
        half = "float16" in (wire, xs[0].dtype.name)
        tiny = 2.0**-14 if half else float(np.finfo(xs[0].dtype).tiny)
        case.shows((np.abs(want[want != 0]) < tiny).any(), "the result has denormals")
    if order == "direct":
        results = direct_in_calls(xs, sorted({n // 3, n // 2}), wire)
        case.shows(same_bits(results[0], want), "cutting into calls keeps the bits (D3)")


@RING.golden
def ring_cases() -> Cases:
    yield from sums("ring")
    yield from narrow_sums(RING, "ring", "R3 R4")


@DIRECT.golden
def direct_cases() -> Cases:
    yield from sums("direct")
    yield from narrow_sums(DIRECT, "direct", "D2")


def sums(order: str) -> Cases:
    for p in range(1, 10):
        yield plain_case(order, p, 2 * p + 3, "float32", "sensitive")
    yield plain_case(order, 17, 37, "float32", "sensitive")
    yield plain_case(order, 19, 21, "float32", "provenance")
    yield plain_case(order, 12, 5, "float64", "sensitive", "float16")
    for n in (0, 1, 4, 5, 6):
        yield plain_case(order, 5, n, "float32", "sensitive")
    for dtype in ("float16", "bfloat16", "float64"):
        yield plain_case(order, 3, 13, dtype, "sensitive")
        yield plain_case(order, 7, 18, dtype, "sensitive")
        yield plain_case(order, 4, 9, dtype, "invariant")
    for wire in ("float16", "bfloat16"):
        for p, n in ((1, 5), (2, 9), (4, 11), (8, 37)):
            yield plain_case(order, p, n, "float32", "sensitive", wire)
    yield plain_case(order, 4, 11, "float64", "sensitive", "float32")
    yield plain_case(order, 6, 1000, "float32", "sensitive")
    yield plain_case(order, 8, 29, "float32", "invariant")
    yield plain_case(order, 9, 25, "float32", "provenance")
    yield plain_case(order, 5, 17, "float16", "provenance")
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        yield plain_case(order, 3, 40, dtype, "special")
        yield plain_case(order, 4, 21, dtype, "denormal")
    yield plain_case(order, 3, 40, "float32", "special", "float16")


def narrow_sums(function: JudgedFunction, order: str, statements: str) -> Cases:
    """Sums of numbers that are sent as float16 or bfloat16: only rank 0 has other than -0."""
    for wire, numbers, why in (
        ("float16", beyond_float32(), "float64 becomes float16 in one rounding"),
        ("bfloat16", nans(), "a NaN stays a NaN, whatever its payload"),
    ):
        x = np.stack([numbers, *[np.full_like(numbers, -0.0)] * 2])
        name = f"{order}-p3-{numbers.dtype}-narrow-wire-{wire}"
        yield function.case(name, why, statements, "special", wire=wire, x=x)
