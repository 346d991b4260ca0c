"""What `verify` concludes: statements judged and violated, cases not run, the first failure."""

import json

import numpy as np
import pytest

from refgf.oracle import definitions
from refgf.oracle.__main__ import main
from refgf.oracle.judge.cases import save_tensors
from refgf.oracle.judge.comparison import judge_bits
from refgf.oracle.judge.implementations import PythonModule
from refgf.oracle.judge.profiles import judge
from refgf.oracle.judge.verify import by_statement, diagnose_some, fewest, outcome, verify
from refgf.oracle.spec.csc.choice import ties_to_higher
from refgf.oracle.spec.csc.residual import not_cleared
from refgf.oracle.spec.csc.step import rest_stays_local_per_rank
from refgf.oracle.spec.lazy.calls import fires_at_theta
from refgf.oracle.spec.lazy.sums import rest_stays_local
from refgf.oracle.spec.statement import FUNCTIONS
from refgf.oracle.spec.variants import variant
from tests.support.golden import CASES, golden_case

RINGS = [case for case in CASES if case.function == "ring_allreduce"]
PLAIN = "from refgf.oracle.definitions import *\n"


def module(**functions):
    return PythonModule(type("Mine", (), {name: staticmethod(f) for name, f in functions.items()}))


def verdicts_of(function, profile="bits", cases=RINGS):
    return verify(cases, PythonModule(function), profile)


@pytest.mark.parametrize(("profile", "judged"), [("sum", {"S2"}), ("agreement", {"R4"})])
def test_a_profile_passes_only_what_it_judges(profile, judged):
    assert set(by_statement(verify(RINGS, PythonModule(definitions), profile))) == judged


def test_a_wrong_order_violates_the_order_and_not_the_agreement():
    ranks_in_order = variant(
        ring_allreduce=lambda xs, wire=None: definitions.direct_allreduce(xs, wire)
    )
    counts = by_statement(verify(RINGS, PythonModule(ranks_in_order)))
    assert counts["R2"]["fail"] and not counts["R4"]["fail"] and not counts["R1"]["fail"]
    assert counts["R4"]["open"] and counts["R4"]["pass"]


def test_a_wrong_order_is_named_where_the_wire_is_ignored_too():
    """The first case that fails has a wire, and no known mistake explains it."""

    def summed(xs, wire=None):
        total = sum(xs[1:], start=xs[0])
        return [total.copy() for _ in xs]

    failed = [v for v in verify(RINGS, module(ring_allreduce=summed)) if v.status == "fail"]
    named = [v.case.name for v in failed if "summed in rank order (violates R2)" in v.diagnosis]
    assert "wire" in failed[0].case.name and len(named) > 15, named


