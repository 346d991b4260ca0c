"""Foreign files in a folder of checkpoints are never deleted; a second job is refused."""

import errno
import os
import subprocess
import sys

import pytest

from refgf.machine import checkpoint_owner, threads
from refgf.machine.checkpoint import CheckpointNotWritten, Checkpoints
from tests.support.checkpoint_cases import CSC, advance, names, new_flow, resumed, save_on_threads

OTHER_JOB = """
import sys
from tests.support import checkpoint_cases
checkpoint_cases.save_on_threads(checkpoint_cases.Path(sys.argv[1]), [2])
print("saved", flush=True)
sys.stdin.read()
"""


def tree(folder) -> dict[str, bytes]:
    """{path of a file in `folder`: its bytes}"""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize(
    "name",
    ["step-1000", "step-by-step-thesis", "step-00000000", "step-0000000001", "step-00000002.bak"],
)
def test_a_folder_of_the_user_is_never_deleted(tmp_path, name):
    (tmp_path / name / "figures").mkdir(parents=True)
    for file in ("thesis.tex", "rank0.safetensors", "figures/1.png"):
        (tmp_path / name / file).write_text("years of work")
    before = tree(tmp_path)
    save_on_threads(tmp_path, [1, 3, 4, 5])
    assert before.items() <= tree(tmp_path).items()
    assert names(tmp_path) == sorted([name, "step-00000004", "step-00000005"])
    assert resumed(tmp_path)[0] == {"at": 5}


def test_a_checkpoint_never_replaces_a_folder_of_the_user(tmp_path):
    """All ranks say so, and the earlier checkpoints stay."""
    save_on_threads(tmp_path, [1])
    (tmp_path / "step-00000003").mkdir()
    (tmp_path / "step-00000003" / "shared.safetensors").write_text("years of work")
    before = tree(tmp_path)

    def body(comm):
        with pytest.raises(
            CheckpointNotWritten, match="rank 0: .*step-00000003 has files that refgf did not write"
        ):
            Checkpoints(tmp_path, advance(new_flow(comm, **CSC), 3)).save({})

    threads.run(2, body)
    assert tree(tmp_path) == before


def test_a_file_that_the_user_put_into_a_checkpoint_stays(tmp_path):
    save_on_threads(tmp_path, [1])
    (tmp_path / "step-00000001" / "notes.txt").write_text("years of work")
    save_on_threads(tmp_path, [2, 3])
    assert tree(tmp_path / "step-00000001") == {"notes.txt": b"years of work"}


def test_a_link_to_a_folder_is_not_followed(tmp_path):
    save_on_threads(tmp_path / "archive", [1])
    save_on_threads(tmp_path / "run", [2])
    (tmp_path / "run" / "step-00000001").symlink_to(tmp_path / "archive" / "step-00000001")
    before = tree(tmp_path / "archive")
    save_on_threads(tmp_path / "run", [3, 4, 5])
    assert tree(tmp_path / "archive") == before


@pytest.mark.parametrize(
    "files", [[], ["refgf-checkpoint.txt"], ["refgf-checkpoint.txt", "rank0.safetensors"]]
)
def test_a_kill_at_the_beginning_of_a_save_is_no_obstacle(tmp_path, files):
    """After the folder was made, after its owner file, and in the middle of the arrays."""
    save_on_threads(tmp_path, [1])
    (tmp_path / "step-00000002").mkdir()
    for file in files:
        (tmp_path / "step-00000002" / file).touch()
    assert resumed(tmp_path)[0] == {"at": 1}
    save_on_threads(tmp_path, [2])
    assert resumed(tmp_path)[0] == {"at": 2}


@pytest.fixture
def other_job(tmp_path):
    """Another process that has saved a checkpoint and goes on."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    command = [sys.executable, "-c", OTHER_JOB, str(tmp_path)]
    with subprocess.Popen(command, env=environment, **pipes) as job:
        assert job.stdout.readline() == "saved\n"
        yield job
        job.kill()


def test_two_jobs_in_one_folder_are_refused_until_one_is_killed(tmp_path, other_job, monkeypatch):
    monkeypatch.setattr(checkpoint_owner, "LOCK_WAIT_S", 0.2)
    before = tree(tmp_path)
    refused = f"rank [01]: got .*, which another running job uses .process {other_job.pid} on "

    def body(comm):
        for call in ("save", "resume"):
            with pytest.raises(ValueError, match=refused):
                arguments = [{}] if call == "save" else []
                getattr(Checkpoints(tmp_path, advance(new_flow(comm, **CSC), 3)), call)(*arguments)

    threads.run(2, body)
    assert tree(tmp_path) == before
    other_job.kill()
    other_job.wait()
    assert resumed(tmp_path)[0] == {"at": 2}
    save_on_threads(tmp_path, [3])
    assert f"process {os.getpid()} on " in (tmp_path / "refgf.lock").read_text()


def test_a_job_that_is_ending_is_waited_for(tmp_path, other_job):
    other_job.stdin.close()  # the job ends now
    assert resumed(tmp_path)[0] == {"at": 2}


def test_the_lock_outlives_the_object_and_a_second_one_in_this_process(tmp_path, monkeypatch):
    """POSIX locks end when any descriptor of the file is closed: none is."""
    save_on_threads(tmp_path, [1])
    assert resumed(tmp_path)[0] == {"at": 1}
    checks = (
        "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    checked = subprocess.run(
        [sys.executable, "-c", checks, tmp_path / "refgf.lock"], capture_output=True, text=True
    )
    assert checked.returncode and "BlockingIOError" in checked.stderr, checked.stderr


def test_a_file_system_without_locks_is_a_warning(tmp_path, monkeypatch):
    def no_locks(*arguments):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(checkpoint_owner.fcntl, "lockf", no_locks)
    save_on_threads(tmp_path, [1])
    position, said = resumed(tmp_path)
    assert position == {"at": 1} and any("cannot be locked (" in text for text in said)


def test_a_folder_that_cannot_be_written_can_be_resumed(tmp_path, monkeypatch):
    save_on_threads(tmp_path, [1])

    def read_only(*arguments):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(checkpoint_owner, "_lock", read_only)
    monkeypatch.setattr(checkpoint_owner, "_held", {})
    position, said = resumed(tmp_path)
    assert position == {"at": 1} and any("Read-only file system" in text for text in said)
