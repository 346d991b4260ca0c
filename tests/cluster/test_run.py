"""Real clusters of two nodes: the ranks' view, the path of their bytes, the end. Seconds each."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refgf.cluster import check, launcher, network
from tests.support.boxes import RING, Box, leavings, needs_cluster, read_table, run, why_not
from tests.support.jobs import clean_environment, run_job

pytestmark = needs_cluster
MPI = None if why_not() else launcher.family(launcher.find_mpiexec(None))
TWO = ["run", "--nodes", 2, "--ranks-per-node", 2, "--rate", "1gbit"]
PYTHON = ["--", sys.executable, "-c"]

LOOK = """
import json, os, socket
import refgf.launch
from mpi4py import MPI
comm = MPI.COMM_WORLD
found = {
    "host": socket.gethostname(),
    "node": json.loads(os.environ["REFGF_CLUSTER"])["node"],
    "cwd": os.getcwd(),
    "on_node": comm.Split_type(MPI.COMM_TYPE_SHARED).Get_size(),
    "machine": os.environ["REFGF_RANKS_ON_MACHINE"],
    "cores": len(os.sched_getaffinity(0)),
    "address": socket.gethostbyname(socket.gethostname()),
    "ipc": os.readlink("/proc/self/ns/ipc"),
    "shm": os.stat("/dev/shm").st_ino,
    "disk": os.stat("/dev/shm").st_dev,
}
found = comm.gather(found)
if comm.rank == 0:
    print(json.dumps(found), flush=True)
"""


def test_nodes_share_neither_memory_nor_names(tmp_path):
    before = leavings()
    box = run(*TWO, "--cpus-per-node", 1, *PYTHON, LOOK)
    assert box.process.returncode == 0, box.stderr
    found = json.loads(box.stdout)
    assert [f["host"] for f in found] == ["node0", "node0", "node1", "node1"]
    assert [f["node"] for f in found] == [0, 0, 1, 1]
    assert [f["address"] for f in found] == ["10.77.0.1"] * 2 + ["10.77.0.2"] * 2
    assert {f["on_node"] for f in found} == {2} and {f["machine"] for f in found} == {"4"}
    assert {f["cores"] for f in found} == {1} and {f["cwd"] for f in found} == {os.getcwd()}
    for private in ("ipc", "shm"):
        assert found[0][private] == found[1][private] != found[2][private] == found[3][private]
    assert os.stat("/dev/shm").st_dev not in {f["disk"] for f in found}
    assert leavings() <= before


def test_mpi_crosses_the_links_and_the_counters_prove_it():
    box = run(*TWO, *PYTHON, RING.format(count=10**6, rounds=3))
    assert box.process.returncode == 0, box.stderr
    assert "the links carried what the ranks sent" in box.stderr
    # ranks 1 and 3 send to the other node: 3 x 4 MB each way
    assert "12.00        12.00         6" in box.stderr


# partners on one node
PAIRS = RING.replace("comm.rank + 1", "comm.rank ^ 1").replace("comm.rank - 1", "comm.rank ^ 1")


def test_traffic_inside_a_node_stays_off_the_links():
    box = run(*TWO, *PYTHON, PAIRS.format(count=10**6, rounds=3))
    assert box.process.returncode == 0, box.stderr
    rows = [line.split() for line in box.stderr.splitlines() if line.startswith("node")]
    assert [row[3:] for row in rows] == [["0.00", "0.00", "0"]] * 2
    assert all(float(mb) < 1 for row in rows for mb in row[1:3])


def test_bytes_that_did_not_cross_the_links_are_detected():
    """The traces name the other node as each message's receiver; it was the neighbour's node."""
    move = "comm.peers[comm.rank ^ 2] = comm.peers.pop(comm.rank ^ 1); "
    program = PAIRS.replace("comm.save", move + "comm.save")
    box = run(*TWO, *PYTHON, program.format(count=10**6, rounds=3))
    assert box.process.returncode == 1
    assert "FAILED: node0's link sent" in box.stderr and "took another path" in box.stderr


# Nodes that share host name, IPC and /dev/shm: MPI finds shared memory, and the links stay idle.
LEAKY = """
import json, os, sys
from refgf.cluster import inside, launcher, network
from refgf.cluster.settings import Settings
network.HOLDER = network.HOLDER.replace('hostname "$1"', ":")
network.HOLDER = network.HOLDER.replace('mount --rbind', ": mount --rbind")
launcher.MPICH = {}
agent = launcher.agent_script
launcher.agent_script = lambda *arguments: agent(*arguments).replace(" -u -i -m ", " ")
settings = Settings(nodes=2, ranks_per_node=1)
mpiexec = launcher.find_mpiexec(None)
program = [sys.executable, "-c", os.environ["PROGRAM"]]
sys.exit(inside.run(settings, mpiexec, launcher.family(mpiexec), program))
"""


@pytest.mark.skipif(MPI == "openmpi", reason="Open MPI's daemons define its nodes: it stays on TCP")
def test_nodes_that_share_memory_are_detected():
    # without these names the host name alone would reveal the mistake
    named = "import platform; platform.node = lambda: f'node{{comm.rank}}'; comm.save"
    program = RING.replace("comm.save", named).format(count=10**6, rounds=3)
    environment = clean_environment({"PROGRAM": program, "PATH": check.search_path()})
    command = [*check.unshare_command(), sys.executable, "-c", LEAKY]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "FAILED: node0's link sent" in done.stderr and "took another path" in done.stderr


def test_without_root():
    """Root tries without a user namespace first; other users get one, and so does this run."""
    script = """
