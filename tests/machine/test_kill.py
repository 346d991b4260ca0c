"""SIGKILL of one rank at a random moment, then the same command again: the same bits at the end."""

import os
import random
import re

import pytest

from tests.support.jobs import needs_mpiexec, run_job

PROGRAM = os.path.join(os.path.dirname(__file__), "resumable.py")
RANKS = 3


def ended(text):
    match = re.search(r"hash (\w+) seconds ([\d.]+)", text)
    return (match[1], float(match[2])) if match else (None, 0.0)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    job = run_job(RANKS, [PROGRAM, tmp_path_factory.mktemp("whole")])
    assert job.code == 0, job.text
    return ended(job.text)


def kill_and_resume(folder, seed, uninterrupted):
    wanted, seconds = uninterrupted
    rng = random.Random(seed)
    rank, moment_s = rng.randrange(RANKS), rng.uniform(0, 0.95 * seconds)
    killed = run_job(RANKS, [PROGRAM, folder, rank, moment_s])
    assert killed.code != 0 and not killed.left and not killed.timed_out, (seed, killed.text)
    again = run_job(RANKS, [PROGRAM, folder])
    assert again.code == 0, (seed, again.text)
    assert ended(again.text)[0] == wanted, (seed, rank, moment_s, again.text)
    return "resumed from" in again.text


@needs_mpiexec
def test_killed_once_and_resumed(tmp_path, uninterrupted):
    kill_and_resume(tmp_path, 1, uninterrupted)


@needs_mpiexec
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_killed_at_four_moments(tmp_path, uninterrupted):
    resumed = [kill_and_resume(tmp_path / str(seed), seed, uninterrupted) for seed in range(2, 6)]
    assert sum(resumed) > 1  # most kills came after the first checkpoint
