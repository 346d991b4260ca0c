"""Foreign code that ends, hangs, crashes or differs from SPEC: `verify` goes on and reports it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refgf.oracle.__main__ import main
from refgf.oracle.foreign import process
from refgf.oracle.judge import implementations
from refgf.oracle.judge.isolation import IsolatedModule
from tests.support.golden import golden_case

ONE = "ring-p3-n9-float32-sensitive"
RIGHT = "from refgf.oracle.definitions import *\n"
EXIT = "def ring_allreduce(xs, wire=None):\n    "


@pytest.fixture
def verify(tmp_path, capsys):
    """verify(text of a module, more arguments) -> exit code, everything said"""

    def run(text, *more, only=ONE, name="mine.py"):
        (tmp_path / name).write_text(text)
        code = main(["verify", "--python", str(tmp_path / name), "--only", only, *more])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


@pytest.fixture
def program(tmp_path, capsys):
    def run(text, *more):
        (tmp_path / "prog.py").write_text(text)
        command = f"{sys.executable} {tmp_path / 'prog.py'} {{case}} {{out}}"
        code = main(["verify", "--command", command, "--only", ONE, *more])
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


@pytest.mark.parametrize(
    "leave", ["import sys; sys.exit(0)", "import os; os._exit(0)", "exit()", "raise SystemExit"]
)
def test_leaving_the_process_is_a_failure(verify, leave):
    code, said = verify(EXIT + leave)
    assert code == 1 and "tried to end the process" in said and "(mine.py, line 2)" in said
    code, said = verify(leave)
    assert code == 2 and "tried to end the process" in said


def test_children_of_a_fork_still_end(verify):
    text = (
        "import multiprocessing\n"
        + RIGHT
        + """
def ring_allreduce(xs, wire=None):
    child = multiprocessing.get_context("fork").Process(target=print)
    child.start()
    child.join(20)
    assert child.exitcode == 0
    return definition(xs, wire)
"""
    )
    code, said = verify(text.replace("import *", "import ring_allreduce as definition"))
    assert code == 0, said


def test_the_launchers_exit_still_ends_a_failing_job():
    code = """
from refgf.launch.abort import os as launched
from refgf.oracle.foreign.guard import contained
with contained():
    names = {"__name__": "refgf.launch.abort", "launched": launched}
    exec("launched._exit(7)", names)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 7


def test_an_endless_loop_ends(verify):
    loop = "while True:\n        try:\n            xs[0].sum()\n"
    endless = EXIT + loop + "        except Exception:\n            pass"
    code, said = verify(endless, "--timeout", "0.3")
    assert code == 1 and "did not end within 0.3 s (mine.py, line" in said
    for wrong in ("0", "-1", "nan"):
        assert verify(RIGHT, "--timeout", wrong)[0] == 2


STUCK = (
    "import signal, time\n"
    + EXIT
    + "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); time.sleep(60)\n"
)
CRASH = "import ctypes\n" + EXIT + "ctypes.string_at(0)\n"
BOTH = ["--timeout", "0.3", "--no-diagnosis"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (STUCK, "did not end within 0.3 s, inside a call that Python cannot interrupt"),
        (CRASH, "its process ended with signal SIGSEGV"),
        (EXIT + "import os; os.kill(os.getpid(), 9)", "its process ended with signal SIGKILL"),
    ],
)
def test_a_hang_in_c_and_a_crash_end_their_process_only(verify, tmp_path, text, told):
    """The other functions are judged all the same, the crashing one is not run again."""
    text = text + "\nfrom refgf.oracle.definitions import slice_bounds\n"
    report = tmp_path / "r.json"
    code, said = verify(text, *BOTH, "--json", str(report), only="*-p3*")
    cases = json.loads(report.read_text())["cases"]
    rings = [case for case in cases if case["function"] == "ring_allreduce"]
    assert code == 1 and told in rings[0]["failure"]["message"]
    assert {case["status"] for case in rings[1:]} == {"absent"}
    assert {case["status"] for case in cases if case["function"] == "slice_bounds"} == {"pass"}


