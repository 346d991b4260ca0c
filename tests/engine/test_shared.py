"""Allreduce through shared memory: the bits of `direct`, counted barriers, no early overwrite."""

import threading
import time
import warnings

import numpy as np
import pytest

from refgf.comm import direct
from refgf.comm.replay import replay
from refgf.engine import shared
from refgf.engine.shared import SharedMemory
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from tests.support.comm_cases import WIRES, order_sensitive, same_bits, sizes_of

SETTINGS = [(8, 0), (72, 0), (400, 100), (1 << 16, 1 << 16)]  # segment_bytes, short_bytes


@pytest.mark.parametrize("dtype, wire", WIRES)
def test_the_bits_of_direct(on_ranks, dtype, wire):
    """For one element a segment up to one segment for all; segments are shorter than ranks, too."""

    def body(comm):
        p, rank = comm.Get_size(), comm.Get_rank()
        for segment_bytes, short_bytes in SETTINGS:
            # one for all sizes: the memory is used again
            allreduce = SharedMemory(comm, wire, segment_bytes, short_bytes)
            for n in (n for n in sizes_of(p, 211) if n < 1000):
                xs = order_sensitive(p, n, dtype, wire)
                x = xs[rank].copy()
                allreduce(x)
                wanted = replay([direct.allreduce(r, p, n) for r in range(p)], xs, wire)[rank]
                assert same_bits(x, wanted), (p, n, segment_bytes, short_bytes)
            allreduce.close()

    on_ranks(body)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_arrays_in_shared_memory(on_ranks, dtype):
    """The same bits for whole arrays and parts of them, next to which nothing changes."""

    def body(comm):
        p, rank = comm.Get_size(), comm.Get_rank()
        allreduce = SharedMemory(comm, None, 72, 0)
        # several blocks of a slice in the last one
        arrays = [allreduce.zeros(n, dtype) for n in (0, 1000, 40_000)]
        assert [x.size for x in arrays] == [0, 1000, 40_000] and not any(x.any() for x in arrays)
        for whole in arrays:
            for part in (
                slice(0, whole.size),
                slice(7, 9),
                slice(1, 1),
                slice(3, 3 + p),
                slice(11, 700),
            ):
                xs = order_sensitive(p, whole.size, dtype)
                whole[:] = xs[rank]
                allreduce(whole[part])
                wanted = xs[rank].copy()
                cut = [x[part] for x in xs]
                wanted[part] = replay([direct.allreduce(r, p, cut[0].size) for r in range(p)], cut)[
                    0
                ]
                assert same_bits(whole, wanted), (whole.size, part)
        narrow = SharedMemory(comm, np.float16, 72, 0)
        x = narrow.zeros(100, "float32")  # a wire type needs a place for rounded numbers
        x[:] = np.float32(1 / 3)
        narrow(x)
        assert (x == np.float16(p * np.float32(np.float16(1 / 3)))).all()
        narrow.close()
        allreduce.close()

    on_ranks(body)


def test_a_neighbour_in_memory_is_not_shared():
    """An array may begin where a shared one ends."""

    def body(comm):
        allreduce, both = SharedMemory(comm), np.zeros(80, np.uint8)
        allreduce._arrays.append([both[:40]])
        inside, beyond = both[8:40].view(np.float32), both[40:].view(np.float32)
        assert allreduce._place(inside) == (0, 8)
        assert allreduce._place(beyond) == () == allreduce._place(both.view(np.float32))

    threads.run(1, body)


def test_one_length_in_several_types(on_ranks):
    def body(comm):
        allreduce, p = SharedMemory(comm), comm.Get_size()
        for _ in range(3):
            for dtype in ("float16", "float32", "float64"):
                xs = order_sensitive(p, 8, dtype)
                x = xs[comm.Get_rank()].copy()
                allreduce(x)
                assert same_bits(x, replay([direct.allreduce(r, p, 8) for r in range(p)], xs)[0])
        allreduce.close()

    on_ranks(body)


@pytest.mark.parametrize("wire", [None, np.float16])
def test_too_large_is_infinite_on_all_ranks_and_no_error_on_one(on_ranks, wire):
    """Short, long and in place: an owner who raised alone would let the others wait for ever."""

    def body(comm):
        with np.errstate(all="raise"):
            allreduce = SharedMemory(comm, wire, 400, 100)
            tiny = np.full(3, 1e-8, np.float32)
            allreduce(tiny)
            assert ((tiny == 0) == (wire is not None)).all()
            for x in (np.empty(10, np.float32), np.empty(500, np.float32), allreduce.zeros(500)):
                for _ in range(3):
                    x[:] = np.float32(3e38)
                    x[::2] = 1
                    allreduce(x)
                    assert (x[::2] == comm.Get_size()).all()
                    assert np.isinf(x[1::2]).all() or (comm.Get_size() == 1 and wire is None)
        allreduce.close()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        on_ranks(body)
    assert [w for w in told if issubclass(w.category, RuntimeWarning)] == []


def test_not_every_length_is_remembered(monkeypatch):
    monkeypatch.setattr(shared, "MOST_PREPARED", 3)

    def body(comm):
        allreduce = SharedMemory(comm)
        for n in (*range(10), *range(10)):
            x = np.ones(n, np.float32)
            allreduce(x)
            assert (x == 2).all() and len(allreduce._prepared) <= 3

    threads.run(2, body)


