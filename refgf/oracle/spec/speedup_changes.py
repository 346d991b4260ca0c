"""Other rules for lesson 08: how an efficiency is written, what the flag says, what a step is."""

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.speedup import PREDICTED_08, SPEEDUP_08, STEP_08

# ---- how an efficiency is written ----


def speedup_and_share(function):
    def speedup_and_efficiency(*a):
        speedup, percent = function(*a)
        return speedup, percent / 100

    return speedup_and_efficiency


def as_share(function):
    return lambda *a: function(*a) / 100


def speedup_and_slowdown(function):
    def speedup_and_efficiency(*a):
        speedup, percent = function(*a)
        return speedup, 100 / percent

    return speedup_and_efficiency


def as_slowdown(function):
    return lambda *a: 100 / function(*a)


BOTH, PREDICTED = "(speedup, scaling efficiency in percent)", "efficiency of p ranks, in percent,"
ITS, OVER = "Efficiency: its percentage\n    of p.", "Efficiency: the time that a rank computes,"
FRACTION = {"your efficiency is a fraction; wanted percent": ""}
IN_STRONG = "your efficiency in strong scaling is 100 times the speedup: divide by p"
IN_PERCENT = "in strong scaling your result is the speedup in percent: divide it by p"
OF_EXCHANGE = "your result is the exchange's share of the step; efficiency is what is left of 100 %"


def written(says, rules, texts, words):
    of_speedup, of_predicted = rules
    both, predicted, its, over = texts
    return [
        Change(
            SPEEDUP_08,
            says,
            of_speedup,
            words={BOTH: both, ITS: its, **FRACTION, IN_STRONG: "in strong scaling divide by p"},
        ),
        Change(
            PREDICTED_08,
            says,
            of_predicted,
            words={
                PREDICTED: predicted,
                OVER: over,
                IN_PERCENT: "in strong scaling p ranks share the batch: p is missing",
                **words,
            },
        ),
    ]


# ---- what the flag says ----


def not_weak(function):
    return lambda *a: function(*a[:-1], not a[-1])


def other_flag(*a):
    return *a[:-1], not a[-1]


FLAG = "here the flag is strong, not weak"
STRONG = {
    "all_s: float, weak: bool": "all_s: float, strong: bool",
    "beta: float, weak: bool": "beta: float, strong: bool",
    "weak: each rank\n    brings a batch of its own; otherwise p ranks share the one batch.": (
        "strong: the p\n    ranks share the one batch; otherwise each brings a batch of its own."
    ),
}

# ---- what a step is ----


def exposed(function):
    return lambda p, compute_s, *a: function(p, compute_s, *a) - compute_s


def as_multiple(function):
    return lambda p, compute_s, *a: function(p, compute_s, *a) / compute_s


SECONDS = "Predicted seconds of a step of eager exchange with overlap, on p ranks."
EXPOSED = {SECONDS: "Predicted seconds by which eager exchange with overlap makes a step longer."}
MULTIPLE = {SECONDS: "Predicted time of a step of eager exchange with overlap, over compute_s."}

CHANGES["08"] = [
    [
        written(
            "here the efficiency is a share of 1",
            (speedup_and_share, as_share),
            (
                "(speedup, scaling efficiency from 0 to 1)",
                "efficiency of p ranks, from 0 to 1,",
                "Efficiency: its share\n    of p.",
                OVER,
            ),
            {OF_EXCHANGE: "your result is the exchange's share of the step; wanted the rest"},
        ),
        written(
            "here it is how much slower than ideal",
            (speedup_and_slowdown, as_slowdown),
            (
                "(speedup, slowdown)",
                "slowdown of p ranks,",
                "Slowdown: p over\n    the speedup.",
                "Slowdown: the inverse of the efficiency, which is the time that a rank computes,",
            ),
            {OF_EXCHANGE: ""},
        ),
    ],
    [
        [],
        [
            Change(SPEEDUP_08, FLAG, not_weak, other_flag, STRONG),
            Change(PREDICTED_08, FLAG, not_weak, other_flag),
        ],
    ],
    [
        [Change(STEP_08, "here only what is exposed counts", exposed, words=EXPOSED)],
        [Change(STEP_08, "here it is a multiple of compute_s", as_multiple, words=MULTIPLE)],
    ],
]
