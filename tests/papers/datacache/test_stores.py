"""Slow stores give the bytes of the files, at the stated rate, to clients with the token."""

import errno
import os
import socket
import time

import pytest

from refgf.machine import threads
from refgf.papers.datacache import stores
from refgf.papers.datacache.stores import (
    FileServer,
    FolderStore,
    RemoteStore,
    Throttled,
    addresses,
    data_set_key,
)
from refgf.predict.cost import Link


@pytest.fixture
def paths(tmp_path):
    """Files of awkward lengths."""
    names = [str(tmp_path / f"{i}.jpg") for i in range(5)]
    for i, (name, length) in enumerate(zip(names, (0, 1, 70_000, 3_000_001, 17))):
        with open(name, "wb") as file:
            file.write(bytes([i]) * length)
    return names


def test_a_folder_on_another_rank(on_ranks, paths):
    def body(comm):
        shared = comm.bcast(paths, root=0)
        store = RemoteStore(comm, shared if comm.Get_rank() == 0 else None)
        right = all(store(i) == FolderStore(shared)(i) for i in (3, 0, 1, 4, 2, 2))
        comm.allgather(None)
        store.close()
        return right

    for results in on_ranks(body, sizes=(1, 3, 5)):
        assert all(results)


def test_a_deleted_file(paths):
    def body(comm):
        store = RemoteStore(comm, paths if comm.rank == 0 else None)
        if comm.rank == 0:
            os.remove(paths[1])
        comm.Barrier()
        for index in (1, 99):
            with pytest.raises(OSError, match=f"got no file {index}; wanted one that"):
                store(index)
        assert store(4) == b"\4" * 17  # the connection still works
        comm.Barrier()
        store.close()

    threads.run(2, body)


def test_a_storing_rank_that_ends_is_an_error_not_a_wait(paths):
    def body(comm):
        store = RemoteStore(comm, paths if comm.rank == 0 else None)
        comm.Barrier()
        if comm.rank == 0:
            store.close()
        comm.Barrier()
        if comm.rank == 1:
            with pytest.raises(OSError):
                store(1)

    threads.run(2, body)


def test_a_client_without_the_token_gets_nothing(paths):
    server = FileServer(FolderStore(paths))
    hosts, port, token = server.contact
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(bytes(len(token) // 2))
        assert client.recv(100) == b""
    server.close()


def test_a_silent_client_is_sent_away(paths, monkeypatch):
    monkeypatch.setattr(stores, "CONNECT_S", 0.2)
    server = FileServer(FolderStore(paths))
    with socket.create_connection(("127.0.0.1", server.contact[1]), timeout=5) as client:
        assert client.recv(1) == b""
    server.close()


def test_one_client_too_many_is_sent_away_and_the_next_one_served(paths, monkeypatch):
    monkeypatch.setattr(stores, "MOST_CLIENTS", 1)
    server = FileServer(FolderStore(paths))
    first = stores._connect(*server.contact)
    with pytest.raises(ConnectionError):
        stores._connect(*server.contact)
    first.close()
    end_s = time.monotonic() + 5
    while server._clients and time.monotonic() < end_s:
        time.sleep(0.01)
    stores._connect(*server.contact).close()
    server.close()


def test_too_many_open_files_do_not_end_the_server(paths, monkeypatch):
    accept, failures = socket.socket.accept, [errno.EMFILE, errno.ENFILE]

    def failing(listening):
        if failures:
            raise OSError(failures.pop(), "Too many open files")
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", failing)
    server = FileServer(FolderStore(paths))
    stores._connect(*server.contact).close()
    assert not failures
    server.close()


def test_on_one_node_it_listens_to_this_machine_only(paths):
    def body(comm):
        store = RemoteStore(comm, paths if comm.rank == 0 else None)
        listening = store._server and store._server._listening.getsockname()[0]
        comm.Barrier()
        store.close()
        return listening

    assert threads.run(2, body) == ["127.0.0.1", None]


def test_another_server_on_the_port_is_detected(paths):
    server = FileServer(FolderStore(paths))
    hosts, port, token = server.contact
    with pytest.raises(ConnectionError, match="another server"):
        stores._connect(["127.0.0.1"], port, token[:16] + bytes(16))
    server.close()


def test_a_failed_connection_is_an_error_on_all_ranks(paths, monkeypatch):
    def refuse(*contact):
        raise OSError("no route")

    monkeypatch.setattr(stores, "_connect", refuse)
    with pytest.raises(ValueError, match="RemoteStore on rank 0: got no route; wanted a TCP"):
        threads.run(3, lambda comm: RemoteStore(comm, paths if comm.rank == 0 else None))


def test_a_throttled_read_takes_the_links_time(paths):
    link = Link(0.01, 1e-6)
    store = Throttled(FolderStore(paths), link)
    for index, length in ((0, 0), (2, 70_000)):
        start = time.perf_counter()
        assert len(store(index)) == length
        assert time.perf_counter() - start >= 0.01 + 1e-6 * length


def test_addresses_end_with_the_loopback():
    assert addresses()[-1] == "127.0.0.1" and len(set(addresses())) == len(addresses())


def test_the_key_changes_with_names_sizes_and_times(tmp_path, paths):
    first = data_set_key(str(tmp_path), paths)
    assert first == data_set_key(str(tmp_path), paths) and len(first) == 32
    assert first != data_set_key(str(tmp_path), paths[::-1])
    os.utime(paths[2], ns=(0, 0))
    second = data_set_key(str(tmp_path), paths)
    with open(paths[0], "wb") as file:
        file.write(b"x")
    os.rename(paths[4], paths[4] + "x")
    assert len({first, second, data_set_key(str(tmp_path), paths[:4] + [paths[4] + "x"])}) == 3
