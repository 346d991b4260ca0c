"""The wall around foreign code, built by its own process before it imports anything foreign.

    judge -- keeper -- waits -- waits -- init of a new PID namespace -- foreign code

Where the kernel has namespaces, the foreign code sees a file system of its own (read-only), no
network but loopback, and no process of others. Then, with or without them, it becomes another user
if the judge is root, loses all capabilities, and puts on itself the locks of kernel.py and limits.
`enter` returns in the foreign code's process and says what this system could not do.
"""

import contextlib
import ctypes
import fcntl
import glob
import os
import re
import secrets
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

from refgf.oracle.foreign import kernel

NEWNS, NEWUTS, NEWIPC, NEWUSER = 0x20000, 0x4000000, 0x8000000, 0x10000000
NEWPID, NEWNET = 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
KEPT = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048}
KEPT |= {"relatime": 1 << 21}
DETACH = 2
PR_SET_PDEATHSIG, PR_CAPBSET_DROP = 1, 24
BASE = "/tmp"  # where the new tree is put together
DEVICES = ("null", "zero", "full", "random", "urandom")
ACCELERATORS = ("nvidia*", "dri", "kfd", "dxg", "infiniband")
SCRATCH = ("/tmp", "/var/tmp", "/dev/shm")
FRESH = 61184, 65519  # user numbers that systemd, too, gives to short-lived services


def enter(spec: dict[str, Any]) -> list[str]:
    """Build what view.py describes. Returns which of files, network, processes stay open."""
    if not sys.platform.startswith("linux"):
        limit(spec["limits"], alone=False)
        return ["files", "network", "processes"]
    os.umask(0o022)
    first, last = FRESH
    number = os.geteuid()
    if number == 0 and spec["another_user"]:
        number = first + secrets.randbelow(last - first + 1)
    own = namespaces(spec, number)
    another = number != os.geteuid() and open_to_others(spec["needed"], ancestors=not own)
    no_more_capabilities()
    another = another and become(number)
    drop_capabilities()
    if not own:
        die_with_parent()
    with contextlib.suppress(OSError):
        os.chdir(spec["folder"] if os.access(spec["folder"], os.X_OK) else "/")
    limit(spec["limits"], alone=own or another)
    files = lock_files(spec, own)
    try:
        kernel.seccomp(spec["alone"], writes=own or files)
        calls = spec["alone"]
    except OSError:
        calls = False
    held = {"files": own or files, "network": own or calls, "processes": own or calls}
    return [name for name, is_held in held.items() if not is_held]


def namespaces(spec: dict[str, Any], number: int) -> bool:
    """Returns True in a process in new namespaces, or False in this one if there are none.

    number: a user that exists in them besides this one.
    """
    ours, theirs = socket.socketpair()
    outer = os.fork()
    if outer:
        theirs.close()
        said = ours.recv(1)
        if said == b"u":
            ours.sendall(b"1" if map_users(outer, number) else b"0")
            said = ours.recv(1)
        if said != b"1":  # it has ended before it was ready
            ours.close()
            os.waitpid(outer, 0)
            return False
        close_all_but(ours.fileno())
        status = ours.recv(4)
        end_as(struct.unpack("i", status)[0] if len(status) == 4 else signal.SIGKILL)
    try:
        ours.close()
        die_with_parent()
        unshare(theirs)
        if init := os.fork():
            close_all_but()
            os.waitpid(init, 0)
            os._exit(0)
        die_with_parent()
        loopback()
        mounts(spec)
        judged = os.fork()
        if not judged:
            theirs.sendall(b"1")
            theirs.close()
            return True
        close_all_but(theirs.fileno())
        while (ended := os.wait())[0] != judged:  # init collects orphans
            pass
        theirs.sendall(struct.pack("i", ended[1]))
    except BaseException:  # noqa: BLE001  the first process goes on without namespaces
        os._exit(1)
    os._exit(0)


def unshare(parent: socket.socket) -> None:
    """New namespaces, with the rights that a new user namespace gives, or with root's."""
    flags = NEWNS | NEWPID | NEWNET | NEWIPC | NEWUTS
    try:
        checked("unshare", NEWUSER | flags)
    except OSError:
        if os.geteuid() != 0:
            raise
        return checked("unshare", flags)
    parent.sendall(b"u")
    if parent.recv(1) != b"1":
        raise OSError("no users in the new user namespace")


