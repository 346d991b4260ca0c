"""refgf.launch.leftovers against an artificial /dev/shm and /proc."""

import os
import time
from types import SimpleNamespace

import pytest

from refgf.launch import leftovers
from tests.support import jobs

NAMES = [
    "mpich_shm_1",
    "sm_segment.host.0.1.0",
    "vader_segment.host.0.1.0",
    "osc_sm.host.0.1",
    "Intel_MPI_x",
    "ucx_shm_posix_1",
]
OTHERS = ["sem.mysql", "torch_123", "my_mpich_shm_notes"]


@pytest.fixture
def machine(tmp_path):
    """Folders of shared memory and temporary files, and a /proc with one idle process."""
    shm, proc = tmp_path / "shm", tmp_path / "proc"
    shm.mkdir()
    (tmp_path / "tmp").mkdir()
    for name in ("hydra_hwloc_xmlfile_dead", "hydra_hwloc_xmlfile_runs", "thesis.xml"):
        (tmp_path / "tmp" / name).write_bytes(b"123")
    for name in NAMES + OTHERS:
        (shm / name).write_bytes(b"12345")
    process(proc, 7)
    (proc / "meminfo").write_text("not a process")
    return shm, proc


def process(proc, pid, maps="", opened=()):
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "maps").write_text(maps)
    for number, target in enumerate(opened):
        (proc / str(pid) / "fd" / str(number)).symlink_to(target)


def check(remove, machine, monkeypatch):
    """remove(shm, proc) deletes what no process uses, and nothing else."""
    shm, proc = machine
    an_hour_later = time.time() + 3600
    monkeypatch.setattr(leftovers.time, "time", lambda: an_hour_later)
    process(proc, 8, maps="7f00-7f10 rw-s 0 00:1b 9   /dev/shm/sm_segment.host.0.1.0\n")
    opened = ["/dev/shm/Intel_MPI_x", "pipe:[12]", "/tmp/hydra_hwloc_xmlfile_runs"]
    process(proc, 9, opened=opened)
    tmp = shm.parent / "tmp"
    removed = remove([str(shm), str(tmp)], str(proc))
    names = ["mpich_shm_1", "vader_segment.host.0.1.0", "ucx_shm_posix_1", "osc_sm.host.0.1"]
    assert removed == dict.fromkeys(names, 5) | {"hydra_hwloc_xmlfile_dead": 3}
    assert sorted(os.listdir(tmp)) == ["hydra_hwloc_xmlfile_runs", "thesis.xml"]
    assert sorted(os.listdir(shm)) == sorted(["sm_segment.host.0.1.0", "Intel_MPI_x", *OTHERS])


def test_unused_files_are_removed(machine, monkeypatch):
    check(leftovers.remove, machine, monkeypatch)


@pytest.mark.parametrize("broken", ["_open_files", "_mappings"])
def test_the_check_sees_a_removal_that_overlooks_a_user(machine, monkeypatch, broken):
    monkeypatch.setattr(leftovers, broken, lambda process: "")
    with pytest.raises(AssertionError):
        check(leftovers.remove, machine, monkeypatch)


def test_young_files_stay(machine):
    shm, proc = machine
    assert leftovers.remove([str(shm)], str(proc)) == {}


def test_files_of_other_users_stay(machine, monkeypatch):
    shm, proc = machine
    another = os.getuid() + 1
    monkeypatch.setattr(leftovers.os, "getuid", lambda: another)
    assert leftovers.candidates(str(shm), now_s=time.time() + 3600) == {}


@pytest.mark.parametrize(
    "uid_map, used", [("0 1000 1", set(NAMES)), ("  0          0 4294967295", set())]
)
def test_a_hidden_process_matters_inside_a_user_namespace_only(machine, monkeypatch, uid_map, used):
    def hidden(process):
        raise PermissionError(process)

    shm, proc = machine
    (proc / "self").mkdir()
    (proc / "self" / "uid_map").write_text(uid_map)
    monkeypatch.setattr(leftovers, "_mappings", hidden)
    assert leftovers.find_used(NAMES, str(proc)) == used


def test_a_process_that_has_just_ended_is_skipped(machine):
    shm, proc = machine
    (proc / "11").mkdir()  # no maps any more
    assert leftovers.find_used(NAMES, str(proc)) == set()


def test_no_such_folder():
    assert leftovers.candidates("/no/such/folder") == {}
    assert leftovers.remove(["/no/such/folder"]) == {}


def test_a_full_memory_disk_is_told_before_mpi_starts(monkeypatch):
    assert leftovers.shortage(1, "/no/such/folder") is None
    monkeypatch.setattr(
        leftovers.os, "statvfs", lambda folder: SimpleNamespace(f_bavail=1000, f_frsize=4096)
    )
    assert leftovers.shortage(3) is None
    told = leftovers.shortage(4)
    assert "got 4.1 MB free; wanted 4.4 MB" in told and "4 ranks" in told and "next: " in told


LOOK = """
import os
from mpi4py import MPI
folder = f"/proc/{os.getppid()}/fd"
opened = [os.readlink(f"{folder}/{number}") for number in os.listdir(folder)]
print(MPI.Get_library_version().split()[0], any("hydra_hwloc_xmlfile_" in o for o in opened))
"""


@jobs.needs_mpiexec
def test_mpichs_launcher_keeps_its_file_open():
    """This is how a running job's file is told from a killed one's."""
    ended = jobs.run_job(1, LOOK)
    assert ended.stdout in ("MPICH True\n", "Open False\n"), ended.text
