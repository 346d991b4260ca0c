"""Two locks that a Linux process puts on itself and its children, and that nobody can take off.

    landlock   which files may be read or written        Linux 5.13 and newer
    seccomp    which system calls there are              x86_64 and aarch64

Both work without root and inside containers that allow no namespaces. This talks to the kernel by
ctypes, because what runs on a grading platform may need no library but NumPy.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Iterable

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 38, 22
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # on every architecture

# Landlock's rights, by the version that brought them
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1, 2, 4, 8, 1 << 14
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE  # those that a rule on a file may have
READ = EXECUTE | READ_FILE | READ_DIR
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
NET_TCP, SCOPES = 3, 3  # version 4: bind and connect; version 6: abstract sockets and signals

EPERM, ENOSYS = 1, 38
ALLOW, ERROR, KILL = 0x7FFF0000, 0x00050000, 0x80000000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
X32 = 0x40000000  # the first number of another set of system calls on x86_64
CLONE_THREAD, TIOCSTI = 0x10000, 0x5412

MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def numbers(table: str) -> dict[str, tuple[int | None, int | None]]:
    """{name: (its number on x86_64, on aarch64)}; "-": there is no such system call."""
    rows = (row.split() for row in table.replace("\n", " ").split(","))
    return {name: tuple(None if n == "-" else int(n) for n in pair) for name, *pair in rows}


ALWAYS = numbers("""mount 165 40, umount2 166 39, pivot_root 155 41, chroot 161 51, unshare 272 97,
    setns 308 268, open_tree 428 428, fsopen 430 430, move_mount 429 429, fsmount 432 432,
    mount_setattr 442 442, name_to_handle_at 303 264, open_by_handle_at 304 265, bpf 321 280,
    add_key 248 217, request_key 249 218, keyctl 250 219, perf_event_open 298 241,
    userfaultfd 323 282, io_uring_setup 425 425, init_module 175 105, finit_module 313 273,
    delete_module 176 106, kexec_load 246 104, reboot 169 142, swapon 167 224, acct 163 89""")
# what a function that only computes does not need: processes, sockets, changes of files
ALONE = numbers("""fork 57 -, vfork 58 -, execve 59 221, execveat 322 281, socket 41 198,
    connect 42 203, bind 49 200, ptrace 101 117, kill 62 129, tkill 200 130,
    rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, pidfd_send_signal 424 424,
    pidfd_open 434 434, pidfd_getfd 438 438, kcmp 312 272, process_vm_readv 310 270,
    process_vm_writev 311 271, process_madvise 440 440, setpriority 141 140,
    sched_setscheduler 144 119, sched_setparam 142 118, sched_setattr 314 274,
    sched_setaffinity 203 122, ioprio_set 251 30, migrate_pages 256 238, move_pages 279 239,
    shmget 29 194, shmat 30 196, semget 64 190, msgget 68 186, mq_open 240 180,
    inotify_init 253 -, inotify_init1 294 26, fanotify_init 300 262, memfd_create 319 279,
    chmod 90 -, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, chown 92 -, lchown 94 -,
    fchown 93 55, fchownat 260 54, utime 132 -, utimes 235 -, futimesat 261 -, utimensat 280 88,
    setxattr 188 5, lsetxattr 189 6, fsetxattr 190 7, removexattr 197 14, lremovexattr 198 15,
    fremovexattr 199 16, truncate 76 45, mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -,
    unlinkat 263 35, rename 82 -, renameat 264 38, renameat2 316 276, link 86 -, linkat 265 37,
    symlink 88 -, symlinkat 266 36, mknod 133 -, mknodat 259 33, creat 85 -,
    getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11, llistxattr 195 12,
    flistxattr 196 13, flock 73 32""")
NEWER = 463  # system calls from here on (Linux 6.13) are refused: setxattrat is the first
OPENAT2 = (437, 437)
CLONE, CLONE3, TGKILL, PRLIMIT, IOCTL = (56, 220), (435, 435), (234, 131), (302, 261), (16, 29)
OPEN, OPENAT, FCNTL = (2, None), (257, 56), (72, 25)
# of fcntl: signals to an owner; locks and leases, by which two judged files could talk
SIGNALS, LOCKS = (8, 15), (6, 7, 37, 38, 1024, 1026)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def call(number: int, *arguments: object) -> int:
    """A system call by its number. OSError if it fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = (ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)
    result = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def prctl(option: int, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    if libc.prctl(option, *words) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def landlock(
    read: Iterable[str], write: Iterable[str], listed: Iterable[str] = (), alone: bool = False
) -> None:
    """From now on only these files and folders can be opened. OSError without Landlock.

    read: to be read and executed; write: to be written, too; listed: only the names in them.
    alone: no TCP. Signals and abstract sockets stay among those with this lock.
    """
    version = call(CREATE_RULESET, None, 0, 1)
    handled, scoped = RIGHTS[min(version, 3)], SCOPES if version >= 6 else 0
    attributes = struct.pack("QQQ", handled, NET_TCP * alone, scoped)
    attributes = attributes[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = call(CREATE_RULESET, attributes, len(attributes), 0)
    kinds = (read, READ), (listed, READ_DIR), (write, handled)
    for path, rights in ((path, rights) for paths, rights in kinds for path in paths):
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # what is not there need not be opened
        allowed = rights & handled & (~0 if os.path.isdir(path) else FILE_RIGHTS)
        try:
            if allowed:
                call(ADD_RULE, rules, 1, struct.pack("=Qi", allowed, place), 0)
        finally:
            os.close(place)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    call(RESTRICT_SELF, rules, 0)
    os.close(rules)


def instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def refused(pair: tuple[int, int | None], machine: int, error: int = EPERM) -> list[bytes]:
    """Instructions that refuse a system call whose number is loaded."""
    if pair[machine] is None:
        return []
    return [instruction(EQUAL, pair[machine], 0, 1), instruction(RETURN, ERROR | error)]


def refused_if(
    pair: tuple[int, int | None], machine: int, argument: int, test: tuple[int, int], when: bool
) -> list[bytes]:
    """Refuse it if a test of the low half of one of its arguments is (`when`) or is not true."""
    if pair[machine] is None:
        return []
    code, value = test
    return [
        instruction(EQUAL, pair[machine], 0, 4),
        instruction(LOAD, ARGUMENTS + 8 * argument),
        instruction(code, value, not when, when),
        instruction(RETURN, ERROR | EPERM),
        instruction(LOAD, NUMBER),
    ]


def seccomp(alone: bool, writes: bool) -> None:
    """From now on these system calls are refused. OSError without seccomp.

    alone: no other process, no signal to one, no socket. writes: files may be opened for writing.
    """
    if platform.machine() not in MACHINES:
        raise OSError(ENOSYS, f"no table of system calls for {platform.machine()}")
    architecture, machine = MACHINES[platform.machine()]
    program = [
        instruction(LOAD, ARCHITECTURE),
        instruction(EQUAL, architecture, 1, 0),
        instruction(RETURN, KILL),
        instruction(LOAD, NUMBER),
    ]
    if machine == 0:
        program += [instruction(AT_LEAST, X32, 0, 1), instruction(RETURN, ERROR | ENOSYS)]
    program += [instruction(AT_LEAST, NEWER, 0, 1), instruction(RETURN, ERROR | ENOSYS)]
    for name, pair in (ALWAYS | (ALONE if alone else {})).items():
        program += refused(pair, machine, ENOSYS if name == "io_uring_setup" else EPERM)
    program += refused_if(IOCTL, machine, 1, (EQUAL, TIOCSTI), True)
    if alone:
        own = os.getpid()
        program += refused(CLONE3, machine, ENOSYS)  # the C library then calls clone
        program += refused_if(CLONE, machine, 0, (ANY_BIT, CLONE_THREAD), False)
        program += refused_if(TGKILL, machine, 0, (EQUAL, own), False)
        program += refused_if(PRLIMIT, machine, 0, (EQUAL, 0), False)
        for command in SIGNALS + LOCKS:
            program += refused_if(FCNTL, machine, 1, (EQUAL, command), True)
    if not writes:
        program += refused(OPENAT2, machine, ENOSYS)
        program += refused_if(OPEN, machine, 1, (ANY_BIT, WRITES), True)
        program += refused_if(OPENAT, machine, 2, (ANY_BIT, WRITES), True)
    program.append(instruction(RETURN, ALLOW))
    code = ctypes.create_string_buffer(b"".join(program))
    filters = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    words = ctypes.create_string_buffer(filters)
    prctl(PR_SET_SECCOMP, 2, ctypes.addressof(words))