def test_a_process_that_ended_between_two_cases_is_told_and_replaced():
    case = golden_case(ONE)
    isolated = IsolatedModule("refgf.oracle.definitions")
    try:
        assert isolated.run(case).error is None
        isolated.process.process.kill()
        isolated.process.process.wait()
        errors = (isolated.run(case).error for _ in range(1000))  # until it has ended, too
        assert next(filter(None, errors)) == "its process ended with signal SIGKILL"
        assert isolated.run(case).error is None
    finally:
        isolated.close()


def test_the_number_of_a_process_that_has_ended_is_not_used_again(monkeypatch):
    """The kernel may have given it to another process meanwhile."""
    killed, killpg = [], os.killpg
    monkeypatch.setattr(os, "killpg", lambda *given: (killed.append(given), killpg(*given)))
    case = golden_case(ONE)
    isolated = IsolatedModule("refgf.oracle.definitions")
    try:
        assert isolated.run(case).error is None
        program = isolated.process.process
        program.kill()
        with pytest.raises(process.Ended):
            for _ in range(1000):  # until it has ended
                isolated.process.ask(b"", 9)
        assert program.returncode == -signal.SIGKILL and len(killed) == 1
    finally:
        isolated.close()
    assert killed == [(program.pid, signal.SIGKILL)]


FORGED = """
import os, pickle, struct
class Harm:
    def __reduce__(self):
        return os.mkdir, (HARM,)
def ring_allreduce(xs, wire=None):
    message = MESSAGE
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2:
            try:
                os.write(number, struct.pack("!Q16s", len(message), bytes(16)) + message)
            except OSError:
                pass
"""


@pytest.mark.parametrize(
    "message",
    ["pickle.dumps(Harm())", "b'{}'", "b'{' * 99999", r"b'{\"error\": 1}\n'", "b''", "bytes(9)"],
)
def test_a_forged_answer_runs_nothing(verify, tmp_path, message):
    """The foreign code finds its pipe and writes into it; the judge executes nothing of it."""
    text = FORGED.replace("HARM", repr(str(tmp_path / "harm"))).replace("MESSAGE", message)
    code, said = verify(text)
    assert code == 1 and "the answer of the judged process" in said, said
    assert not (tmp_path / "harm").exists() and "Traceback" not in said


@pytest.mark.skipif(process.resource is None, reason="this system has no limits of files")
def test_a_program_that_prints_without_end_does_not_fill_the_disk(program, monkeypatch):
    monkeypatch.setattr(implementations, "LARGEST_OUTPUT", 1 << 20)
    endless = "import signal, sys\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
    code, said = program(endless + "while True:\n    print('y' * 999)", "--timeout", "20")
    assert code == 1 and "ended with signal SIGXFSZ: yyy" in said, said


def test_a_crash_at_import_is_told(verify):
    code, said = verify("import os; os.kill(os.getpid(), 11)")
    assert code == 2 and "importing" in said and "its process ended with signal SIGSEGV" in said


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("../..", "got ../.., a folder; wanted the name of a module"),
        (".relative", "got .relative; wanted"),
        ("a..b", "got a..b; wanted"),
        (" ", "got  ; wanted"),
        ("folder.py", "got folder.py, a folder; wanted"),
        ("banana", "there is no module banana; wanted"),
        ("json.banana", "there is no module json.banana; wanted"),
        ("raises.py", "importing raises.py raised ModuleNotFoundError: No module named 'banana'"),
        ("half.py", "importing half.py failed: SyntaxError: "),
        ("panics.py", "importing panics.py raised RuntimeError: Panic: 7 (panics.py, line 2);"),
        ("loop.py", "got loop.py: Too many levels of symbolic links; wanted a file that can be"),
        ("x" * 300 + ".py", ".py: File name too long; wanted a file that can be read"),
        ("pipe.py", "got pipe.py: not a regular file; wanted a file that can be read"),
    ],
)
def test_a_name_that_is_no_module_gets_a_sentence(tmp_path, monkeypatch, capfd, name, told):
    """Both commands import by load_module; `verify` and the pytest plugin in another process."""
    command = "reveal" if name in ("banana", "half.py", "pipe.py") else "verify"
    monkeypatch.chdir(tmp_path)
    Path("folder.py").mkdir()
    Path("raises.py").write_text("import banana\n")
    Path("half.py").write_text("x = (\n")
    Path("panics.py").write_text("class Panic(BaseException): pass\nraise Panic(7)\n")
    Path("loop.py").symlink_to("loop.py")
    os.mkfifo("pipe.py")
    code, said = main([command, "--python", name]), capfd.readouterr().err
    assert code == 2 and f"refgf.oracle: {command}: " in said and told in said, said
    assert "; next: " in said and "Traceback" not in said and len(said.splitlines()) == 1