import sys
from refgf.cluster import __main__, check
check.ISOLATION = (*check.USER, *check.ISOLATION)
sys.exit(__main__.main(sys.argv[1:]))
"""
    command = [sys.executable, "-c", script, *map(str, TWO)]
    command += [*PYTHON, RING.format(count=10**6, rounds=3)]
    options = {"env": clean_environment(), "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(command, **options)
    assert done.returncode == 0, done.stderr
    assert "the links carried what the ranks sent" in done.stderr


# Runs a command as user 65534. This Python may lie in root's home, which that user cannot enter, so
# the folder below the closed one is mounted over it.
ANOTHER_USER = """
set -e
if [ "$1" ]; then
    mkdir -p "$2/$3"
    chmod 755 "$2"
    mount --bind "$1/$3" "$2/$3"
    mount --rbind "$2" "$1"
fi
shift 3
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"),
    reason="only root can become another user, by setpriv",
)
def test_as_another_user(tmp_path):
    python = Path(sys.executable).resolve()
    closed = [folder for folder in python.parents if not folder.stat().st_mode & 1][-1:]
    opened = ["", "", ""]
    if closed:
        opened = [str(closed[0]), str(tmp_path / "open"), python.relative_to(closed[0]).parts[0]]
    become = ["unshare", "--mount", "sh", "-c", ANOTHER_USER, "sh", *opened]
    environment = clean_environment({"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"})
    options = {"env": environment, "capture_output": True, "text": True, "timeout": 60}
    script = "import os, mpi4py, refgf; print(os.getuid())"
    look = subprocess.run([*become, sys.executable, "-c", script], **options)
    if look.returncode:
        pytest.skip(f"other users cannot read this Python or this project: {look.stderr}")
    assert look.stdout == "65534\n"
    command = [*become, sys.executable, "-m", "refgf.cluster", *map(str, TWO)]
    command += [*PYTHON, RING.format(count=10**6, rounds=3)]
    done = subprocess.run(command, **options)
    assert done.returncode == 0, done.stderr
    assert "the links carried what the ranks sent" in done.stderr


