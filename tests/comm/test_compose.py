"""Schedules made of other ones."""

from refgf.comm import ring
from refgf.comm.compose import on_ranks, reversed_schedule


def test_a_reversed_or_renamed_schedule_has_the_same_messages():
    there = ring.reduce_scatter(1, 3, 10)
    back = reversed_schedule(there)
    sent = [(s.send_to, s.send) for s in reversed(there)]
    assert [(s.receive_from, s.receive) for s in back] == sent
    renamed = on_ranks([7, 5, 9], there, start=100)
    assert [(s.send_to, s.receive_from) for s in renamed] == [(9, 7), (9, 7)]
    assert [s.send.start - 100 for s in renamed] == [s.send.start for s in there]
