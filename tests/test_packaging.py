"""Set-up files agree with each other."""

import re
import tomllib
from pathlib import Path

import pytest

from refgf.oracle.foreign import closure

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


def test_every_supported_python_is_tested():
    """By the workflow; and the recipe of the hooks is that of .ci/run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r":: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", workflow)[1]) == named
    assert f">={named[0]}" == project["requires-python"]
    assert not [
        use for use in re.findall("uses: (.*)", workflow) if not re.match(".*@[0-9a-f]{40}", use)
    ]
    recipe = (ROOT / ".ci" / "run").read_text()
    hooks = re.findall("entry: (.*)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert hooks and all(re.search(rf"^{hook}( \.)?$", recipe, re.M) for hook in hooks)


def test_every_dependency_says_what_it_is_for():
    text = (ROOT / "pyproject.toml").read_text().split("[project]")[1].split("[tool.")[0]
    for line in text.splitlines():
        if re.match(r'\s*("[\w-]+>=|[\w-]+ = \["[\w-]+>=)', line):
            assert "#" in line, line


def test_one_version_everywhere():
    """Of the wheel, the citation, the newest changes and conda-forge's recipe."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    places = {
        "CITATION.cff": r"^version: (.+)$",
        "CHANGELOG.md": r"^## (\d\S+)",
        ".ci/recipe.yaml": r'^  version: "(.+)"$',
    }
    for name, pattern in places.items():
        found = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
        assert found[1] == project["version"], name


def test_the_recipe_needs_what_the_wheel_needs():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    text = (ROOT / ".ci" / "recipe.yaml").read_text()
    least = re.search(r'python_min: "(.+)"', text)[1]
    assert f">={least}" == settings["project"]["requires-python"]
    host, run = text.split("requirements:")[1].split("tests:")[0].split("  run:")
    for part, wanted in (
        (host, settings["build-system"]["requires"]),
        (run, settings["project"]["dependencies"]),
    ):
        found = bounds(re.findall(r"^    - ([\w-]+ ?>=.*)$", part, re.MULTILINE))
        found = {name: bound.strip() for name, bound in found.items() if name != "python"}
        assert found == bounds(wanted)


def test_a_folder_that_an_older_version_left_behind_is_no_package(tmp_path, monkeypatch):
    """git pull removes a package's files, and leaves its folder with __pycache__ in it."""
    (tmp_path / "refgf" / "moved" / "__pycache__").mkdir(parents=True)
    (tmp_path / "refgf" / "__init__.py").touch()
    (tmp_path / "refgf" / "moved.py").write_text("import json\n")
    monkeypatch.setattr(closure, "ROOT", tmp_path)
    files, libraries = closure.closure(["refgf.moved"])
    assert set(files) == {"refgf/__init__.py", "refgf/moved.py"} and not libraries


DEPTHS = """
def f(x):
    match x:
        case 1:
            import a
    try:
        import b
    except KeyError:
        import c
    else:
        from d.e import g
    finally:
        with x:
            import h
    if x:
        pass
    else:
        async def k():
            while x:
                import j
"""


def test_imports_at_any_depth_are_found():
    assert sorted(closure.imported(DEPTHS)) == ["a", "b", "c", "d.e", "h", "j"]