@pytest.mark.parametrize("p", [4, 7, 8, 9])
def test_more_ranks_and_one_element(p):
    """Of eight or more elements in a row NumPy's own reduction would change the order."""
    xs = order_sensitive(p, 1, "float32")
    wanted = replay([direct.allreduce(r, p, 1) for r in range(p)], xs)[0]

    def body(comm):
        for short_bytes in (0, 100):
            x = xs[comm.rank].copy()
            SharedMemory(comm, None, 64, short_bytes)(x)
            assert same_bits(x, wanted)

    threads.run(p, body)


@pytest.mark.parametrize("slow", [0, 1, 2])
@pytest.mark.parametrize("late", ["cast", "add_up"])
def test_a_slow_rank_meets_what_was_written_for_it(monkeypatch, late, slow):
    """One rank is late when it casts, or when it adds: the others must not get a row ahead."""
    function = getattr(shared, late)

    def slowly(*arguments):
        if threading.current_thread().name == f"rank {slow}":
            time.sleep(0.003)
        function(*arguments)

    def body(comm):
        allreduce = SharedMemory(comm, None, 48, 12)
        for k, n in enumerate((3, 20, 2, 3, 3, 50, 1, 13, 3, 40, 40)):
            mine = np.arange(n, dtype=np.float32) + 10 * k + comm.rank
            allreduce(mine)
            assert same_bits(mine, 3 * (np.arange(n, dtype=np.float32) + 10 * k + 1)), (k, n)

    monkeypatch.setattr(shared, late, slowly)
    threads.run(3, body)


def test_calls_of_all_kinds_and_late_ranks(on_ranks, monkeypatch):
    """Short, long and in place in any order, ranks late at random: calls never mix."""
    for name in ("cast", "add_up"):
        monkeypatch.setattr(shared, name, now_and_then_late(getattr(shared, name)))

    def body(comm):
        allreduce, random, p = (
            SharedMemory(comm, None, 48, 12),
            np.random.default_rng(5),
            comm.Get_size(),
        )
        arrays = [allreduce.zeros(60), allreduce.zeros(40)]
        for k in range(100):
            kind, n, start = random.integers(3), int(random.integers(38)), int(random.integers(3))
            x = arrays[kind][start : start + n] if kind < 2 else np.empty(n, np.float32)
            x[:] = np.arange(n) + 10 * k + comm.Get_rank()
            allreduce(x)
            assert (x == p * (np.arange(n) + 10 * k) + p * (p - 1) // 2).all(), (k, kind, n)
        allreduce.close()

    on_ranks(body, sizes=(3,))


def now_and_then_late(function):
    random = np.random.default_rng(threading.get_native_id())

    def late(*arguments):
        if random.random() < 0.05:
            time.sleep(0.002 * random.random())
        function(*arguments)

    return late


@pytest.mark.parametrize("kind", ["longer", "empty", "other type", "ordinary", "elsewhere"])
def test_ranks_that_pass_different_arrays(on_ranks, kind):
    """All say so, nothing has changed, and the next call is right."""

    def body(comm):
        if comm.Get_size() == 1:
            return
        allreduce, last = SharedMemory(comm, None, 400, 100), comm.Get_rank() == comm.Get_size() - 1
        whole = allreduce.zeros(2000)
        x = {
            "longer": np.ones(31 if last else 30, np.float32),
            "empty": np.ones(0 if last else 3, np.float32),
            "other type": np.ones(8, np.float32 if last else np.float16),
            "ordinary": np.ones(1000, np.float32) if last else whole[:1000],
            "elsewhere": whole[1:1001] if last else whole[:1000],
        }[kind]
        before, told = (
            x.copy(),
            rf"rank {comm.Get_rank()}: got another array .* wanted the same .* next: print",
        )
        for _ in range(2):
            with pytest.raises(ValueError, match=told):
                allreduce(x)
            assert same_bits(x, before)
            for n in (5, 0, 3, 8, 30, 31):  # lengths that have been seen are refused, too
                for dtype in (np.float32, np.float16):
                    right = np.ones(n, dtype)
                    allreduce(right)
                    assert (right == comm.Get_size()).all()
        allreduce.close()

    on_ranks(body)


def test_counted_barriers_and_no_message(on_ranks):
    """segments + 1 barriers; 1 for a short vector; 2 for one in shared memory."""

    def body(comm):
        counted = []
        allreduce = SharedMemory(comm, None, 400, 40)
        arrays = allreduce.zeros(1000)
        # all that it could send with
        allreduce._memory.node = traced = TracedComm(allreduce._memory.node)
        barrier, allreduce.barrier = allreduce.barrier, lambda: [counted.append(1), barrier()]
        for n, barriers in ((0, 1), (1, 1), (10, 1), (11, 2), (100, 2), (101, 3), (1000, 11)):
            counted.clear()
            allreduce(np.ones(n, np.float32))
            assert len(counted) == barriers
            counted.clear()
            allreduce(arrays[5 : 5 + n])
            assert len(counted) == min(barriers, 2)
        assert (traced.messages, traced.bytes) == (0, 0)
        allreduce.close()

    on_ranks(body)