def longer_last(n, p):
    """Slices with the remainder at the end."""
    stops = [s * (n // p) + max(0, s - (p - n % p)) for s in range(p + 1)]
    return list(zip(stops, stops[1:]))


def test_other_slices_violate_r1_and_no_order():
    """In the command, which diagnoses some cases, as in the plugin, which diagnoses each alone."""
    wrong = variant(slice_bounds=longer_last)
    verdicts = verify(RINGS, module(ring_allreduce=wrong.ring_allreduce))
    counts = by_statement(verdicts)
    assert {s for s, count in counts.items() if count["fail"]} == {"R1"}
    assert outcome(counts["R2"]) == "open", "a statement of a failing case has not passed"
    failed = [v for v in verdicts if v.failure]
    assert failed and all(v.violated == ["R1"] for v in failed)
    diagnose_some(failed[:1])
    assert failed[0].violated == ["R1"]


def test_a_slice_that_is_not_summed_violates_r1_and_no_rounding():
    """A case for rounding, which lacks R1, fails too: its last element is not communicated."""

    def lost(xs, wire=None):
        right, n = definitions.ring_allreduce(xs, wire), len(xs[0])
        whole = n - n % len(xs)  # slices of n // p elements: the remainder keeps rank 0's numbers
        return [np.concatenate([row[:whole], xs[0][whole:]]) for row in right]

    verdicts = verify(RINGS, module(ring_allreduce=lost))
    failed = [v.case.name for v in verdicts if v.status == "fail"]
    assert "ring-p3-float64-narrow-wire-float16" in failed, "else this tests nothing"
    states = {s: outcome(count) for s, count in by_statement(verdicts).items()}
    assert states["R1"] == "fail" and states["R3"] == "open"
    rounds = "ring-p3-float64-narrow-wire-float16"
    assert next(v for v in verdicts if v.case.name == rounds).violated == ["R1"]


def test_the_fewest_statements_explain_all_failures():
    """One slice of one element is like a ring from another rank: other cases decide."""
    assert fewest([{"R1", "R2"}, {"R1"}, {"R1", "R3"}]) == {"R1"}
    assert fewest([{"R1", "R2"}, {"R3"}]) == {"R1", "R2", "R3"}


def test_ranks_that_differ_violate_the_agreement():
    def differ(xs, wire=None):
        results = definitions.ring_allreduce(xs, wire)
        return [x + np.asarray(r, x.dtype) for r, x in enumerate(results)]

    counts = by_statement(verify(RINGS, PythonModule(variant(ring_allreduce=differ))))
    assert counts["R4"]["fail"]


def test_undiagnosed_failures_leave_all_statements_in_question(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        PLAIN + "def lazy_calls(sizes, itemsize, theta_bytes):\n    return [(0, 1), (7, 3)]\n"
    )
    arguments = ["verify", "--python", str(tmp_path / "mine.py"), "--only", "lazy_calls"]
    assert main([*arguments, "--json", str(tmp_path / "j.json")]) == 1
    told = json.loads((tmp_path / "j.json").read_text())
    counts = told["statements"]
    assert counts["L2"]["fail"] and not counts["L1"]["pass"] and not counts["L2"]["pass"]
    assert "violates one of L1, L2" in capsys.readouterr().out


@pytest.mark.long
def test_an_undiagnosed_failure_is_put_to_what_others_show():
    """Not cleared, and another mistake in skipped steps: nothing known looks like both."""

    def slip(w, gs, s, percents):
        reports = variant(next_residual=not_cleared).csc_run(w, gs, s, percents)
        return [
            report if report["finite"] else {**report, "w": [x + 1 for x in report["w"]]}
            for report in reports
        ]

    counts = by_statement(
        verify([c for c in CASES if c.function == "csc_run"], module(csc_run=slip))
    )
    assert counts["C3"]["fail"] and {s for s, count in counts.items() if count["fail"]} <= {
        "C3",
        "C7",
    }


def test_the_states_alone_may_be_wrong():
    case = golden_case("ring-p3-n9-float32-sensitive")
    outputs = {
        name: a.copy() for name, a in FUNCTIONS[case.function].run(definitions, case).items()
    }
    outputs["state.x"][1:] = outputs["state.x"][:-1].copy()
    outputs["state.x"][0] = case["in.x"]
    assert "the result is right" in str(judge_bits(case, outputs))
    verdict = verify([case], module(ring_allreduce=definitions.ring_allreduce))[0]
    verdict.status, verdict.outputs, verdict.failure = "fail", outputs, judge_bits(case, outputs)
    diagnose_some([verdict])
    assert verdict.violated == ["R5"] and "states one late" in verdict.diagnosis[0]


def test_states_do_not_hide_a_diagnosis():
    """The function is wrong in a known way; its optional states are right or wrong otherwise."""
    case = golden_case("ring-p3-n9-float32-sensitive")
    wrong = variant(ring_allreduce=lambda xs, wire=None: definitions.direct_allreduce(xs, wire))
    for states in (
        definitions.ring_states,
        lambda xs, wire=None: definitions.ring_states(xs[::-1], wire),
    ):
        given = module(ring_allreduce=wrong.ring_allreduce, ring_states=states)
        assert "summed in rank order (violates R2)" in verify([case], given)[0].diagnosis


def test_another_order_is_not_a_list_of_mistakes(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(PLAIN)
    assert main(["verify", "--python", str(tmp_path / "mine.py"), "--order", "tree"]) == 1
    said = capsys.readouterr().out
    assert (
        "looks like" in said
        and "(violates" not in said
        and "violates one of" not in said
        and "violates H1" in said
    )


def test_the_first_wrong_step_counts_where_norms_are_inexact():
    case = next(case for case in CASES if case.name == "csc-dgc-decay")
    got = FUNCTIONS["csc_run"].run(variant(next_residual=not_cleared), case)
    assert judge(case, got).where["step"] == 0
    verdict = verify([case], PythonModule(variant(next_residual=not_cleared)))[0]
    assert verdict.violated == ["C3"]


def test_a_cause_is_told_before_its_consequence():
    case = next(case for case in CASES if case.name == "csc-dgc")
    got = FUNCTIONS["csc_run"].run(variant(choose=ties_to_higher), case)
    assert judge(case, got).output == "out.chosen"


def test_what_was_not_run_is_counted(tmp_path, capsys):
    case = golden_case("ring-p3-n9-float32-sensitive")
    save_tensors(tmp_path / f"{case.name}.safetensors", case.with_prefix("out"))
    assert main(["verify", "--files", str(tmp_path), "--json", str(tmp_path / "j.json")]) == 0
    said = capsys.readouterr().out
    assert f"not judged: {len(RINGS) - 1} of {len(RINGS)} cases of ring_allreduce" in said
    assert f"1 cases passed, 0 failed, {len(CASES) - 1} not judged" in said
    assert (
        json.loads((tmp_path / "j.json").read_text())["not_judged"]["ring_allreduce"]
        == len(RINGS) - 1
    )


def test_functions_that_are_not_there_are_one_line(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("from refgf.oracle.definitions import ring_allreduce\n")
    assert main(["verify", "--python", str(tmp_path / "mine.py"), "--random", "0"]) == 0
    lines = [s for s in capsys.readouterr().out.splitlines() if s.startswith("not provided")]
    assert len(lines) == 1
    assert "functions (accumulated, " in lines[0] and "list them: --html" in lines[0]


@pytest.mark.parametrize(("more", "said"), [((), True), (("--order", "direct"), False)])
def test_an_allreduce_without_an_order_in_its_name_is_told(more, said, tmp_path, capsys):
    text = "from refgf.oracle.definitions import direct_allreduce as allreduce\n"
    (tmp_path / "mine.py").write_text(text)
    main(["verify", "--python", str(tmp_path / "mine.py"), "--only", "*-p3-*", *more])
    out = capsys.readouterr().out
    hint = "\n".join(out.splitlines()[-2:])
    assert ("judged as direct_allreduce (" in hint and " and as ring_allreduce (" in hint) == said
    assert ("next: --order direct for one order" in hint) == said, "the order that passes most"


def test_a_misspelt_result_is_refused(tmp_path, capsys):
    case = golden_case("ring-p3-n9-float32-sensitive")
    save_tensors(tmp_path / f"{case.name}.safetensors", case.with_prefix("out"))
    save_tensors(tmp_path / "ring-p3-n9-flaot32-sensitive.safetensors", case.with_prefix("out"))
    assert main(["verify", "--files", str(tmp_path)]) == 2
    assert "did you mean ring-p3-n9-float32-sensitive.safetensors?" in capsys.readouterr().err


def test_a_sparse_run_that_fires_at_theta_is_caught():
    """Not by lazy_calls, which may be right beside it: only csc_run itself is wrong."""
    wrong = variant(lazy_calls=fires_at_theta)
    failed = [
        v
        for v in verify(
            [c for c in CASES if c.function == "csc_run"], module(csc_run=wrong.csc_run)
        )
        if v.failure
    ]
    assert [v.case.name for v in failed] == ["csc-lazy-at-theta"]
    assert "fires at theta, not above it (violates L1)" in failed[0].diagnosis


def twice(name):
    def wrong(xs, *settings, **named):
        results = getattr(definitions, name)(xs, *settings, **named)
        return [x / x.dtype.type(len(xs)) / x.dtype.type(len(xs)) for x in results]

    return wrong


@pytest.mark.parametrize("name", ["ring_allreduce", "direct_allreduce", "lazy_allreduce"])
def test_dividing_twice_is_named_wherever_it_happens(name):
    cases = [case for case in CASES if case.function == name]
    told = [line for v in verify(cases, module(**{name: twice(name)})) for line in v.diagnosis]
    assert any(line.startswith("divided by p twice (violates") for line in told)


def test_a_forgotten_last_bucket_is_named_in_values_too():
    cases = [
        case
        for case in CASES
        if case.function in ("lazy_allreduce", "csc_run") and "L2" in case.statements
    ]
    simulated = variant(lazy_allreduce=rest_stays_local)
    for given in (
        module(lazy_allreduce=rest_stays_local, csc_run=simulated.csc_run),
        module(lazy_allreduce=rest_stays_local, csc_run=rest_stays_local_per_rank),
    ):
        for verdict in verify(cases, given):
            assert any(told.startswith("last bucket forgotten: ") for told in verdict.diagnosis), (
                verdict.case.name
            )


def test_with_an_order_the_same_failure_violates_the_same_statement(tmp_path, capsys):
    """A sum that begins at +0 loses the sign of -0, in float16 as in float32."""
    code = "import numpy as np\ndef allreduce(xs, wire=None):\n    if wire:\n"
    code += "        raise NotImplementedError\n    total = np.zeros_like(xs[0])\n"
    code += "    for x in xs:\n        total = total + x\n    return [total.copy() for _ in xs]\n"
    (tmp_path / "mine.py").write_text(code)
    options = ["--python", str(tmp_path / "mine.py"), "--order", "direct", "--random", "0"]
    assert main(["verify", *options, "--only", "ring-*-special"]) == 1
    out = capsys.readouterr().out
    assert "D1  FAIL" in out and "R2" not in out, out


def test_the_profile_sum_names_the_shape_that_it_got(tmp_path, capsys):
    code = "def allreduce(xs, wire=None):\n    return [sum(xs)[:-1] for _ in xs]\n"
    (tmp_path / "mine.py").write_text(code)
    options = ["--python", str(tmp_path / "mine.py"), "--random", "0", "--profile", "sum"]
    assert main(["verify", *options, "--only", "ring-p3-n9-float32-sensitive"]) == 1
    out = capsys.readouterr().out
    said = "out.x has another shape or type: got float32 (3, 8), wanted float32 (3, 9)"
    assert said in out, out
