"""What a failure says: the wrong count by its name, the table around it, a mistake that helps."""

import numpy as np
import pytest

from refgf.oracle.definitions import on_wire, rounded_fold
from refgf.oracle.judge.cases import GOLDEN, save_tensors
from refgf.oracle.judge.comparison import Failure, judge_bits
from refgf.oracle.judge.implementations import Files, PythonModule
from refgf.oracle.judge.phases import OF_A_RANK, phases_of
from refgf.oracle.judge.verify import verify, verify_case
from refgf.oracle.spec.variants import variant
from tests.support.golden import golden_case


def one_off(name, output, index):
    """A case's results with one of them larger by 1."""
    case = golden_case(name)
    got = {key: a.copy() for key, a in case.with_prefix("out").items()}
    got[output][index] += 1
    return str(judge_bits(case, got))


@pytest.mark.parametrize(
    ("name", "output", "index", "place"),
    [
        ("traffic-three-phase-3x3-n100", "out.traffic", (2, 1), "elements of rank 2"),
        ("ring-traffic-n13-p4", "out.traffic", (3, 0), "messages of rank 3"),
        ("topk-traffic-flat-3", "out.traffic", (0, 1), "bytes of rank 0"),
        ("hitopk-pairs-traffic-3-n1002-1", "out.traffic", (1, 1), "bytes of rank 1"),
        ("heat-traffic-p6-nodes2-3-1-2", "out.traffic", (5, 0), "messages of rank 5"),
        ("daso-phases", "out.phases", (0, 1), "L of epoch 0"),
    ],
)
def test_a_wrong_count_has_its_name(name, output, index, place):
    assert one_off(name, output, index).startswith(f"{output} differs in {place}: got ")


def test_a_small_table_is_shown_whole():
    """One number shows that it is wrong, all ranks' numbers which phase is."""
    wanted = golden_case("ring-traffic-n13-p4")["out.traffic"]
    got = wanted + np.eye(4, 2, dtype=np.int64)[::-1]
    said = str(judge_bits(golden_case("ring-traffic-n13-p4"), {"out.traffic": got}))
    assert said.endswith(f"; the whole table: got {got.tolist()}, wanted {wanted.tolist()}")
    large = one_off("chunks-n62378344-chunk32768", "out.bounds", (0, 1))
    assert "in stop of chunk 0: got 32769, wanted 32768" in large and "table" not in large


TRAFFIC = sorted(file.stem for file in GOLDEN.glob("*/*traffic*.json"))


def test_phases_add_up_to_every_golden_count():
    cases = [golden_case(name) for name in TRAFFIC]
    known = [case for case in cases if case.function in OF_A_RANK]
    assert {case.function for case in known} == set(OF_A_RANK) and len(known) > 90
    assert all(phases_of(case) for case in known)


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("ring-traffic-n13-p4", "allgather"),
        ("traffic-three-phase-3x3-n100", "gather to the master"),
        ("traffic-three-phase-3x3-n100", "allgather between nodes"),
        ("topk-traffic-flat-3", "values or the indices"),
        ("hitopk-pairs-traffic-3-n1002-1", "values in the node or the indices in the node"),
    ],
)
def test_a_phase_that_lacks_or_comes_twice_is_named(name, phase):
    case = golden_case(name)
    counts = phases_of(case)[phase.split(" or the ")[0]]
    for sign, what in ((-1, f"without the {phase})"), (1, f"with the {phase} twice)")):
        said = str(judge_bits(case, {"out.traffic": case["out.traffic"] + sign * counts}))
        assert f"; got these {what}" in said


def test_a_difference_that_is_no_phase_shows_what_the_count_consists_of():
    said = one_off("ring-traffic-n13-p4", "out.traffic", (2, 1))
    assert "got 20, wanted 19 (by phase: reduce-scatter 10, allgather 9); the whole" in said


def test_a_case_with_other_phases_is_judged_without_them():
    case = golden_case("ring-traffic-n13-p4")
    case.tensors["out.traffic"] = case["out.traffic"] + 1  # a foreign case, by another algorithm
    said = str(judge_bits(case, {"out.traffic": case["out.traffic"] + 1}))
    assert "differs in messages of rank 0" in said and "phase" not in said


def test_places_of_other_kinds_stay_as_they_were():
    assert str(Failure("x differs", where={"step": 3, "rank": 1})) == "x differs at step 3, rank 1"
    assert str(Failure("x is missing")) == "x is missing"
    odd = {"rank": 1, "messages, elements": 2}  # a foreign case with three columns
    assert str(Failure("x differs", where=odd)) == "x differs at rank 1"


@pytest.mark.parametrize(
    "name",
    [
        "two-level-3x3-n29-wire-float16",
        "three-phase-3x3-n29-wire-float16",
        "csc-lazy-ring",
        "ring-p8-n37-float32-sensitive-wire-float16",
    ],
)
def test_a_rounded_addend_is_not_called_a_sum_in_float16(name):
    def rounds_its_own(terms, wire=None):
        return rounded_fold([on_wire(term, wire) for term in terms], wire)

    wrong = PythonModule(variant(rounded_fold=rounds_its_own))
    (verdict,) = verify([golden_case(name)], wrong)
    assert (
        "a rank rounds its own numbers too before it adds them (violates R3)" in verdict.diagnosis
    )
    assert not any("summed in float16" in sentence for sentence in verdict.diagnosis)


def test_one_rank_cannot_hold_other_bits_than_the_others():
    """Its sum is not rounded: R3. What looks like R4, an owner's, is that only where p > 1."""

    def unrounded(xs, wire=None):
        return xs[:1] if len(xs) == 1 else variant().ring_allreduce(xs, wire)

    wrong = PythonModule(variant(ring_allreduce=unrounded))
    (verdict,) = verify([golden_case("ring-p1-n5-float32-sensitive-wire-float16")], wrong)
    assert verdict.violated == ["R3"], verdict.violated


def test_sums_in_float16_without_a_wire_type_are_named():
    case = golden_case("ring-p8-n19-float32-sensitive")

    def in_float16(xs, wire=None):
        sums = variant().ring_allreduce([on_wire(x, "float16") for x in xs], "float16")
        return [on_wire(x, wire) for x in sums]

    (verdict,) = verify([case], PythonModule(variant(ring_allreduce=in_float16)))
    assert "summed in float16 (violates R2)" in verdict.diagnosis


@pytest.mark.parametrize(
    "name", ["ring-p4-n9-bfloat16-invariant", "ring-p3-n13-bfloat16-sensitive"]
)
def test_states_of_bfloat16_arrays_are_float32(tmp_path, name):
    """SPEC's conventions: computed in float32, the states unrounded, the result bfloat16."""
    case = golden_case(name)
    tensors = {key: case[key] for key in ("out.x", "state.x")}
    save_tensors(tmp_path / f"{name}.safetensors", tensors, ("out.x",))
    assert verify_case(case, Files(tmp_path)).status == "pass"
