"""Copies of files on the node's own disk, shared by its ranks, by jobs side by side, and by the next job.

Two files in the folder:

    refgf-cache.manifest     "refgf-c1" and the 32 bytes of the data set's key, then 48 bytes for every copy:
                             index, offset, length (int64), digest (16 bytes), checksum of this record (8 bytes)
    refgf-cache.data         the copies, one after the other

Whoever writes holds a lock on the manifest, and writes the copy first and its record after it; the kernel gives the lock
of a killed process back. Whoever reads a copy takes no lock: the digest covers the data set's key, the index and the bytes, so
a copy that is cut off, overwritten, damaged or of another data set is noticed and counts as not there. The next `put` of
the same file mends it in its place. A folder of another data set, or with more in it than the limit allows, is emptied
by the job that opens it.
"""

import contextlib
import fcntl
import hashlib
import os
import struct

MAGIC = b"refgf-c1"
KEY_BYTES = 32
HEADER_BYTES = len(MAGIC) + KEY_BYTES
ENTRY = struct.Struct("<qqq16s")
CHECK_BYTES = 8
RECORD_BYTES = ENTRY.size + CHECK_BYTES


class DiskCache:
    """get(index) -> bytes or None; put(index, content) -> is it kept? Every rank of a node makes its own, of one folder.

    key           32 bytes that tell the data set from others (stores.data_set_key)
    limit_bytes   of both files together. What is kept stays: a file that does not fit any more is not kept
    found         what was in the folder: "empty", "reused", or emptied because "foreign" or "too large"
    damaged       how many bad copies `get` has met
    """

    def __init__(self, folder: str, key: bytes, limit_bytes: int) -> None:
        if len(key) != KEY_BYTES or limit_bytes < HEADER_BYTES:
            raise ValueError(
                f"DiskCache: got a key of {len(key)} bytes and limit_bytes={limit_bytes}; wanted {KEY_BYTES} and at least "
                f"{HEADER_BYTES}; next: data_set_key(root, paths), or no disk level at all"
            )
        self.key, self.limit_bytes, self.damaged = key, limit_bytes, 0
        self._entries, self._read_up_to, self._end = {}, HEADER_BYTES, 0
        self._manifest, self._data = _open_both(folder)
        with self._lock():
            self.found = self._claim()
            self._catch_up()

    @property
    def nbytes(self) -> int:
        """What the two files take, as far as this rank has looked."""
        return self._read_up_to + self._end

    def get(self, index: int) -> bytes | None:
        if index not in self._entries and not self._others_have_added(index):
            return None
        offset, length, digest = self._entries[index]
        content = os.pread(self._data, length, offset)
        if len(content) == length and self._digest(index, content) == digest:
            return content
        self.damaged += 1
        return None

    def put(self, index: int, content: bytes) -> bool:
        with self._lock():
            if not self._catch_up():  # another data set's job has taken the folder
                return False
            if index in self._entries:
                offset, length, digest = self._entries[index]
                return digest == self._digest(index, content) and _write(
                    self._data, content, offset
                )
            if self.nbytes + RECORD_BYTES + len(content) > self.limit_bytes:
                return False
            return self._append(index, content)

    def close(self) -> None:
        os.close(self._manifest)
        os.close(self._data)

    def _others_have_added(self, index: int) -> bool:
        with self._lock():
            return self._catch_up() and index in self._entries

    def _append(self, index: int, content: bytes) -> bool:
        entry = ENTRY.pack(index, self._end, len(content), self._digest(index, content))
        written = _write(self._data, content, self._end)
        written = written and _write(
            self._manifest, entry + self._checksum(entry), self._read_up_to
        )
        return written and self._catch_up()

    def _claim(self) -> str:
        """Empty the folder unless it is of this data set. Needs the lock."""
        header = os.pread(self._manifest, HEADER_BYTES, 0)
        too_large = (
            sum(os.fstat(file).st_size for file in (self._manifest, self._data)) > self.limit_bytes
        )
        if header == MAGIC + self.key and not too_large:
            return "reused"
        os.ftruncate(self._manifest, 0)
        os.ftruncate(self._data, 0)
        _write(self._manifest, MAGIC + self.key, 0)
        return "empty" if not header else "too large" if header == MAGIC + self.key else "foreign"

    def _catch_up(self) -> bool:
        """Read the records that other ranks and jobs have added. Needs the lock. False: no longer of this data set."""
        if os.pread(self._manifest, HEADER_BYTES, 0) != MAGIC + self.key:
            self._entries.clear()
            return False
        length = os.fstat(self._manifest).st_size
        if length < self._read_up_to:  # somebody has cut it off
            self._entries, self._read_up_to, self._end = {}, HEADER_BYTES, 0
        news = os.pread(
            self._manifest,
            (length - self._read_up_to) // RECORD_BYTES * RECORD_BYTES,
            self._read_up_to,
        )
        for start in range(0, len(news), RECORD_BYTES):
            self._learn(news[start : start + RECORD_BYTES])
        self._read_up_to += len(news)
        return True

    def _learn(self, record: bytes) -> None:
        entry, check = record[: ENTRY.size], record[ENTRY.size :]
        if check == self._checksum(entry):
            index, offset, length, digest = ENTRY.unpack(entry)
            self._entries[index] = (offset, length, digest)
            self._end = max(self._end, offset + length)

    def _digest(self, index: int, content: bytes) -> bytes:
        return hashlib.blake2b(
            content, digest_size=16, key=self.key, salt=struct.pack("<q", index)
        ).digest()

    def _checksum(self, entry: bytes) -> bytes:
        return hashlib.blake2b(entry, digest_size=CHECK_BYTES, key=self.key).digest()

    @contextlib.contextmanager
    def _lock(self):
        fcntl.flock(self._manifest, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._manifest, fcntl.LOCK_UN)


def _open_both(folder: str) -> tuple[int, int]:
    try:
        os.makedirs(folder, exist_ok=True)
        names = (os.path.join(folder, f"refgf-cache.{name}") for name in ("manifest", "data"))
        return tuple(os.open(name, os.O_RDWR | os.O_CREAT, 0o600) for name in names)
    except OSError as error:
        raise ValueError(
            f"DiskCache: {error}; wanted a folder of this node's disk that can be written"
        ) from error


def _write(file: int, content: bytes, offset: int) -> bool:
    """False where the disk is full: the level then keeps what it has."""
    try:
        return os.pwrite(file, content, offset) == len(content)
    except OSError:
        return False
