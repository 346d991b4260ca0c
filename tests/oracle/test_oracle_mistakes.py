"""A golden case of its statement catches every seeded mistake; the diagnosis names it.

Mistakes with the same bits are named together. What a mistake, or the definitions, give in a case
is computed once: many diagnoses compare with it.
"""

from functools import cache

import numpy as np
import pytest

from refgf.oracle import definitions
from refgf.oracle.judge import diagnosis
from refgf.oracle.judge.diagnosis import diagnose, orders_of, with_mistake
from refgf.oracle.judge.implementations import PythonModule
from refgf.oracle.judge.profiles import judge
from refgf.oracle.judge.verify import verify, verify_case
from refgf.oracle.spec.statement import FUNCTIONS, MISTAKES
from refgf.oracle.spec.variants import ROOTS, called, uses, variant
from tests.support.golden import CASES

BY_NAME = {case.name: case for case in CASES}


@pytest.fixture(autouse=True)
def shared_results(monkeypatch):
    for name in ("with_mistake", "_truth"):
        monkeypatch.setattr(diagnosis, name, shared(getattr(diagnosis, name)))


@cache
def shared(function):
    by_name = cache(lambda name, *mistake: function(BY_NAME[name], *mistake))
    return lambda case, *mistake: by_name(case.name, *mistake)


def caught_by(mistake):
    """The first case of the mistake's statement with a wrong result; fast cases first."""
    cases = [
        case
        for case in CASES
        if mistake.statement in case.statements and mistake.reaches(case.function)
    ]
    for case in sorted(cases, key=lambda case: case.function == "alexnet_step"):
        verdict = verify_case(case, PythonModule(mistake.module()))
        if verdict.status == "fail" and verdict.outputs is not None:
            return case, verdict
    return None, None


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{m.statement} {m.name}")
def test_a_mistake_is_caught_and_diagnosed(mistake):
    with np.errstate(all="ignore"):
        case, verdict = caught_by(mistake)
        assert verdict is not None, "no golden case of its statement notices it"
        told = diagnose(case, verdict.outputs)
    same_bits_as = [name for name in told if judge(case, verdict.outputs) is not None]
    assert f"{mistake.name} (violates {mistake.statement})" in same_bits_as


CASTS = ["on_wire", "ring_allreduce", "direct_allreduce"]
LARS = ["lars_ratio", "lars_step", "scaled_lars_run", "csc_run"]
IN_EACH = {  # an implementation may have any one of these functions
    "rounded down, and one more: too many where the product is whole (violates C5)": [
        *("choose", "csc_run"),
    ],
    "rounded down, and one more: too many where the product is whole (violates T1)": [
        *("keep_count", "topk_run", "hitopk_run", "topk_traffic"),
    ],
    "percent is divided by 100 first: 28 % of 25 chunks is 8 (violates C5)": ["choose", "csc_run"],
    "float64 becomes float16 by way of float32: rounded twice (violates P1)": CASTS,
    "the upper bits of a NaN alone: some become infinite (violates P2)": CASTS,
    "a NaN is rounded like a number: some become infinite or zero (violates P2)": CASTS,
    "the ratio is clipped at 1 (violates M4)": LARS,
    "norms are summed in float32 (violates M4)": LARS,
    "norms are summed in float32 (violates C4)": ["importance", "csc_run"],
    "squares are summed in float32 (violates M8)": ["lars_partial_squares"],
}


@pytest.mark.parametrize(
    ("name", "function"), [(name, f) for name, functions in IN_EACH.items() for f in functions]
)
def test_a_mistake_is_caught_and_named_in_each_function(name, function):
    wrong = next(m for m in MISTAKES if f"{m.name} (violates {m.statement})" == name)
    cases = [case for case in CASES if case.function == function]
    with np.errstate(all="ignore"):
        verdicts = verify(cases, PythonModule(wrong.module()))
    failed = [v for v in verdicts if v.status == "fail"]
    assert any(name in v.diagnosis for v in failed), [v.case.name for v in failed]


def test_the_definitions_look_like_no_mistake():
    """No false alarm in the diagnosis itself: a right result is diagnosed as nothing."""
    for name in (
        "ring-p3-n9-float32-sensitive",
        "csc-dgc",
        "momentum-float32",
        "lazy-calls-theta-64",
    ):
        case = next(case for case in CASES if case.name == name)
        assert [
            told
            for told in diagnose(case, FUNCTIONS[case.function].run(definitions, case))
            if "violates" in told
        ] == []


def test_the_order_of_a_wrong_result_is_named():
    case = next(case for case in CASES if case.name == "ring-p5-n13-float32-sensitive")
    got = {"out.x": np.stack(definitions.direct_allreduce(list(case["in.x"])))}
    assert orders_of(case, got) == ["these orders: rank order, sums in float32"]


def test_provenance_names_the_ranks():
    case = next(case for case in CASES if case.name == "ring-p9-n25-float32-provenance")
    got = {"out.x": case["out.x"].copy()}
    got["out.x"][2, 7] -= 2**3 + 2**5
    got["out.x"][1, 9] += 2**4
    told = diagnose(case, got)
    assert "rank 3, 5 lost (first at rank 2, element 7)" in told
    assert "rank 4 counted twice (first at rank 1, element 9)" in told


def test_a_replacement_reaches_everything_that_uses_it():
    """A variant of `choose` changes csc_run, and the definitions themselves stay as they are."""
    case = next(case for case in CASES if case.name == "csc-dgc")
    wrong = variant(choose=lambda values, percent: [0])
    assert set(np.flatnonzero(FUNCTIONS["csc_run"].run(wrong, case)["out.chosen"][5, 0])) == {0}
    assert judge(case, FUNCTIONS["csc_run"].run(definitions, case)) is None
    assert "choose" in uses("csc_run") and "choose" not in uses("ring_allreduce")
    assert "direct_fold" in uses("scaled_allreduce"), "a default argument is a use, too"


def test_names_of_definitions_are_unique():
    """`variant` is asked for them by name."""
    every = {function for root in ROOTS for function in called(root)}
    assert len({function.__name__ for function in every}) == len(every)


def test_a_mistake_that_cannot_run_a_case_is_no_diagnosis():
    case = next(case for case in CASES if case.name == "csc-dgc")
    mistake = next(m for m in MISTAKES if m.replaces == "chunk_bounds")
    broken = type(mistake)("x", "C1", "chunk_bounds", lambda n, chunk: [][0])
    assert with_mistake(case, broken) is None