@pytest.mark.parametrize("mtu", [1500, 9000])
def test_a_node_sees_the_mtu_and_shapes_what_it_sends(mtu, tmp_path):
    look = f"cd {tmp_path}; ip -j link show eth0 > link-$(hostname);"
    look += "tc -j qdisc show dev eth0 > shaper-$(hostname)"
    box = run("run", "--nodes", 2, "--rate", "1gbit", "--mtu", mtu, "--", "sh", "-c", look)
    assert box.process.returncode == 0, box.stderr
    for name in ("node0", "node1"):
        (link,), (shaper,) = (
            json.loads((tmp_path / f"{what}-{name}").read_text()) for what in ("link", "shaper")
        )
        assert link["mtu"] == mtu
        assert shaper["kind"] == "tbf" and shaper["options"]["rate"] == 125_000_000


def test_a_probe_measures_raw_tcp_and_mpis_alpha_and_beta():
    box = run("probe", "--nodes", 2, "--mtu", 9000)
    (row,) = read_table(box.stdout)
    assert row["asked"] == 1000 and 0 < row["raw"] < row["link"]
    resolution = 0.1 / row["raw"] * 2  # rates are printed to 0.1 Mbit/s
    assert row["raw"] / row["link"] == pytest.approx(8948 / 9014, rel=resolution)
    assert 0 < row["alpha_us"] < 1e5 and 0 < row["mpi"] < 2 * row["raw"]


@pytest.mark.parametrize("code", [1, 5])
def test_the_exit_code_is_the_commands(code):
    box = run(*TWO, *PYTHON, f"from mpi4py import MPI; import sys; sys.exit({code})")
    assert box.process.returncode == code
    assert f"failed with exit code {code}" in box.stderr


FAIL_ON_ONE = """
import refgf.launch
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 3:
    raise RuntimeError("the fourth rank fails")
MPI.COMM_WORLD.Barrier()
"""


def test_a_rank_that_fails_ends_the_ranks_on_all_nodes():
    box = run(*TWO, *PYTHON, FAIL_ON_ONE, timeout=60)
    assert box.process.returncode not in (0, 127)
    assert "the fourth rank fails" in box.stderr


def test_a_rank_that_leaves_with_a_code_ends_the_others_with_it():
    fail = 'raise RuntimeError("the fourth rank fails")'
    program = FAIL_ON_ONE.replace(fail, "import sys; sys.exit(7)")
    box = run(*TWO, *PYTHON, program, timeout=30)
    assert box.process.returncode == 7, box.stderr


LESSON = ["lessons/01_ring_allreduce.py", "--quick", "--output"]


def test_a_lesson_names_its_place_and_draws_both_places(tmp_path):
    """First in shared memory, then on nodes: the figure shows both curves side by side."""
    job = run_job(4, [*LESSON, str(tmp_path), "--link", "none"], timeout=60)
    assert job.code == 0, job.stderr
    box = run(*TWO, "--mtu", 9000, "--", sys.executable, *LESSON, tmp_path)
    assert box.process.returncode == 0, box.stderr
    place = "emulated cluster, 2 nodes x 2 ranks, links of 1gbit, MTU 9000"
    assert f"01_ring_allreduce on 4 ranks: {place}\nlink probed: " in box.stdout
    record = json.loads((tmp_path / "01_ring_allreduce.json").read_text())
    assert record["place"] == place
    assert 0 < record["link_probed"]["link"] < 2 * record["link_probed"]["asked"]
    places = [name.split(",")[0] for name in sorted(record["curves"])]
    assert places == ["emulated cluster", "shared memory of one machine"]
    # a run on another link keeps the curve of shared memory
    again = run(*TWO, "--", sys.executable, *LESSON, tmp_path)
    assert again.process.returncode == 0, again.stderr
    later = json.loads((tmp_path / "01_ring_allreduce.json").read_text())["curves"]
    assert set(later) == {place.removesuffix(", MTU 9000"), *record["curves"]} - {place}
    assert all(
        point["measured"]["ring"]["median_s"] > 0
        for curve in record["curves"].values()
        for point in curve["points"]
    )


def test_a_stated_link_on_real_ones_is_refused(tmp_path):
    box = run(*TWO, "--", sys.executable, *LESSON, tmp_path, "--link", "1gbit,50us")
    assert box.process.returncode == 2
    message = (
        "--link 1gbit,50us on an emulated cluster, which has links; next: leave one of them out"
    )
    assert box.stderr.count(message) == 1


