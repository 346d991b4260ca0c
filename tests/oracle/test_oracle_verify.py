"""`verify` for three kinds of foreign code, its profiles, reports and exit codes; the judge is judged here."""

import json
import subprocess
import sys
import textwrap
import types
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from refgf.oracle import definitions, report
from refgf.oracle.__main__ import main
from refgf.oracle.cases import GOLDEN, load_case, load_folder, save_tensors
from refgf.oracle.definitions import same_bits
from refgf.oracle.functions import CALLS
from refgf.oracle.implementations import Command, Files, PythonModule
from refgf.oracle.judge import judge_bits, ulps
from refgf.oracle.mistakes.sparse import ties_to_higher
from refgf.oracle.orders import NAMED, ORDERS
from refgf.oracle.profiles import judge
from refgf.oracle.variants import variant
from refgf.oracle.verify import by_statement, verify, verify_case

CASES = load_folder(GOLDEN)
RINGS = [case for case in CASES if case.function == "ring_allreduce"]


def case_named(name):
    return load_case(GOLDEN, name)


def module(**functions):
    return PythonModule(types.SimpleNamespace(**functions))


def test_the_definitions_pass_every_case_and_every_profile():
    for profile in ("bits", "sum", "agreement"):
        cases = CASES if profile == "bits" else RINGS
        verdicts = verify(cases, PythonModule(definitions), profile)
        assert [str(v.failure) for v in verdicts if v.status != "pass"] == []
        assert profile != "bits" or set(by_statement(verdicts)) == {s for case in cases for s in case.statements}


def test_the_first_wrong_step_rank_and_element_is_told():
    case = case_named("ring-p3-n9-float32-sensitive")
    outputs = {name: a.copy() for name, a in CALLS[case.function].run(definitions, case).items()}
    outputs["state.x"][2, 1, 4] = 7.25
    outputs["out.x"][0, 0] = 7.0
    failure = judge_bits(case, outputs)
    assert (failure.output, failure.where) == ("state.x", {"step": 2, "rank": 1, "element": 4})
    del outputs["state.x"]
    failure = judge_bits(case, outputs)
    assert failure.where == {"rank": 0, "element": 0} and failure.got == "7.0"


def test_the_chunk_is_told_and_the_earliest_step_counts():
    case = case_named("csc-dgc")
    outputs = {name: a.copy() for name, a in CALLS[case.function].run(definitions, case).items()}
    outputs["out.w"][7, 0, 3] = 99.0
    outputs["out.v"][4, 2, 50] = 99.0
    assert judge_bits(case, outputs).where == {"step": 4, "rank": 2, "element": 50, "chunk": 6}


@pytest.mark.parametrize(("kind", "a", "b", "distance"), [
    ("float32", 1.0, 1.0 + 2**-23, 1), ("float16", 1.0, 1.0 + 2**-10, 1), ("bfloat16", 1.0, 1.0 + 2**-7, 1),
    ("float64", 0.0, -0.0, 0), ("float32", 2.0**-149, -(2.0**-149), 2), ("float32", np.inf, 3.4028234663852886e38, 1),
])  # fmt: skip
def test_distance_in_ulp(kind, a, b, distance):
    values = np.array([a, b], np.float32 if kind == "bfloat16" else kind)
    assert ulps(values[0], values[1], kind) == distance


def test_the_sign_of_zero_counts_and_the_payload_of_nan_does_not():
    case = case_named("ring-p3-n40-float32-special")
    outputs = CALLS[case.function].run(definitions, case)
    nan = np.isnan(outputs["out.x"])
    outputs["out.x"].view(np.uint32)[nan] ^= 1
    assert judge_bits(case, outputs) is None
    outputs["out.x"][outputs["out.x"] == 0] *= -1
    assert judge_bits(case, outputs) is not None


def test_shape_type_and_missing_results_are_told():
    case = case_named("ring-p3-n9-float32-sensitive")
    right = CALLS[case.function].run(definitions, case)["out.x"]
    for outputs in ({}, {"out.x": right[:, :-1]}, {"out.x": right.astype(np.float64)}, {"out.x": right[0]}):
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
            assert all(v.status == "pass" for v in verify(cases, module(ring_allreduce=allreduce), profile, False))
        failed = [v.case for v in verify(cases, module(ring_allreduce=allreduce), "bits", False) if v.status == "fail"]
    assert bool(failed) == (order != "ring")
    assert all(case.family not in ("invariant", "provenance") for case in failed)


