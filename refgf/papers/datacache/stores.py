"""Where the bytes of a file come from when no cache has them: content = read(index).

    FolderStore(paths)            files that this node can open
    Throttled(read, link)         EMULATED network storage: waits as if each file came over a link of its own
    RemoteStore(comm, paths)      files that only one rank's node has; every rank asks that rank over TCP

RemoteStore speaks TCP rather than MPI because a rank that serves cannot know who will ask next: one thread for each
asking rank sleeps in the kernel until a request arrives, where a thread in MPI's Recv would spin on a core. On an
emulated cluster the bytes cross the shaped links.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import socket
import struct
import threading
import time

from refgf.predict.cost import Link

WORD = struct.Struct(
    "<q"
)  # a request is an index; an answer is a length (-1: the file cannot be read) and the bytes
TOKEN_BYTES = 16
CONNECT_S = 5.0
SIOCGIFADDR = 0x8915  # Linux: the address of an interface


def data_set_key(root: str, paths: list[str]) -> bytes:
    """32 bytes that differ when a file's name below root, size or time of change does; opens no file."""
    digest = hashlib.sha256()
    for path in paths:
        status = os.stat(path)
        digest.update(
            os.fsencode(os.path.relpath(path, root))
            + struct.pack("<xqq", status.st_size, status.st_mtime_ns)
        )
    return digest.digest()


class FolderStore:
    """read(index): the whole file."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __call__(self, index: int) -> bytes:
        with open(self.paths[index], "rb") as file:
            return file.read()


class Throttled:
    """read(index) that takes at least link.alpha_s + bytes * link.beta_s_per_byte. Each rank has a link of its own."""

    def __init__(self, read, link: Link) -> None:
        self.read, self.link = read, link

    def __call__(self, index: int) -> bytes:
        start_s = time.perf_counter()
        content = self.read(index)
        time.sleep(max(0.0, start_s + self.link.message_s(len(content)) - time.perf_counter()))
        return content


class RemoteStore:
    """read(index): asks the storing rank, which alone needs `paths` (others pass None). Collective to make.

    Cost: one broadcast and one allgather; then for each file one request of 8 bytes and an answer of 8 + its bytes.
    `close` is not collective: the storing rank closes last, after a barrier.
    """

    def __init__(self, comm, paths: list[str] | None, root: int = 0) -> None:
        self._server = FileServer(FolderStore(paths)) if comm.Get_rank() == root else None
        contact = comm.bcast(self._server.contact if self._server else None, root=root)
        error = ""
        try:
            self._socket = _connect(*contact)
        except OSError as caught:
            self._socket, error = None, str(caught)
        errors = comm.allgather(error)
        if any(errors):
            self.close()
            rank = next(r for r, told in enumerate(errors) if told)
            raise ValueError(
                f"RemoteStore: rank {rank} cannot reach rank {root}, which has the files: {errors[rank]}; wanted a TCP "
                f"connection to one of {contact[0]}; next: open that port, or share the folder between the nodes"
            )

    def __call__(self, index: int) -> bytes:
        self._socket.sendall(WORD.pack(index))
        length = WORD.unpack(_receive(self._socket, WORD.size))[0]
        if length < 0:
            raise OSError(
                f"RemoteStore: file {index} cannot be read by the storing rank; next: is the folder still there?"
            )
        return _receive(self._socket, length)

    def close(self) -> None:
        if self._socket:
            self._socket.close()
        if self._server:
            self._server.close()


class FileServer:
    """Serves read(index) on a free port to whoever shows the first half of the token; a thread for each of them."""

    def __init__(self, read) -> None:
        self.read, self.token = read, secrets.token_bytes(2 * TOKEN_BYTES)
        self._listening = socket.create_server(("", 0), backlog=1024)
        self._open = [self._listening]
        self.contact = addresses(), self._listening.getsockname()[1], self.token
        threading.Thread(target=self._accept, name="file server", daemon=True).start()

    def close(self) -> None:
        for end in self._open:
            with contextlib.suppress(OSError):  # not connected any more
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed
                return
            self._open.append(connection)
            threading.Thread(
                target=self._serve, args=(connection,), name="file server", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # the other side has gone
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not secrets.compare_digest(
                _receive(connection, TOKEN_BYTES), self.token[:TOKEN_BYTES]
            ):
                return
            connection.sendall(self.token[TOKEN_BYTES:])
            while True:
                connection.sendall(self._answer(WORD.unpack(_receive(connection, WORD.size))[0]))

    def _answer(self, index: int) -> bytes:
        try:
            content = self.read(index)
        except (OSError, IndexError):
            return WORD.pack(-1)
        return WORD.pack(len(content)) + content


def addresses() -> list[str]:
    """This machine's IPv4 addresses, the loopback last."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return sorted({*found, "127.0.0.1"}, key=lambda address: (address.startswith("127."), address))


def _connect(hosts: list[str], port: int, token: bytes) -> socket.socket:
    """A connection to the first of `hosts` that answers with the second half of the token."""
    reasons = []
    for host in hosts:
        try:
            connection = socket.create_connection((host, port), timeout=CONNECT_S)
            connection.sendall(token[:TOKEN_BYTES])
            if _receive(connection, TOKEN_BYTES) == token[TOKEN_BYTES:]:
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
            reasons.append(f"{host}: another server")
        except OSError as error:
            reasons.append(f"{host}: {error}")
    raise ConnectionError("; ".join(reasons))


def _receive(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(min(length - len(parts), 1 << 20))
        if not part:
            raise ConnectionError("the other side has closed the connection")
        parts += part
    return bytes(parts)