def test_two_clusters_at_the_same_time_do_not_meet():
    boxes = [Box(*TWO, *PYTHON, RING.format(count=count, rounds=3)) for count in (10**6, 2 * 10**6)]
    assert [box.wait() for box in boxes] == [0, 0]
    assert [box.left() for box in boxes] == [[], []]
    assert "12.00        12.00         6" in boxes[0].stderr
    assert "24.00        24.00         6" in boxes[1].stderr


SLEEP = "import time, refgf.launch; from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); "
SLEEP += "print('here', flush=True); time.sleep(600)"


def test_ctrl_c_ends_everything():
    box = Box(*TWO, *PYTHON, SLEEP)
    box.wait_for("time.sleep(600)", 8)  # the command, unshare, process 1, mpiexec, and four ranks
    box.process.send_signal(signal.SIGINT)
    assert box.wait(10) == 130
    assert box.left() == []
    assert "Traceback" not in box.stderr


KILLED = {  # how to find it, with MPICH and with Open MPI
    "command": ["-m refgf.cluster run"],
    "unshare": ["unshare --"],
    "process 1": ["_inside"],
    "launcher": ["mpiexec -localhost", "prterun --prtemca"],
    "node's launcher": ["bin/hydra_pmi_proxy --", "bin/prted --"],
    "rank": ["-c import time"],
}


@pytest.mark.parametrize("name", KILLED)
def test_sigkill_of_any_process_ends_everything(name):
    box = Box(*TWO, *PYTHON, SLEEP)
    box.wait_for("time.sleep(600)", 8)
    victim = [pid for word in KILLED[name] for pid in box.pids(word)][-1]
    os.kill(victim, signal.SIGKILL)
    code = box.wait(30)
    assert box.left() == []
    # prterun 5.0.11 reports the loss of a node's launcher, and then returns 0
    if (MPI, name) != ("openmpi", "node's launcher"):
        assert code != 0
    if name in ("unshare", "launcher"):
        assert code == 128 + signal.SIGKILL


def test_a_killed_holder_of_a_node_is_a_sentence():
    """The command does not go on: it might wait for ever for what the node has not sent."""
    box = Box(*TWO, *PYTHON, SLEEP)
    box.wait_for("time.sleep(600)", 8)
    os.kill(box.pids("sleep infinity")[-1], signal.SIGKILL)
    assert box.wait(10) == 1 and box.left() == [] and "Traceback" not in box.stderr
    assert "refgf.cluster: node1: got the end of the process that holds it" in box.stderr


@pytest.mark.parametrize("harm", ["ip link set eth0 down", "ip link del eth0"])
def test_a_lost_link_is_a_sentence(harm):
    """A rank that takes its node's link away would leave all others waiting."""
    cut = f"import subprocess; MPI.COMM_WORLD.rank or subprocess.run({harm.split()}); time.sleep"
    box = Box(*TWO, *PYTHON, SLEEP.replace("time.sleep", cut))
    assert box.wait(60) == 1 and box.left() == [] and "Traceback" not in box.stderr
    assert "refgf.cluster: node0: got a link that is down or deleted; wanted" in box.stderr


ODD = 'd$HOME `touch pwned` q\'s "x";(1)'  # a shell would read it otherwise


def test_a_path_is_no_text_for_a_shell(tmp_path):
    """MPI's launcher lies in it: a copy, because Open MPI's follows links to find itself."""
    prefix = Path(launcher.find_mpiexec(None)).parents[1]
    copy = tmp_path / ODD / "mpi"
    names = (*prefix.glob("bin/*mpi*"), *prefix.glob("bin/hydra*"), *prefix.glob("bin/prte*"))
    for file in (*names, *filter(Path.is_file, prefix.glob("lib/*"))):
        target = copy / file.relative_to(prefix)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target, follow_symlinks=False)
    for folder in ("lib/openmpi", "lib/pmix", "lib/prte", "share", "etc"):
        if (prefix / folder).is_dir():
            shutil.copytree(prefix / folder, copy / folder, symlinks=True)
    box = run(*TWO, "--mpiexec", copy / "bin/mpiexec", *PYTHON, LOOK, cwd=tmp_path / ODD)
    assert box.process.returncode == 0, box.stderr
    assert {found["cwd"] for found in json.loads(box.stdout)} == {str(tmp_path / ODD)}
    assert not (tmp_path / ODD / "pwned").exists()


