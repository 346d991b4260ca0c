"""Whether this machine can hold an emulated cluster. If not: the reason, the setting, and the way round it."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

INSTEAD = "every lesson also takes --link 1gbit,50us, a stated link that works everywhere (by waiting, not by a network)"
TOOLS = {"unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "ip": "iproute2", "tc": "iproute2"}
ISOLATION = ("--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc")
USER = ("--user", "--map-root-user")
FORBIDS = {  # settings that forbid user namespaces: (the value that forbids, what to type)
    "kernel/unprivileged_userns_clone": ("0", "sudo sysctl kernel.unprivileged_userns_clone=1"),
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
    "user/max_user_namespaces": ("0", "sudo sysctl user.max_user_namespaces=10000"),
    "user/max_net_namespaces": ("0", "sudo sysctl user.max_net_namespaces=10000"),
}


class CannotRun(RuntimeError):
    """No cluster on this machine; the message says why, what to change, and what works instead."""


def unshare_command(latency: bool = False) -> list[str]:
    """The `unshare ...` prefix that works here, tried with a real interface and a real queue; CannotRun if none does.

    Root needs no user namespace and is tried without one first, as inside one it would lose its rights over the files
    of others.
    """
    require_linux(platform.system())
    require_tools(shutil.which("unshare", path=search_path()) and search_path())
    attempts = [("unshare", *ISOLATION)] if os.geteuid() == 0 else []
    attempts.append(("unshare", *USER, *ISOLATION))
    for prefix in attempts:
        said = _try([*prefix, "true"])
        if said is None:
            require_queues(lambda *script, prefix=prefix: _try([*prefix, "sh", "-c", *script]), latency)
            return list(prefix)
    raise CannotRun(f"namespaces are not to be had here: {said}; {why_forbidden()}; {INSTEAD}")


def require_linux(system: str) -> None:
    if system != "Linux":
        raise CannotRun(
            f"an emulated cluster needs Linux's network namespaces, and this is {system}; next: run it in a Linux virtual "
            f"machine; {INSTEAD}"
        )


def search_path() -> str:
    """PATH, and the folders of administrators' tools, where Debian keeps `tc` and other distributions `ip`."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def require_tools(path: str | None) -> None:
    missing = [tool for tool in TOOLS if not shutil.which(tool, path=path or "")]
    if missing:
        packages = " ".join(sorted({TOOLS[tool] for tool in missing}))
        raise CannotRun(f"missing: {', '.join(missing)}; next: sudo apt-get install {packages}; {INSTEAD}")


def require_queues(trial, latency: bool) -> None:
    """trial(script) runs a shell script in fresh namespaces and returns what it complained of, or None."""
    cable = "ip link add trial0 type veth peer name trial1 && ip link add trial2 type bridge"
    said = trial(cable)
    if said:
        raise CannotRun(f"this kernel gives no virtual cables (veth, bridge): {said}; {INSTEAD}")
    said = trial(f"{cable} && tc qdisc add dev trial0 root tbf rate 1gbit burst 64kb latency 20ms")
    if said:
        raise CannotRun(f"this kernel cannot shape a link (tbf): {said}; next: sudo modprobe sch_tbf; {INSTEAD}")
    if latency and (said := trial(f"{cable} && tc qdisc add dev trial0 root netem delay 50us")):
        raise CannotRun(
            f"--latency needs the kernel's netem: {said}; next: sudo modprobe sch_netem, or leave --latency out; {INSTEAD}"
        )


def why_forbidden(sysctl: Path = Path("/proc/sys"), status: Path = Path("/proc/self/status")) -> str:
    """The setting that forbids user namespaces, and what to type."""
    reasons = []
    for name, (forbidding, mend) in FORBIDS.items():
        setting = sysctl / name
        if setting.exists() and setting.read_text().strip() == forbidding:
            reasons.append(f"{name.replace('/', '.')} is {forbidding}; next: {mend}")
    if not reasons and "Seccomp:\t2" in status.read_text():
        reasons.append("a container's seccomp filter is active; next: start it with --privileged")
    return " and ".join(reasons) or "no known setting forbids them; next: ask your administrator about user namespaces"


def _try(command: list[str]) -> str | None:
    environment = os.environ | {"PATH": search_path()}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return None if done.returncode == 0 else " ".join(done.stderr.split()) or f"exit code {done.returncode}"
