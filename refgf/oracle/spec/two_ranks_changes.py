"""Other rules for lesson 00: which way is downhill, what a step adds, who sums in which order."""

from functools import partial

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.ring_changes import acts_as, other_ring
from refgf.oracle.spec.two_ranks import GRADIENT_00, STEP_00, SUM_00, through_rank_0

# ---- which way is downhill ----


def downhill(function):
    return lambda w, x, y: -function(w, x, y)


def without_half(function):
    return lambda w, x, y: 2 * function(w, x, y)


GRADIENT = "The gradient of `loss` with respect to w."
SIGN = "your gradient has the wrong sign: the error is x @ w - y"
DOWNHILL = {
    GRADIENT: "Minus the gradient of `loss` with respect to w: the way downhill.",
    SIGN: "",
}
WITHOUT_HALF = {
    GRADIENT: "The gradient of 2 `loss`, the mean squared error, with respect to w.",
    "your gradient is twice as long: the loss has a factor 1/2, which cancels the 2 of the "
    "square": "",
}

# ---- what a step adds ----


def uphill(function):
    return lambda w, xs, ys, rate: function(w, xs, ys, -rate)


def by_the_sum(function):
    return lambda w, xs, ys, rate: function(w, xs, ys, rate * sum(map(len, ys)))


STEP = "w - rate * (gradient of `loss`)."
UPHILL = {
    STEP: "w + rate * (gradient of `loss`), one step uphill.",
    "you add the gradient, so the loss grows; a step goes against it": "",
}
BY_THE_SUM = {
    STEP: "w - rate * samples * (gradient of `loss`), where samples is the number of all samples.",
    "Hint: with as many samples on each rank the mean of the ranks' gradients will do. What must "
    "a\n    rank contribute otherwise, so that the sum over all ranks is right?": (
        "Hint: what must a rank contribute, so that the sum over all ranks is right?"
    ),
    "you step with the sum of the ranks' gradients, so your step is p times as long; "
    "wanted the mean": "",
    "you step with the sum over all samples; wanted the mean: divide by the number of all "
    "samples": "",
    "you divide the sum over all samples by the number of ranks; wanted the number of all "
    "samples": "",
    "your mean of p gradients counts a rank with few samples as much as one with many; "
    "wanted the mean over all samples": "",
}

# ---- who sums in which order ----

ORDER = (
    "Rank {} receives x from ranks {}, in this order, adds each to its own x, and then\n"
    "    sends the sum to ranks {}, in this order."
)
FIRST = "your rank 0 adds the last rank first; wanted ranks 1, 2, ... in this order"


def summed_by(turn, moved, others):
    """On the last rank, which adds the others in this order."""
    return Change(
        SUM_00,
        f"here rank p-1 sums, and adds ranks {others}",
        partial(other_ring, turn=turn, moved=moved),
        words={
            "through rank 0: x is": "through rank p-1: x is",
            ORDER.format(0, *["1, 2, ..., p-1"] * 2): ORDER.format("p-1", others, others),
            FIRST: f"your rank p-1 adds in the reversed order; wanted ranks {others}",
            "your rank 0": "your rank p-1",
        },
        published=through_rank_0,
        acts_as=partial(acts_as, turn=turn, moved=moved),
    )


CHANGES["00"] = [
    [
        [Change(GRADIENT_00, "here it points downhill", downhill, words=DOWNHILL)],
        [Change(GRADIENT_00, "here the loss has no half", without_half, words=WITHOUT_HALF)],
    ],
    [
        [Change(STEP_00, "here a step goes uphill", uphill, words=UPHILL)],
        [Change(STEP_00, "here the sum over the samples counts", by_the_sum, words=BY_THE_SUM)],
    ],
    [[summed_by(1, 1, "0, 1, ..., p-2")], [summed_by(-1, -1, "p-2, ..., 1, 0")]],
]
