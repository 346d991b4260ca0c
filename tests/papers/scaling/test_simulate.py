"""The clock on schedules whose times can be worked out on paper."""

from types import SimpleNamespace

import pytest

from refgf.papers.scaling.simulate import finish_times, from_schedules
from refgf.predict.cost import Link

LINK = Link(1.0, 0.5, 0.25)


def step(to=None, sends=0, sender=None, receives=0, op="copy"):
    return SimpleNamespace(
        send_to=to, send=slice(0, sends), receive_from=sender, receive=slice(0, receives), op=op
    )


def test_one_message_by_hand():
    """8 elements of 1 byte: 1 + 8/2 = 5 s for both; the receiver adds for 2 s more."""
    assert finish_times(
        [[step(to=1, sends=8)], [step(sender=0, receives=8, op="add")]], 1, LINK
    ) == [5, 7]


def test_a_late_partner_delays_the_sender():
    """Rank 1 first hears from rank 2 (1 + 2/2 = 2 s), so 0's message runs from 2 to 7."""
    schedules = [
        [step(to=1, sends=8)],
        [step(sender=2, receives=2), step(sender=0, receives=8)],
        [step(to=1, sends=2)],
    ]
    assert finish_times(schedules, 1, LINK) == [7, 7, 2]


def test_both_directions_at_once():
    exchange = [[step(1, 8, 1, 8)], [step(0, 8, 0, 8)]]
    assert from_schedules(exchange, 1, LINK) == 5
    ping, pong = (
        [step(to=1, sends=8), step(sender=1, receives=8)],
        [step(sender=0, receives=8), step(to=0, sends=8)],
    )
    assert from_schedules([ping, pong], 1, LINK) == 10


def test_a_step_with_two_partners_ends_with_the_later_message():
    """Rank 0 sends 8 to rank 1 (5 s) and receives 2 from rank 2 (2 s) in one step."""
    schedules = [
        [step(1, 8, 2, 2)],
        [step(sender=0, receives=8)],
        [step(to=0, sends=2), step(sender=1, receives=0)],
    ]
    schedules[1].append(step(to=2, sends=0))
    assert finish_times(schedules, 1, LINK) == [5, 6, 6]


def test_buffer_is_free_and_reduce_pays_for_all_that_was_stored():
    stored = [step(sender=source, receives=4, op="buffer") for source in (1, 2)]
    collect = [*stored, step(receives=4, op="reduce")]
    times_s = finish_times([collect, [step(to=0, sends=4)], [step(to=0, sends=4)]], 1, LINK)
    assert times_s == [3 + 3 + 2, 3, 6]


def test_local_steps_only():
    assert finish_times([[step(receives=4, op="finish")], []], 1, LINK) == [0, 0]


def test_links_by_pair():
    slow = Link(10.0, 0.0)
    schedules = [[step(to=1), step(to=2)], [step(sender=0)], [step(sender=0)]]
    times_s = finish_times(schedules, 1, lambda source, dest: slow if dest == 2 else LINK)
    assert times_s == [11, 1, 11]


def test_blocked_sends_are_a_deadlock():
    """Seeded mistake: everybody sends before anybody receives."""
    schedules = [
        [step(to=1, sends=4), step(sender=1, receives=4)],
        [step(to=0, sends=4), step(sender=0, receives=4)],
    ]
    with pytest.raises(ValueError, match="rank 0 at step 0, rank 1 at step 0"):
        from_schedules(schedules, 4, LINK)


def test_a_message_nobody_receives():
    with pytest.raises(ValueError, match="rank 1: got 0 receives from rank 0; wanted 1"):
        from_schedules([[step(to=1, sends=4)], []], 4, LINK)


def test_lengths_that_differ():
    with pytest.raises(ValueError, match="wanted the length of"):
        from_schedules([[step(to=1, sends=4)], [step(sender=0, receives=3)]], 4, LINK)
