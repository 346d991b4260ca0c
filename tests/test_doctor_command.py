"""`python -m refgf.doctor`, alone and in a job."""

import pytest

import refgf.doctor.__main__ as doctor
from refgf.doctor.checks_mpi import family
from tests.support import jobs

SECONDS = 30


def statuses(ended, topic):
    lines = [line for line in ended.stdout.splitlines() if line[8:].startswith(f"{topic} ")]
    return [line.split(None, 1)[0] for line in lines]


@jobs.needs_mpiexec
def test_one_process():
    ended = jobs.run_job(0, ["-m", "refgf.doctor"], timeout=SECONDS)
    assert ended.code == 0 and ended.stdout.startswith("refgf doctor, one process on "), ended.text
    assert statuses(ended, "start") == statuses(ended, "threads") == ["ok"], ended.text
    assert "MPI4PY_RC_THREAD_LEVEL=multiple  (by refgf.launch;" in ended.stdout


LATE = """
import numpy, mpi4py.MPI, refgf.launch as launch
from refgf.doctor.facts import _users_mpi_variables
from tests.support.jobs import clean_environment
names = {setting.name for setting in launch.settings}
print(*{setting.by for setting in launch.settings}, names & set(clean_environment()))
print(_users_mpi_variables(names))
"""


@jobs.needs_mpiexec
def test_what_launch_sets_too_late_is_not_the_users_either():
    ended = jobs.run_job(0, ["-c", LATE], timeout=SECONDS)
    assert ended.stdout == "late set()\n[]\n", ended.text


@jobs.needs_mpiexec
def test_one_rank_of_a_job_prints():
    ended = jobs.run_job(3, ["-m", "refgf.doctor"], timeout=SECONDS, env={"OMP_NUM_THREADS": "1"})
    assert ended.code == 0 and ended.stdout.count("refgf doctor, 3 ranks on ") == 1, ended.text
    assert statuses(ended, "size") == statuses(ended, "agreement") == ["ok"], ended.text
    assert "OMP_NUM_THREADS=1  (by you;" in ended.stdout


@jobs.needs_mpiexec
def test_a_launcher_of_another_mpi_is_reported_before_mpi_starts():
    """The variables of the launcher that does not belong to this MPI."""
    hydra = {"PMI_SIZE": "2", "PMI_RANK": "0", "MPI_LOCALNRANKS": "2"}
    open_mpi = {f"OMPI_COMM_WORLD_{name}": "2" for name in ("SIZE", "LOCAL_SIZE")}
    open_mpi["OMPI_COMM_WORLD_RANK"] = "0"
    other = open_mpi if family(doctor.collect()["mpi"]) == "MPICH" else hydra
    ended = jobs.run_job(0, ["-m", "refgf.doctor"], timeout=SECONDS, env=other)
    assert ended.code == 1 and statuses(ended, "launcher") == ["broken"], ended.text
    assert "-> " in ended.stdout and "/mpiexec -n 2 " in ended.stdout


@jobs.needs_mpiexec
def test_a_launcher_that_refuses():
    nothing = dict.fromkeys(jobs.EVERYWHERE)
    ended = jobs.run_job(0, ["-m", "refgf.doctor"], timeout=SECONDS, env=nothing)
    if family(doctor.collect()["mpi"]) == "MPICH":
        assert ended.code == 0, ended.text  # MPICH refuses nothing
    elif doctor.collect()["uid"] == 0:
        assert ended.code == 1, ended.text
        assert statuses(ended, "root") == statuses(ended, "start") == ["broken"], ended.text


def test_gpu_option_without_a_gpu():
    if doctor.collect()["gpus"]:
        pytest.skip("there is a GPU here: tests/gpu has the tests")
    ended = jobs.run_job(0, ["-m", "refgf.doctor", "--gpu"], timeout=SECONDS)
    assert ended.code == 1 and statuses(ended, "GPU") == ["broken"], ended.text


@jobs.needs_mpiexec
@pytest.mark.parametrize("library", [None, "/nowhere/libmpi.so.12"])
def test_set_up_prints_only_what_is_broken(library):
    env = {"MPI4PY_LIBMPI": library}
    ended = jobs.run_job(0, ["-m", "refgf.doctor", "--setup"], timeout=SECONDS, env=env)
    assert ended.code == int(library is not None) and ended.stdout == "", ended.text
    lines = ended.stderr.splitlines()
    assert (len(lines) > 2 and lines[0].startswith("broken")) == (library is not None), ended.text
    assert not library or lines[-1].endswith("/python -m refgf.doctor")


@jobs.needs_mpiexec
def test_gpu_in_a_job_is_refused_once():
    ended = jobs.run_job(2, ["-m", "refgf.doctor", "--gpu"], timeout=SECONDS)
    assert ended.code == 1, ended.text
    assert ended.stderr.count("next: python -m refgf.doctor --gpu") == 1, ended.text