@pytest.mark.parametrize("order", sorted(NAMED))
def test_a_named_order_is_judged_by_its_bits(order, tmp_path, capsys):
    """An implementation with another order than the ring's: tree, for example, is right as a tree and wrong as a ring."""
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\nfrom refgf.oracle.orders import NAMED\n"
        f"def allreduce(xs, wire=None):\n    return [NAMED[{order!r}](xs, np.add) for _ in xs]\n"
    )
    for other in sorted(NAMED):
        alike = order == other
        arguments = ["verify", "--python", str(path), "--order", other, "--no-diagnosis"]
        assert main([*arguments, "--only", "ring-p9-n21-float32-sensitive"]) == (0 if alike else 1)
        assert main([*arguments, "--only", "*-invariant"]) == 0
        assert main(arguments) == (0 if alike else 1)
    assert main(["verify", "--python", str(path), "--only", "ring-p9-n21-float32-sensitive", "--profile", "sum"]) == 0


def test_a_sum_that_is_not_one_fails_the_profile_sum():
    def float16_sum(xs, wire=None):
        return definitions.ring_allreduce([x.astype(np.float16).astype(x.dtype) for x in xs], "float16")

    def different(xs, wire=None):
        return [x * 0 + r for r, x in enumerate(definitions.ring_allreduce(xs, wire))]

    case = case_named("ring-p8-n29-float32-invariant")
    case.tensors["in.x"] = case["in.x"] + np.float32(2**-12)
    assert verify_case(case, module(ring_allreduce=float16_sum), "sum").status == "fail"
    assert verify_case(case, module(ring_allreduce=float16_sum), "agreement").status == "pass"
    assert verify_case(case, module(ring_allreduce=different), "agreement").status == "fail"


def test_where_norms_are_inexact_other_lists_are_accepted():
    """Two chunks whose importance differs by less than rounding may change places, and the run goes on from there."""
    case = case_named("csc-values")
    right = CALLS["csc_run"].run(definitions, case)
    assert judge(case, right) is None
    swapped = {name: a.copy() for name, a in right.items()}
    swapped["out.chosen"][3] = swapped["out.chosen"][3][:, ::-1]
    assert "not the most important" in str(judge(case, swapped))
    swapped["out.chosen"][3, 1] = 0
    assert "differs from rank 0" in str(judge(case, swapped))


def test_a_tie_may_go_either_way_only_where_norms_are_inexact():
    case = case_named("csc-values")
    g = case["in.g"].copy()
    for chunk in range(1, 6):
        g[:, :, 8 * chunk : 8 * chunk + 8] = g[:, :, :8]
    case.tensors["in.g"] = g
    case.tensors.update(CALLS["csc_run"].run(definitions, case))
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
        return [{"rank": 0, "step": 0, "operation": "send", "peer": 1, "offset": 0, "count": 1, "dtype": "float32"}]

    given = module(ring_allreduce=definitions.ring_allreduce, ring_trace=ring_trace)
    assert "receives none" in str(verify_case(case_named("ring-p3-n9-float32-sensitive"), given).failure)


PROGRAM = """
import sys, json
from refgf.oracle.cases import load_tensors, save_tensors
from refgf.oracle.definitions import ring_allreduce
import numpy as np
about = json.load(open(sys.argv[1] + "/case.json"))
if about["function"] != "ring_allreduce":
    sys.exit(77)
tensors, short = load_tensors(sys.argv[1] + "/inputs.safetensors")
assert set(tensors) == {"in.x"}, "a program sees inputs only"
result = {"out.x": np.stack(ring_allreduce(list(tensors["in.x"]), about["arguments"]["wire"]))}
if BROKEN:
    result["out.x"][-1, -1] += 1
save_tensors(sys.argv[2] + "/result.safetensors", result, ["out.x"] if short else [])
"""


@pytest.fixture
def program(tmp_path):
    def write(broken=False, text=PROGRAM):
        path = tmp_path / "program.py"
        path.write_text(text.replace("BROKEN", str(broken)))
        return f"{sys.executable} {path} {{case}} {{out}}"

    return write


