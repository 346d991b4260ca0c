"""`verify` as a command: programs, files, exit codes, reports, options, and what it needs."""

import json
import os
import re
import resource
import subprocess
import sys
import textwrap
import time
import types
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import refgf.oracle
from refgf.oracle.__main__ import main
from refgf.oracle.foreign import scratch
from refgf.oracle.judge import report
from refgf.oracle.judge.cases import load_folder, save_tensors
from refgf.oracle.judge.implementations import Command, Files, PythonModule
from refgf.oracle.judge.verify import verify, verify_case
from tests.support.golden import CASES, golden_case

RINGS = [case for case in CASES if case.function == "ring_allreduce"]


def module(**functions):
    return PythonModule(types.SimpleNamespace(**functions))


PROGRAM = """
import sys, json
from refgf.oracle.judge.cases import load_tensors, save_tensors
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
    cases = [
        golden_case(name)
        for name in ("ring-p3-n9-float32-sensitive", "ring-p4-n9-bfloat16-invariant", "csc-dgc")
    ]
    assert [v.status for v in verify(cases, Command(program()))] == ["pass", "pass", "absent"]
    verdict = verify_case(cases[0], Command(program(broken=True)))
    assert verdict.failure.where == {"rank": 2, "element": 8}


STAYS = """
import os, sys, time
os.symlink(sys.argv[1] + "/../..", sys.argv[2] + "/out")
open("SEEN", "w").close()
time.sleep(60)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's locks")
def test_the_folder_of_a_killed_command_goes_at_the_next_start(program, tmp_path, monkeypatch):
    """And no other: not that of a running command, a new one, or a link."""
    seen, temporary = tmp_path / "seen", tmp_path / "tmp"
    temporary.mkdir()
    (temporary / "kept").touch()
    (temporary / "refgf-case-link").symlink_to(tmp_path)
    command = program(text=STAYS.replace("SEEN", str(seen)))
    verify = [sys.executable, "-m", "refgf.oracle", "verify", "--command", command]
    monkeypatch.setenv("TMPDIR", str(temporary))
    started = subprocess.Popen(verify, stdout=subprocess.DEVNULL)
    while not seen.exists():
        time.sleep(0.05)
    (left,) = [path for path in temporary.glob("refgf-case-*") if not path.is_symlink()]
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(scratch, "MIN_AGE_S", 0.0)
    scratch.remove_abandoned.__wrapped__()
    assert left.exists()  # its command runs
    started.kill()
    started.wait()
    monkeypatch.setattr(scratch, "MIN_AGE_S", 60.0)
    scratch.remove_abandoned.__wrapped__()
    assert left.exists()  # it is new
    monkeypatch.setattr(scratch, "MIN_AGE_S", 0.0)
    for _ in range(100):  # the judged program goes a moment after its command
        scratch.remove_abandoned.__wrapped__()
        if not left.exists():
            break
        time.sleep(0.05)
    assert {path.name for path in temporary.iterdir()} == {"kept", "refgf-case-link"}
    assert (tmp_path / "program.py").exists()


def test_a_program_that_fails_is_told(program, tmp_path):
    case = RINGS[0]
    for text, told in (
        ("raise SystemExit('no memory')", "no memory"),
        ("", "result.safetensors"),
        ("import time; time.sleep(60)", "did not end"),
    ):
        assert told in str(verify_case(case, Command(program(text=text), timeout_s=1.0)).failure)
    with pytest.raises(ValueError, match="cannot run"):
        verify_case(case, Command(f"{tmp_path}/missing {{case}} {{out}}"))
    with pytest.raises(ValueError, match="wanted one with"):
        Command("./prog")


def test_files_are_verified(tmp_path):
    case = golden_case("ring-p3-n9-float32-sensitive")
    assert verify_case(case, Files(tmp_path)).status == "absent"
    save_tensors(tmp_path / f"{case.name}.safetensors", case.with_prefix("out"))
    assert verify_case(case, Files(tmp_path)).status == "pass"
    (tmp_path / f"{case.name}.jsonl").write_text("{}\n")
    assert "line 1" in str(verify_case(case, Files(tmp_path)).failure)


WRONG = """
import numpy as np
def choose(values, percent):
    count = max(1, int(len(values) * percent / 100))
    return sorted(np.argsort(-values, kind="stable")[:count].tolist())
"""