def map_users(pid: int, number: int) -> bool:
    """In the user namespace of a child, this user and `number` keep their numbers."""
    uid, gid = os.geteuid(), os.getegid()
    users = [f"{uid} {uid} 1"] + [f"{number} {number} 1"] * (number != uid)
    groups = [f"{gid} {gid} 1"] + [f"{number} {number} 1"] * (number != uid)
    try:
        if uid != 0:  # others may not change groups in there
            Path(f"/proc/{pid}/setgroups").write_text("deny")
        Path(f"/proc/{pid}/gid_map").write_text("\n".join(groups))
        Path(f"/proc/{pid}/uid_map").write_text("\n".join(users))
    except OSError:
        return False
    return True


def mounts(spec: dict[str, Any]) -> None:
    """A tree of its own: what spec shows, read-only, without what it hides."""
    mount("none", "/", None, REC | PRIVATE)
    mount("tmpfs", BASE, "tmpfs", NOSUID | NODEV, "mode=755,size=16m")
    os.chdir(BASE)
    os.mkdir("old")
    os.mkdir("new")
    pivot_root(".", "old")
    os.chdir("/")
    if "/" in spec["read"]:
        mount("/old", "/new", None, BIND | REC)
    else:
        mount("tmpfs", "/new", "tmpfs", NOSUID | NODEV, "mode=755,size=16m")
    scratch = [path for path in SCRATCH if spec["scratch"] and path not in spec["read"]]
    ways = [(path, hide) for path in spec["hide"]] + [("/proc", processes), ("/dev", devices)]
    ways += [(path, writable) for path in scratch]
    ways += [(path, show) for path in spec["read"] if path != "/"]
    for path, way in sorted(ways, key=lambda pair: (pair[0].split("/"), pair[1] is show)):
        way(path)
    for path, target in spec["links"].items():
        if not os.path.lexists(f"/new{path}"):
            os.makedirs(os.path.dirname(f"/new{path}"), exist_ok=True)
            os.symlink(target, f"/new{path}")
    read_only({f"/new{path}" for path in (*scratch, "/proc")})
    os.chdir("/new")
    pivot_root(".", ".")
    checked("umount2", b".", DETACH)
    os.chdir("/")


