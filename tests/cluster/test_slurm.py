"""lessons/cluster/lesson.sbatch on a real Slurm with the nodes of an emulated cluster."""

import json
import sys

import pytest

from refgf.cluster import check, launcher
from tests.support.boxes import needs_cluster
from tests.support.jobs import clean_environment
from tests.support.slurm_box import submit, why_not

pytestmark = [needs_cluster, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
TWO_EACH = "--ntasks-per-node=2"


@pytest.fixture
def job(tmp_path):
    """job(sbatch's options..., "--", script's arguments...) -> (exit code, output, results)."""

    def run(*arguments, **env):
        ours = {
            "PATH": check.search_path(),
            "REFGF_PYTHON": sys.executable,
            "REFGF_RESULTS": str(tmp_path / "results"),
        }
        env = clean_environment(ours | env)
        done = submit(check.unshare_command(), tmp_path / "slurm", *arguments, env=env)
        return done.returncode, done.stdout + done.stderr, tmp_path / "results" / "slurm-1"

    return run


def test_a_lesson_runs_on_both_nodes_and_draws_one_figure(job):
    code, text, results = job(TWO_EACH, "--", "01", "--quick")
    assert code == 0, text
    record = json.loads((results / "01_ring_allreduce.json").read_text())
    assert (record["ranks"], record["place"]) == (4, "2 nodes x 2 ranks")
    assert record["options"]["quick"] is True
    figures = [path.name for path in results.glob("*.png")]
    assert figures == ["01_ring_allreduce.png"]
    assert f"figure: {results}/{figures[0]}" in text
    # the wheel of MPICH uses PMI 1, which Slurm may lack
    if launcher.family(launcher.find_mpiexec(None)) == "mpich":
        assert "started by: env" in text and "mpiexec -n 4" in text


@pytest.mark.long
def test_a_launcher_that_starts_single_ranks_is_not_used(job):
    """srun --mpi=none starts four worlds of one rank; MPI's own launcher starts one of four."""
    code, text, results = job(TWO_EACH, "--", "01", "--quick", REFGF_SRUN_MPI="none")
    assert code == 0, text
    assert "--mpi=none\n    " in text and "not one job of all ranks" in text
    assert "started by: env" in text and "mpiexec -n 4" in text
    record = json.loads((results / "01_ring_allreduce.json").read_text())
    assert record["place"] == "2 nodes x 2 ranks"


@pytest.mark.long
def test_a_site_whose_default_is_pmix_keeps_it_from_mpiexec(job):
    """Hydra starts its proxies by srun. With Slurm's PMIx their ranks would find two PMIs."""
    code, text, _ = job(TWO_EACH, "--", "01", "--quick", SLURM_MPI_TYPE="pmix")
    assert code == 0 and "started by: env" in text, text


@pytest.mark.long
def test_a_lesson_that_does_not_exist_is_refused(job):
    code, text, _ = job(TWO_EACH, "--", "99")
    assert code == 2
    assert "got lesson '99'; wanted one of: 00 01 02" in text


@pytest.mark.long
def test_a_lesson_that_fails_fails_the_job(job):
    code, text, results = job(TWO_EACH, "--", "01", "--quick", "--link", "fast")
    assert code != 0
    assert "next: try" in text and not list(results.glob("*.png"))


@pytest.mark.long
def test_a_python_without_mpi_is_refused_with_what_to_try(job, tmp_path):
    python = tmp_path / "python"
    cases = 'case "$*" in *get_vendor*) echo MPICH;; *) exit 1;; esac'
    python.write_text(f"#!/bin/sh\n{cases}\n")
    python.chmod(0o755)
    code, text, _ = job(TWO_EACH, "--", "01", "--quick", REFGF_PYTHON=str(python))
    assert code == 2
    assert "got no launcher that starts 4 ranks of MPICH" in text
    assert "python -m refgf.doctor" in text
