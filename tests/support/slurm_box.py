"""A real Slurm on emulated nodes: slurmctld on the head, a slurmd on every node, and one job.

Runs as process 1 of new namespaces (see `submit`), so daemons and job end with it:

    python tests/support/slurm_box.py NODES FOLDER ARGUMENT...

submits lessons/cluster/lesson.sbatch with these arguments (options of sbatch, `--`, then the
lesson's) and prints the job's output. The exit code is the job's.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from refgf.cluster import inside, network
from refgf.cluster.check import search_path
from refgf.cluster.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
DAEMONS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol")
CONFIGURATION = """
ClusterName=box
SlurmctldHost=head({head})
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SwitchType=switch/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
{nodes}
PartitionName=box Nodes=ALL Default=YES MaxTime=60 State=UP
"""


def why_not() -> str | None:
    """Why no Slurm can run here."""
    missing = [name for name in DAEMONS if not shutil.which(name, path=search_path())]
    if missing:
        packages = "slurmctld slurmd slurm-client slurm-wlm-basic-plugins"
        return f"no {', '.join(missing)}; next: apt-get install {packages}"
    return None if os.geteuid() == 0 else "slurmd starts jobs only as root"


def submit(
    prefix: list[str], folder: Path, *arguments, nodes: int = 2, env: dict, timeout: float = 120
):
    """Start this file behind an `unshare` prefix; return the completed process."""
    script = str(Path(__file__).resolve())
    return subprocess.run(
        [*prefix, sys.executable, script, str(nodes), str(folder), *map(str, arguments)],
        env=env,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def main(count: int, folder: Path, arguments: list[str]) -> int:
    settings = Settings(nodes=count)
    inside.mount_disk(settings)
    holders = inside.build(settings)
    os.environ["SLURM_CONF"] = str(configure(settings, folder))
    start(["slurmctld", "-D", "-i"], folder / "slurmctld.out")
    for name, pid in zip(settings.names, holders):
        enter = ["nsenter", "-t", str(pid), "-n", "-u", "-i", "-m"]
        start([*enter, "slurmd", "-D", "-N", name], folder / f"{name}.out")
    wait_until_idle(settings)
    output = folder / "job.out"
    own = arguments.index("--")
    command = ["sbatch", "--wait", f"--output={output}", *arguments[:own]]
    command += ["lessons/cluster/lesson.sbatch", *arguments[own + 1 :]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    job_output = output.read_text() if output.exists() else "the job printed nothing"
    print(done.stdout, done.stderr, job_output, sep="\n")
    return done.returncode


def configure(settings: Settings, folder: Path) -> Path:
    """Write slurm.conf; each node claims 8 processors, even if the machine has fewer."""
    nodes = [
        f"NodeName={name} NodeAddr={settings.address(i)} CPUs=8 RealMemory=1000 State=UNKNOWN"
        for i, name in enumerate(settings.names)
    ]
    (folder / "state").mkdir(parents=True)
    file = folder / "slurm.conf"
    file.write_text(CONFIGURATION.format(head=network.HEAD, folder=folder, nodes="\n".join(nodes)))
    return file


def start(command: list[str], log: Path) -> None:
    with log.open("w") as out:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def wait_until_idle(settings: Settings, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while True:
        done = subprocess.run(["sinfo", "-h", "-N", "-o", "%t"], capture_output=True, text=True)
        states = done.stdout.split()
        if states == ["idle"] * settings.nodes:
            return
        if time.monotonic() > end:
            raise SystemExit(f"slurm_box: nodes are {states} after {seconds} s; {done.stderr}")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