# of the folder where the user stands, which Python would import in place of its own
SHADOW = "import os; os.write(2, b'RAN'); raise SystemExit(9)"


def test_children_import_nothing_from_the_working_directory(tmp_path):
    for name in ("types", "json", "random", "signal", "refgf"):
        (tmp_path / f"{name}.py").write_text(SHADOW)
    console = "import sys; from refgf.cluster.__main__ import main; sys.exit(main(sys.argv[1:]))"
    for words in (["check"], ["run", "--nodes", "2", "--", "true"], ["probe", "--nodes", "2"]):
        done = subprocess.run(
            [sys.executable, "-P", "-c", console, *words],
            cwd=tmp_path,
            env=clean_environment({"PYTHONPATH": str(launcher.ROOT)}),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0 and "RAN" not in done.stderr, done.stderr


def test_check_says_that_a_cluster_runs_only_after_one_did(tmp_path):
    """A tool that only the nodes need, and that `check` does not name, is missing."""
    for folder in check.search_path().split(os.pathsep):
        for tool in Path(folder).glob("*") if Path(folder).is_dir() else []:
            if tool.name != "chmod" and not (tmp_path / tool.name).exists():
                (tmp_path / tool.name).symlink_to(tool)
    script = "import sys; from refgf.cluster import __main__, check; "
    script += "check.search_path = lambda: sys.argv[1]; sys.exit(__main__.main(['check']))"
    broken = {"PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        env=clean_environment(broken),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 78 and "an emulated cluster runs here" not in done.stdout
    assert "chmod: not found" in done.stderr and "wanted 0; next: " in done.stderr


def test_a_killed_holder_at_the_start_is_a_sentence():
    box = Box("run", "--nodes", 4, "--", "true")
    (holder, *_) = box.wait_for("holder node1")
    os.kill(holder, signal.SIGKILL)
    assert box.wait(60) != 0 and box.left() == []
    assert "Traceback" not in box.stderr and box.stderr.count("refgf.cluster: ") == 1
    assert len(box.stderr.splitlines()) == 1


def test_a_lost_cable_is_a_sentence(monkeypatch):
    links = [{"ifname": "cable0", "stats64": {"rx": {"bytes": 1}, "tx": {"bytes": 2}}}]
    answer = subprocess.CompletedProcess([], 0, json.dumps(links))
    monkeypatch.setattr(network.subprocess, "run", lambda *_, **__: answer)
    assert network.counters(1) == [(1, 2)]
    with pytest.raises(ChildProcessError, match="node1: got a link that is down.*; next: "):
        network.counters(3)


def test_a_callers_pipe_is_closed_when_the_command_ends():
    """This call would wait for ever if a holder process kept the pipe open."""
    command = [sys.executable, "-m", "refgf.cluster", *map(str, TWO)]
    command += [*PYTHON, "from mpi4py import MPI; print('here')"]
    options = {"env": clean_environment(), "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(command, **options)
    assert done.stdout.count("here") == 4


def test_latency_is_added_or_refused():
    try:
        check.unshare_command(latency=True)
    except check.CannotRun as reason:
        box = run(*TWO, "--latency", "50us", "--", "true")
        assert box.process.returncode == 78
        assert str(reason) in box.stderr and "--link" in box.stderr
        return
    box = run("probe", "--nodes", 2, "--latency", "5ms")
    assert box.process.returncode == 0
    assert 5000 <= read_table(box.stdout)[0]["alpha_us"] < 10000
