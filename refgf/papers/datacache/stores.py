"""Stores, which read a file's bytes when no cache has them: content = read(index).

    FolderStore(paths)            files that this node can open
    Throttled(read, link)         EMULATED network storage: delays each file as a link would
    RemoteStore(comm, paths)      files that only one rank's node has, read from that rank over TCP

RemoteStore uses TCP because the serving rank cannot know which rank sends the next request. One
thread for each rank sleeps in the kernel until a request arrives; a thread in MPI's Recv would spin
on a core. On an emulated cluster the bytes cross the shaped links.
"""

import contextlib
import hashlib
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable

from refgf.arguments import checked, require, shown
from refgf.comm.arguments import Comm
from refgf.comm.topology import nodes
from refgf.machine.regular_files import open_regular
from refgf.predict.cost import Link

# a request is an index; an answer is a length (-1: the file cannot be read) and the bytes
WORD = struct.Struct("<q")
TOKEN_BYTES = 16
CONNECT_S = 5.0
LOOPBACK, EVERYWHERE = "127.0.0.1", ""
MOST_CLIENTS = 4096
SIOCGIFADDR = 0x8915  # Linux: the address of an interface


@checked
def data_set_key(root: str, paths: list[str]) -> bytes:
    """A hash (32 bytes) of the files' names below root, sizes and modification times."""
    digest = hashlib.sha256()
    for path in paths:
        status = os.stat(path)
        name = os.fsencode(os.path.relpath(path, root))
        digest.update(name + struct.pack("<xqq", status.st_size, status.st_mtime_ns))
    return digest.digest()


@checked
class FolderStore:
    """read(index): the whole file."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __call__(self, index: int) -> bytes:
        if not 0 <= index < len(self.paths):
            raise IndexError(
                f"FolderStore: got index {index}; wanted 0 to {len(self.paths) - 1}; "
                "next: indices of this data set"
            )
        with open_regular(self.paths[index]) as file:
            return file.read()


@checked
class Throttled:
    """read(index) in at least link.alpha_s + bytes * link.beta_s_per_byte; one link a rank."""

    def __init__(self, read: Callable[[int], bytes], link: Link) -> None:
        self.read, self.link = read, link

    def __call__(self, index: int) -> bytes:
        start_s = time.perf_counter()
        content = self.read(index)
        time.sleep(max(0.0, start_s + self.link.message_s(len(content)) - time.perf_counter()))
        return content


@checked
class RemoteStore:
    """read(index): reads from the storing rank, which alone needs `paths`. Collective to make.

    Cost: one broadcast and one allgather; then for each file a request of 8 bytes and an answer of
    8 + its bytes. `close` is not collective: the storing rank closes last, after a barrier.
    """

    def __init__(self, comm: Comm, paths: list[str] | None, root: int = 0) -> None:
        rank, size = comm.Get_rank(), comm.Get_size()
        last = f"0 to {size - 1}"
        require(0 <= root < size, f"RemoteStore on rank {rank}", f"root={root}", last, "root=0")
        host = EVERYWHERE if len(nodes(comm)) > 1 else LOOPBACK
        self._server = FileServer(FolderStore(paths), host) if comm.Get_rank() == root else None
        contact = comm.bcast(self._server.contact if self._server else None, root=root)
        error = ""
        try:
            self._socket = _connect(*contact)
        except OSError as caught:
            self._socket, error = None, str(caught)
        errors = comm.allgather(error)
        if any(errors):
            self.close()
            rank = next(r for r, message in enumerate(errors) if message)
            raise ValueError(
                f"RemoteStore on rank {rank}: got {errors[rank]}; wanted a TCP connection to one "
                f"of {contact[0]}, the addresses of rank {root}, which has the files; "
                "next: open that port, or share the folder between the nodes"
            )

    def __call__(self, index: int) -> bytes:
        self._socket.sendall(WORD.pack(index))
        length = WORD.unpack(_receive(self._socket, WORD.size))[0]
        if length < 0:
            raise OSError(
                f"RemoteStore: got no file {index}; wanted one that the storing rank can read; "
                "next: check that its folder still exists"
            )
        return _receive(self._socket, length)

    def close(self) -> None:
        """Close the connection, and on the storing rank the server."""
        if self._socket:
            self._socket.close()
        if self._server:
            self._server.close()


@checked
class FileServer:
    """Serves read(index) on a free port, one thread a client; a client sends half of the token.

    A client that does not send it within CONNECT_S loses its connection, and so does one more than
    MOST_CLIENTS. host: from where it accepts clients, LOOPBACK (this machine) or EVERYWHERE.
    """

    def __init__(self, read: Callable[[int], bytes], host: str = LOOPBACK) -> None:
        self.read, self.token = read, secrets.token_bytes(2 * TOKEN_BYTES)
        known = host in (LOOPBACK, EVERYWHERE)
        require(known, "FileServer", f"host={shown(host)}", "LOOPBACK or EVERYWHERE", "no host")
        self._listening = socket.create_server((host, 0), backlog=1024)
        self._clients: set[socket.socket] = set()
        self._closed = threading.Event()
        reached = addresses() if host == EVERYWHERE else [host]
        self.contact = reached, self._listening.getsockname()[1], self.token
        threading.Thread(target=self._accept, name="file server", daemon=True).start()

    def close(self) -> None:
        """Close the port and all connections."""
        self._closed.set()
        for end in {self._listening, *self._clients}:
            with contextlib.suppress(OSError):  # no longer connected
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed, or too many open files: then some client will leave
                self._closed.wait(0.1)
                continue
            if len(self._clients) >= MOST_CLIENTS:
                connection.close()
                continue
            self._clients.add(connection)
            threading.Thread(
                target=self._serve, args=(connection,), name="file server", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError):  # the client has closed its end
                self._talk(connection)
        finally:
            self._clients.discard(connection)

    def _talk(self, connection: socket.socket) -> None:
        connection.settimeout(CONNECT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = _receive(connection, TOKEN_BYTES)
        if not secrets.compare_digest(said, self.token[:TOKEN_BYTES]):
            return
        connection.settimeout(None)
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
    found = {"127.0.0.1", *_of_interfaces()}
    return sorted(found, key=lambda address: (address.startswith("127."), address))


def _of_interfaces() -> list[str]:
    """Asked of Linux; elsewhere the address of this machine's name, if it has one."""
    try:
        import fcntl
    except ImportError:
        with contextlib.suppress(OSError):
            return socket.gethostbyname_ex(socket.gethostname())[2]
        return []
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return found


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
    content = bytearray()
    while len(content) < length:
        received = connection.recv(min(length - len(content), 1 << 20))
        if not received:
            raise ConnectionError("the other side has closed the connection")
        content += received
    return bytes(content)
