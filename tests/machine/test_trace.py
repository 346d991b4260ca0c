"""The counting communicator counts what was sent, and only that."""

import json
from pathlib import Path

import numpy as np
import pytest

from refgf.cluster.account import read_traces
from refgf.machine.trace import TracedComm


def right(comm):
    return (comm.Get_rank() + 1) % comm.Get_size()


def left(comm):
    return (comm.Get_rank() - 1) % comm.Get_size()


def test_counts_by_receiver(on_ranks):
    def body(comm):
        traced = TracedComm(comm)
        other = traced.Dup()
        x, y = np.zeros(5, np.float32), np.zeros(5, np.float32)
        for c in (traced, traced, other):
            c.Sendrecv(x, right(c), 0, y, left(c), 0)
        traced.allgather("not counted")
        assert (
            traced.messages == 3 and traced.bytes == 60 and traced.peers == {right(comm): [3, 60]}
        )

    on_ranks(body, sizes=(2, 3, 5))


def test_one_sided_messages_count_for_the_sender():
    from refgf.machine import threads

    def body(comm):
        traced = TracedComm(comm)
        if comm.rank:
            traced.Recv(np.zeros(3), 0)
        else:
            traced.Send(np.zeros(3), 1)
        return traced.messages, traced.bytes

    assert threads.run(2, body) == [(1, 24), (0, 0)]


class Nobody:
    """One rank whose neighbours are MPI's PROC_NULL, as at an edge that does not wrap."""

    def Get_rank(self):
        return 0

    def Get_size(self):
        return 1

    def Send(self, *arguments):
        pass

    Sendrecv = Isend = Send


def test_what_goes_to_no_process_is_not_counted():
    traced, x = TracedComm(Nobody()), np.zeros(5, np.float32)
    traced.Send(x, -1)
    traced.Sendrecv(x, -2, 0, x, -2, 0)
    traced.Isend(x, -1)
    assert traced.messages == traced.bytes == 0 and traced.peers == {}
    traced.Send(x, 3)
    assert traced.peers == {3: [1, 20]}


def test_a_trace_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    """A rank that fails may end the others while they write."""
    write = Path.write_text

    def half(path, text):
        write(path, text[: len(text) // 2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="no space left"):
        TracedComm(Nobody()).save(tmp_path)
    assert read_traces(tmp_path) == {}


def test_saved_totals_survive_a_reset(tmp_path):
    from refgf.machine import threads

    def body(comm):
        traced = TracedComm(comm)
        x, y = np.zeros(2, np.float32), np.zeros(2, np.float32)
        for _ in range(2):
            traced.Sendrecv(x, right(comm), 0, y, left(comm), 0)
            traced.reset()
        traced.Sendrecv(x, right(comm), 0, y, left(comm), 0)
        traced.save(tmp_path, opaque=comm.rank == 1)
        return traced.messages

    assert threads.run(2, body) == [1, 1]
    saved = json.loads((tmp_path / "rank1.json").read_text())
    assert saved["peers"] == {"0": [3, 24]} and saved["opaque"] is True and saved["rank"] == 1