def test_an_import_that_does_not_end_names_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr(implementations, "IMPORT_S", 0.2)
    (tmp_path / "endless.py").write_text("\nwhile True: pass\n")
    with pytest.raises(ValueError, match=r"did not end within 0.2 s \(endless.py, line 2\)"):
        implementations.load_module(str(tmp_path / "endless.py"))


def test_a_module_without_a_function_to_judge_is_named(verify):
    code, said = verify("")
    assert code == 2 and "mine.py, which has no function or file to judge; wanted one of" in said


def test_results_that_are_no_numbers_are_told(verify):
    code, said = verify("class A: pass\n" + EXIT + "return [A() for _ in xs]")
    assert code == 1 and "got object as out.x; wanted numbers" in said


def test_after_one_endless_case_the_function_is_not_run_again(verify):
    code, said = verify(EXIT + "while True: pass", "--timeout", "0.3", only="ring-p*")
    assert code == 1 and "0 cases passed, 1 failed" in said
    assert "the next cases of ring_allreduce are not run" in said
    assert said.count("did not end within 0.3 s") == 1


def test_neighbours_and_dataclasses_can_be_imported(verify, tmp_path):
    (tmp_path / "beside_mine.py").write_text(RIGHT)
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    text += "from beside_mine import *\n"
    assert verify(text + "@dataclass\nclass A:\n    x: int\n")[0] == 0
    assert verify("from refgf.oracle.definitions import *\n", name="json.py")[0] == 0
    assert json.dumps([1]) == "[1]"


def test_an_exception_is_told_with_its_line(verify):
    code, said = verify(EXIT + "return xs[0] @ xs[1][:2]")
    assert code == 1 and "raised ValueError" in said and "(mine.py, line 2)" in said


def test_a_result_that_is_not_specs_is_told_as_such(verify):
    text = (
        RIGHT
        + """
_run = csc_run
def csc_run(w, gs, s, percents):
    reports = _run(w, gs, s, percents)
    return [{k: v for k, v in report.items() if k != "finite"} for report in reports]
"""
    )
    code, said = verify(text, only="csc-dgc")
    assert code == 1 and "csc_run's report lacks 'finite'" in said and "KeyError" not in said
    code, said = verify(EXIT + "return None")
    assert (
        code == 1
        and "ring_allreduce cannot be called as SPEC.md says, or returned something else" in said
    )
    code, said = verify("def max_pool(x, window, stride):\n    return x, x", only="max-pool*")
    assert "max_pool_backward" in said and "SimpleNamespace" not in said


def test_a_function_that_declines_a_wire_type_is_judged_without_it(verify):
    text = "from refgf.oracle import definitions\n" + EXIT
    text += "if wire == 'bfloat16':\n        raise NotImplementedError\n"
    text += "    return definitions.ring_allreduce(xs, wire)\n"
    code, said = verify(text, "--random", "0", only="ring_allreduce")
    assert code == 0 and "not judged: 10 of 50 cases of ring_allreduce" in said, said
    code, said = verify(EXIT + "return None\n")
    assert code == 1 and "it returned None; wanted p arrays" in said


def test_an_allreduce_without_wire_is_judged_where_there_is_none(verify):
    text = "from refgf.oracle.definitions import ring_allreduce as ring\n"
    text += "def allreduce(xs):\n    return ring(xs)\n"
    code, said = verify(text, "--order", "ring", only="ring-*")
    assert code == 0 and "unexpected keyword" not in said
    code, said = verify(text.replace("allreduce(xs):", "ring_allreduce(xs):"), only="ring-*")
    assert code == 0 and "not judged: " in said


