"""Other rules for lesson 04: a rest of the link, the two numbers of a call, what is split."""

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.overlap import EXPOSED_04, OVERLAP_04, SEQUENTIAL_04

# ---- a rest of the link ----


def rests(function):
    def calls(ready_s, call_s):
        longer = function(ready_s, [duration + 1.0 for duration in call_s])
        return [(start, end - 1.0) for start, end in longer]

    return calls


def split_with_rests(function):
    def split(ready_s, call_s, compute_s):
        longer = [duration + 1.0 for duration in call_s]
        exposed_s, hidden_s = function(ready_s, longer, compute_s + 1.0)
        return exposed_s, hidden_s - len(call_s)

    return split


REST, THREAD = "here the link rests for 1 s between calls", "communicates while backward goes on."
RESTS = {THREAD: f"{THREAD}\n    After each call the link rests for 1 second before the next one."}
OVERLAP = "seconds of communication, with overlap."
NO_CALL = {
    OVERLAP: f"{OVERLAP}\n    After each call the link rests, as in exercise 2. No rest counts."
}

# ---- what a call is ----


def as_duration(function):
    def calls(ready_s, call_s):
        return [(start, end - start) for start, end in function(ready_s, call_s)]

    return calls


def as_wait(function):
    def calls(ready_s, call_s):
        timed = zip(ready_s, function(ready_s, call_s))
        return [(start - ready, end) for ready, (start, end) in timed]

    return calls


def pairs(says, rule, text):
    """The change of both exercises. text: what the pair is."""
    words = {
        "[(start, end), ...] of each call": text,
        "you return (start, duration); wanted (start, end)": "",
    }
    return [Change(OVERLAP_04, says, rule, words=words), Change(SEQUENTIAL_04, says, rule)]


DURATION = "[(start, duration), ...] of each call"
WAITED = "[(waited, end), ...] of each call, waited: from ready_s to its start"

# ---- what is split ----


def step_and_hidden(function):
    def split(ready_s, call_s, compute_s):
        exposed_s, hidden_s = function(ready_s, call_s, compute_s)
        return compute_s + exposed_s, hidden_s

    return split


def step_and_exposed(function):
    def split(ready_s, call_s, compute_s):
        exposed_s, _ = function(ready_s, call_s, compute_s)
        return compute_s + exposed_s, exposed_s

    return split


SPLIT = "(exposed, hidden) seconds of communication"
HIDDEN = {SPLIT: "(step, hidden): when the step ends, and the hidden seconds of communication"}
EXPOSED = {
    SPLIT: "(step, exposed): when the step ends, and the exposed seconds of communication",
    "your hidden time is compute_s less the exposed time; wanted the calls' time less the exposed "
    "time": "",
}

CHANGES["04"] = [
    [
        [],
        [
            Change(OVERLAP_04, REST, rests, words=RESTS),
            Change(EXPOSED_04, REST, split_with_rests, words=NO_CALL),
        ],
    ],
    [
        pairs("here a call is (start, duration)", as_duration, DURATION),
        pairs("here a call is (waited, end)", as_wait, WAITED),
    ],
    [
        [Change(EXPOSED_04, "here the first one is the step", step_and_hidden, words=HIDDEN)],
        [Change(EXPOSED_04, "here it is (step, exposed)", step_and_exposed, words=EXPOSED)],
    ],
]
