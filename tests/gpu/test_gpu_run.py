"""The run on a GPU without one: the sentence, and its parts, trivial ones and real ones.

A part that fails, hangs or cannot run is a row of the page, and the others run.
"""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
import types
import uuid
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpu import parts, perform, usable
from tests.gpu.measure import judge
from tests.gpu.parts import FOLDER, RATIOS, ROOT, Part, Stage
from tests.gpu.usable import why_no_gpu
from tests.support.fake_cuda_c import needs_a_compiler
from tests.support.fake_cupy import installed
from tests.support.jobs import MARK, clean_environment, mpiexec, needs_mpiexec, processes, wait_for
from tests.support.sizes import long_but

# not `import run`: tests/speed has a run.py too
spec = importlib.util.spec_from_file_location("gpu_run", Path(__file__).with_name("run.py"))
gpu_run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu_run)

HERE = Path(__file__).resolve().parent
AS_CUPY = HERE.parent / "support" / "as_cupy"
HELD = judge.compared("held", [0.9], [1.0])
MISSED = judge.compared("missed", [1.2], [1.0])
LONG_S = 280  # of a stage that must not end before its parts
NO_BAR = {key: value for key, value in HELD.items() if key != "wanted"} | {"name": "no bar"}


def trivial(name, code, *arguments, limit_s=60, **options):
    return Part(name, ["-c", code, *arguments], limit_s, **options)


def writes(*rows):
    """A benchmark that measures these rows."""
    return f"import sys; open(sys.argv[1], 'w').write({json.dumps({'rows': rows})!r})"


@pytest.fixture
def checked(monkeypatch, tmp_path):
    """checked(*stages) -> (exit code, gpu.json, gpu.md, gpu.txt), on the stand-in."""
    monkeypatch.setenv(gpu_run.benchmark.BEGUN, "1")  # other tests measure nothing

    def check(*stages, arguments=(), at_a_time=1):
        named = [
            Stage(f"stage {number}", LONG_S, list(parts), at_a_time)
            for number, parts in enumerate(stages)
        ]
        monkeypatch.setattr(gpu_run, "STAGES", named)
        with installed():
            code = gpu_run.main(["--output", str(tmp_path), *arguments])
        read = [tmp_path.joinpath("gpu").with_suffix(suffix).read_text() for suffix in SUFFIXES]
        return code, json.loads(read[0]), *read[1:]

    return check


SUFFIXES = ".json", ".md", ".txt"
SILENT = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


# ---- is there a GPU ----


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


