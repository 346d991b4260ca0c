"""Pipelined schedules: the bits of `execute`, counted messages, none overwritten in flight."""

import numpy as np
import pytest

from refgf.comm import direct, ring, tree
from refgf.comm.replay import check, replay
from refgf.comm.slices import length
from refgf.engine import pipelined as pipeline
from refgf.engine.pipelined import overlap, pipelined, segment_elements, segmented
from refgf.machine import threads
from refgf.machine.trace import TracedComm
from refgf.papers.jia import hierarchical
from refgf.papers.jia.doubling import halving_doubling, recursive_doubling
from tests.support.comm_cases import WIRES, order_sensitive, same_bits, sizes_of

ALGORITHMS = [ring.allreduce, recursive_doubling, halving_doubling, tree.allreduce]
SETTINGS = [(40, 1), (100, 3), (None, 4)]  # segment_bytes, depth


@pytest.mark.parametrize("dtype, wire", WIRES)
@pytest.mark.parametrize(
    "algorithm", ALGORITHMS, ids=lambda f: f.__name__ + "-" + f.__module__.rsplit(".", 1)[-1]
)
def test_the_bits_of_the_replayed_schedule(on_ranks, algorithm, dtype, wire):
    def body(comm):
        p, rank = comm.Get_size(), comm.Get_rank()
        for segment_bytes, depth in SETTINGS:
            # one for all sizes: its scratch is reused
            allreduce = pipelined(comm, algorithm, wire, segment_bytes, depth)
            for n in (n for n in sizes_of(p, 211) if n < 1000):
                xs = order_sensitive(p, n, dtype, wire)
                x = xs[rank].copy()
                allreduce(x)
                wanted = replay([algorithm(r, p, n) for r in range(p)], xs, wire)[rank]
                assert same_bits(x, wanted), (p, n, segment_bytes, depth)

    on_ranks(body)


@pytest.mark.parametrize("p", [1, 2, 3, 5, 7, 8])
@pytest.mark.parametrize("elements", [1, 3, 100])
def test_cut_schedules_send_the_same_elements_and_never_block(p, elements):
    """Each message in ceil(length / elements) segments, an empty one in one; the order stays."""
    for algorithm in (*ALGORITHMS, hierarchical.two_level_ring([[r] for r in range(p)])):
        for n in (0, 1, p - 1, 17, 100):
            whole = [algorithm(r, p, n) for r in range(p)]
            pieces = [segmented(schedule, lambda message: elements) for schedule in whole]
            check(pieces)
            for before, after in zip(whole, pieces):
                sends = [(s.send_to, s.send) for s in before if s.send_to is not None]
                assert sum(max(1, -(-length(part) // elements)) for _, part in sends) == sum(
                    s.send_to is not None for s in after
                )
                assert elements_of(sends) == elements_of(
                    (s.send_to, s.send) for s in after if s.send_to is not None
                )


def elements_of(messages):
    return [(peer, i) for peer, part in messages for i in range(part.start, part.stop)]


def test_counted_messages_and_bytes(on_ranks):
    """2(p-1) messages of the ring, each in segments; the bytes of the ring."""

    def body(comm):
        traced, p, rank = TracedComm(comm), comm.Get_size(), comm.Get_rank()
        for n in sizes_of(p):
            traced.reset()
            pipelined(traced, ring.allreduce, None, segment_bytes=256)(np.ones(n, np.float32))
            parts = [step.send for step in ring.allreduce(rank, p, n) if step.send_to is not None]
            assert traced.messages == sum(max(1, -(-length(part) // 64)) for part in parts)
            assert traced.bytes == 4 * sum(map(length, parts))

    on_ranks(body)


@pytest.mark.parametrize("wire, segments", [(None, 3), (np.float16, 3 + 4 + 2 * 25)])
def test_scratch_is_depth_segments(wire, segments):
    """depth arriving; with a wire type depth + 1 leaving, and two slices. Reused afterwards."""

    def body(comm):
        x, scratch, held = np.zeros(10_000, np.float32), {}, []
        for _ in range(3):
            flight = pipeline.Flight(comm, x, np.dtype(wire or x.dtype), 3, scratch)
            for step in segmented(
                ring.allreduce(comm.rank, comm.size, x.size), lambda message: 100
            ):
                flight.post(step)
                assert len(flight.arriving) <= 3
            flight.finish()
            held.append(sorted(id(buffer) for buffer in scratch[flight.wire]))
        assert sum(buffer.size for buffer in scratch[flight.wire]) <= segments * 100
        assert held[0] == held[1] == held[2] and len(set(held[0])) == len(held[0])
        assert wire or len(held[0]) == segments

    threads.run(4, body)


def test_a_schedule_that_buffers_is_refused():
    def body(comm):
        with pytest.raises(
            ValueError, match="buffers messages to add them later.*next: use collective"
        ):
            pipelined(comm, direct.allreduce)(np.zeros(5, np.float32))

    threads.run(2, body)


@pytest.mark.parametrize("segment_bytes, depth", [(0, 2), (64, 0), (-1, -1)])
def test_nonsense_is_refused(segment_bytes, depth):
    with pytest.raises(
        ValueError, match=f"got segments of {segment_bytes} bytes, depth {depth}; wanted both > 0"
    ):
        threads.run(1, lambda comm: pipelined(comm, ring.allreduce, None, segment_bytes, depth))


@pytest.mark.parametrize(
    "mib, wanted_kib", [(0, 128), (0.1, 128), (1, 128), (4, 512), (8, 1024), (60, 2048)]
)
def test_segments_are_an_eighth_within_bounds(mib, wanted_kib):
    for itemsize in (2, 4, 8):
        assert (
            segment_elements(int(mib * 2**20) // itemsize, itemsize) * itemsize == wanted_kib << 10
        )
    assert segment_elements(1000, 4, 40) == 10 and segment_elements(1000, 4, 1) == 1


@pytest.mark.parametrize("wire", [None, np.float16])
def test_long_messages_go_in_segments_by_their_length(wire):
    """p does not divide n, so the two messages of a step may have segments of different lengths."""
    p, n = 3, 1_000_003
    xs = order_sensitive(p, n, np.float32, wire)
    wanted = replay([ring.allreduce(r, p, n) for r in range(p)], xs, wire)

    def body(comm):
        x, traced = xs[comm.rank].copy(), TracedComm(comm)
        pipelined(traced, ring.allreduce, wire)(x)
        assert same_bits(x, wanted[comm.rank])
        # slices of 1.27 MiB by eighths, or of 0.64 MiB by 128 KiB
        assert traced.messages == 4 * (8 if wire is None else 6)

    threads.run(p, body)


def test_overlap():
    assert overlap(slice(0, 3), slice(2, 5)) and overlap(slice(2, 3), slice(0, 9))
    assert not overlap(slice(0, 3), slice(3, 5)) and not overlap(slice(2, 2), slice(0, 9))
