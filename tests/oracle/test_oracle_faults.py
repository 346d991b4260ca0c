"""What `verify` says of faults that public reports describe. `reveal`: tests/approval."""

import types

import numpy as np
import pytest

from refgf.oracle import definitions
from refgf.oracle.__main__ import main
from refgf.oracle.judge.implementations import PythonModule
from refgf.oracle.judge.report import as_json, as_text
from refgf.oracle.judge.verify import verify
from refgf.oracle.spec.fresh import LARGE, large_cases
from tests.support import faults
from tests.support.golden import CASES

DIRECT = [c for c in CASES if c.function == "direct_allreduce" and not c.arguments["wire"]]
DIRECT = [c for c in DIRECT if c["in.x"].dtype == np.float32][:12]


def verified(function, cases, profile="bits", name="direct_allreduce"):
    module = PythonModule(types.SimpleNamespace(**{name: function}))
    return verify(cases, module, profile, with_diagnosis=False)


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