def show(path: str) -> None:
    old, new = f"/old{path}", f"/new{path}"
    if not os.path.lexists(old):
        return
    if os.path.isdir(old):
        os.makedirs(new, exist_ok=True)
    elif not os.path.exists(new):
        os.makedirs(os.path.dirname(new), exist_ok=True)
        os.close(os.open(new, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(old, new, None, BIND | REC)


def hide(path: str) -> None:
    new = f"/new{path}"
    if os.path.isdir(new):
        mount("tmpfs", new, "tmpfs", NOSUID | NODEV, "mode=755,size=16m")
    elif os.path.exists(new):
        mount("/old/dev/null", new, None, BIND)


def writable(path: str) -> None:
    if os.path.isdir(os.path.dirname(f"/new{path}")):
        os.makedirs(f"/new{path}", exist_ok=True)
        mount("tmpfs", f"/new{path}", "tmpfs", NOSUID | NODEV, "mode=1777")


def processes(path: str) -> None:
    """/proc of the new PID namespace; an empty folder where a container refuses that."""
    os.makedirs(f"/new{path}", exist_ok=True)
    try:
        mount("proc", f"/new{path}", "proc", NOSUID | NODEV | NOEXEC | RDONLY)
    except OSError:
        mount("tmpfs", f"/new{path}", "tmpfs", NOSUID | NODEV | RDONLY, "mode=755")


def devices(path: str) -> None:
    """/dev with what computing needs, and no terminal."""
    os.makedirs(f"/new{path}", exist_ok=True)
    mount("tmpfs", f"/new{path}", "tmpfs", NOSUID | NODEV, "mode=755,size=16m")
    for name in device_files("/old"):
        show(name)
    os.mkdir(f"/new{path}/shm")
    os.symlink("/proc/self/fd", f"/new{path}/fd")


def device_files(root: str = "") -> list[str]:
    found = [name for each in ACCELERATORS for name in glob.glob(f"{root}/dev/{each}")]
    return [f"/dev/{name}" for name in DEVICES] + [name.removeprefix(root) for name in found]


def read_only(writable: set[str]) -> None:
    """All mounts under /new but these, with those that came along with a folder."""
    with open("/old/proc/self/mountinfo", "rb") as file:
        fields = [line.split() for line in file]
    for field in fields:
        point = os.fsdecode(
            re.sub(rb"\\(\d{3})", lambda found: bytes([int(found[1], 8)]), field[4])
        )
        if point in writable or not f"{point}/".startswith("/new/"):
            continue
        flags = sum(KEPT.get(option, 0) for option in field[5].decode().split(","))
        try:
            mount("none", point, None, REMOUNT | BIND | RDONLY | NOSUID | flags)
        except OSError:
            if os.path.ismount(point):  # else another mount covers it
                raise


def loopback() -> None:
    """Switch on 127.0.0.1 of this network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", 1)  # IFF_UP
        fcntl.ioctl(any_socket, 0x8914, request)  # SIOCSIFFLAGS


def become(number: int) -> bool:
    """A user that owns nothing. False in a container that has too few users."""
    try:
        os.setgroups([])
        os.setresgid(number, number, number)
        os.setresuid(number, number, number)
    except OSError:
        return False
    return True


def open_to_others(paths: list[str], ancestors: bool) -> bool:
    """May any user read these? ancestors: they must be reached through their folders, too."""
    for path in paths:
        if not os.path.exists(path):
            continue
        mode = os.stat(path).st_mode
        if not mode & 0o004 or (os.path.isdir(path) and not mode & 0o001):
            return False
        while ancestors and path != (path := os.path.dirname(path)):
            if not os.stat(path).st_mode & 0o001:
                return False
    return True


def no_more_capabilities() -> None:
    """Neither a set-user-ID program nor root's number will bring any back."""
    for number in range(64):
        with contextlib.suppress(OSError):
            kernel.prctl(PR_CAPBSET_DROP, number)
    with contextlib.suppress(OSError):
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    with contextlib.suppress(OSError):
        checked("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))  # version 3, this thread


def lock_files(spec: dict[str, Any], own: bool) -> bool:
    """Landlock, over the new tree or over the system's own. False: there is none."""
    read, listed, write = ["/"], [], device_files()
    if own and spec["scratch"]:
        write += SCRATCH
    if not own:
        read = [*without(spec["read"], spec["hide"]), *device_files()]
        listed = [path for path in spec["read"] if any(inside(h, path) for h in spec["hide"])]
        if spec["scratch"]:
            write, os.environ["TMPDIR"] = [*write, spec["scratch"]], spec["scratch"]
    try:
        kernel.landlock(read, write, listed, spec["alone"])
    except OSError:
        return False
    return True


def inside(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def without(read: list[str], hide: list[str]) -> list[str]:
    """Paths that together show what `read` shows and `hide` does not: a rule cannot subtract."""
    found = []
    for path in read:
        inner = [h for h in hide if inside(h, path)]
        if not inner:
            found.append(path)
        elif path not in inner and os.path.isdir(path):
            with contextlib.suppress(OSError):
                found += without([os.path.join(path, n) for n in os.listdir(path)], inner)
    return found


def limit(limits: dict[str, int], alone: bool) -> None:
    """Limits by their names in `resource`, of those that the system has.

    alone: this user has no other processes, which would be counted, too.
    """
    try:
        import resource
    except ImportError:
        return
    # 1 byte of core: with 0 the kernel would still start a program that stores cores
    for name, most in {"RLIMIT_CORE": 1, **limits}.items():
        if name == "RLIMIT_NPROC" and not alone:
            continue
        with contextlib.suppress(AttributeError, ValueError, OSError):
            number = getattr(resource, name)
            hard = resource.getrlimit(number)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(number, (most, most))


def die_with_parent() -> None:
    kernel.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def close_all_but(*kept: int) -> None:
    """The judge waits for the ends of its pipes, which only the foreign code should hold."""
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else range(256):
        if int(name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(name))


def end_as(status: int) -> None:
    """End this process as another one did, by its wait status."""
    if os.WIFSIGNALED(status):
        limit({}, alone=False)
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    words = (word and os.fsencode(word) for word in (source, target, kind))
    checked("mount", *words, ctypes.c_ulong(flags), data.encode())


def pivot_root(new: str, old: str) -> None:
    number = kernel.ALWAYS["pivot_root"][kernel.MACHINES[os.uname().machine][1]]
    kernel.call(number, os.fsencode(new), os.fsencode(old))


def checked(function: str, *arguments: Any) -> None:
    """A function of the C library that returns 0. OSError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
