"""Copies of files on the node's own disk, shared by its ranks, by concurrent jobs and the next job.

The folder has two files:

    refgf-cache.manifest     "refgf-c1" and the data set's key (32 bytes), then 48 bytes a copy:
                             index, offset, length (int64), digest (16 bytes), checksum of the
                             record (8 bytes)
    refgf-cache.data         the copies in succession

A writer holds a lock on the manifest. It writes the copy first, then its record. The kernel
releases the lock of a killed process. A reader takes no lock. The digest covers the data set's key,
the index and the bytes, so a copy that is truncated, overwritten, damaged or of another data set is
detected and treated as a miss. The next `put` of the same file repairs it in place. Symbolic links
and files of other users are refused: emptying the cache would destroy what they name. A job that
opens a folder of another data set, or one that exceeds the limit, empties it.
"""

import hashlib
import os
import struct

from refgf.arguments import checked
from refgf.machine.regular_files import own_handle
from refgf.papers.datacache.locks import exclusive

MAGIC = b"refgf-c1"
KEY_BYTES = 32
HEADER_BYTES = len(MAGIC) + KEY_BYTES
ENTRY = struct.Struct("<qqq16s")
CHECK_BYTES = 8
RECORD_BYTES = ENTRY.size + CHECK_BYTES


@checked
class DiskCache:
    """One rank's access to its node's disk cache; the ranks of a node use the same folder.

    key           32 bytes that identify the data set (stores.data_set_key)
    limit_bytes   of both files together; copies are never removed for others
    found         "empty", "reused", or why the folder was emptied: "foreign" or "too large"
    damaged       number of damaged copies that `get` has found
    """

    def __init__(self, folder: str, key: bytes, limit_bytes: int) -> None:
        if len(key) != KEY_BYTES or limit_bytes < HEADER_BYTES:
            raise ValueError(
                f"DiskCache: got a key of {len(key)} bytes and limit_bytes={limit_bytes}; "
                f"wanted {KEY_BYTES} and at least {HEADER_BYTES}; "
                "next: data_set_key(root, paths), or no disk level"
            )
        self.key, self.limit_bytes, self.damaged = key, limit_bytes, 0
        self._entries, self._read_up_to, self._end = {}, HEADER_BYTES, 0
        self._manifest, self._data = _open_both(folder)
        with self._lock():
            self.found = self._claim()
            self._catch_up()

    @property
    def nbytes(self) -> int:
        """Size of the two files, as this rank last read it."""
        return self._read_up_to + self._end

    def get(self, index: int) -> bytes | None:
        """The copy of file `index`, or None without an intact one."""
        if index not in self._entries and not self._look_up(index):
            return None
        offset, length, digest = self._entries[index]
        content = os.pread(self._data, length, offset)
        if len(content) == length and self._digest(index, content) == digest:
            return content
        self.damaged += 1
        return None

    def put(self, index: int, content: bytes) -> bool:
        """Store a copy; return whether the cache has it now."""
        with self._lock():
            if not self._catch_up():  # another data set's job has taken the folder
                return False
            if index in self._entries:
                offset, length, digest = self._entries[index]
                same = digest == self._digest(index, content)
                return same and _write(self._data, content, offset)
            if self.nbytes + RECORD_BYTES + len(content) > self.limit_bytes:
                return False
            return self._append(index, content)

    def close(self) -> None:
        """Close the files; the copies stay for the next job."""
        os.close(self._manifest)
        os.close(self._data)

    def _look_up(self, index: int) -> bool:
        """Has another rank or job added this copy?"""
        with self._lock():
            return self._catch_up() and index in self._entries

    def _append(self, index: int, content: bytes) -> bool:
        entry = ENTRY.pack(index, self._end, len(content), self._digest(index, content))
        written = _write(self._data, content, self._end)
        record = entry + self._checksum(entry)
        written = written and _write(self._manifest, record, self._read_up_to)
        return written and self._catch_up()

    def _claim(self) -> str:
        """Empty the folder unless it is of this data set and within the limit. Needs the lock."""
        header = os.pread(self._manifest, HEADER_BYTES, 0)
        nbytes = sum(os.fstat(file).st_size for file in (self._manifest, self._data))
        too_large = nbytes > self.limit_bytes
        if header == MAGIC + self.key and not too_large:
            return "reused"
        os.ftruncate(self._manifest, 0)
        os.ftruncate(self._data, 0)
        _write(self._manifest, MAGIC + self.key, 0)
        return "empty" if not header else "too large" if header == MAGIC + self.key else "foreign"

    def _catch_up(self) -> bool:
        """Read the records that other ranks and jobs have added. Needs the lock.

        False if the folder now belongs to another data set.
        """
        if os.pread(self._manifest, HEADER_BYTES, 0) != MAGIC + self.key:
            self._entries.clear()
            return False
        length = os.fstat(self._manifest).st_size
        if length < self._read_up_to:  # another process has truncated it
            self._entries, self._read_up_to, self._end = {}, HEADER_BYTES, 0
        new = (length - self._read_up_to) // RECORD_BYTES * RECORD_BYTES
        records = os.pread(self._manifest, new, self._read_up_to)
        for start in range(0, len(records), RECORD_BYTES):
            self._add(records[start : start + RECORD_BYTES])
        self._read_up_to += len(records)
        return True

    def _add(self, record: bytes) -> None:
        entry, check = record[: ENTRY.size], record[ENTRY.size :]
        if check == self._checksum(entry):
            index, offset, length, digest = ENTRY.unpack(entry)
            self._entries[index] = (offset, length, digest)
            self._end = max(self._end, offset + length)

    def _digest(self, index: int, content: bytes) -> bytes:
        salt = struct.pack("<q", index)
        return hashlib.blake2b(content, digest_size=16, key=self.key, salt=salt).digest()

    def _checksum(self, entry: bytes) -> bytes:
        return hashlib.blake2b(entry, digest_size=CHECK_BYTES, key=self.key).digest()

    def _lock(self):
        return exclusive(self._manifest)


def _open_both(folder: str) -> tuple[int, int]:
    try:
        os.makedirs(folder, exist_ok=True)
        names = (os.path.join(folder, f"refgf-cache.{name}") for name in ("manifest", "data"))
        manifest, data = (own_handle(name, os.O_RDWR | os.O_CREAT) for name in names)
        return manifest, data
    except OSError as error:
        raise ValueError(
            f"DiskCache: got {error}; wanted a writable folder on this node's disk, "
            "without links or files of others; next: an empty folder that only you can write to"
        ) from error


def _write(file: int, content: bytes, offset: int) -> bool:
    """Write at this offset; False if the disk is full."""
    try:
        return os.pwrite(file, content, offset) == len(content)
    except OSError:
        return False