def test_a_program_is_verified(program):
    cases = [case_named(name) for name in ("ring-p3-n9-float32-sensitive", "ring-p4-n9-bfloat16-invariant", "csc-dgc")]
    assert [v.status for v in verify(cases, Command(program()))] == ["pass", "pass", "absent"]
    verdict = verify_case(cases[0], Command(program(broken=True)))
    assert verdict.failure.where == {"rank": 2, "element": 8}


def test_a_program_that_fails_is_told(program, tmp_path):
    case = RINGS[0]
    for text, told in (("raise SystemExit('no memory')", "no memory"), ("", "result.safetensors"),
                       ("import time; time.sleep(60)", "did not end")):  # fmt: skip
        assert told in str(verify_case(case, Command(program(text=text), timeout_s=1.0)).failure)
    with pytest.raises(ValueError, match="cannot run"):
        verify_case(case, Command(f"{tmp_path}/missing {{case}} {{out}}"))
    with pytest.raises(ValueError, match="wanted one with"):
        Command("./prog")


def test_files_are_verified(tmp_path):
    case = case_named("ring-p3-n9-float32-sensitive")
    assert verify_case(case, Files(tmp_path)).status == "absent"
    save_tensors(tmp_path / f"{case.name}.safetensors", case.part("out"))
    assert verify_case(case, Files(tmp_path)).status == "pass"
    (tmp_path / f"{case.name}.jsonl").write_text("{}\n")
    assert "line 1" in str(verify_case(case, Files(tmp_path)).failure)


WRONG = """
import numpy as np
def choose(values, percent):
    return sorted(np.argsort(-values, kind="stable")[: max(1, int(len(values) * percent / 100))].tolist())
"""


def test_exit_codes_and_reports(tmp_path, capsys):
    path = tmp_path / "wrong.py"
    path.write_text(textwrap.dedent(WRONG))
    assert main(["verify", "--python", "refgf.oracle.definitions", "--only", "R1", "L"]) == 0
    files = ["--json", str(tmp_path / "r.json"), "--junit", str(tmp_path / "r.xml")]
    assert main(["verify", "--python", str(path), *files]) == 1
    text = capsys.readouterr().out
    assert "FAIL" in text and "rounded down (violates C5)" in text and "not provided" in text
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["statements"]["C5"] == {"pass": 2, "fail": 3, "open": 0}
    assert {c["status"] for c in told["cases"]} == {"pass", "fail", "absent"}
    suite = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert (suite.get("failures"), len(suite.findall("testcase/failure"))) == ("3", 3)
    for wrong in (["--python", "no.such.module"], ["--python", "missing.py"], ["--files", str(tmp_path / "none")], [],
                  ["--python", str(path), "--files", "."], ["--python", str(path), "--only", "Z9"],
                  ["--files", str(tmp_path)], ["--python", str(path), "--cases", str(tmp_path)]):  # fmt: skip
        assert main(["verify", *wrong]) == 2, wrong
        assert "refgf.oracle: " in capsys.readouterr().err


def test_control_characters_do_not_break_the_xml():
    verdict = verify_case(RINGS[0], module(ring_allreduce=lambda xs, wire=None: 1 / 0))
    verdict.failure = type(verdict.failure)("a \x00\x1b[31m b")
    ElementTree.fromstring(report.as_junit([verdict]))


def test_it_works_without_mpi4py_and_matplotlib():
    """And without torch and the rest of the project."""
    code = """import sys, time
for name in ("mpi4py", "matplotlib", "torch", "PIL", "sklearn"):
    sys.modules[name] = None
import refgf.oracle
from refgf.oracle.__main__ import main
start_s = time.perf_counter()
assert main(["verify", "--python", "refgf.oracle.definitions"]) == 0
assert time.perf_counter() - start_s < 60
floors = {name.split(".")[1] for name in sys.modules if name.startswith("refgf.")}
assert floors == {"oracle"}, floors
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_export_makes_other_cases(tmp_path, capsys):
    assert main(["export", str(tmp_path / "more"), "--ranks", "6", "--size", "20", "--dtype", "float16", "--count", "3"]) == 0
    assert len(load_folder(tmp_path / "more")) == 3
    assert main(["verify", "--python", "refgf.oracle.definitions", "--cases", str(tmp_path / "more")]) == 0
    assert main(["export", str(tmp_path / "more"), "--ranks", "0"]) == 2
