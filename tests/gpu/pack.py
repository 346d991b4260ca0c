"""`make gpu-pack`: a folder with all that the first run on a GPU needs, without a network.

    python tests/gpu/pack.py [--python 3.12] [FOLDER]

FOLDER (build/gpu) gets run.sh, the files of the checkout that run.py uses, and wheels for CPython
on Linux, x86-64: wheels/MODULE.whl. `run.py` unpacks only those that the machine lacks.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import sklearn

from tests.gpu.parts import ROOT

LARGEST = 55 * 10**6  # bytes
FILES = ["refgf", "lessons/*.py", "lessons/kit", "lessons/lab", "tests/gpu", "tests/support"]
FILES += ["tests/speed", "tests/baselines", ":(glob)tests/*.py", "pyproject.toml"]
FILES += ["tests/engine/test_fused_gpu.py"]
FILES += [":!tests/test_*", ":!refgf/oracle/golden", ":!refgf/site"]
WHEELS = {  # of PyPI, by the module that says whether a machine has it
    "mpi4py": "mpi4py",
    "mpich": "mpich",
    "pytest": "pytest",
    "pluggy": "pluggy",
    "iniconfig": "iniconfig",
    "packaging": "packaging",
    "pygments": "pygments",
    "pytest_mpi": "pytest-mpi",
    "pytest_timeout": "pytest-timeout",
    "threadpoolctl": "threadpoolctl",
    "safetensors": "safetensors",
    "ml_dtypes": "ml_dtypes",
    "PIL": "pillow",
    "matplotlib": "matplotlib",
    "contourpy": "contourpy",
    "cycler": "cycler",
    "dateutil": "python-dateutil",
    "fontTools": "fonttools",
    "kiwisolver": "kiwisolver",
    "pyparsing": "pyparsing",
    "six": "six",
}
PLATFORMS = "manylinux_2_28_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64 manylinux1_x86_64"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", default="3.12", help="the GPU machine's (default: 3.12)")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "gpu")
    options = parser.parse_args(arguments)
    shutil.rmtree(options.folder, ignore_errors=True)
    listed = subprocess.check_output(["git", "ls-files", *FILES], cwd=ROOT, text=True)
    for name in listed.splitlines():
        target = options.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    shutil.copy(ROOT / "tests/gpu/run.sh", options.folder)
    download(options.python, options.folder / "wheels")
    bring_digits(options.folder / "wheels")
    size = sum(file.stat().st_size for file in options.folder.rglob("*") if file.is_file())
    if size > LARGEST:
        sys.exit(
            f"gpu-pack: got {size / 1e6:.0f} MB; wanted {LARGEST / 1e6:.0f}; next: FILES, WHEELS"
        )
    print(f"{options.folder}: {size / 1e6:.0f} MB, wheels for CPython {options.python}, x86-64")
    print(f"there, with a Python that has CuPy and NumPy: sh {options.folder.name}/run.sh")


def download(python: str, folder: Path) -> None:
    platforms = [word for name in PLATFORMS.split() for word in ("--platform", name)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *platforms]
    command += ["--only-binary", ":all:", "--python-version", python, "--implementation", "cp"]
    folder.mkdir()
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([*command, "--dest", place, *WHEELS.values()], check=True)
        for module, name in WHEELS.items():
            (wheel,) = Path(place).glob(f"{name.replace('-', '_')}-*.whl")
            shutil.copy(wheel, folder / f"{module}.whl")


def bring_digits(folder: Path) -> None:
    """Of scikit-learn the lessons read one file of 56 kB: a wheel that holds only this."""
    data = Path("sklearn/datasets/data/digits.csv.gz")
    site = Path(sklearn.__file__).parents[1]
    with zipfile.ZipFile(folder / "sklearn.whl", "w") as wheel:
        wheel.writestr("sklearn/__init__.py", "")
        wheel.write(site / data, data)


if __name__ == "__main__":
    main()
