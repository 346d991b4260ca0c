"""`make gpu-check`: without a GPU it says so; its report grows; a command that hangs is ended."""

import importlib.util
import sys
import time
import types
from pathlib import Path

import pytest
from usable import why_no_gpu

# not `import run`: tests/speed has a run.py too
spec = importlib.util.spec_from_file_location("gpu_run", Path(__file__).with_name("run.py"))
gpu_run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu_run)


def no_driver():
    raise RuntimeError("cudaErrorInsufficientDriver")


@pytest.mark.parametrize(
    "count, told",
    [
        (lambda: 2, None),
        (lambda: 0, "CuPy counts no device"),
        (no_driver, "RuntimeError: cudaErrorInsufficientDriver"),
    ],
)
def test_cupy_without_a_usable_gpu_is_named(monkeypatch, count, told):
    runtime = types.SimpleNamespace(getDeviceCount=count)
    monkeypatch.setitem(
        sys.modules, "cupy", types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))
    )
    assert why_no_gpu() == told


def test_without_a_gpu_nothing_is_run(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu_run, "why_no_gpu", lambda: "no driver")
    monkeypatch.setattr(gpu_run, "commands", None)
    assert gpu_run.main([], tmp_path / "report.txt") == 0
    assert capsys.readouterr().out == "no GPU to check: no driver\n"
    assert not list(tmp_path.iterdir())


def test_the_report_grows_with_each_command(monkeypatch, tmp_path, capfd):
    path = tmp_path / "report.txt"
    lines = [
        "print('first'); import os, sys; print(os.environ['SWITCH'], file=sys.stderr); sys.exit(3)",
        f"print('so far:', open({str(path)!r}).read().count('first'))",
    ]
    monkeypatch.setattr(gpu_run, "why_no_gpu", lambda: None)
    commands = [({"SWITCH": "on"}, [sys.executable, "-c", line]) for line in lines]
    monkeypatch.setattr(gpu_run, "commands", lambda mpiexec: commands)
    assert gpu_run.main([], path) == 1
    report = path.read_text()
    for told in (
        "$ SWITCH=on ",
        "first\n",
        "on\n",
        "exit code 3\n",
        "so far: 2\n",
        "exit code 0\n",
        "1 of 2 commands failed",
    ):
        assert told in report
    assert report.strip() in capfd.readouterr().out


def test_a_command_that_hangs_is_ended_with_what_it_started(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_run, "PATIENCE_S", 0.2)
    beat = tmp_path / "beat"
    child = f"import time\nwhile True: open({str(beat)!r}, 'a').write('x'); time.sleep(0.02)"
    deaf = f"""
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('started', flush=True)
subprocess.run([sys.executable, '-c', {child!r}])
"""
    code, said = gpu_run.run([sys.executable, "-c", deaf], timeout_s=3)
    assert code == "none: ended after 3 s" and said == "started\n" and beat.exists()
    time.sleep(0.2)
    size = beat.stat().st_size
    time.sleep(0.3)
    assert beat.stat().st_size == size


def test_both_ways_of_staging_run_where_mpi_takes_device_pointers(monkeypatch):
    for said, wanted in (
        ("aware True\n", ["0", "0", "1"]),
        ("aware False\n", ["0", "0"]),
        ("Segmentation fault", ["0", "0"]),
    ):
        monkeypatch.setattr(gpu_run, "run", lambda command, said=said: (0, said))
        found = list(gpu_run.commands("mpiexec"))
        switches = [environment["REFGF_CUDA_AWARE"] for environment, _ in found if environment]
        assert switches == wanted
        for _, command in found:
            assert all(Path(part).exists() for part in command if part.startswith("/"))
