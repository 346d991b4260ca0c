"""A message of a wrong length ends in a sentence, never in a wrong sum."""

import re

import pytest

from tests.support.jobs import needs_mpiexec, run_job

PROGRAM = """
import refgf.launch
import numpy as np
from mpi4py import MPI
from refgf.comm import direct, ring
from refgf.comm.gather import reduce_scatter
from refgf.comm.schedule import collective
from refgf.engine.pipelined import pipelined
from refgf.machine.trace import TracedComm
comm = MPI.COMM_WORLD
odd = comm.rank == 1
{program}
print("finished")
"""
WRONG = {
    "lengths 5, 4, 5": "collective(comm, ring.allreduce)(np.ones(5 - odd, np.float32))",
    "lengths 4, 5, 4": "collective(comm, ring.allreduce)(np.ones(4 + odd, np.float32))",
    "halves": "reduce_scatter(comm)(np.ones(50 - 3 * odd, np.float32))",
    "counted": "collective(TracedComm(comm), ring.allreduce)(np.ones(50 + 9 * odd, np.float32))",
    "types": "collective(comm, ring.allreduce)(np.ones(9, np.float64 if odd else np.float32))",
    "wire types": "collective(comm, ring.allreduce, [None, np.float16][odd])(np.ones(9))",
    "pipelined, long": "pipelined(comm, ring.allreduce)(np.ones(10**5 + 9 * odd, np.float32))",
    "overtaken": "collective(comm, ring.allreduce)(np.ones(9 if odd else 90, np.float32))",
}


@needs_mpiexec
@pytest.mark.parametrize("program", WRONG.values(), ids=WRONG)
def test_ranks_that_differ(program):
    job = run_job(3, PROGRAM.format(program=program), timeout=30)
    assert job.code != 0 and not job.timed_out, job.text
    sentence = r"message from rank \d to rank \d: got (\d+|more) bytes; wanted \d+; next: "
    assert re.search(sentence, job.stderr), job.text
    assert "finished" not in job.stdout
