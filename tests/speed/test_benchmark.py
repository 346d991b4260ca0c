"""Benchmarks measure alone, end with what started them, and stop when they are interrupted."""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from tests.speed import benchmark
import pytest
import run
from tests.support.boxes import needs_cluster

from tests.support.jobs import MARK, clean_environment, command_line, processes, wait_for

pytestmark = pytest.mark.skipif(benchmark.PRCTL is None, reason="Linux only")
HERE = Path(__file__).resolve().parent
HOLD = "import benchmark, sys, time; benchmark.begin(sys.argv[1]); print(1, flush=True); "
START = "import benchmark, sys; benchmark.run(sys.argv[1:])"


@pytest.fixture(autouse=True)
def hangups_are_noticed():
    """Under nohup they are ignored, by all that these tests start too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def python(program: str, *arguments: str, **options) -> subprocess.Popen:
    environment = clean_environment(options.pop("env", {}) | {benchmark.BEGUN: None})
    command = [sys.executable, "-c", program, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=HERE, env=environment, **pipes, **options)


def test_a_second_benchmark_says_so_and_the_lock_of_a_killed_one_is_free():
    name = f"\\0refgf test {uuid.uuid4().hex}"
    hold = HOLD.replace("sys.argv[1]", f"'{name}'")
    first = python(hold + "time.sleep(60)")
    try:
        assert first.stdout.readline() == "1\n", first.stderr.read()
        out, error = python(hold).communicate(timeout=30)
        assert out == "" and f"process {first.pid} is another benchmark" in error
        assert "; next: " in error and "Traceback" not in error
    finally:
        first.kill()
        first.wait()
    out, error = python(hold).communicate(timeout=30)
    assert out == "1\n", error


def test_what_a_benchmark_starts_is_the_same_benchmark(monkeypatch):
    monkeypatch.setenv(benchmark.BEGUN, "1")
    benchmark.begin()  # no exit, whatever else is measuring here


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGKILL", "SIGINT"])
@pytest.mark.parametrize(
    "command",
    [
        ["sleep", "60"],
        pytest.param(
            [sys.executable, "-m", "refgf.cluster", "run", "--nodes", "2", "--", "sleep", "60"],
            marks=needs_cluster,
            id="cluster",
        ),
    ],
)
def test_what_a_runners_script_started_ends_with_the_runner(command, name):
    """runner -> script -> command; the runner alone gets the signal."""
    mark = uuid.uuid4().hex
    script = [sys.executable, "-c", START, *command]
    runner = python(START, *script, env={MARK: mark})
    try:
        wait_for(lambda: sleeping(mark) >= min(2, len(command) - 1), 30)
        runner.send_signal(getattr(signal, name))
        wait_for(lambda: not processes(mark), 2)
    finally:
        for pid in processes(mark):
            os.kill(pid, signal.SIGKILL)
        runner.communicate(timeout=10)
    assert runner.returncode != 0


def sleeping(mark: str) -> int:
    return sum(command_line(pid) == "sleep 60" for pid in processes(mark))


@pytest.mark.parametrize("ending", ["kill -TERM $$", "kill -HUP $$", "exit 130", "exit 15"])
def test_after_an_interrupted_script_the_runner_stops(tmp_path, monkeypatch, ending):
    """exit 130: an emulated cluster or mpiexec that got SIGINT."""
    shell = f"import subprocess, sys; sys.exit(subprocess.call(['sh', '-c', '{ending}']) % 256)"
    if "kill" in ending:
        shell = f"import os; os.kill(os.getpid(), {getattr(signal, 'SIG' + ending[6:-3])})"
    (tmp_path / "kernels.py").touch()
    (tmp_path / "a_speed.py").write_text(shell)
    (tmp_path / "b_speed.py").write_text("open('b', 'w')")
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py"])
    monkeypatch.setattr(benchmark, "begin", lambda: None)
    with pytest.raises(SystemExit) as left:
        run.main()
    assert left.value.code in (129, 130, 143, 15) and not (tmp_path / "b").exists()
