"""What shared memory takes and gives back, and who is refused."""

import os

import numpy as np
import pytest

from refgf.engine import node_memory
from refgf.engine.node_memory import share_memory
from refgf.engine.shared import MEMORY_BYTES, SharedMemory
from refgf.machine import threads
from refgf.machine.link import LinkComm, parse_link
from refgf.machine.trace import TracedComm


def test_closed_is_closed(on_ranks):
    def body(comm):
        allreduce = SharedMemory(comm)
        allreduce(np.ones(3, np.float32))  # what has been prepared for this length goes, too
        allreduce.close()
        for call in (lambda: allreduce(np.ones(3, np.float32)), lambda: allreduce.zeros(3)):
            with pytest.raises(
                ValueError,
                match=rf"rank {comm.Get_rank()}: got a call after close\(\); wanted none; next:",
            ):
                call()

    on_ranks(body)


def test_communicators_are_given_back(on_ranks):
    """MPICH has some 2000 of them."""

    def body(comm):
        if isinstance(comm, threads.ThreadComm):
            return
        for _ in range(2100):
            assert share_memory(comm)
        for _ in range(10):
            SharedMemory(comm).close()

    on_ranks(body)


def test_memory_is_what_it_says(on_ranks):
    """2 segment_bytes (1 + 1/p) and 2 short_bytes a rank, in whole pages."""

    def body(comm):
        p = comm.Get_size()
        allreduce = SharedMemory(comm, None, 1 << 16)
        held = sum(part[comm.Get_rank()].nbytes for part in allreduce._rows + allreduce._results)
        assert 0 <= held - 2 * (1 << 16) * (1 + 1 / p) <= 4 * 4096 + 16
        assert len(allreduce._rows[0]) == p
        assert allreduce._short_rows.nbytes == 2 * p * allreduce.short_bytes
        allreduce.close()
        allreduce.close()  # twice does no harm

    on_ranks(body)


def test_default_blocks_share_the_memory():
    sizes = {p: threads.run(p, lambda comm: SharedMemory(comm).segment_bytes)[0] for p in (1, 3, 8)}
    assert (
        all(p * block <= MEMORY_BYTES for p, block in sizes.items())
        and 8 * sizes[8] == MEMORY_BYTES
    )


def test_who_cannot_share_says_so():
    def body(comm):
        assert share_memory(comm) and share_memory(TracedComm(comm))
        link = LinkComm(comm, parse_link("1gbit,50us"))
        assert not share_memory(link)
        with pytest.raises(
            ValueError,
            match=r"rank 0: got a LinkComm of 1 ranks that do not share memory; wanted .* next",
        ):
            SharedMemory(link)
        with pytest.raises(ValueError, match="got segments of 7 bytes; wanted 8 or more"):
            SharedMemory(comm, None, 7)
        with pytest.raises(ValueError, match=r"SharedMemory on rank 0: got shape \(2, 2\)"):
            SharedMemory(comm)(np.zeros((2, 2), np.float32))

    threads.run(1, body)


def test_more_than_there_is(on_ranks):
    """On every rank, before the memory is touched. Threads take it from the process."""
    if not os.path.isdir(node_memory.FOLDER):
        pytest.skip("this system has no /dev/shm")

    def body(comm):
        if isinstance(comm, threads.ThreadComm):
            return
        allreduce = SharedMemory(comm)
        with pytest.raises(
            ValueError,
            match=rf"rank {comm.Get_rank()}: got \d+ bytes .* wanted at most .* next: docker run",
        ):
            allreduce.zeros(1 << 50)
        x = allreduce.zeros(100_000)  # the refusal did no harm
        x[:] = 1
        allreduce(x)
        assert (x == comm.Get_size()).all()
        allreduce.close()

    on_ranks(body)


def test_ranks_on_two_nodes_are_refused():
    """Split_type says who shares memory with this rank."""

    class TwoNodes(TracedComm):
        def Split_type(self, split_type):
            return self.Split(self.rank // 2, self.rank)

    def body(comm):
        comm = TwoNodes(comm)
        assert not share_memory(comm)
        with pytest.raises(
            ValueError,
            match=f"rank {comm.rank}: got a TwoNodes of 3 ranks that do not share memory; wanted",
        ):
            SharedMemory(comm)

    threads.run(3, body)


def test_settings_that_differ_are_refused(on_ranks):
    def body(comm):
        if comm.Get_size() == 1:
            return
        for mine in (
            (None, 400 + 8 * comm.Get_rank()),
            (np.float16 if comm.Get_rank() else None, 400),
        ):
            with pytest.raises(
                ValueError,
                match=r"SharedMemory differs between ranks: got '.*wire .* wanted the same on all",
            ):
                SharedMemory(comm, *mine)
        allreduce = SharedMemory(comm)
        with pytest.raises(
            ValueError,
            match=r"SharedMemory.zeros differs between ranks: got '0 of float32' on rank 0",
        ):
            allreduce.zeros(comm.Get_rank())
        allreduce.close()

    on_ranks(body)


def test_after_a_call_that_was_interrupted_there_is_none():
    """Its rank is at another barrier: the sum of rows of different calls is silently wrong."""

    def body(comm):
        allreduce = SharedMemory(comm)
        allreduce.barrier = lambda: next(iter(()))  # StopIteration, as Ctrl-C might come here
        with pytest.raises(StopIteration):
            allreduce(np.ones(3, np.float32))
        with pytest.raises(
            ValueError, match="in flight or was interrupted.* wanted one at a time; next: close"
        ):
            allreduce(np.ones(3, np.float32))
        allreduce.close()

    threads.run(2, body)


def test_rows_are_written_before_the_counter_that_says_so():
    """A processor may reorder what is on one side of a `Sync`."""
    happened = []

    class Own(list):
        def __setitem__(self, place, value):
            happened.append("counter")
            list.__setitem__(self, place, value)

    class Other(list):
        def __getitem__(self, place):
            happened.append("poll")
            return list.__getitem__(self, place)

    class Window:
        def Sync(self):
            happened.append("Sync")

    memory = node_memory.NodeMemory.__new__(node_memory.NodeMemory)
    memory._threads, memory.windows, memory.count, memory.own = False, [Window()], 8, Own([0, 0])
    memory.others = [Other([0, 9 << node_memory.MESSAGE_BITS | 7])]
    assert memory.barrier(7)
    assert happened == ["Sync", "counter", "poll", "Sync"]
    assert memory.own == memory.others[0]


def test_with_closes_it_unless_the_block_raises(on_ranks):
    """After an error other ranks may not close: closing would wait for them."""

    def body(comm):
        with SharedMemory(comm) as allreduce:
            x = allreduce.zeros(5)
            x += 1
            allreduce(x)
            assert (x == comm.Get_size()).all()
        with pytest.raises(ValueError, match="got a call after close"):
            allreduce(np.ones(3, np.float32))
        with pytest.raises(RuntimeError), SharedMemory(comm) as allreduce:
            raise RuntimeError
        x = np.ones(3, np.float32)
        allreduce(x)
        assert (x == comm.Get_size()).all()
        allreduce.close()

    on_ranks(body)
