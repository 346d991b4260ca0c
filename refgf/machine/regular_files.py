"""Opens regular files only, because a pipe waits for a writer and a device may never end."""

import os
import stat
from io import BufferedReader


def open_regular(path: str | os.PathLike) -> BufferedReader:
    """Open a file for reading. OSError for a pipe, a device, a folder, a NUL in a name."""
    try:
        return open(path, "rb", opener=regular_handle)
    except ValueError as error:  # a NUL
        raise OSError(str(error)) from None


def own_handle(path: str, flags: int, mode: int = 0o600) -> int:
    """`regular_handle` of a file that only this user has made: for what is to be overwritten.

    OSError for a symbolic link, a second name of another file, and another user's file. Another
    user may have put it there.
    """
    handle = regular_handle(path, flags | getattr(os, "O_NOFOLLOW", 0), mode)
    status = os.fstat(handle)
    if status.st_nlink != 1 or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
        os.close(handle)
        raise OSError(f"{path}: not a file of this user alone")
    return handle


def regular_handle(path: str, flags: int, mode: int = 0o600) -> int:
    """`os.open` that never waits; OSError unless the file is a regular one."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), mode)  # Windows has no O_NONBLOCK
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("not a regular file")
    return handle
