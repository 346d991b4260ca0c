"""Forks of a template: they end as other processes do, and share nothing that matters."""

import base64
import marshal
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refgf.oracle.foreign import forked, view
from refgf.oracle.foreign.forked import Fork, Forked, Template
from refgf.oracle.foreign.process import Ended, Process, Program
from refgf.oracle.grade.sandbox import Sandbox
from tests.attack.fate import family

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks on Linux only")
MARK = "a word of a student's file"
FILE = f"""
import os, random, signal, time
import numpy as np
def mark():
    return "{MARK}"
def numbers():
    return [random.random(), float(np.random.random())]
def end(how):
    os._exit(how) if how >= 0 else signal.raise_signal(-how)
def sleep():
    time.sleep(60)
"""


@pytest.fixture
def templates(monkeypatch):
    """Those of a judge that has started nothing yet."""
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setattr(forked, "_templates", forked.Templates())
    yield forked._templates
    forked._templates.end()


@pytest.fixture
def opened(templates, tmp_path):
    """opened(class of a process) -> one that has imported FILE"""
    (tmp_path / "f.py").write_text(FILE)
    server, processes = Sandbox(tmp_path / "f.py").server, []

    def open_one(kind=Forked):
        processes.append(kind(server))
        assert isinstance(processes[-1].process, Fork) is (kind is Forked)
        processes[-1].begin(20.0)
        return processes[-1]

    yield open_one
    for process in processes:
        process.close()


def called(process, name, *arguments):
    question = f'{{"call": "{name}", "arguments": {list(arguments)}}}'
    return process.ask(question.encode(), 20.0).decode()


def test_the_template_has_one_thread_no_variables_and_no_foreign_code(templates, opened):
    process = opened()
    assert MARK in called(process, "mark")
    proc = Path(f"/proc/{templates.template.process.pid}")
    assert len(list((proc / "task").iterdir())) == 1
    variables = (proc / "environ").read_bytes().decode().split("\0")
    assert sorted(filter(None, variables)) == sorted(
        f"{name}={value}" for name, value in view.environment(False).items()
    )
    written = memory(proc)
    assert b"student_process" in written
    assert all(text not in written for text in (MARK.encode(), base64.b64encode(FILE.encode())))


def memory(proc):
    """What a process has written into its memory."""
    places = re.findall(r"^(\w+)-(\w+) rw\S+ (?!.*\[v)", (proc / "maps").read_text(), re.M)
    with open(proc / "mem", "rb", 0) as file:
        found = [(file.seek(int(a, 16)), file.read(int(b, 16) - int(a, 16)))[1] for a, b in places]
    return b"".join(found)


def test_a_template_that_was_killed_takes_nothing_with_it_and_is_replaced(templates, opened):
    first, killed = opened(), templates.template.process
    os.kill(killed.pid, signal.SIGKILL)
    second = opened()
    assert templates.template.process.pid != killed.pid and killed.returncode == -signal.SIGKILL
    assert MARK in called(first, "mark") and MARK in called(second, "mark")


def test_a_template_that_cannot_fork_is_not_tried_again(templates, opened, monkeypatch):
    """As one that has threads, of a NumPy of another kind."""
    text = "import threading, time; threading.Thread(target=time.sleep, args=[60]).start()"
    code = base64.b64encode(marshal.dumps(compile(text, "", "exec"))).decode()
    own = forked.carried
    monkeypatch.setattr(forked, "carried", lambda name: own(name) | {name: ["", code, False]})
    starts, start = [], Template.start
    monkeypatch.setattr(Template, "start", lambda self: (starts.append(self), start(self)))
    server = opened(Process).server
    for _ in range(2):
        process = Forked(server)
        assert type(process.process) is Program
        assert process.begin(20.0) == b"{}"
        process.close()
    assert len(starts) == 1 and not templates.works


@pytest.mark.parametrize("how", [0, 3, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGKILL])
@pytest.mark.parametrize("kind", [Forked, Process])
def test_how_it_ends_is_the_same(opened, kind, how):
    process = opened(kind)
    with pytest.raises(Ended) as ended:
        called(process, "end", int(how))
    assert ended.value.code == how


def test_forks_hold_no_descriptors_of_each_other(opened):
    """Where one did, a judge would not see the other's end."""
    first, second = opened(), opened()
    os.killpg(first.process.pid, signal.SIGKILL)
    with pytest.raises(Ended) as ended:
        called(first, "mark")
    assert ended.value.code == -signal.SIGKILL
    os.set_blocking(first.process.stdout.fileno(), True)
    assert first.process.stdout.read() == b""  # not before all its ends are closed
    assert MARK in called(second, "mark")


def test_forks_draw_different_numbers(opened):
    drawn = [called(opened(), "numbers") for _ in range(2)]
    values = re.findall(r"0\.\d+", " ".join(drawn))
    assert len(values) == len(set(values)) == 4, drawn


def test_a_fork_of_the_judge_has_a_template_of_its_own(templates, opened):
    process, pipe = opened(), multiprocessing.Pipe()
    with templates.lock:  # as another thread may hold it
        child = multiprocessing.get_context("fork").Process(
            target=lambda: pipe[1].send((called(opened(), "mark"), templates.template.process.pid))
        )
        child.start()
    assert pipe[0].poll(30)
    said, pid = pipe[0].recv()
    child.join(20)
    assert MARK in said and pid != templates.template.process.pid and child.exitcode == 0
    assert MARK in called(process, "mark") and MARK in called(opened(), "mark")


JUDGE = """
import sys
from refgf.oracle.grade.sandbox import Sandbox
with Sandbox(sys.argv[1], seconds=100.0) as sandbox:
    sandbox.ask({"call": "mark", "arguments": []})
    print("ready", flush=True)
    if sys.stdin.read():
        sandbox.ask({"call": "sleep", "arguments": []})
"""


@pytest.mark.parametrize("end", ["", "terminate", "kill"])
def test_nothing_outlives_the_judge(tmp_path, end):
    (tmp_path / "f.py").write_text(FILE)
    words, pipe = [sys.executable, "-c", JUDGE, str(tmp_path / "f.py")], subprocess.PIPE
    with subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe) as judge:
        assert judge.stdout.readline() == b"ready\n"
        below = family(judge.pid)
        assert len(below) > 2
        judge.stdin.write(b"sleep" if end else b"")
        judge.stdin.close()
        time.sleep(0.5)  # within foreign code
        getattr(judge, end or "wait")()
        judge.wait(20)
    stop_s = time.monotonic() + 10
    while alive := [pid for pid in below if running(pid)]:
        assert time.monotonic() < stop_s, [below[pid] for pid in alive]
        time.sleep(0.02)


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
