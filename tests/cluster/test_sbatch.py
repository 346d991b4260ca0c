"""How lessons/cluster/lesson.sbatch chooses its launcher, with a fake srun that starts one rank.

tests/cluster/test_slurm.py uses a real Slurm.
"""

import shutil
import subprocess
import sys

import pytest

from tests.support.jobs import ROOT, clean_environment, needs_mpiexec

pytestmark = [needs_mpiexec, pytest.mark.skipif(not shutil.which("bash"), reason="no bash")]
SRUN = """#!/bin/sh
case "$*" in *--mpi=list*) echo "MPI plugin types are... none pmix pmi2 broken"; exit ;; esac
case "$*" in *--mpi=broken*) echo "what is wrong with it" >&2; exit 3 ;; esac
while [ "$1" != "$REFGF_PYTHON" ]; do shift; done
exec "$@"
"""


OPTIONS = "srun --kill-on-bad-exit=1 --cpus-per-task=1"


@pytest.mark.parametrize(
    "asked, printed",
    [
        ("pmix", [f"started by: {OPTIONS} --mpi=pmix"]),
        ("broken", [f"not by {OPTIONS} --mpi=broken\n    what is wrong with it", "mpiexec -n 1"]),
        ("not_offered", ["started by: env SLURM_MPI_TYPE=none", "mpiexec -n 1"]),
    ],
)
def test_the_first_launcher_that_works_is_used(tmp_path, asked, printed):
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    slurm = {
        "JOB_ID": "7",
        "SUBMIT_DIR": ROOT,
        "NTASKS": "1",
        "JOB_NUM_NODES": "1",
        "JOB_NODELIST": "here",
    }
    environment = clean_environment({f"SLURM_{name}": value for name, value in slurm.items()})
    environment |= {
        "REFGF_SRUN_MPI": asked,
        "REFGF_PYTHON": sys.executable,
        "REFGF_RESULTS": str(tmp_path),
    }
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    command = ["bash", "lessons/cluster/lesson.sbatch", "01", "--quick"]
    options = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 100}
    done = subprocess.run(command, env=environment, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(text in done.stdout for text in printed), done.stdout
    assert (tmp_path / "slurm-7" / "01_ring_allreduce.png").exists()
