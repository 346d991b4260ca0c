"""What `verify` and `reveal` say of faults that public reports describe."""

import types

import numpy as np
import pytest

from refgf.oracle import definitions
from refgf.oracle.__main__ import main
from refgf.oracle.judge.implementations import PythonModule
from refgf.oracle.judge.report import as_json, as_text
from refgf.oracle.judge.verify import verify
from refgf.oracle.reveal import report
from refgf.oracle.reveal.search import reveal
from refgf.oracle.spec.fresh import LARGE, large_cases
from tests.support import faults
from tests.support.golden import CASES

DIRECT = [c for c in CASES if c.function == "direct_allreduce" and not c.arguments["wire"]]
DIRECT = [c for c in DIRECT if c["in.x"].dtype == np.float32][:12]


def verified(function, cases, profile="bits", name="direct_allreduce"):
    module = PythonModule(types.SimpleNamespace(**{name: function}))
    return verify(cases, module, profile, with_diagnosis=False)


def revealed(function, p=4, n=24, dtype="float32"):
    def box(xs):
        rows = function([x.astype(dtype) for x in xs])
        return [row.astype(np.float64) for row in rows]

    found = list(reveal(box, p, dtype, [n], 2))
    return "\n".join([*report.lines_of(found[0]), *report.closing_lines(found, 2)])


SPECIAL = {
    "right": ["NaN, infinity, overflow, denormal numbers: kept"],
    "saturates": ["an overflow is lost: got 3.402823e+38; wanted inf", "a negative overflow is"],
    "nan_to_zero": ["  NaN is lost: got 0; wanted nan", "infinity - infinity is lost: got 0"],
    "infinity_clipped": ["  infinity is lost: got 3e+38; wanted inf"],
    "denormals_flushed": ["a denormal number is lost: got 0; wanted 5.605194e-45"],
}


@pytest.mark.parametrize("name", SPECIAL)
def test_reveal_names_special_numbers_that_are_lost(name):
    said = revealed(getattr(faults, name))
    assert all(line in said for line in SPECIAL[name]), said
    assert ("kept" in said) == (name == "right")


@pytest.mark.parametrize(("dtype", "most"), [("float16", "65504"), ("float64", "1.797693e+308")])
def test_the_numbers_are_those_of_the_type(dtype, most):
    assert f"an overflow is lost: got {most}; wanted inf" in revealed(faults.saturates, dtype=dtype)
    assert "numbers: kept" in revealed(faults.right, dtype=dtype)


def test_what_is_not_probed_is_named():
    def mean(xs):
        return [total / np.float32(4) for total in faults.right(xs)]

    def exact(xs):
        if not all(np.isfinite(x).all() for x in xs):
            raise ValueError("no such numbers")
        return faults.right(xs)

    said = revealed(mean)
    assert "NaN, infinity: kept; overflow and denormal numbers: not probed" in said
    assert "special numbers: not probed, because no such numbers" in revealed(exact)


def test_a_size_beyond_which_another_algorithm_begins_is_judged():
    cases = list(large_cases(3, lambda case: case.function == "direct_allreduce"))
    assert [case["in.x"].shape[1] > LARGE > 1 << 16 for case in cases] == [True]
    assert len(cases[0]["in.x"][0]) % 3
    for profile in ("bits", "sum"):
        assert verified(definitions.direct_allreduce, cases, profile)[0].status == "pass"
        verdict = verified(faults.offset_wraps, cases, profile)[0]
        assert verdict.failure.where["element"] >= 65536
    text = as_text(verified(faults.right, [*DIRECT, *cases]))
    assert f"sums over ranks were judged up to n = {cases[0]['in.x'].shape[1]}" in text


@pytest.mark.parametrize(
    "name, other",
    [("tree_allreduce", "doubling_allreduce"), ("doubling_allreduce", "ring_allreduce")],
)
def test_an_algorithm_that_changes_with_the_size_is_noticed(name, other):
    right, other = getattr(definitions, name), getattr(definitions, other)
    cases = list(large_cases(3, lambda case: case.function == name))

    def switches(xs, wire=None):
        return (right if xs[0].size < 4096 else other)(xs, wire)

    assert [case["in.x"].shape[1] % 5 > 0 for case in cases] == [True]
    assert verified(right, cases, name=name)[0].status == "pass"
    assert verified(switches, cases, name=name)[0].status == "fail"


@pytest.mark.parametrize("name", ["aliased", "last_aliased", "in_place", "right"])
def test_inputs_that_are_overwritten_are_named_and_change_no_verdict(name):
    verdicts = verified(getattr(faults, name), DIRECT)
    assert {v.status for v in verdicts} == {"pass"}
    spoilt = [v.overwritten for v in verdicts if v.overwritten is not None]
    assert bool(spoilt) == ("aliased" in name)
    assert ("direct_allreduce overwrites the input of rank " in as_text(verdicts)) == bool(spoilt)
    assert as_json(verdicts).count('"overwritten": null') == len(verdicts) - len(spoilt)
    if name == "aliased":
        assert set(spoilt) == {0}


@pytest.mark.parametrize("name", ["big_endian", "generator"])
def test_results_that_are_right_in_another_form(name):
    assert {v.status for v in verified(getattr(faults, name), DIRECT)} == {"pass"}


COMMAND = {  # function: exit code, what is said
    "big_endian": (0, "n = 24: rank order"),
    "aliased": (0, "aliased overwrites the input of rank 0; wanted all inputs as they were, or in"),
    "in_place": (0, "all repeats: the same order, over 2 repeats; a rarer one needs more"),
    "two_types": (1, "results: got the type float64, float16; wanted float32"),
}


@pytest.mark.parametrize("name", COMMAND)
def test_reveal_judges_what_verify_judges(name, capsys):
    code, says = COMMAND[name]
    options = ["--python", faults.__file__, "--function", name, "--sizes", "24"]
    assert main(["reveal", *options]) == code
    said = capsys.readouterr().out
    assert says in said and ("overwrites" in said) == (name == "aliased"), said


def test_one_rank_and_one_repeat(capsys):
    options = ["--python", faults.__file__, "--function", "right", "--sizes", "5"]
    assert main(["reveal", *options, "--ranks", "1"]) == 2
    assert "got 1 rank, which adds nothing; wanted at least 2" in capsys.readouterr().err
    assert main(["reveal", *options, "--repeats", "1"]) == 0
    assert "asked once: whether repeats differ is not known" in capsys.readouterr().out


def test_a_rare_order_needs_more_repeats(capsys):
    options = ["--python", faults.__file__, "--function", "rare", "--sizes", "5", "--ranks", "3"]
    assert main(["reveal", *options, "--repeats", "20"]) == 1
    assert "repeats differ" in capsys.readouterr().out


@pytest.mark.parametrize("p", (4, 5, 7))
@pytest.mark.parametrize("reverse", (False, True))
def test_a_ring_with_other_slice_bounds_has_a_name(p, reverse):
    def box(xs):
        rows = faults.other_bounds(xs[::-1] if reverse else xs)
        return rows

    said = revealed(box, p, 103)
    bounds = ", ".join(str(103 * s // p) for s in range(p))
    wanted = f"a ring{' backwards' * reverse} with other slice bounds: slices begin at {bounds}"
    assert wanted in said, said
