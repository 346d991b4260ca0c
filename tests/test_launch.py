"""refgf.launch: what it sets, and how jobs end. Every job is real and must end within SECONDS."""

import gc
import os
import sys
import threading
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from refgf import launch
from refgf.launch import (
    BLAS_THREADS,
    YIELDING,
    Job,
    choose,
    leftovers,
    read_job,
    time_limit_s,
    wants_engine,
    watchdog,
)
from tests.support import jobs

SECONDS = 10
START = """
import refgf.launch
import io, os, signal, sys, threading, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
comm.Barrier()
def wait_for_ever():
    comm.recv(source=comm.rank, tag=99)
def divide():
    1 / 0
"""
HYDRA = {"PMI_SIZE": "8", "PMI_RANK": "5", "MPI_LOCALNRANKS": "4", "MPI_LOCALRANKID": "1"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
SLURM = {
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_PROCID": "6",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_NODEID": "3",
    "SLURM_LOCALID": "0",
}


# ---- the launcher's variables ----


def test_one_process_is_rank_0_of_1():
    assert read_job({}, 2) == Job(None, 1, 0, 1, 0, on_machine=1, cores=2)


@pytest.mark.parametrize(
    "environ, expected",
    [
        (HYDRA, Job("Hydra", 8, 5, 4, 1, 4, 2)),
        (OPEN_MPI, Job("Open MPI", 8, 5, 4, 1, 4, 2)),
        (SLURM, Job("Slurm", 7, 6, 1, 0, 1, 2)),
        (
            SLURM | {"SLURM_NODEID": "1", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"},
            Job("Slurm", 7, 3, 2, 1, 2, 2),
        ),
        (SLURM | HYDRA, Job("Hydra", 8, 5, 4, 1, 4, 2)),  # mpiexec inside a Slurm allocation
        # srun --mpi=pmi2
        ({"PMI_SIZE": "7", "PMI_RANK": "6"} | SLURM, Job("Hydra", 7, 6, 1, 0, 1, 2)),
        (HYDRA | {"REFGF_RANKS_ON_MACHINE": "16"}, Job("Hydra", 8, 5, 4, 1, 16, 2)),
        # a batch script, not a rank
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, Job(None, 1, 0, 1, 0, 1, 2)),
    ],
)
def test_ranks_on_this_machine(environ, expected):
    assert read_job(environ, 2) == expected


@pytest.mark.parametrize(
    "environ, name",
    [
        ({"PMI_SIZE": "many"}, "PMI_SIZE"),
        ({"PMI_SIZE": "0"}, "PMI_SIZE"),
        (HYDRA | {"PMI_RANK": "-1"}, "PMI_RANK"),
        (HYDRA | {"REFGF_RANKS_ON_MACHINE": "9" * 5000}, "REFGF_RANKS_ON_MACHINE"),
        ({"REFGF_RANKS_ON_MACHINE": "0"}, "REFGF_RANKS_ON_MACHINE"),
        (SLURM | {"SLURM_NODEID": "x"}, "SLURM_NODEID"),
        (SLURM | {"SLURM_STEP_TASKS_PER_NODE": "2(x"}, "SLURM_STEP_TASKS_PER_NODE"),
    ],
)
def test_nonsense_in_a_variable_is_named(environ, name):
    with pytest.raises(ValueError, match=f"got .* wanted a .*number.*next: unset {name}"):
        read_job(environ, 2)


def test_usable_cores_are_those_of_the_affinity():
    assert 1 <= launch.usable_cores() <= os.cpu_count()


# ---- settings ----


def launch_values(settings):
    return {setting.name: setting.value for setting in settings if setting.by == "launch"}


def test_more_ranks_than_cores_yield_and_as_many_do_not():
    assert YIELDING.items() <= launch_values(choose(read_job(HYDRA, cores=3), HYDRA)).items()
    assert not YIELDING.keys() & launch_values(choose(read_job(HYDRA, cores=4), HYDRA)).keys()


def test_ranks_of_all_emulated_nodes_count():
    environ = {"PMI_SIZE": "4", "MPI_LOCALNRANKS": "1", "REFGF_RANKS_ON_MACHINE": "4"}
    assert YIELDING.keys() <= launch_values(choose(read_job(environ, 2), environ)).keys()


@pytest.mark.parametrize("environ", [HYDRA, {}])
def test_one_blas_thread_per_rank_and_for_one_process(environ):
    wanted = {"MPI4PY_RC_THREAD_LEVEL": "multiple"} | dict.fromkeys(BLAS_THREADS, "1")
    wanted |= {"UCX_HANDLE_ERRORS": "none", "UCX_DEBUG_SIGNO": "0"} if environ else {}
    assert launch_values(choose(read_job(environ, 64), environ)) == wanted


def test_mpi_listens_on_the_loopback_where_all_ranks_are_on_one_machine():
    alone = HYDRA | {"PMI_SIZE": "4", "PMI_RANK": "1"}
    assert launch_values(choose(read_job(alone, 64), alone))["UCX_NET_DEVICES"] == "lo"
    for environ in ({}, HYDRA, alone | {"REFGF_CLUSTER": "{}"}):
        assert "UCX_NET_DEVICES" not in launch_values(choose(read_job(environ, 64), environ))


def check_that_the_user_wins(choose):
    for name in ("MPI4PY_RC_THREAD_LEVEL", *YIELDING, *BLAS_THREADS):
        environ = HYDRA | {name: "7"}
        settings = choose(read_job(environ, 2), environ)
        assert [s.value for s in settings if s.name == name] == ["7"]
        assert name not in launch_values(settings)
    # OpenBLAS would prefer OPENBLAS_NUM_THREADS=1 to the user's 4
    environ = HYDRA | {"OMP_NUM_THREADS": "4"}
    assert not set(BLAS_THREADS) & launch_values(choose(read_job(environ, 2), environ)).keys()


def test_the_users_environment_wins():
    check_that_the_user_wins(choose)


def test_the_check_sees_a_launch_that_overrides_the_user():
    def wrong(job, environ):
        return choose(job, {})

    def sets_openblas_although_omp_is_set(job, environ):
        return [
            s
            for name in environ
            for s in choose(job, {name: environ[name]} if name in BLAS_THREADS[1:] else {})
        ]

    for variant in (wrong, sets_openblas_although_omp_is_set):
        with pytest.raises(AssertionError):
            check_that_the_user_wins(variant)


def test_a_late_setting_is_marked():
    by = {s.name: s.by for s in choose(read_job(HYDRA, 2), HYDRA, loaded={"numpy"})}
    assert by["OMP_NUM_THREADS"] == "late" and by["MPI4PY_RC_THREAD_LEVEL"] == "launch"


def test_timeout():
    name = "REFGF_TIMEOUT_S"
    assert time_limit_s({}, name) is time_limit_s({name: "off"}, name, "300") is None
    assert time_limit_s({name: "2.5"}, name) == 2.5
    assert time_limit_s({name: ""}, name, "300") == 300
    for text in ("0", "-1", "1e-320", "soon", "nan", "inf", "1e10"):
        with pytest.raises(ValueError, match="REFGF_TIMEOUT_S: got .* wanted seconds, from 0.1"):
            time_limit_s({name: text}, name)


# ---- how jobs end ----


def ends(ranks, program, env=None):
    """Run a job that must fail in time, end all its processes, and not with 0."""
    ended = jobs.run_job(ranks, program, timeout=SECONDS, env=env)
    assert not ended.timed_out, f"still running after {SECONDS} s\n{ended.text}"
    assert ended.left == [], ended.text
    assert ended.code != 0, ended.text
    return ended


@jobs.needs_mpiexec
def test_an_exception_on_one_rank():
    ended = ends(4, START + "if comm.rank == 2: raise KeyError('momentum')\ncomm.Barrier()")
    assert ended.code == 1
    for text in ("rank 2 of 4", "Traceback", "KeyError: 'momentum'"):
        assert text in ended.stderr


@jobs.needs_mpiexec
def test_the_same_job_hangs_without_launch():
    """The tests in this file can fail: this hang is what they guard against."""
    program = START.replace("import refgf.launch", "")
    program += "if comm.rank == 2: raise KeyError('momentum')\ncomm.Barrier()"
    assert jobs.run_job(4, program, timeout=4).timed_out


@jobs.needs_mpiexec
def test_an_exception_in_another_thread():
    start = "threading.Thread(target=divide, name='communication').start()"
    ended = ends(4, START + f"if comm.rank == 1: {start}\nwait_for_ever()")
    assert "rank 1 of 4" in ended.stderr and "thread communication" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr


@jobs.needs_mpiexec
def test_a_rank_that_can_open_no_more_files():
    """Ending the job opens a file too; Abort is called even if that fails."""
    program = "kept = []\nwhile comm.rank == 2:\n    kept.append(open(os.devnull))\ncomm.Barrier()"
    ended = ends(4, START + program)
    assert "rank 2 of 4" in ended.stderr and "Too many open files" in ended.stderr


@jobs.needs_mpiexec
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_rank_without_a_stream(stream):
    program = f"if comm.rank == 1:\n    sys.{stream} = None\n    divide()\ncomm.Barrier()"
    ended = ends(3, START + program)
    assert stream == "stderr" or "ZeroDivisionError" in ended.stderr


@jobs.needs_mpiexec
def test_a_rank_whose_stderr_is_a_buffer():
    """torch.distributed's own excepthook collects what ours prints, and would print it later."""
    ended = ends(3, START + "if comm.rank == 1:\n    sys.stderr = io.StringIO()\n    divide()")
    assert "ZeroDivisionError" in ended.stderr and "rank 1 of 3" in ended.stderr


@jobs.needs_mpiexec
def test_a_rank_whose_stderr_raises():
    program = """
class Broken:
    def write(self, text): raise RuntimeError('no')
    flush = write
if comm.rank == 1:
    sys.stderr = Broken()
    divide()
comm.Barrier()
"""
    ends(3, START + program)


CHILD = """
import subprocess
program = "import refgf.launch, sys; sys.exit(2)"
kept = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
child = dict(os.environ, PMI_FD=str(kept)) if "PMI_FD" in os.environ else os.environ
command = [sys.executable, "-c", program]
done = subprocess.run(command, env=child, pass_fds=[kept], stderr=subprocess.DEVNULL)
assert done.returncode == 2, done.returncode
comm.Barrier()
print("fine")
"""


@jobs.needs_mpiexec
def test_a_failing_child_process_does_not_end_the_job(tmp_path):
    """It inherits the launcher's variables: a message to the launcher must not go into its file."""
    path = tmp_path / "open"
    program = START + CHILD.replace("sys.argv[1]", repr(str(path)))
    ended = jobs.run_job(2, program, timeout=2 * SECONDS)
    assert ended.code == 0 and ended.stdout.count("fine") == 2, ended.text
    assert path.read_bytes() == b""


@jobs.needs_mpiexec
def test_the_same_error_on_all_ranks_is_printed_once_and_last():
    ended = ends(8, START + "raise ValueError('theta: got -1; wanted at least 0')")
    assert ended.stderr.count("Traceback") == 1 and "rank 0 of 8" in ended.stderr
    # Open MPI's launcher always prints the last message
    if "Open MPI" not in ended.text and "prterun" not in ended.text:
        assert ended.stderr.rstrip().endswith("\nValueError: theta: got -1; wanted at least 0")


@jobs.needs_mpiexec
@pytest.mark.parametrize(
    "program", ["import no_such_module", "if refgf.launch.job.rank == 1: import no_such_module"]
)
def test_an_exception_before_mpi_starts(program):
    program = f"import refgf.launch\n{program}\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()"
    assert ends(3, program).stderr.count("no_such_module'") == 1


@pytest.mark.long
@jobs.needs_mpiexec
def test_the_error_message_is_never_lost():
    """Without the wait the launcher dropped the last message of 1 in 7 of these jobs."""
    for _ in range(30):
        ended = ends(3, "import refgf.launch\nimport no_such_module")
        assert "no_such_module'" in ended.stderr


@jobs.needs_mpiexec
@pytest.mark.parametrize("status, code", [("3", 3), ("'no folder of this name'", 1), ("256", 1)])
def test_sys_exit_on_one_rank(status, code):
    ended = ends(4, START + f"if comm.rank == 1: sys.exit({status})\ncomm.Barrier()")
    assert ended.code == code
    assert status.strip("'") in ended.stderr and "Traceback" not in ended.stderr


@jobs.needs_mpiexec
@pytest.mark.parametrize("leaving", ["raise SystemExit(3)", "exit(3)", "quit(3)"])
def test_other_ways_to_leave_on_one_rank(leaving):
    ended = ends(4, START + f"if comm.rank == 1: {leaving}\ncomm.Barrier()")
    assert ended.code == 3 and "rank 1 of 4" in ended.stderr and "Traceback" not in ended.stderr


@jobs.needs_mpiexec
def test_a_caught_exit_is_no_error():
    program = """
def leave(): sys.exit(5)
thread = threading.Thread(target=leave)
thread.start(); thread.join()
try: sys.exit(2)
except SystemExit as caught: assert caught.code == 2 and caught.args == (2,)
comm.Barrier()
print("fine")
if comm.rank: sys.exit()
sys.exit(0)
"""
    ended = jobs.run_job(3, START + program, timeout=SECONDS)
    assert (ended.code, ended.stdout.count("fine"), ended.stderr) == (0, 3, "")


@jobs.needs_mpiexec
def test_a_killed_rank():
    ends(4, START + "if comm.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\nwait_for_ever()")


@jobs.needs_mpiexec
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel tells of it")
def test_a_killed_launcher_takes_its_ranks_along():
    """The process that started rank 1 here, which is not mpiexec itself with Hydra."""
    ends(4, START + "if comm.rank == 1: os.kill(os.getppid(), signal.SIGKILL)\nwait_for_ever()")


@jobs.needs_mpiexec
def test_an_interrupted_rank():
    ended = ends(4, START + "if comm.rank == 1: raise KeyboardInterrupt\ncomm.Barrier()")
    assert "rank 1 of 4" in ended.stderr and "was interrupted" in ended.stderr and ended.code == 130


@jobs.needs_mpiexec
def test_the_watchdog_prints_where_each_thread_waits():
    wait = "threading.Thread(target=wait_for_ever, name='communication').start()\n"
    wait += "comm.Barrier()\nwait_for_ever()"
    ended = ends(3, START + wait, {"REFGF_TIMEOUT_S": "2"})
    for rank in range(3):
        assert f"rank {rank} of 3: still runs after REFGF_TIMEOUT_S=2 s" in ended.stderr
    assert ended.stderr.count("thread communication") == 3
    assert ended.stderr.count("thread MainThread") == 3
    assert ended.seconds > 2


@jobs.needs_mpiexec
def test_the_watchdog_while_a_rank_is_missing_in_mpi_init():
    program = "import refgf.launch, time\nif refgf.launch.job.rank == 1: time.sleep(60)\n"
    ended = ends(3, program + "from mpi4py import MPI", {"REFGF_TIMEOUT_S": "2"})
    assert "rank 1 of 3" in ended.stderr


@jobs.needs_mpiexec
def test_a_rank_that_ends_before_it_loads_anything_leaves_nobody_in_mpi_init():
    """As after SIGINT while Python itself starts: Hydra does not tell the others."""
    leaves = "import os\nif os.environ.get('PMI_RANK') == '1': os._exit(1)\n"
    ended = ends(3, leaves + START, {"REFGF_STALL_S": "2"})
    assert "Timeout (0:00:02)!" in ended.stderr and ended.code != 0


def test_python_that_runs_before_mpi_starts_is_left_alone():
    """The limit is for MPI_Init alone, which holds the GIL as this regular expression does."""
    start = "import re, time\nfrom refgf.launch import watchdog\nruns = []\n"
    start += "watchdog.watch_start(2, lambda: runs)\ntime.sleep(4)\n"
    holds = "re.match('(a+)+$', 'a' * 40 + 'b')"
    for more, code in (("runs.append(1)\ntime.sleep(1)\ntime.sleep(2)", 0), (holds, 1)):
        ended = jobs.run_job(0, ["-c", start + more], timeout=30)
        assert ended.code == code and ("Timeout" in ended.stderr) == code, ended.text


ONE_MORE = """
import numpy as np
from refgf.comm.ring import ring_allreduce
allreduce, x = ring_allreduce(comm), np.zeros(3)
allreduce(x)
if comm.rank != 1:
    allreduce(x)
"""
POLLING = """
import numpy as np
from refgf.engine.sleeping import sleeping
sleeping(comm).Recv(np.zeros(3), (comm.rank + 1) % 3)
"""


@jobs.needs_mpiexec
@pytest.mark.parametrize(
    "program, why",
    [
        (ONE_MORE, "rank 1 has left; its threads are here:\n  thread MainThread waits to send to"),
        (POLLING, "its threads are here"),
        ("comm.Barrier() if comm.rank else wait_for_ever()", "its threads are here"),
    ],
)
def test_a_job_that_stands_still_ends_and_says_where(program, why, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(START + program)
    ended = jobs.run_job(3, [str(file)], SECONDS, {"REFGF_STALL_S": "1"})
    assert ended.code not in (0, None) and not ended.timed_out, ended.text
    assert "no rank has moved for" in ended.stderr and why in ended.stderr


def test_a_rank_that_leaves_waits_for_the_others(tmp_path):
    """Unless they stand still for so long that their watchdogs cannot act."""
    world = SimpleNamespace(COMM_WORLD=SimpleNamespace(Iprobe=lambda: None))
    first, last = (watchdog.Progress(str(tmp_path / "file"), rank, 2) for rank in range(2))
    if (child := os.fork()) == 0:
        first.leave(lambda: world, 1e3)  # a child process is no rank
        os._exit(0)
    os.waitpid(child, 0)
    assert first.left() == []
    leaving = threading.Thread(target=first.leave, args=(lambda: world, 1e3))
    leaving.start()
    leaving.join(0.2)
    first.moved()  # its own watchdog, a moment too late
    assert leaving.is_alive() and last.left() == [0]
    last.leave(lambda: world, 1e3)
    leaving.join(SECONDS)
    assert not leaving.is_alive() and last.left() == [0, 1]


def test_a_rank_that_leaves_does_not_wait_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(watchdog, "ENDING_S", 0.1)
    world = SimpleNamespace(COMM_WORLD=SimpleNamespace(Iprobe=lambda: None))
    for runs, stall_s in ((lambda: world, 0.1), (lambda: None, 1e3)):  # 1e3: without MPI, at once
        first, _ = (watchdog.Progress(str(tmp_path / "file"), rank, 2) for rank in range(2))
        leaving = threading.Thread(target=first.leave, args=(runs, stall_s))
        leaving.start()
        leaving.join(SECONDS)
        assert not leaving.is_alive()


@jobs.needs_mpiexec
def test_a_rank_may_finalize_mpi_itself():
    """It holds the GIL until rank 0 comes, too."""
    program = START + "time.sleep(2)\nif comm.rank: MPI.Finalize()"
    ended = jobs.run_job(2, program, 2 * SECONDS, {"REFGF_STALL_S": "2"})
    assert (ended.code, ended.stderr) == (0, ""), ended.text


@jobs.needs_mpiexec
@pytest.mark.parametrize(
    "work",
    [
        "while time.monotonic() < end: sum(range(10**6))",  # always in the same call
        "for _ in range(40): time.sleep(0.1)",
    ],
)
def test_a_rank_that_works_while_the_others_wait_is_left_alone(work, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(START + f"end = time.monotonic() + 4\nif comm.rank == 1:\n    {work}\n")
    with open(file, "a") as more:
        more.write("comm.Barrier()\nprint('finished')")
    ended = jobs.run_job(3, [str(file)], SECONDS, {"REFGF_STALL_S": "1"})
    assert (ended.code, ended.stdout.count("finished")) == (0, 3), ended.text


SAME_CALL = """
until = time.monotonic() + 6
for number in range(10**9):
    if comm.bcast(time.monotonic() > until):
        break
print("finished")
"""
STOPPED = """
ranks = comm.allgather(os.getpid())
if comm.rank == 0 and os.fork() == 0:
    time.sleep(1)  # the watchdog of MPI_Init has seen that MPI runs
    for number, pause_s in ((signal.SIGSTOP, 3), (signal.SIGCONT, 0)):
        for rank in ranks:
            os.kill(rank, number)
        time.sleep(pause_s)
    os._exit(0)
"""


@jobs.needs_mpiexec
@pytest.mark.parametrize("before", ["", STOPPED])
def test_a_job_that_moves_is_left_alone(before, tmp_path):
    """All ranks are nearly always in one call, which is another one each time; or stopped."""
    file = tmp_path / "program.py"
    file.write_text(START + before + SAME_CALL)
    ended = jobs.run_job(2, [str(file)], 2 * SECONDS, {"REFGF_STALL_S": "2"})
    assert (ended.code, ended.stdout.count("finished")) == (0, 2), ended.text


@jobs.needs_mpiexec
@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="this system has no /dev/shm")
def test_another_users_file_is_not_written(tmp_path):
    """A name that somebody else has taken: the job runs, unwatched, and says so once."""
    for made in ("symlink_to", "hardlink_to", "mkdir"):
        taken, victim = tmp_path / made, tmp_path / "victim"
        victim.write_text("kept")
        getattr(taken, made)(*[victim] * (made != "mkdir"))
        ended = jobs.run_job(2, START, SECONDS, {"REFGF_PROGRESS": str(taken)})
        assert ended.code == 0 and victim.read_text() == "kept", ended.text
        assert ended.stderr.count("a job that hangs will not be ended; next: ") == 1, ended.text


@jobs.needs_mpiexec
def test_a_rank_that_leaves_at_once():
    ended = ends(3, START + "if comm.rank == 1: os._exit(0)\nwait_for_ever()")
    assert "rank 1 of 3 left by os._exit(0)" in ended.stderr
    assert "still runs" not in ended.stderr


@jobs.needs_mpiexec
def test_a_forked_child_may_leave_at_once():
    program = "child = os.fork()\nif not child: os._exit(0)\n"
    program += "sys.stdout.write(f'{os.waitpid(child, 0)[1]}\\n')"
    ended = jobs.run_job(2, START + program, SECONDS)
    assert (ended.code, ended.stdout.split()) == (0, ["0", "0"]), ended.text


@jobs.needs_mpiexec
def test_a_crash_in_c_says_where_python_was():
    ended = ends(3, START + "import ctypes\nif comm.rank == 1: ctypes.string_at(0)\ncomm.Barrier()")
    assert "Segmentation fault" in ended.stderr and "in string_at" in ended.stderr


@jobs.needs_mpiexec
def test_a_bad_timeout_is_reported_once():
    ended = ends(3, START, {"REFGF_TIMEOUT_S": "soon"})
    assert ended.stderr.count("wanted seconds, from 0.1") == 1, ended.stderr
    assert "Traceback" not in ended.stderr


@jobs.needs_mpiexec
def test_settings_reach_mpi_and_blas():
    program = """
import numpy, threadpoolctl
threads = {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
facts = [MPI.Query_thread() == MPI.THREAD_MULTIPLE, threads <= {1}]
facts.append(os.environ["MPIR_CVAR_POLLS_BEFORE_YIELD"])
sys.stdout.write(" ".join(map(str, facts)) + "\\n")  # one write, so ranks' lines do not mix
"""
    env = dict.fromkeys(BLAS_THREADS) | {"REFGF_RANKS_ON_MACHINE": "1000"}
    ended = jobs.run_job(3, START + program, timeout=SECONDS, env=env)
    assert (ended.code, ended.stdout.count("True True 1")) == (0, 3), ended.text


THREAD = "import threading; t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()"


@pytest.mark.parametrize(
    "program, code, stderr",
    [
        ("raise ValueError('x')", 1, "\nValueError: x"),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('bye')", 1, "bye\n"),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; assert 'mpi4py' not in sys.modules", 0, ""),
        (THREAD, 0, "Exception in thread"),
    ],
)
def test_a_single_process_ends_as_in_python(program, code, stderr):
    ended = jobs.run_job(0, f"import refgf.launch; {program}", timeout=SECONDS)
    assert (ended.code, ended.stdout) == (code, "") and stderr in ended.stderr, ended.text


# ---- the engine ----

MODULES = (
    "import refgf.launch, sys; print([m for m in sys.modules if m.startswith('refgf.engine')])"
)


def test_the_engine_is_loaded_unless_it_is_off():
    for value, loaded in {"on": True, "": True, "off": False}.items():
        ended = jobs.run_job(0, MODULES, SECONDS, {"REFGF_ENGINE": value})
        assert (ended.code, "'refgf.engine'" in ended.stdout) == (0, loaded), ended.text
    assert ended.stdout == "[]\n", "REFGF_ENGINE=off loads a module of the engine"


def test_numba_and_cupy_are_not_imported_at_the_start():
    program = "import refgf.launch, sys; assert not {'numba', 'cupy'} & sys.modules.keys()"
    ended = jobs.run_job(0, program, SECONDS, {"REFGF_ENGINE": "on"})
    assert ended.code == 0, ended.text


def test_engine_values():
    assert wants_engine({}) and wants_engine({"REFGF_ENGINE": "on"})
    with pytest.raises(ValueError, match="REFGF_ENGINE: got 'no'; wanted on or off; next: "):
        wants_engine({"REFGF_ENGINE": "no"})


# ---- the watchdog of one process ----


def test_the_watchdog_keeps_no_array_alive():
    """In a job that is watched, as in one that is not, a function's arrays end with it."""
    arrived, left, array = threading.Event(), threading.Event(), []

    def work():
        x = np.zeros(10)
        array.append(weakref.ref(x))
        arrived.set()
        left.wait()

    thread = threading.Thread(target=work)
    gc.disable()
    try:
        thread.start()
        arrived.wait()
        for _ in range(3):
            assert watchdog.places().keys() >= {thread.ident}
        left.set()
        thread.join()
        assert array[0]() is None
    finally:
        left.set()
        gc.enable()


def test_the_watchdog_of_a_single_process():
    program, env = "import refgf.launch, time; time.sleep(60)", {"REFGF_TIMEOUT_S": "0.5"}
    ended = jobs.run_job(0, program, SECONDS, env)
    assert ended.code == 1 and "rank 0 of 1: still runs" in ended.stderr and ended.seconds < SECONDS


# ---- shared memory ----

MAPPED = """
lines = [line for line in open("/proc/self/maps") if "/dev/shm/" in line]
names = [line.split("/dev/shm/")[1].strip() for line in lines]
names = sorted({name for name in names if "(deleted)" not in name})
"""


@jobs.needs_mpiexec
@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="this system has no /dev/shm")
def test_shared_memory_of_a_killed_job_is_removed_at_the_next_start():
    program = START + MAPPED + "print(*names, '', flush=True)\nwait_for_ever()"
    killed = jobs.run_job(4, program, timeout=4)
    names = set(killed.stdout.split())
    assert killed.timed_out and names, killed.text
    ended = jobs.run_job(0, "import refgf.launch; print(refgf.launch.removed)", timeout=SECONDS)
    assert ended.code == 0 and not names & set(os.listdir("/dev/shm")), ended.text


