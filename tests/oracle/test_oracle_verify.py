"""`verify`: what is right and wrong in each profile, and where the first failure is."""

import types

import numpy as np
import pytest

from refgf.oracle import definitions
from refgf.oracle.definitions import same_bits
from refgf.oracle.judge.comparison import judge_bits, ulps
from refgf.oracle.judge.implementations import PythonModule
from refgf.oracle.judge.orders import NAMED, ORDERS
from refgf.oracle.judge.profiles import in_order, judge
from refgf.oracle.judge.verify import verify, verify_case
from refgf.oracle.spec.csc.choice import ties_to_higher
from refgf.oracle.spec.statement import FUNCTIONS
from refgf.oracle.spec.variants import variant
from tests.support.golden import CASES, golden_case

RINGS = [case for case in CASES if case.function == "ring_allreduce"]


def module(**functions):
    return PythonModule(types.SimpleNamespace(**functions))


@pytest.mark.parametrize("profile", ["sum", "agreement"])
def test_the_definitions_pass_every_profile(profile):
    """The profile `bits`, for all cases: tests/approval."""
    verdicts = verify(RINGS, PythonModule(definitions), profile)
    assert [str(v.failure) for v in verdicts if v.status != "pass"] == []


@pytest.mark.parametrize(
    ("of_nan", "right"), [(0x7FC0, True), (0xFF81, True), (0x7F80, False), (0, False)]
)
def test_bits_of_a_nan_are_those_of_any_nan(of_nan, right):
    def bfloat16_bits(x):
        return np.where(np.isnan(x), of_nan, definitions.bfloat16_bits(x)).astype(np.uint16)

    verdict = verify_case(golden_case("bfloat16-bits"), module(bfloat16_bits=bfloat16_bits))
    assert (verdict.status == "pass") == right, verdict.failure


def test_the_first_wrong_step_rank_and_element_is_told():
    case = golden_case("ring-p3-n9-float32-sensitive")
    outputs = {
        name: a.copy() for name, a in FUNCTIONS[case.function].run(definitions, case).items()
    }
    outputs["state.x"][2, 1, 4] = 7.25
    outputs["out.x"][0, 0] = 7.0
    failure = judge_bits(case, outputs)
    assert (failure.output, failure.where) == ("state.x", {"step": 2, "rank": 1, "element": 4})
    del outputs["state.x"]
    failure = judge_bits(case, outputs)
    assert failure.where == {"rank": 0, "element": 0} and failure.got == "7.0"


def test_the_chunk_is_told_and_the_earliest_step_counts():
    case = golden_case("csc-dgc")
    outputs = {
        name: a.copy() for name, a in FUNCTIONS[case.function].run(definitions, case).items()
    }
    outputs["out.w"][7, 0, 3] = 99.0
    outputs["out.v"][4, 2, 50] = 99.0
    assert judge_bits(case, outputs).where == {"step": 4, "rank": 2, "element": 50, "chunk": 6}


@pytest.mark.parametrize(
    ("kind", "a", "b", "distance"),
    [
        ("float32", 1.0, 1.0 + 2**-23, 1),
        ("float16", 1.0, 1.0 + 2**-10, 1),
        ("bfloat16", 1.0, 1.0 + 2**-7, 1),
        ("float64", 0.0, -0.0, 0),
        ("float32", 2.0**-149, -(2.0**-149), 2),
        ("float32", np.inf, 3.4028234663852886e38, 1),
    ],
)
def test_distance_in_ulp(kind, a, b, distance):
    values = np.array([a, b], np.float32 if kind == "bfloat16" else kind)
    assert ulps(values[0], values[1], kind) == distance


def test_the_sign_of_zero_counts_and_the_payload_of_nan_does_not():
    case = golden_case("ring-p3-n40-float32-special")
    outputs = FUNCTIONS[case.function].run(definitions, case)
    nan = np.isnan(outputs["out.x"])
    outputs["out.x"].view(np.uint32)[nan] ^= 1
    assert judge_bits(case, outputs) is None
    outputs["out.x"][outputs["out.x"] == 0] *= -1
    assert judge_bits(case, outputs) is not None


def test_shape_type_and_missing_results_are_told():
    case = golden_case("ring-p3-n9-float32-sensitive")
    right = FUNCTIONS[case.function].run(definitions, case)["out.x"]
    for outputs in (
        {},
        {"out.x": right[:, :-1]},
        {"out.x": right.astype(np.float64)},
        {"out.x": right[0]},
    ):
        assert judge_bits(case, outputs) is not None


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_every_order_is_a_sum_and_only_the_ring_is_the_ring(order):
    """Profiles differ: `sum` accepts any order, `bits` one."""

    def allreduce(xs, wire=None):
        total = ORDERS[order](xs, lambda a, b: a + b)
        return [total.copy() for _ in xs]

    cases = [case for case in RINGS if case.arguments["wire"] is None]
    with np.errstate(all="ignore"):
        for profile in ("sum", "agreement"):
            assert all(
                v.status == "pass"
                for v in verify(cases, module(ring_allreduce=allreduce), profile, False)
            )
        failed = [
            v.case
            for v in verify(cases, module(ring_allreduce=allreduce), "bits", False)
            if v.status == "fail"
        ]
    assert bool(failed) == (order != "ring")
    assert all(case.family not in ("invariant", "provenance") for case in failed)


