"""Reading other people's files: bytes and JSON, bounded. Standard library only: a page runs it."""

import json
import os
import stat
from pathlib import Path
from typing import Any

LARGEST_FILE = 1 << 31  # bytes
WANTED = "wanted a file that can be read; next: check the path"


class BadFile(ValueError):
    """A file that is not what it claims to be. The message names the file and what is wrong."""


def read_bytes(path: Path | str, limit: int = LARGEST_FILE) -> bytes:
    """The bytes of a regular file of at most `limit` bytes.

    Pipes and devices are refused, because they may never end.
    """
    path = os.fspath(path)
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BadFile(f"{path}: not a regular file; {WANTED}")
            if status.st_size > limit:
                raise BadFile(f"{path}: got {status.st_size} bytes; wanted at most {limit}")
            return file.read(status.st_size)
    except OSError as error:
        raise BadFile(f"{path}: {error.strerror or error}; {WANTED}") from None
    except UnicodeEncodeError:  # a name that is not text
        raise BadFile(f"{ascii(path)}: not a name in UTF-8; {WANTED}") from None


def _open_nonblocking(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)


def parse_json(path: Path | str, text: bytes) -> Any:
    """JSON of an untrusted file: no key twice, no NaN, no nesting that exhausts the stack."""

    def once(pairs: list) -> dict:
        if len(dict(pairs)) != len(pairs):
            raise BadFile(f"{path}: got a key twice in its JSON; wanted each key once")
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise BadFile(f"{path}: got {constant}, which is not JSON; wanted a finite number")

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except BadFile:
        raise
    except (UnicodeDecodeError, RecursionError, json.JSONDecodeError) as error:
        got = type(error).__name__
        raise BadFile(f"{path}: not valid JSON ({got}); wanted one JSON value") from None
    except ValueError as error:  # a number of thousands of digits
        raise BadFile(f"{path}: {error}; wanted shorter numbers") from None