@jobs.needs_mpiexec
@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="this system has no /dev/shm")
def test_what_the_watchdog_leaves_is_removed_at_the_next_start():
    before = set(os.listdir("/dev/shm"))
    shown = "print(refgf.launch.watchdog.progress_file(os.environ))"
    program = START + f"if comm.rank == 0:\n    {shown}\nwait_for_ever()"
    file = ends(2, program, {"REFGF_STALL_S": "1"}).stdout.split()[0]
    assert os.path.exists(file) and os.path.basename(file) not in before
    time.sleep(leftovers.MIN_AGE_S)
    jobs.run_job(0, "import refgf.launch", timeout=SECONDS)
    assert not os.path.exists(file)


@jobs.needs_mpiexec
@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="this system has no /dev/shm")
def test_shared_memory_of_a_running_job_stays():
    program = """
from refgf.launch import leftovers
time.sleep(leftovers.MIN_AGE_S + 0.5)
if comm.rank == 0:
    assert set(names) <= leftovers.candidates().keys(), "the files must be old enough"
    leftovers.remove()
    print("kept", bool(names) and set(names) <= set(os.listdir("/dev/shm")))
comm.Barrier()
"""
    ended = jobs.run_job(2, START + MAPPED + program, timeout=SECONDS)
    assert ended.code == 0 and "kept True" in ended.stdout, ended.text