@pytest.mark.parametrize("order", sorted(NAMED))
def test_a_named_order_is_judged_by_its_bits(order):
    """An implementation with the order of a tree is right as a tree and wrong as a ring."""
    given = module(allreduce=lambda xs, wire=None: [NAMED[order](xs, np.add) for _ in xs])
    for other in sorted(NAMED):
        cases = [case for case in (in_order(case, other) for case in CASES) if case]
        failed = [v.case for v in verify(cases, given, with_diagnosis=False) if v.status == "fail"]
        told = any(case.name.startswith("ring-p9-n21-float32-sensitive") for case in failed)
        assert bool(failed) == told == (order != other)
        assert not any(case.family == "invariant" for case in failed)
    assert verify_case(golden_case("ring-p9-n21-float32-sensitive"), given, "sum").status == "pass"


def test_a_sum_that_is_not_one_fails_the_profile_sum():
    def float16_sum(xs, wire=None):
        return definitions.ring_allreduce(
            [x.astype(np.float16).astype(x.dtype) for x in xs], "float16"
        )

    def different(xs, wire=None):
        return [x * 0 + r for r, x in enumerate(definitions.ring_allreduce(xs, wire))]

    case = golden_case("ring-p8-n29-float32-invariant")
    case.tensors["in.x"] = case["in.x"] + np.float32(2**-12)
    assert verify_case(case, module(ring_allreduce=float16_sum), "sum").status == "fail"
    assert verify_case(case, module(ring_allreduce=float16_sum), "agreement").status == "pass"
    assert verify_case(case, module(ring_allreduce=different), "agreement").status == "fail"


def test_where_norms_are_inexact_other_lists_are_accepted():
    """Two chunks whose importance differs by less than rounding may change places."""
    case = golden_case("csc-values")
    right = FUNCTIONS["csc_run"].run(definitions, case)
    assert judge(case, right) is None
    swapped = {name: a.copy() for name, a in right.items()}
    swapped["out.chosen"][3] = swapped["out.chosen"][3][:, ::-1]
    assert "not the most important" in str(judge(case, swapped))
    swapped["out.chosen"][3, 1] = 0
    assert "differs from rank 0" in str(judge(case, swapped))


def test_a_tie_may_go_either_way_only_where_norms_are_inexact():
    case = golden_case("csc-values")
    g = case["in.g"].copy()
    for chunk in range(1, 6):
        g[:, :, 8 * chunk : 8 * chunk + 8] = g[:, :, :8]
    case.tensors["in.g"] = g
    case.tensors.update(FUNCTIONS["csc_run"].run(definitions, case))
    higher = PythonModule(variant(choose=ties_to_higher))
    assert verify_case(case, higher).status == "pass"
    assert not same_bits(higher.run(case).outputs["out.chosen"], case["out.chosen"])
    case.arguments["exact_norms"] = True
    assert verify_case(case, higher).status == "fail"


def test_an_exception_is_a_failure_with_its_text():
    def broken(xs, wire=None):
        raise RuntimeError("no such rank")

    verdict = verify_case(RINGS[0], module(ring_allreduce=broken))
    assert verdict.status == "fail" and "RuntimeError: no such rank" in str(verdict.failure)


def test_functions_get_copies():
    def in_place(xs, wire=None):
        results = definitions.ring_allreduce(xs, wire)
        for x in xs:
            x[...] = 0
        return results

    for _ in range(2):
        assert verify_case(RINGS[3], module(ring_allreduce=in_place)).status == "pass"


def test_a_wrong_trace_is_a_failure():
    def ring_trace(n, p):
        return [
            {
                "rank": 0,
                "step": 0,
                "operation": "send",
                "peer": 1,
                "offset": 0,
                "count": 1,
                "dtype": "float32",
            }
        ]

    given = module(ring_allreduce=definitions.ring_allreduce, ring_trace=ring_trace)
    assert "receives none" in str(
        verify_case(golden_case("ring-p3-n9-float32-sensitive"), given).failure
    )


def test_a_function_of_one_rank_is_judged_on_threads():
    """allreduce(comm, x): the ring passes, a wrong one and a deadlock fail."""
    from refgf.oracle.spec.ring_steps import one_phase, ring

    def allreduce(comm, x):
        ring(comm, x)

    def blocked(comm, x):
        comm.Recv(x, (comm.Get_rank() + 1) % comm.Get_size())

    def first_phase(comm, x):
        one_phase(comm, x)

    case = golden_case("ring-p3-n9-float32-sensitive")
    assert verify_case(case, module(allreduce=allreduce)).status == "pass"
    assert verify_case(case, module(allreduce=first_phase)).status == "fail"
    assert "deadlock" in str(verify_case(case, module(allreduce=blocked)).failure)