def test_a_programs_children_end_with_it(program, tmp_path):
    sleeper = (
        f"import time, pathlib; time.sleep(1.5); pathlib.Path({str(tmp_path / 'alive')!r}).touch()"
    )
    code, said = program(
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {sleeper!r}])",
        "--timeout",
        "0.5",
    )
    time.sleep(1.6)
    assert code == 1 and "did not end within 0.5 s" in said and not (tmp_path / "alive").exists()


LEAVES = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", MARK],
                         start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
"""


def leaving(tmp_path, text):
    """-> the command's process, and the word that its child in another session is started with"""
    mark = str(tmp_path / "leaves")
    (tmp_path / "mine.py").write_text(LEAVES.replace("MARK", repr(mark)) + text)
    file = str(tmp_path / "mine.py")
    how = ["--python", file]
    if text.startswith("sys.exit"):
        how = ["--command", f"{sys.executable} {file} {{case}} {{out}}"]
    command = [sys.executable, "-m", "refgf.oracle", "verify", *how, "--only", ONE]
    return subprocess.Popen(command, stdout=-3, stderr=-3), mark


def left(mark, below=None):
    """Processes that were started with a word, and descendants of one."""
    found, parents = set(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            parents[int(folder.name)] = int(parent)
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if mark.encode() in words and state != "Z":
                found.add(int(folder.name))
    tree = {below} - {None}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return found | tree - {below}


def gone(mark, others=()):
    """Have they ended, within 5 s?"""
    for _ in range(100):
        alive = {pid for pid in others if running(pid)}
        if not left(mark) and not alive:
            return True
        time.sleep(0.05)
    return False


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def started(command, mark):
    """All processes below the command, once its child in another session is among them."""
    while not left(mark):
        assert command.poll() is None
        time.sleep(0.05)
    return left(mark, below=command.pid)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_CHILD_SUBREAPER")
@pytest.mark.parametrize("text", [RIGHT, "sys.exit(77)", "import os; os.kill(os.getpid(), 9)"])
def test_a_child_in_another_session_ends_with_the_command(tmp_path, text):
    command, mark = leaving(tmp_path, text)
    command.wait(100)
    assert gone(mark)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_CHILD_SUBREAPER")
@pytest.mark.parametrize("start", ["", "sys.exit; "], ids=["module", "program"])
@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_nothing_outlives_a_command_that_is_ended(tmp_path, start, end):
    command, mark = leaving(tmp_path, f"{start}import time; time.sleep(60)")
    below = started(command, mark)
    getattr(command, end)()
    code = command.wait(20)
    assert end == "kill" or code == 128 + signal.SIGTERM
    assert gone(mark, below)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import os; os.abort()", "signal SIGABRT"),
        ("import sys; sys.exit('\\x1b[2Jright')", "exit code 1: \\x1b[2Jright"),
        ("", "the program wrote no result.safetensors"),
        ("import sys; sys.exit(3)", "exit code 3: it printed nothing"),
        ("import sys; open(sys.argv[2] + '/result.safetensors', 'wb').write(b'abc')", "3 bytes"),
    ],
)
def test_what_a_program_did_wrong_is_told(program, text, told):
    code, said = program(text)
    assert code == 1 and told in said


def test_a_report_that_cannot_be_written_is_refused_at_once(verify, tmp_path, monkeypatch):
    for option in ("--json", "--junit"):
        code, said = verify(RIGHT, option, "/nowhere/x")
        assert code == 2 and "/nowhere/x" in said and "cases passed" not in said
    assert main(["grade", "03", str(tmp_path / "mine.py"), "--json", str(tmp_path)]) == 2
    generator = "refgf.oracle.__main__.golden_cases"
    monkeypatch.setattr(generator, lambda: pytest.fail("it made the cases first"))
    assert main(["export", "/dev/null/x"]) == 2


def test_a_reader_who_leaves_is_no_traceback():
    command = [
        sys.executable,
        "-m",
        "refgf.oracle",
        "verify",
        "--python",
        "refgf.oracle.definitions",
        "--only",
        "R",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        done.stdout.close()
        assert done.stderr.read() == b""
    assert done.returncode == 2
