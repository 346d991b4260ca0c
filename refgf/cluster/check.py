"""Whether this machine can run an emulated cluster; if not, the reason and what to change."""

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

INSTEAD = "every lesson also takes --link 1gbit,50us, which emulates a link by waiting, everywhere"
TOOLS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "taskset": "util-linux",
    "mount": "mount",
    "hostname": "hostname",
    "ip": "iproute2",
    "tc": "iproute2",
}
ISOLATION = (
    "--mount",
    "--net",
    "--uts",
    "--ipc",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
USER = ("--user", "--map-root-user")
STAGES = {  # tried in this order inside new namespaces: (shell command, meaning of its failure)
    "namespaces": ("true", "no namespaces can be made here"),
    "cables": (
        "ip link add trial0 type veth peer name trial1 && ip link add trial2 type bridge",
        "this kernel makes no virtual cables; next: sudo modprobe -a veth bridge",
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
FORBIDS = {  # settings that forbid user namespaces: (the value that forbids, the fix)
    "kernel/unprivileged_userns_clone": ("0", "sudo sysctl kernel.unprivileged_userns_clone=1"),
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "user/max_user_namespaces": ("0", "sudo sysctl user.max_user_namespaces=10000"),
    "user/max_net_namespaces": ("0", "sudo sysctl user.max_net_namespaces=10000"),
}


class CannotRun(RuntimeError):
    """No cluster can run on this machine; the message has the reason, a fix and an alternative."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; {INSTEAD}")


def unshare_command(latency: bool = False) -> list[str]:
    """The `unshare ...` prefix that works here, tried with real cables and a real shaper.

    Root tries without a user namespace first, because inside one it loses its rights over other
    users' files. CannotRun if no prefix works.
    """
    require_linux(platform.system())
    require_tools(search_path())
    attempts = [("unshare", *ISOLATION)] if os.geteuid() == 0 else []
    for prefix in [*attempts, ("unshare", *USER, *ISOLATION)]:
        failed, message = try_stages(prefix, latency)
        if not failed:
            return list(prefix)
        if failed != "namespaces":
            break
    raise CannotRun(explain(failed, message))


def require_linux(system: str) -> None:
    """CannotRun unless the operating system is Linux."""
    if system != "Linux":
        raise CannotRun(
            f"got {system}; wanted Linux, for namespaces; next: a Linux virtual machine"
        )


def search_path() -> str:
    """PATH and the folders of administrators' tools, where distributions install `tc` and `ip`."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def require_tools(path: str) -> None:
    """CannotRun unless all tools are on this path."""
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=path)]
    if missing:
        packages = " ".join(sorted({TOOLS[tool] for tool in missing}))
        raise CannotRun(f"missing: {', '.join(missing)}; next: sudo apt-get install {packages}")


def try_stages(prefix: tuple[str, ...], latency: bool) -> tuple[str, str]:
    """Try all stages in one command; return (the stage that failed or "", its message)."""
    wanted = [stage for stage in STAGES if latency or stage != "netem"]
    script = " && ".join(f"{STAGES[stage][0]} && echo {stage}" for stage in wanted)
    environment = os.environ | {"PATH": search_path(), "LC_ALL": "C"}
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done = subprocess.run([*prefix, "sh", "-c", script], env=environment, **options)
    missing = [stage for stage in wanted if stage not in done.stdout.split()]
    return (missing[0] if missing else ""), " ".join(done.stderr.split())


def has_netem() -> bool:
    """Can this machine emulate latency?"""
    try:
        unshare_command(latency=True)
    except CannotRun:
        return False
    return True


def explain(stage: str, message: str) -> str:
    """Why a stage failed, and the fix."""
    reason = f"{STAGES[stage][1]} ({message or 'no message'})"
    return f"{reason}; {find_forbidding_setting()}" if stage == "namespaces" else reason


def find_forbidding_setting(
    sysctl: Path = Path("/proc/sys"), status: Path = Path("/proc/self/status")
) -> str:
    """The setting that forbids user namespaces, and the fix."""
    reasons = []
    for name, (forbidding, fix) in FORBIDS.items():
        setting = sysctl / name
        if setting.exists() and setting.read_text().strip() == forbidding:
            reasons.append(f"{name.replace('/', '.')} is {forbidding}; next: {fix}")
    if not reasons and "Seccomp:\t2" in status.read_text():
        fix = "start the container with --privileged"
        reasons.append(f"a container's system call filter is active; next: {fix}")
    unknown = "no known setting forbids them; next: ask your administrator for user namespaces"
    return " and ".join(reasons) or unknown
