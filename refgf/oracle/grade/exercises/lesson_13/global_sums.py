"""Exercise global_sums(batches, global_skip, wait)."""

from refgf.oracle.definitions import daso_sender, daso_wait
from refgf.oracle.grade.exercises.before import Exercise, Mistake, Part

EXTRA, MULTIPLE = "the last batch is no multiple of B", "the last batch is a multiple of B"
BEYOND, FEW = "waiting would end after the epoch", "B = 1, one batch, no batch"


def global_sums(batches, global_skip, wait):
    sent = [b for b in range(batches) if daso_sender(b, batches, global_skip, 1) is not None]
    return [(b, b + daso_wait(b, batches, (global_skip, 1, wait))) for b in sent]


def without_the_last(batches, global_skip, wait):
    found = global_sums(batches, global_skip, wait)
    return [(sent, received) for sent, received in found if sent % global_skip == 0]


def last_one_twice(batches, global_skip, wait):
    found = without_the_last(batches, global_skip, wait)
    return [*found, (batches - 1, batches - 1)] if batches else []


def ends_after_the_epoch(batches, global_skip, wait):
    found = global_sums(batches, global_skip, wait)
    return [(sent, sent if sent == batches - 1 else sent + wait) for sent, _ in found]


def last_one_waits(batches, global_skip, wait):
    found = global_sums(batches, global_skip, wait)
    return [(sent, received if sent < batches - 1 else sent + wait) for sent, received in found]


def all_wait(batches, global_skip, wait):
    return [(sent, sent + wait) for sent, _ in global_sums(batches, global_skip, wait)]


def after_b_batches(batches, global_skip, wait):
    sent = [b for b in range(batches) if (b + 1) % global_skip == 0 or b == batches - 1]
    return [(b, min(b + wait, batches - 1)) for b in sent]


def never_sent_if_too_late(batches, global_skip, wait):
    found = ends_after_the_epoch(batches, global_skip, wait)
    return [(sent, received) for sent, received in found if received < batches]


def epochs(rest, wait):
    """Epochs of `rest` batches more than a multiple of B. wait: (B, rest) -> W"""

    def cases(random):
        rows = [(4, 2), (5, 1), (int(random.integers(4, 40)), int(random.integers(2, 20)))]
        return [
            (skip * periods + rest(skip), skip, wait(skip, rest(skip))) for skip, periods in rows
        ]

    return cases


def few(random):
    return [(5, 1, 1), (1, 4, 1), (0, 4, 1), (int(random.integers(6, 99)), 1, 1)]


GLOBAL_SUMS = Exercise(
    "global_sums",
    global_sums,
    (
        Part(EXTRA, 1, epochs(lambda skip: skip - 1, lambda skip, rest: rest - 1)),
        Part(MULTIPLE, 1, epochs(lambda skip: 1, lambda skip, rest: skip - 1)),
        Part(BEYOND, 1, epochs(lambda skip: skip - 1, lambda skip, rest: skip)),
        Part(FEW, 1, few),
    ),
    (
        Mistake(
            "the sum of the epoch's last batch is missing",
            without_the_last,
            (EXTRA, BEYOND),
        ),
        Mistake(
            "you list the last batch twice when it is a multiple of B",
            last_one_twice,
            (MULTIPLE, FEW),
        ),
        Mistake(
            "some of your sums are received after the epoch's last batch",
            ends_after_the_epoch,
            (BEYOND,),
        ),
        Mistake(
            "the sum of the last batch is received at once: there is no batch to wait for",
            last_one_waits,
            (EXTRA, MULTIPLE, BEYOND, FEW),
        ),
        Mistake(
            "you add W to every batch: no sum is received later than in the last batch",
            all_wait,
            (EXTRA, MULTIPLE, BEYOND, FEW),
        ),
        Mistake(
            "you send after B batches, in batch B-1; the first sum is sent in batch 0",
            after_b_batches,
            (EXTRA, MULTIPLE, BEYOND),
        ),
        Mistake(
            "a sum that cannot wait for W batches is sent too, and received in the last batch",
            never_sent_if_too_late,
            (BEYOND,),
        ),
    ),
)
