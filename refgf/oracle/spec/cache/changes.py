"""Other rules for lesson 14: which requests count, what an epoch is compared with, which share."""

from refgf.oracle.spec.cache.epoch import EPOCH_14, SHARE_14
from refgf.oracle.spec.cache.levels import HITS_14
from refgf.oracle.spec.change import CHANGES, Change

# ---- which requests count ----


def requests(function):
    return lambda *a: [[m + d + s, d + s, s] for m, d, s in function(*a)]


def so_far(function):
    def hits(*a):
        found: list[list[int]] = []
        for row in function(*a):
            found.append([sum(both) for both in zip(row, found[-1])] if found else row)
        return found

    return hits


LISTED = (
    "[[from memory, from disk, from the store], ...]: how many samples come from where, per epoch."
)
REQUESTS = {
    LISTED: "[[of memory, of the disk, of the store], ...]: how often each is asked, per epoch.",
    "you count the requests that a level gets; wanted those that it serves": "",
    "you ask the disk before memory; memory is asked first": "",
}
SO_FAR = {
    LISTED: "[[from memory, from disk, from the store], ...]: how many samples have come from "
    "where\n    by the end of each epoch, since the first one began.",
    "you count all epochs so far; begin with 0 in each epoch": "",
}

# ---- what an epoch is compared with ----


def later_and_speedup(function):
    def epoch_seconds(*a):
        first_s, later_s = function(*a)
        return later_s, first_s / later_s

    return epoch_seconds


def first_and_share(function):
    def epoch_seconds(*a):
        first_s, later_s = function(*a)
        return first_s, later_s / first_s

    return epoch_seconds


LOAD = "Predicted seconds to load the samples of an epoch: (the first epoch, each later epoch)."
LATER = {LOAD: "Predicted: (seconds to load a later epoch, the first epoch's seconds over these)."}
FIRST = {LOAD: "Predicted: (seconds to load the first epoch, a later epoch's seconds over these)."}

# ---- which share ----


def in_percent(function):
    def share_needed(*a):
        share = function(*a)
        return None if share is None else 100 * share

    return share_needed


def of_misses(function):
    def share_needed(*a):
        share = function(*a)
        return None if share is None else 1 - share

    return share_needed


SHARE = "The share of the shard (0 to 1) that memory must hold for this speedup of later epochs."
PERCENT = {
    SHARE: "The percentage of the shard that memory must hold for this speedup of later epochs.",
    "you return percent; wanted a share of 1": "",
    "a share above 1 does not exist: return None": "more than 100 % do not exist: return None",
}
MISSES = {
    SHARE: "The share of the shard (0 to 1) that memory may lack at this speedup of later epochs.",
    "you return the share of the misses; wanted that of the hits": "",
    "a share above 1 does not exist: return None": "a share below 0 does not exist: return None",
}

CHANGES["14"] = [
    [
        [Change(HITS_14, "here the requests of each level count", requests, words=REQUESTS)],
        [Change(HITS_14, "here all epochs so far count", so_far, words=SO_FAR)],
    ],
    [
        [Change(EPOCH_14, "here a later epoch is first", later_and_speedup, words=LATER)],
        [Change(EPOCH_14, "here the second one is a ratio", first_and_share, words=FIRST)],
    ],
    [
        [Change(SHARE_14, "here it is in percent", in_percent, words=PERCENT)],
        [Change(SHARE_14, "here it is the share of misses", of_misses, words=MISSES)],
    ],
]
