"""`MPI=site` in a fresh clone, with MPIs that are loaded as a cluster's modules are.

Debian's MPICH 4.0 and Open MPI 4.1 are unpacked, not installed, and Intel MPI's wheel lies in a
folder of its own: PATH and LD_LIBRARY_PATH name them. One environment sees them all, one after the
other, because modules change.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.jobs import OF_A_LAUNCHER

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("git", "make", "apt-get", "apt-cache", "dpkg")
MISSING = [name for name in NEEDED if not shutil.which(name)]
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1200),  # installs an environment: 1 minute on an idle machine
    pytest.mark.skipif(bool(MISSING), reason=f"no {MISSING}: a clone, and packages of Debian"),
]
PACKAGE = re.compile(r"^((?:lib|ibverbs|openmpi|mpich)[\w.+-]*)$", re.MULTILINE)
NO = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
OF_OTHERS = ("MAKE", "MFLAGS", "MPI", "VENV", "VIRTUAL_ENV", "PYTHONPATH", "OMPI_", "PRTE_")
INTEL = "impi-rt==2021.14.2"  # 2021.19 needs a libfabric that PyPI does not have


def run(*command, folder, env):
    """(exit code, output) of a command that must end in time."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "timeout": 600}
    done = subprocess.run(list(map(str, command)), cwd=folder, env=env, text=True, **options)
    return done.returncode, done.stdout


def apt(*command, folder):
    code, said = run(*command, folder=folder, env=os.environ)
    if code:
        pytest.skip(f"{' '.join(command[:3])} ends with {code}; next: apt-get update")
    return said


def debian(package: str, folder: Path) -> dict[str, str]:
    """The variables of a module: this package, with those that it needs and that are not here."""
    told = apt(
        "apt-cache",
        "depends",
        "--recurse",
        *(f"--no-{kind}" for kind in NO),
        package,
        folder=folder,
    )
    lines = [line for line in PACKAGE.findall(told) if not installed(line)]
    apt("apt-get", "download", *sorted({*lines, package}), folder=folder)
    for path in folder.glob("*.deb"):
        assert run("dpkg", "-x", path, folder / "root", folder=folder, env=os.environ)[0] == 0
    usr = folder / "root" / "usr"
    libraries = next(usr.glob("lib/*-linux-gnu*"))
    name = package.removesuffix("-bin")
    (usr / "bin" / "mpiexec").symlink_to(f"mpiexec.{name}")  # as update-alternatives does
    module = {
        "PATH": f"{usr / 'bin'}",
        "LD_LIBRARY_PATH": f"{libraries}:{folder / 'root' / libraries.relative_to(usr)}",
    }
    if name == "openmpi":  # how it is told that it lies elsewhere
        module |= {"OPAL_PREFIX": f"{usr}", "PMIX_INSTALL_PREFIX": f"{libraries / 'pmix2'}"}
    return module


def installed(package: str) -> bool:
    asked = ["dpkg-query", "-W", "-f", "${Status}", package]
    return subprocess.run(asked, capture_output=True, text=True).stdout.endswith("ok installed")


def intel(package: str, folder: Path) -> dict[str, str]:
    command = ["-m", "pip", "install", "--quiet", "--no-deps", "--prefix", folder, package]
    code, said = run(sys.executable, *command, folder=folder, env=os.environ)
    assert code == 0, said
    fabric = folder / "lib" / "libfabric"
    return {
        "PATH": f"{folder / 'bin'}",
        "LD_LIBRARY_PATH": f"{folder / 'lib'}:{fabric}",
        "I_MPI_ROOT": f"{folder}",
        "FI_PROVIDER_PATH": f"{fabric / 'prov'}",
    }


FEW_CORES = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "true",
}
HALVES = """
import refgf.launch
from mpi4py import MPI
from refgf.comm.native import mpi_allreduce, np

x = np.full(1001, 0.1, np.float16)
mpi_allreduce(MPI.COMM_WORLD)(x)
assert abs(x - 0.3).max() < 1e-3, x
"""
SITES = {
    "MPICH Version 4": (debian, "mpich"),
    "Open MPI v4": (debian, "openmpi-bin"),
    "Intel(R) MPI": (intel, INTEL),
}


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """module(NAME): this process's environment with that MPI loaded, and no other."""
    loaded = {}

    def load(name: str) -> dict[str, str]:
        if name not in loaded:
            make, package = SITES[name]
            loaded[name] = make(package, tmp_path_factory.mktemp("module"))
        others = (*OF_OTHERS, *OF_A_LAUNCHER)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(others)}
        path = f"{loaded[name]['PATH']}:{kept['PATH']}"
        return kept | loaded[name] | {"PATH": path}

    return load


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clone") / "refgf"
    assert run("git", "clone", "--quiet", ROOT, folder, folder=ROOT, env=os.environ)[0] == 0
    return folder


@pytest.mark.parametrize("name", [*SITES, next(iter(SITES))], ids=lambda name: name.split()[0])
def test_the_first_command_on_a_cluster(clone, module, name, tmp_path):
    """The first command of lessons/cluster/README.md, the demo, then doctor's advice by hand."""
    env = module(name)
    code, said = run("make", "setup", "MPI=site", folder=clone, env=env)
    assert code == 0 and not re.search("^make.*warning|^Makefile|^broken", said, re.M), said
    options = ("NODES=1", "RANKS=5", f"ARGS=--quick --output {tmp_path}")
    code, said = run("make", "demo", "MPI=site", *options, folder=clone, env=env)
    assert code == 0 and "on 5 ranks" in said, said
    python = clone / ".venv-site" / "bin" / "python"
    assert not list(python.parent.glob("mpiexec*"))
    (clone / ".venv-site" / "lib" / "libmpi.so.12").unlink(missing_ok=True)
    doctor = f"{python} -m refgf.doctor"
    _, said = run("sh", "-c", doctor, folder=clone, env=env)
    cures = re.findall(r"^broken .*\n +-> (.*)$", said, re.MULTILINE)
    assert not re.search("install [^\n]*(mpich|openmpi)", said), said
    code, said = run("sh", "-c", "\n".join([*cures, doctor]), folder=clone, env=env)
    assert code == 0 and name in said and "broken" not in said, f"{cures}\n{said}"
    programs = [("-c", HALVES)]
    if name == "Open MPI v4":  # it has no type for float16
        programs += [("lessons/05_mixed_precision.py", "--quick", "--output", f"{tmp_path}")]
    for program in programs:
        started = shlex.join(["mpiexec", "-n", "3", f"{python}", *program])
        code, said = run(
            "sh", "-c", "\n".join([*cures, started]), folder=clone, env=env | FEW_CORES
        )
        assert code == 0, said
