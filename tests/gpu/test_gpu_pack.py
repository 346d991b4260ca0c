"""The packed run as its machine would: no network, an empty home, a Python that has NumPy alone.

CuPy is the stand-in. Each stage is made to hang or to crash once, with short limits.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
import time
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from tests.gpu import pack
from tests.gpu.parts import ROOT, STAGES
from tests.support.fake_cuda_c import needs_a_compiler

LIMIT_S, BROKEN = 4, ("import time; time.sleep(600)", "import os; os.abort()")
SHORT = """
STAGES = [Stage(s.name, {limit}, [Part(s.name, ["-c", CODES[s.name]], {limit})]) for s in STAGES]
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """run(folder, *arguments): run.sh of a pack, there."""
    place = tmp_path_factory.mktemp("machine")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    pack.main(["--python", version, str(place / "gpu")])
    (place / "numpy").mkdir()
    for folder in Path(np.__file__).parents[1].glob("numpy*"):  # numpy.libs, too
        (place / "numpy" / folder.name).symlink_to(folder)
    (place / "home").mkdir()
    alone = ["unshare", "--map-root-user", "--net"]
    if subprocess.run([*alone, "true"], stderr=subprocess.DEVNULL).returncode:
        alone = []  # no namespaces here
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(place / "home"),
        "PYTHON": os.path.realpath(sys.executable),  # without this environment's packages
        "PYTHONPATH": f"{place / 'numpy'}:{ROOT / 'tests/support/as_cupy'}",
    }

    def run(folder, *arguments):
        command = [*alone, "sh", folder / "run.sh", "--output", folder / "out", *arguments]
        ended = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True)
        assert (folder / "out" / "gpu.md").exists(), ended.stderr
        return ended, json.loads((folder / "out" / "gpu.json").read_text())

    run.place = place
    return run


def test_what_the_parts_import_is_in_the_pack(machine):
    """Imports inside functions too: AlexNet's rivals were missing on the first card."""
    folder, missing = machine.place / "gpu", []
    for file in [*(folder / "tests/gpu").glob("*.py"), *(folder / "lessons").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                path = folder / node.module.replace(".", "/")
                ours = path.relative_to(folder).parts[0] in ("refgf", "lessons", "tests")
                if ours and not (path.is_dir() or path.with_suffix(".py").exists()):
                    missing.append(f"{file.name}: {node.module}")
    assert not missing


@needs_a_compiler
def test_the_ring_has_its_bits_on_the_mpi_of_the_pack(machine):
    _, record = machine(machine.place / "gpu", "--only", "the ring")
    assert record["mpi"] == "MPI of the pack" and record["cupy"].endswith("+standin")
    assert [part["outcome"] for part in record["parts"]] == ["ok", "ok"], record


@needs_a_compiler
def test_without_any_mpi_the_ranks_are_threads(machine, tmp_path):
    shutil.copytree(machine.place / "gpu", tmp_path / "gpu")
    (tmp_path / "gpu/wheels/mpich.whl").unlink()
    (tmp_path / "gpu/wheels/mpi4py.whl").unlink()
    _, record = machine(tmp_path / "gpu", "--only", "lesson 01")
    outcomes = {part["name"]: part["outcome"] for part in record["parts"]}
    assert record["mpi"].startswith("no MPI: ") and outcomes["lesson 01"] == "ok"


@pytest.mark.parametrize("first", [0, 1])
def test_a_stage_that_fails_stops_no_other(machine, tmp_path, first):
    """Each second one fails, in either way."""
    broken = {s.name: code for s, code in zip(STAGES[first::2], cycle(BROKEN))}
    folder = tmp_path / "gpu"
    shutil.copytree(machine.place / "gpu", folder)
    codes = {stage.name: "print('done')" for stage in STAGES} | broken
    with (folder / "tests/gpu/parts.py").open("a") as file:
        file.write(f"CODES = {codes}\n{SHORT.format(limit=LIMIT_S)}")
    start_s = time.monotonic()
    ended, record = machine(folder)
    outcomes = {part["name"]: part["outcome"] for part in record["parts"]}
    assert outcomes == dict.fromkeys(codes, "ok") | dict.fromkeys(broken, "failed"), ended.stdout
    assert list(outcomes) == [stage.name for stage in STAGES] and ended.returncode == 1
    assert time.monotonic() - start_s < 300
