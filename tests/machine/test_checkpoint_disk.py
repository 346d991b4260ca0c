"""Checkpoints that cannot be written, and what a kill leaves behind."""

import errno
import resource
import shutil

import pytest

from refgf.machine import threads
from refgf.machine.checkpoint import CheckpointNotWritten, Checkpoints
from tests.support.checkpoint_cases import (
    CSC,
    advance,
    bits,
    everywhere,
    names,
    new_flow,
    resumed,
    save_on_threads,
    saved,
)


def test_a_full_disk_on_one_rank_ends_no_run_and_loses_nothing(on_ranks, tmp_path, monkeypatch):
    """Every rank raises; earlier checkpoints stay; training goes on and writes the next one."""

    def body(comm):
        folder = everywhere(comm, tmp_path) / f"{comm.Get_size()}"
        flow = saved(comm, folder, [1, 2], CSC)
        full = CheckpointsOnFullDisk(folder, advance(flow, 3))
        last = comm.Get_size() - 1
        with pytest.raises(
            CheckpointNotWritten,
            match=f"rank {last}: .*No space left.*earlier checkpoints are untouched",
        ):
            full.save({"at": 3})
        comm.Barrier()
        assert names(folder) == ["step-00000001", "step-00000002"]
        comm.Barrier()
        Checkpoints(folder, advance(flow, 4)).save({"at": 4})
        with new_flow(comm, **CSC) as other:
            assert Checkpoints(folder, other).resume() == {"at": 4}
            assert bits(other) == bits(flow)
        flow.close()

    on_ranks(body)


class CheckpointsOnFullDisk(Checkpoints):
    """The last rank's disk is full."""

    def _write_files(self, target):
        if self.rank == self.comm.Get_size() - 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super()._write_files(target)


def test_a_file_that_may_not_grow_is_a_full_disk(tmp_path):
    """A real error of the operating system within a file (EFBIG, by a limit on file sizes)."""
    save_on_threads(tmp_path, [1, 2])

    def body(comm):
        flow = advance(new_flow(comm, **CSC), 3)
        with pytest.raises(CheckpointNotWritten):
            Checkpoints(tmp_path, flow).save({"at": 3})

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))
    try:
        threads.run(2, body)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert resumed(tmp_path)[0] == {"at": 2}


def test_a_folder_that_cannot_be_made_is_an_error_on_every_rank(tmp_path):
    (tmp_path / "file").write_text("")

    def body(comm):
        with pytest.raises(CheckpointNotWritten, match="rank 0: .*file"):
            Checkpoints(tmp_path / "file", advance(new_flow(comm, **CSC), 1)).save({})

    threads.run(2, body)


def test_what_a_kill_left_behind_does_not_count_and_is_removed(tmp_path):
    save_on_threads(tmp_path, [1, 3])
    shutil.copytree(tmp_path / "step-00000003", tmp_path / "step-00000005")
    (tmp_path / "step-00000005" / "manifest.json").unlink()
    assert resumed(tmp_path)[0] == {"at": 3}
    save_on_threads(tmp_path, [4])
    assert names(tmp_path) == ["step-00000003", "step-00000004"]
