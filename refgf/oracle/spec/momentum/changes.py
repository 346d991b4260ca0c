"""Other rules for lesson 11: how a rate grows, how trust is given, what is in the velocity."""

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.momentum.lars import RATIO_11
from refgf.oracle.spec.momentum.lars_step import STEP_11
from refgf.oracle.spec.momentum.rates import RATE_11

# ---- how a rate grows ----


def root_scaling(function):
    def learning_rate(base_rate, batch, base_batch, *steps):
        return function(base_rate, batch**0.5, base_batch**0.5, *steps)

    return learning_rate


def steps_from_1(function):
    def learning_rate(base_rate, batch, base_batch, step, *plan):
        return function(base_rate, batch, base_batch, step - 1, *plan)

    return learning_rate


def next_step(base_rate, batch, base_batch, step, *plan):
    return base_rate, batch, base_batch, step + 1, *plan


ROOT = {
    "Linear scaling: base_rate is right for base_batch images; a batch k times as large has k times"
    "\n    the rate.": (
        "Root scaling: base_rate is right for base_batch images; a batch k times as large has\n"
        "    sqrt(k) times the rate."
    ),
    "your linear scaling is missing: a batch k times as large has a rate k times as large": (
        "your scaling is missing: a batch k times as large has a rate sqrt(k) times as large"
    ),
    "you scale by the root of the batch: linear scaling means batch / base_batch": "",
}
FROM_1 = {
    "step: 0 to steps - 1 in training.": "step: 1 to steps in training.",
    "times (1 - step / steps) squared, from step 0 on; 0 from step\n    `steps` on.": (
        "times (1 - (step - 1) / steps) squared, from step 1 on; 0\n    after step `steps`."
    ),
    "for step > steps?": "for step > steps + 1?",
    "step 0, the end of warm-up,": "step 1, the end of warm-up,",
    "step 0 has the share": "step 1 has the share",
    "wanted in step 0": "wanted in step 1",
}

# ---- how trust is given ----


def ratio_of_percent(function):
    return lambda w, g, trust, decay: function(w, g, trust / 100, decay)


def step_of_percent(function):
    return lambda w, v, g, rate, trust, *rest: function(w, v, g, rate, trust / 100, *rest)


def ratio_in_percent(w, g, trust, decay):
    return w, g, 100 * trust, decay


def step_in_percent(w, v, g, rate, trust, *rest):
    return w, v, g, rate, 100 * trust, *rest


def divisor(function):
    return lambda *layer: 1 / function(*layer)


FACTOR = "The factor by which LARS multiplies the rate of a layer: trust |w| / (|g| + decay |w|)."
PERCENT = {
    FACTOR: "The factor by which LARS multiplies the rate of a layer, with trust in percent:\n"
    "    trust / 100 * |w| / (|g| + decay |w|).",
    "the factor trust is missing": "the factor trust / 100 is missing",
}
STEP_PERCENT = {
    "w, v, g: float32 (n,), weights, velocity and gradient.": (
        "w, v, g: float32 (n,), weights, velocity and gradient. trust is in percent here, too."
    ),
}
DIVISOR = {
    FACTOR: "The number by which LARS divides the rate of a layer:\n"
    "    (|g| + decay |w|) / (trust |w|).",
    "Norms and ratio\n    are in float64": "Norms and\n    result are in float64",
    "The ratio is 1.0 where |w| is 0 or the\n    denominator is 0.": (
        "The result is 1.0 where |w| is 0 or\n    |g| + decay |w| is 0."
    ),
    "with the ratio of `lars_ratio`.": "where ratio is 1 / `lars_ratio`.",
    "decay |w| is missing in the denominator: without it a small gradient makes the ratio as "
    "large as you like": (
        "decay |w| is missing: without it a small gradient makes a step as long as you like"
    ),
    "your ratio is upside down: a layer with large weights may move far": "",
    "weights that are all 0 would stay 0 for ever: the ratio is then 1": "",
}

# ---- what is in the velocity ----


def rate_outside(function):
    def lars_step(w, v, g, rate, *rest):
        w, v = function(w, rate * v, g, rate, *rest)
        return w, v / rate

    return lars_step


def averaged(function):
    def lars_step(w, v, g, rate, trust, momentum, *rest):
        return function(w, v, g, (1 - momentum) * rate, trust, momentum, *rest)

    return lars_step


TERM = "plus rate * ratio * (g + decay w)"
AT_THE_END = (
    "you multiply the velocity by the rate at the end; wanted rate * ratio inside the velocity, "
    "where an older gradient keeps the rate of its own step"
)
OUTSIDE = {
    TERM: "plus ratio * (g + decay w)",
    "The weights move\n    against the new velocity. The rate is part of the velocity.": (
        "The weights move\n    by rate times the new velocity, against it. The rate is not in "
        "the velocity."
    ),
    AT_THE_END: "",
}
AVERAGED = {
    TERM: "plus (1 - momentum) * rate * ratio * (g + decay w)",
    "your velocity is an average: the new term has no factor 1 - momentum": "",
    AT_THE_END: "",
}

CHANGES["11"] = [
    [
        [Change(RATE_11, "here a rate grows by the root", root_scaling, words=ROOT)],
        [Change(RATE_11, "here steps count from 1", steps_from_1, next_step, FROM_1)],
    ],
    [
        [
            Change(
                RATIO_11, "here trust is in percent", ratio_of_percent, ratio_in_percent, PERCENT
            ),
            Change(
                STEP_11, "here trust is in percent", step_of_percent, step_in_percent, STEP_PERCENT
            ),
        ],
        [Change(RATIO_11, "here the rate is divided by it", divisor, words=DIVISOR)],
    ],
    [
        [Change(STEP_11, "here the rate is outside the velocity", rate_outside, words=OUTSIDE)],
        [Change(STEP_11, "here the velocity is an average", averaged, words=AVERAGED)],
    ],
]