# ---- the helper itself ----


def test_run_job_kills_processes_after_its_timeout():
    program = "import subprocess, time; "
    program += "subprocess.Popen(['sleep', '60'], start_new_session=True); time.sleep(60)"
    start = time.monotonic()
    ended = jobs.run_job(0, program, timeout=1)
    assert ended.timed_out and ended.code != 0 and time.monotonic() - start < SECONDS


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="processes are found through /proc")
def test_run_job_names_the_processes_left_behind():
    program = "import subprocess; "
    program += "print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid)"
    ended = jobs.run_job(0, program, timeout=SECONDS)
    assert ended.left == [int(ended.stdout)]
    try:
        with open(f"/proc/{ended.left[0]}/stat") as file:
            assert file.read().split()[2] == "Z"  # killed, but no process collects orphans here
    except FileNotFoundError:
        pass


@jobs.needs_mpiexec
def test_no_room_for_mpi_is_said_before_it_starts():
    program = """
import os
space = os.statvfs
os.statvfs = lambda path: os.statvfs_result((1, 1, 9, 5, 5, 0, 0, 0, 0, 255))
import refgf.launch
from mpi4py import MPI
"""
    ended = ends(3, program)
    assert "/dev/shm: got 0.0 MB free; wanted 3.3 MB" in ended.stderr, ended.text
