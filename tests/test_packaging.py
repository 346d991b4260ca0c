"""Set-up files agree with each other, and imports go one way."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONDA_NAMES = {"matplotlib": "matplotlib-base", "cupy-cuda12x": "cupy"}
# what a conda file has beside the packages of pyproject.toml, and why
CONDA_ONLY = {"python": "requires-python", "ucx": "openmpi", "cuda-version": "cupy", "cuda-cudart": "cupy"}


def bounds(requirements):
    """{'numpy': '>=2'} from ['numpy>=2']."""
    return dict(re.fullmatch(r"([\w-]+)(.*)", text.strip()).groups() for text in requirements)


def conda(name):
    lines = (ROOT / name).read_text().split("dependencies:")[1].split("variables:")[0].splitlines()
    return bounds(line.split("#")[0].strip(" -") for line in lines if line.strip().startswith("-"))


@pytest.mark.parametrize(
    "file, extras",
    [("environment.yml", ["mpich", "lessons", "oracle", "dev"]),
     ("environment-gpu.yml", ["openmpi", "gpu", "lessons", "oracle", "dev"])],
)  # fmt: skip
def test_conda_files_name_what_pyproject_names(file, extras):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = bounds(project["dependencies"] + [r for extra in extras for r in project["optional-dependencies"][extra]])
    wanted = {CONDA_NAMES.get(name, name): bound for name, bound in wanted.items()}
    got = conda(file)
    assert got["python"] == project["requires-python"]
    assert {name: bound for name, bound in got.items() if name not in CONDA_ONLY} == wanted


def test_every_dependency_says_what_it_is_for():
    text = (ROOT / "pyproject.toml").read_text().split("[project]")[1].split("[tool.")[0]
    for line in text.splitlines():
        if re.match(r'\s*("[\w-]+>=|[\w-]+ = \["[\w-]+>=)', line):
            assert "#" in line, line


FLOORS = ["comm", "exchange", "nn", "training", "predict", "oracle", "cluster"]
ALLOWED = {  # floor: what it may import of refgf besides itself and EVERYBODY's
    "comm": [],
    "nn": [],
    "predict": [],
    "oracle": [],
    "cluster": [],
    "exchange": ["refgf.comm.slices"],
    "training": ["refgf.comm", "refgf.exchange", "refgf.nn"],
}
EVERYBODY = ["refgf.device", "refgf.engine.fused", "refgf.engine.half", "refgf.machine.units"]
ALONE = {"cupy": "refgf/device.py", "numba": "refgf/engine/fused.py"}  # who may import them
MPI4PY = ["refgf/launch", "refgf/doctor", "refgf/device.py"]
LAZY_MPI4PY = ["refgf/cluster/probe.py"]  # a program that runs on ranks, as lessons are


def imports(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield from ([f"refgf.{alias.name}" for alias in node.names] if node.module == "refgf" else [node.module])


def test_imports_go_one_way():
    wrong = []
    for file in sorted((ROOT / "refgf").rglob("*.py")):
        place = file.relative_to(ROOT)
        floor = place.parts[1] if place.parts[1] in FLOORS else None
        for name in imports(file):
            if name.split(".")[0] == "mpi4py" and not str(place).startswith((*MPI4PY, *LAZY_MPI4PY)):
                wrong.append(f"{place} imports {name}")
            if str(place) != ALONE.get(name.split(".")[0], str(place)):
                wrong.append(f"{place} imports {name}")
            if name.startswith("refgf") and floor:
                allowed = [f"refgf.{floor}", *EVERYBODY, *ALLOWED[floor]]
                if not any(name == a or name.startswith(a + ".") for a in allowed):
                    wrong.append(f"{place} imports {name}")
            if name == "refgf" or name.split(".")[0] in ("kit", "lab", "lessons"):
                wrong.append(f"{place} imports {name}")
    assert not wrong


def test_modules_stay_short():
    too_long = {
        str(f.relative_to(ROOT)): n
        for f in [*(ROOT / "refgf").rglob("*.py"), *(ROOT / "lessons").rglob("*.py")]
        if (n := len(f.read_text().splitlines())) > 400
    }
    assert not too_long
