"""Runs a command as on another system: python elsewhere.py SYSTEM USER COMMAND...

SYSTEM: as it is ("namespaces"), without user namespaces ("root's"), or without any ("none").
USER: 0 or another number, without rights. The command runs in a user namespace, where namespaces
can be switched off for all that it starts. Exit code 98: it left processes.
"""

import ctypes
import os
import socket
import sys
import time
from pathlib import Path

OFF = {"namespaces": (), "root's": ("user",)}
OFF["none"] = ("user", "mnt", "pid", "net", "ipc", "uts")
NEWUSER, LEFT = 0x10000000, 98


def main() -> int:
    system, user, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans become its children
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        if ctypes.CDLL(None).unshare(NEWUSER):
            os._exit(99)
        theirs.sendall(b"u")
        theirs.recv(1)
        for name in OFF[system]:
            Path(f"/proc/sys/user/max_{name}_namespaces").write_text("0")
        os.execvp(command[0], command)
    theirs.close()
    if ours.recv(1):
        many = os.geteuid() == 0 and user == "0"
        if os.geteuid() != 0:
            Path(f"/proc/{child}/setgroups").write_text("deny")
        for name, own in (("gid_map", os.getegid()), ("uid_map", os.geteuid())):
            text = "0 0 65536" if many else f"{user} {own} 1"
            Path(f"/proc/{child}/{name}").write_text(text)
        ours.sendall(b"g")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if alone_within(10.0) else LEFT


def alone_within(seconds: float) -> bool:
    """Have all that it left ended?"""
    stop_s = time.monotonic() + seconds
    while time.monotonic() < stop_s:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)
        except ChildProcessError:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
