"""In the template's process (see forked.py): it waits, forks, and runs nothing foreign.

A fork becomes a child of the judge, not of the template (CLONE_PARENT): so the judge waits for it
and ends it as any program that it has started itself, and its keeper sees the judge end.
"""

import ctypes
import gc
import os
import platform
import signal
import socket
import sys

from refgf.oracle.foreign import kernel, wall
from refgf.oracle.foreign.connection import Connection

CLONE_PARENT = 0x8000


def forks(connection: Connection) -> int:
    """Return in each fork, with the descriptor of its connection; never in the template.

    Each question comes with two descriptors: that one, and what is its stdout. The answer is the
    fork's number, once it has a session of its own.
    """
    gc.disable()  # it would change, and so copy, memory that the forks share
    gc.freeze()
    ready = len(os.listdir("/proc/self/task")) == 1  # a fork has no other thread's
    if ready:
        connection.answer(b"[]")
    while ready:
        given = socket.recv_fds(connection.socket, 1, 2)[1]
        if not given:  # the judge has ended
            break
        connection.question()
        if not fork():
            return _entered(connection, *given)
        for descriptor in given:
            os.close(descriptor)
    os._exit(0 if ready else 1)


def fork() -> int:
    """As os.fork, but the new process is a child of this one's parent."""
    number = kernel.CLONE[kernel.MACHINES[platform.machine()][1]]
    words = [ctypes.c_long(word) for word in (number, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)]
    system, python = ctypes.PyDLL(None).syscall, ctypes.pythonapi
    in_child, in_parent = python.PyOS_AfterFork_Child, python.PyOS_AfterFork_Parent
    python.PyOS_BeforeFork()
    pid = system(*words)
    (in_parent if pid else in_child)()
    if pid < 0:
        raise OSError("the system has not forked")
    return pid


def _entered(connection: Connection, remote: int, output: int) -> int:
    """In the fork: a session, and no descriptors but its own."""
    os.setsid()
    os.dup2(output, 1)
    connection.answer(str(os.getpid()).encode())
    connection.socket.detach()
    wall.close_all_but(0, 1, 2, remote)
    gc.enable()
    if random := sys.modules.get("numpy.random"):  # `random` does this itself
        random.seed()
    return remote