def test_exit_codes_and_reports(tmp_path, capsys):
    path = tmp_path / "wrong.py"
    path.write_text(textwrap.dedent(WRONG))
    assert main(["verify", "--python", "refgf.oracle.definitions", "--only", "R1", "L"]) == 0
    files = [
        "--json",
        str(tmp_path / "r.json"),
        "--junit",
        str(tmp_path / "r.xml"),
        "--random",
        "0",
    ]
    assert main(["verify", "--python", str(path), *files]) == 1
    text = capsys.readouterr().out
    assert "FAIL" in text and "rounded down (violates C5)" in text and "not provided" in text
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["statements"]["C5"] == {"pass": 3, "fail": 3, "open": 0}
    assert {c["status"] for c in told["cases"]} == {"pass", "fail", "absent"}
    suite = ElementTree.parse(tmp_path / "r.xml").getroot()
    assert (suite.get("failures"), len(suite.findall("testcase/failure"))) == ("3", 3)
    for wrong in (
        ["--python", "no.such.module"],
        ["--python", "missing.py"],
        ["--files", str(tmp_path / "none")],
        [],
        ["--python", str(path), "--files", "."],
        ["--python", str(path), "--only", "Z9"],
        ["--files", str(tmp_path)],
        ["--python", str(path), "--cases", str(tmp_path)],
    ):
        assert main(["verify", *wrong]) == 2, wrong
        assert "refgf.oracle: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "folder"],
        ["explain", "nowhere"],
        ["explain", "half"],
        ["verify", "--trace", "x" * 5000, "--ranks", "2", "--size", "2", "--algorithm", "ring"],
        ["verify", "--files", ".", "--cases", "half"],
        ["schedule", "nowhere.xml"],
        ["schedule", "half.json"],
        ["schedule", "\udcff.xml"],
        ["schedule", "\udcff"],
        ["export", "half/below"],
        ["export", "new", "--ranks", "99999999", "--size", "99999999"],
        ["grade", "00", "mine.py", "--csv", "folder"],
    ],
)
def test_a_wrong_path_gets_a_sentence(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in ("half", "half.json", "mine.py"):
        (tmp_path / name).write_text("{")
    assert main(arguments) == 2
    said = "".join(capsys.readouterr())
    assert len(said.splitlines()) == 1 and re.search("; wanted |next: ", said), said


@pytest.mark.parametrize("value", ["-1", "1.5", "banana"])
def test_a_wrong_seed_gets_a_sentence(capsys, value):
    with pytest.raises(SystemExit):
        main(["grade", "--seed", value, "00", "mine.py"])
    assert f"--seed: got {value}; wanted a whole number" in capsys.readouterr().err


def test_a_name_that_matches_no_case_gets_a_near_one(tmp_path, capsys):
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    for asked, told in (("allreduce", "_allreduce"), ("slice_bound", "slice_bounds"), ("Z9", "R")):
        assert main(["verify", "--python", str(path), "--only", asked]) == 2
        assert re.search(rf"next: --only \w*{told}\b", capsys.readouterr().err)


@pytest.mark.parametrize("called", ["refgf", "python -m refgf.oracle"])
def test_the_usage_shows_the_name_that_was_called(called, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["refgf verify" if called == "refgf" else "__main__.py"])
    with pytest.raises(SystemExit):
        main(["verify", "--help"])
    assert capsys.readouterr().out.startswith(f"usage: {called} verify ")


def test_control_characters_do_not_break_the_xml():
    verdict = verify_case(RINGS[0], module(ring_allreduce=lambda xs, wire=None: 1 / 0))
    verdict.failure = type(verdict.failure)("a \x00\x1b[31m b")
    ElementTree.fromstring(report.as_junit([verdict]))


def test_it_works_with_numpy_alone_in_less_than_5_seconds(tmp_path):
    """Without torch and the rest of the project; in the process of the judged module, too.

    Seconds of processor time, which other programs on the machine hardly change.
    """
    for name in ("mpi4py", "matplotlib", "torch", "PIL", "sklearn"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} is not here')\n")
    code = """import sys
from refgf.oracle.__main__ import main
assert main(["verify", "--python", "refgf.oracle.definitions"]) == 0
floors = {name.split(".")[1] for name in sys.modules if name.startswith("refgf.")}
assert floors == {"oracle", "interrupt", "program", "machine"}, floors
"""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(refgf.oracle.__file__).parents[2])])
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, env=environment
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert 0.5 < seconds < 5, seconds


def test_export_makes_other_cases(tmp_path, capsys):
    assert (
        main(
            [
                "export",
                str(tmp_path / "more"),
                "--ranks",
                "6",
                "--size",
                "20",
                "--dtype",
                "float16",
                "--count",
                "3",
            ]
        )
        == 0
    )
    assert len(load_folder(tmp_path / "more")) == 3
    assert (
        main(["verify", "--python", "refgf.oracle.definitions", "--cases", str(tmp_path / "more")])
        == 0
    )
    assert main(["export", str(tmp_path / "more"), "--ranks", "0"]) == 2


def test_the_option_order(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\nfrom refgf.oracle.judge.orders import NAMED\n"
        "def allreduce(xs, wire=None):\n    return [NAMED['tree'](xs, np.add) for _ in xs]\n"
    )
    for order, code in (("tree", 0), ("ring", 1)):
        arguments = ["--order", order, "--no-diagnosis", "--only", "ring-p9-n21-float32-sensitive"]
        assert main(["verify", "--python", str(path), *arguments]) == code
