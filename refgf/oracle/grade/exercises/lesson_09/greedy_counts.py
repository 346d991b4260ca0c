"""Exercise greedy_counts(ready_s, nbytes, a_s, b_s_per_byte)."""

from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part
from refgf.oracle.grade.exercises.lesson_09.cases import faster, sizes, times

GAPS, BUSY = "each call ends before the next", "the link is busy with the call before"
TIE, EDGE = "waiting takes exactly a latency", "no latency, one gradient, no gradient"


def greedy_counts(ready_s, nbytes, a_s, b_s_per_byte, joins=lambda wait_s, a_s, t_s: wait_s < a_s):
    """joins: (waiting, latency, time of the call that waits) -> is the next gradient merged?"""
    counts, waiting, start_s = [], [], 0.0
    for i, ready in enumerate(ready_s):
        start_s = max(start_s, ready)
        waiting.append(nbytes[i])
        call_s = a_s + b_s_per_byte * sum(waiting)
        if i + 1 < len(ready_s) and joins(ready_s[i + 1] - start_s, a_s, call_s):
            continue
        counts.append(len(waiting))
        start_s += call_s
        waiting = []
    return counts


def merges_at_a_tie(ready_s, nbytes, a_s, b_s_per_byte):
    return greedy_counts(ready_s, nbytes, a_s, b_s_per_byte, lambda wait_s, a, t: wait_s <= a)


def merges_the_other_way(ready_s, nbytes, a_s, b_s_per_byte):
    return greedy_counts(ready_s, nbytes, a_s, b_s_per_byte, lambda wait_s, a, t: wait_s >= a)


def compares_with_the_call(ready_s, nbytes, a_s, b_s_per_byte):
    return greedy_counts(ready_s, nbytes, a_s, b_s_per_byte, lambda wait_s, a, t: wait_s < t)


def compares_with_ready(ready_s, nbytes, a_s, b_s_per_byte):
    joins = [later - now < a_s for now, later in zip(ready_s, ready_s[1:])]
    return from_decisions(joins) if ready_s else []


def from_decisions(joins):
    """joins[i]: is gradient i merged with the next? -> gradients of each call"""
    counts = [1]
    for join in joins:
        if join:
            counts[-1] += 1
        else:
            counts.append(1)
    return counts


def loses_the_last_call(ready_s, nbytes, a_s, b_s_per_byte):
    return greedy_counts(ready_s, nbytes, a_s, b_s_per_byte)[:-1]


def waits_from_the_first(ready_s, nbytes, a_s, b_s_per_byte):
    joins, end_s, begin = [], 0.0, 0
    for i, ready in enumerate(ready_s[:-1]):
        joins.append(ready_s[i + 1] - max(end_s, ready_s[begin]) < a_s)
        if not joins[-1]:
            end_s = max(end_s, ready) + a_s + b_s_per_byte * sum(nbytes[begin : i + 1])
            begin = i + 1
    return from_decisions(joins) if ready_s else []


def long_and_short_gaps(random):
    """A latency is 10. Short gaps are shorter, but two of them longer; long ones outlast a call."""
    found = []
    for pattern in ("ssl", "lsslsl", "sllsss"):
        gaps = [int(random.integers(*((6, 10) if c == "s" else (200, 300)))) for c in pattern]
        found.append((times(gaps), sizes(random, len(gaps) + 1), 10.0, 1.0))
    return found


def ties(random):
    a, long = float(random.integers(5, 50)), 5000
    rows = [(a,), (a, long), (long, a), (a - 2, a)]
    return [(times(list(gaps)), sizes(random, len(gaps) + 1), a, 0.5) for gaps in rows]


GREEDY = Exercise(
    "greedy_counts",
    greedy_counts,
    (
        Part(GAPS, 2, long_and_short_gaps),
        Part(
            BUSY,
            2,
            lambda random: faster(
                random,
                ([0, 3, 6, 9, 30], [10, 10, 10, 10, 1], 2, 1),
                ([2, 8, 12, 20, 22, 29], [5, 4, 9, 4, 4, 6], 4, 1),
            ),
        ),
        Part(TIE, 1, ties),
        Part(
            EDGE,
            1,
            lambda random: [
                (times([100, 150, 120]), sizes(random, 4), 0.0, 1.0),
                ([4.0], [7], 2.0, 1.0),
                ([], [], 2.0, 1.0),
            ],
        ),
    ),
    (
        Mistake(
            "you merge when waiting takes exactly a latency; the rule says less than a latency",
            merges_at_a_tie,
            (TIE,),
        ),
        Mistake(
            "you compare with the time when gradient i is ready, but its call may start later, "
            "because the link is busy",
            compares_with_ready,
            (BUSY,),
        ),
        Mistake(
            "your last call is lost: after the last gradient, send what waits",
            loses_the_last_call,
            (GAPS, BUSY, TIE, EDGE),
        ),
        Mistake(
            "you compare the waiting with the time of a whole call, but a merge saves the latency "
            "only",
            compares_with_the_call,
            (BUSY, TIE),
        ),
        Mistake(
            "you count the waiting from the group's first gradient; the call that ends with "
            "gradient i starts when gradient i is ready",
            waits_from_the_first,
            (GAPS,),
        ),
        Mistake(
            "you merge where waiting costs more than a latency, and send where it costs less",
            merges_the_other_way,
            (GAPS, BUSY, TIE, EDGE),
        ),
    ),
)