@pytest.mark.skipif(why_no_gpu() is None, reason="there is a GPU here")
def test_without_a_gpu_one_sentence_and_nothing_left_behind(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu_run, "perform", None)
    assert gpu_run.main(["--output", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert told.out == "" and not list(tmp_path.iterdir())
    assert told.err.startswith("gpu-check: got no GPU (") and told.err.count("\n") == 1
    assert "; wanted CuPy and a GPU that it sees; next: " in told.err


def test_a_home_that_takes_no_kernels_is_not_needed(tmp_path):
    """CuPy alone would not be imported there."""
    environment = clean_environment() | {"HOME": "/dev/null/home", "TMPDIR": str(tmp_path)}
    environment["PYTHONPATH"] = f"{AS_CUPY}{os.pathsep}{environment['PYTHONPATH']}"
    command = [sys.executable, HERE / "run.py", "--only", "neither"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert "no part has such a name" in ended.stderr and not list(tmp_path.iterdir())
    alone = subprocess.run([sys.executable, "-c", "import cupy"], env=environment, **SILENT)
    assert alone.returncode


@pytest.mark.parametrize(
    "says, sentence",
    [("aware True", None), ("aware False", "MPI is not CUDA-aware"), ("", "MPI is not CUDA-aware")],
)
def test_mpi_is_asked_whether_it_takes_device_pointers(tmp_path, says, sentence):
    launcher = tmp_path / "mpiexec"
    launcher.write_text(f"#!/bin/sh\necho '{says}'\n")
    launcher.chmod(0o755)
    assert usable.why_no_device_pointers(str(launcher)) == sentence


def test_wheels_of_another_python_are_named_and_left(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    own = sys.implementation.cache_tag
    for name, tags in {
        "plain_a": [],
        "plain_b": ["cpython-27", own],
        "old": ["cpython-27"],
    }.items():
        with zipfile.ZipFile(tmp_path / f"{name}.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", "")
            for tag in tags:
                wheel.writestr(f"{name}/fast.{tag}-x86_64-linux-gnu.so", "")
    assert usable.prepare(tmp_path, tmp_path / "out") == ["plain_a", "plain_b"]
    said = capsys.readouterr().err
    assert "gpu-check: got CPython 3." in said and " wheels for another one of old; next: " in said


@pytest.mark.parametrize(
    "torch, sentence",
    [
        ("class cuda: is_available = lambda: True", None),
        ("class cuda: is_available = lambda: False", "PyTorch sees no GPU"),
        ("raise ImportError('libcudart.so.13')", "no PyTorch: ImportError: libcudart.so.13$"),
        ("print('begun', flush=True); import os; os.abort()", "no PyTorch: begun"),
        ("import os; os.abort()", "no PyTorch: "),
        ("import time; time.sleep(60)", "no PyTorch: no answer after 2 s"),
    ],
)
def test_a_pytorch_that_crashes_or_hangs_is_none(monkeypatch, tmp_path, torch, sentence):
    (tmp_path / "torch.py").write_text(torch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(usable, "TORCH_SECONDS", 2 if "sleep" in torch else 60)
    said = usable.why_no_torch.__wrapped__()
    assert said is None if sentence is None else re.match(sentence, said)


# ---- trivial parts ----


def test_each_part_stands_alone(checked, capsys):
    """One that fails, one over its limit, one skipped, one that cannot start: rows of the page."""
    code, record, told, text = checked(
        [
            trivial("fails", "import sys; print('seen | last'); sys.exit(3)"),
            trivial("hangs", "print('begun', flush=True); import time; time.sleep(60)", limit_s=2),
            trivial("skipped", "", missing=lambda mpiexec: f"no PyTorch for {mpiexec}"),
            trivial("no launcher", "", ranks=2),
            trivial("on threads", "import sys; print(sys.argv)", ranks=2, on_threads=("--two",)),
            trivial("writes no ratios", "", RATIOS),
            trivial("measures", writes(HELD, MISSED, NO_BAR), RATIOS),
            trivial("switched", "import os; print(os.environ['A'])", environment={"A": "on"}),
        ],
        [trivial("lesson", f"open('{FOLDER}/01.json', 'w').write('[7]')")],
        arguments=["--mpiexec", "/no/mpiexec"],
    )
    assert code == 1
    found = {part["name"]: (part["outcome"], part["reason"]) for part in record["parts"]}
    no_file = "no MPI: [Errno 2] No such file or directory: '/no/mpiexec'"
    assert found == {
        "fails": ("failed", "exit code 3"),
        "hangs": ("failed", "ended after 2 s, its limit"),
        "skipped": ("skipped", "no PyTorch for /no/mpiexec"),
        "no launcher": ("skipped", no_file),
        "on threads": ("ok", ""),
        "writes no ratios": ("failed", "no ratios were written"),
        "measures": ("ok", ""),
        "switched": ("ok", ""),
        "lesson": ("ok", ""),
    }
    assert [(ratio["name"], ratio["verdict"]) for ratio in record["ratios"]] == [
        ("held", "ok"),
        ("missed", "MISS"),
        ("no bar", None),
    ]
    assert record["gpu"] == "a stand-in on the CPU" and "9 parts: 4 ok, 3 failed, 2 skip" in told
    for line in (
        "| stage 0 | hangs | 1 | failed |",
        "| skipped | 1 | skipped | 0.0 | no PyTorch for /no/mpiexec |",
        "| missed | 1.20 | 1.20 to 1.20 | at most 1 | MISS |",
        "| no bar | 0.90 | 0.90 to 0.90 | - | - |",
        "seen | last\n~~~",
        "begun\n~~~",
    ):
        assert line in told
    assert "on\n" in text and "--two" in text
    assert (
        record["parts"][-1]["records"] == {"01": [7]} and record["parts"][-1]["stage"] == "stage 1"
    )
    out = capsys.readouterr().out
    assert "ok   held: 0.90 (wanted at most 1)" in out and "MISS missed: 1.20 (w" in out


@pytest.mark.parametrize("row, code", [(HELD, 0), (NO_BAR, 0), (MISSED, 1)])
def test_the_exit_code_is_1_if_a_bar_is_missed(checked, row, code):
    assert checked([trivial("measures", writes(row), RATIOS)])[0] == code


def test_the_page_grows_with_each_part(checked, tmp_path):
    see = f"print(open({str(tmp_path / 'gpu.md')!r}).read())"
    _, _, told, text = checked([trivial("first", "print(1)"), trivial("second", see)])
    assert "2 parts: 1 ok, 0 failed, 0 skipped, 1 not yet ended." in text
    assert "2 parts: 2 ok, 0 failed, 0 skipped." in told


def test_all_parts_end_in_time(checked):
    """A part gets what time is left, and where none is left it is skipped: the last stages."""
    start_s = time.monotonic()
    sleep = [trivial(name, "import time; time.sleep(60)") for name in ("long", "late")]
    code, record, *_ = checked(sleep[:1], sleep[1:], arguments=["--minutes", "0.05"])
    assert code == 1 and time.monotonic() - start_s < 3 + 2 * perform.PATIENCE_S
    assert [part["outcome"] for part in record["parts"]] == ["failed", "skipped"]
    assert record["parts"][1]["reason"] == "no time was left"


def test_lessons_run_a_few_at_a_time(checked, tmp_path):
    """Each sees the files of the others; as many as three at once, never more."""
    code = (
        "import os, sys, time\nplace = sys.argv[1]; mine = f'{place}/{os.getpid()}'\n"
        "open(mine, 'w').close(); end_s, most = time.time() + 4, 0\n"
        "while time.time() < end_s:\n"
        "    most = max(most, len(os.listdir(place))); time.sleep(0.02)\n"
        "print('at once', most); os.remove(mine)\n"
    )
    (folder := tmp_path / "running").mkdir()
    lessons = [trivial(f"lesson {n}", code, str(folder)) for n in range(5)]
    _, _, _, text = checked(lessons, at_a_time=3)
    seen = [int(line.split()[2]) for line in text.splitlines() if line.startswith("at once")]
    assert len(seen) == 5 and max(seen) == 3


def test_parts_are_chosen_by_name(checked, capsys):
    every = [trivial("one", ""), trivial("other", "")]
    _, record, *_ = checked(every, arguments=["--only", "other"])
    assert [part["name"] for part in record["parts"]] == ["other"]
    with pytest.raises(SystemExit):
        checked(every, arguments=["--only", "neither"])
    assert "--only 'neither': no part has such a name; next: " in capsys.readouterr().err


DEAF = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('started', flush=True)
subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])
"""


@pytest.fixture
def mark(monkeypatch):
    """Of all processes that the test starts."""
    monkeypatch.setenv(MARK, name := uuid.uuid4().hex)
    yield name
    for pid in set(processes(name)) - {os.getpid()}:
        os.kill(pid, signal.SIGKILL)


def test_a_part_that_hangs_is_ended_with_what_it_started(monkeypatch, mark):
    monkeypatch.setattr(perform, "PATIENCE_S", 0.2)
    (row,) = perform.perform([trivial("deaf", DEAF, limit_s=12)], "", time.monotonic() + 60)
    assert row["reason"] == "ended after 12 s, its limit" and row["output"] == "started\n"
    wait_for(lambda: not processes(mark))  # what was killed leaves when it gets a core


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_what_it_started_ends_with_it(mark, tmp_path, number):
    """SIGTERM as at the end of run.py; after SIGKILL the kernel ends the part."""
    code = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(1)); "
        "from tests.gpu.parts import Part; from tests.gpu.perform import perform; "
        "hangs = Part('hangs', ['-c', 'import time; time.sleep(60)'], 60); "
        "print(list(perform([hangs], '', time.monotonic() + 60)))"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    environment |= {"TMPDIR": str(tmp_path)}
    job = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(processes(mark)) == 2)
    job.send_signal(number)
    assert job.wait(20) != 0
    wait_for(lambda: not processes(mark))
    assert number == signal.SIGKILL or not list(tmp_path.iterdir())


# ---- the real parts ----


def test_the_parts_are_what_they_say():
    every = [part for stage in parts.STAGES for part in stage.parts]
    assert len({part.name for part in every}) == len(every)
    for part in every:
        script = next(word for word in part.arguments if not word.startswith("-"))
        assert script in ("pytest", "refgf.doctor", "mpi4py") or (ROOT / script).is_file(), part
    # and the last part of each stage that fails has its patience, too
    ends_s = [stage.limit_s + 2 * perform.PATIENCE_S for stage in parts.STAGES]
    assert sum(stage.limit_s for stage in parts.STAGES) <= 9 * 60 and sum(ends_s) < 600


def test_pages_say_what_the_figure_has():
    record = json.loads((ROOT / "figures/gpu/gpu.json").read_text())
    rates = {
        ratio["name"].partition(":")[0]: ratio["ratio"]
        for ratio in record["ratios"]
        if ratio["name"].endswith("refgf over PyTorch")
    }
    words = {3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth"}
    slowest, fastest = (words[round(1 / f(rates.values()))] for f in (min, max))
    assert f"a {slowest} to a {fastest} of PyTorch's rate" in (ROOT / "README.md").read_text()
    told = (ROOT / "docs/gpu.md").read_text()
    assert len(rates) == 5 and all(f"{rate:.2f}" in told for rate in rates.values())


def test_networks_and_precisions_are_those_of_the_benchmark():
    from tests.gpu.speed_networks import CASES, PRECISIONS

    assert set(CASES) == set(parts.NETWORKS) and set(PRECISIONS) == set(parts.PRECISIONS)


REAL_PARTS = ["doctor", "lesson 01", "the ring's bits on 2 ranks"]
REAL_PARTS += [f"tests of {name} on 4 ranks, device pointers" for name in parts.OF_RANKS]


@needs_mpiexec
@needs_a_compiler
@pytest.mark.parametrize("name", long_but(REAL_PARTS, "doctor"))
def test_a_real_part_on_the_stand_in(checked, monkeypatch, name):
    """The command starts, finds CuPy and runs to its end. MPI takes the stand-in's pointers."""
    shims = str(AS_CUPY)
    for variable in clean_environment().keys() ^ os.environ.keys():
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PYTHONPATH", f"{shims}{os.pathsep}{clean_environment()['PYTHONPATH']}")
    monkeypatch.setenv("REFGF_CUDA_AWARE", str(int("pointers" in name)))
    usable.why_no_device_pointers.cache_clear()
    (part,) = [part for stage in parts.STAGES for part in stage.parts if part.name == name]
    slowly = replace(part, limit_s=LONG_S)  # the stand-in is slow
    code, record, _, text = checked([slowly], arguments=["--mpiexec", mpiexec()])
    assert code == 0, text
    assert "pointers" not in name or " passed" in text
    assert "14.0.0+standin" in text or name != "lesson 01"
    assert record["parts"][0]["outcome"] == "ok"
