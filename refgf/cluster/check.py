"""Whether this machine can hold an emulated cluster. If not: the reason, the setting, and the way round it."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

INSTEAD = "every lesson also takes --link 1gbit,50us, a stated link that works everywhere (by waiting, not by a network)"
TOOLS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "taskset": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
    "ip": "iproute2",
    "tc": "iproute2",
}
ISOLATION = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
USER = ("--user", "--map-root-user")
STAGES = {  # what a cluster needs, tried in this order inside fresh namespaces: (shell command, what its failure means)
    "namespaces": ("true", "namespaces are not to be had here"),
    "cables": (
        "ip link add trial0 type veth peer name trial1 && ip link add trial2 type bridge",
        "this kernel gives no virtual cables; next: sudo modprobe -a veth bridge",
    ),
    "tbf": (
        "tc qdisc add dev trial0 root tbf rate 1gbit burst 64kb latency 20ms",
        "this kernel cannot shape a link (tbf); next: sudo modprobe sch_tbf",
    ),
    "netem": (
        "tc qdisc add dev trial1 root netem delay 50us",
        "--latency needs the kernel's netem; next: sudo modprobe sch_netem, or leave --latency out",
    ),
}
FORBIDS = {  # settings that forbid user namespaces: (the value that forbids, what to type)
    "kernel/unprivileged_userns_clone": ("0", "sudo sysctl kernel.unprivileged_userns_clone=1"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
    "user/max_user_namespaces": ("0", "sudo sysctl user.max_user_namespaces=10000"),
    "user/max_net_namespaces": ("0", "sudo sysctl user.max_net_namespaces=10000"),
}


class CannotRun(RuntimeError):
    """No cluster on this machine; the message says why, what to change, and what works instead."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; {INSTEAD}")


def unshare_command(latency: bool = False) -> list[str]:
    """The `unshare ...` prefix that works here, tried with real cables and a real shaper; CannotRun if none does.

    Root is tried without a user namespace first: inside one it would lose its rights over the files of others.
    """
    require_linux(platform.system())
    require_tools(search_path())
    attempts = [("unshare", *ISOLATION)] if os.geteuid() == 0 else []
    for prefix in [*attempts, ("unshare", *USER, *ISOLATION)]:
        failed, said = trial(prefix, latency)
        if not failed:
            return list(prefix)
        if failed != "namespaces":
            break
    raise CannotRun(explain(failed, said))


def require_linux(system: str) -> None:
    if system != "Linux":
        raise CannotRun(
            f"an emulated cluster needs Linux's namespaces, and this is {system}; next: use a Linux virtual machine"
        )


def search_path() -> str:
    """PATH, and the folders of administrators' tools, where Debian keeps `tc` and other distributions `ip`."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def require_tools(path: str) -> None:
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=path)]
    if missing:
        packages = " ".join(sorted({TOOLS[tool] for tool in missing}))
        raise CannotRun(f"missing: {', '.join(missing)}; next: sudo apt-get install {packages}")


def trial(prefix: tuple, latency: bool) -> tuple[str | None, str]:
    """Try all stages in one go; (the stage that failed or None, what was said)."""
    wanted = [stage for stage in STAGES if latency or stage != "netem"]
    script = " && ".join(f"{STAGES[stage][0]} && echo {stage}" for stage in wanted)
    environment = os.environ | {"PATH": search_path(), "LC_ALL": "C"}
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run([*prefix, "sh", "-c", script], env=environment, **options)
    missing = [stage for stage in wanted if stage not in done.stdout.split()]
    return (missing[0] if missing else None), " ".join(done.stderr.split())


def explain(stage: str, said: str) -> str:
    """Why a stage failed, and what to type."""
    reason = f"{STAGES[stage][1]} ({said or 'no message'})"
    return f"{reason}; {why_forbidden()}" if stage == "namespaces" else reason


def why_forbidden(sysctl: Path = Path("/proc/sys"), status: Path = Path("/proc/self/status")) -> str:
    """The setting that forbids user namespaces, and what to type."""
    reasons = []
    for name, (forbidding, mend) in FORBIDS.items():
        setting = sysctl / name
        if setting.exists() and setting.read_text().strip() == forbidding:
            reasons.append(f"{name.replace('/', '.')} is {forbidding}; next: {mend}")
    if not reasons and "Seccomp:\t2" in status.read_text():
        reasons.append("a container's filter of system calls is active; next: start the container with --privileged")
    return " and ".join(reasons) or "no known setting forbids them; next: ask your administrator for user namespaces"
