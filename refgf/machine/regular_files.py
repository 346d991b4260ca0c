"""Opens regular files only, because a pipe waits for a writer and a device may never end."""

import os
import stat
from typing import BinaryIO


def open_regular(path: str | os.PathLike) -> BinaryIO:
    """Open a file for reading. OSError for a pipe, a device, a folder, a NUL in a name."""
    try:
        return open(path, "rb", opener=regular_handle)
    except ValueError as error:  # a NUL
        raise OSError(str(error)) from None


def regular_handle(path: str, flags: int, mode: int = 0o600) -> int:
    """`os.open` that never waits; OSError unless the file is a regular one."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), mode)  # Windows has no O_NONBLOCK
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("not a regular file")
    return handle
