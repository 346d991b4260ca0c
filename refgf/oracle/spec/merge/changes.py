"""Other rules for lesson 09: how a group is written, ties of the greedy rule, when time begins."""

import textwrap

import numpy as np

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.merge.lesson_09 import BEST_09, END_09, GREEDY_09

# ---- how groups are written ----


def writes_stops(function):
    return lambda *a: np.cumsum(function(*a), dtype=int).tolist()


def reads_stops(function):
    return lambda ready_s, nbytes, stops, *line: function(
        ready_s, nbytes, np.diff(stops, prepend=0).tolist() if stops else [], *line
    )


def writes_firsts(function):
    return lambda *a: np.cumsum([0, *function(*a)], dtype=int).tolist()[:-1]


def reads_firsts(function):
    def step_end(ready_s, nbytes, firsts, *line):
        counts = np.diff([*firsts, len(ready_s)]).tolist() if firsts else []
        return function(ready_s, nbytes, counts, *line)

    return step_end


def stops_of(ready_s, nbytes, counts, *line):
    return ready_s, nbytes, np.cumsum(counts, dtype=int).tolist(), *line


def firsts_of(ready_s, nbytes, counts, *line):
    return ready_s, nbytes, np.cumsum([0, *counts], dtype=int).tolist()[:-1], *line


WRITTEN = """\
its bytes. counts: how many gradients each call sums, in order: [1, 3] is gradient 0 in the first
call, gradients 1, 2 and 3 in the second. A call of"""
STOPS, FIRSTS = (
    f"groups: the {what} gradient of each call, in order: {{}} is gradient 0 in the first call, "
    "gradients 1, 2 and 3 in the second."
    for what in ("number after the last", "first")
)


def written(text):
    return {
        WRITTEN: f"its bytes.\n{textwrap.fill(text, 100)}\nA call of",
        "counts: list[int],": "groups: list[int],",
        "one loop over counts": "one loop over groups",
        "The counts of MG-WFBP's greedy rule": "The groups of MG-WFBP's greedy rule",
        "The earliest end that any counts have": "The earliest end that any groups have",
    }


# ---- ties ----


def joins_at_a_tie(function):
    return lambda ready_s, nbytes, a_s, b: function(ready_s, nbytes, np.nextafter(a_s, np.inf), b)


TIE = {
    "if waiting costs\n    less than a latency: ready(i+1) - start(i) < a_s.": (
        "if waiting costs\n    a latency or less: ready(i+1) - start(i) <= a_s."
    ),
    "you merge when waiting takes exactly a latency; the rule says less than a latency": "",
}

# ---- from when ----


def after_the_last(function):
    return lambda ready_s, *a: function(ready_s, *a) - (ready_s[-1] if ready_s else 0)


def after_the_first(function):
    return lambda ready_s, *a: function(ready_s, *a) - (ready_s[0] if ready_s else 0)


def since(says, rule, which):
    text = f"seconds after the {which} gradient is ready"
    return [
        Change(
            END_09, says, rule, words={"When the last call ends, in seconds.": ENDS + text + "."}
        ),
        Change(
            BEST_09,
            says,
            rule,
            words={"have, in seconds, for at most": f"have, in {text},\n    for at most"},
        ),
    ]


ENDS = "When the last call ends, in "
FROM = "here time begins when the {} gradient is ready"

CHANGES["09"] = [
    [[], [Change(GREEDY_09, "here exactly a latency is waited", joins_at_a_tie, words=TIE)]],
    [
        [
            Change(GREEDY_09, says, writes, words=written(text.format(example))),
            Change(END_09, says, reads, asked),
        ]
        for says, writes, reads, asked, text, example in (
            ("here a group is its stop", writes_stops, reads_stops, stops_of, STOPS, [1, 4]),
            ("here a group is its first", writes_firsts, reads_firsts, firsts_of, FIRSTS, [0, 1]),
        )
    ],
    [
        since(FROM.format("last"), after_the_last, "last"),
        since(FROM.format("first"), after_the_first, "first"),
    ],
]
