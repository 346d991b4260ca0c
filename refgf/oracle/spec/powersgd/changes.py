"""Other rules for lesson 17: what is returned of columns, which factor is first, whose bytes, how
large a vote's result is.
"""

from refgf.oracle.spec.change import CHANGES, Change
from refgf.oracle.spec.powersgd.lesson_17 import ORTHOGONAL_17, SENT_17, SUM_17
from refgf.oracle.spec.powersgd.votes import MAJORITY_17

# ---- what is returned of the columns ----


def as_projector(function):
    def orthogonal(p):
        columns = function(p)
        return columns @ columns.T

    return orthogonal


def as_coefficients(function):
    return lambda p: function(p).T @ p


GRAM = "Gram-Schmidt. p: float64 (rows, r) -> (rows, r)"
BECOMES = "A column of which at most 2**-20 of its length is left becomes 0."
DEPENDS = "      the second column depends on the first"
PROJECTOR = {
    GRAM: "The projector on p's columns by Gram-Schmidt. p: float64 (rows, r) -> (rows, rows)",
    BECOMES: f"{BECOMES} With these columns as C, C C^T is returned.",
    DEPENDS: "",
}
COEFFICIENTS = {
    GRAM: "The coefficients of Gram-Schmidt. p: float64 (rows, r) -> (r, r)",
    BECOMES: f"{BECOMES} With these columns as C, C^T p is returned.",
    DEPENDS: "",
}

# ---- what a sum returns, and which factor is first ----


def with_own_parts(function):
    def low_rank_sum(ms, q):
        total, after, errors = function(ms, q)
        return total, after, [m - error for m, error in zip(ms, errors)]

    return low_rank_sum


def q_first(function):
    def low_rank_sum(ms, p):
        total, after, errors = function([m.T for m in ms], p)
        return total.T, after, [error.T for error in errors]

    return low_rank_sum


def turned(ms, q):
    return [m.T for m in ms], q


ERROR = "A rank's error is m - P (m^T P)^T."
OWN = {
    "-> (about the sum of ms, the next q, each rank's error)": (
        "-> (about the sum of ms, the next q, each rank's own part of it)"
    ),
    ERROR: "A rank's own part is P (m^T P)^T.",
    "a rank's error is what its own product leaves, m - P (m^T P)^T": (
        "a rank's own part is P (m^T P)^T, not that of all ranks"
    ),
}
FIRST = {
    "(about the sum of ms, the next q, each rank's error)": (
        "(about the sum of ms, the next P, each rank's error)"
    ),
    "    ms: list[np.ndarray], q: np.ndarray": "    ms: list[np.ndarray], p: np.ndarray",
    "q: (columns, r), on all\n    ranks the same. P is the sum of all m @ q, made orthogonal. "
    "The next q is the sum of all m^T P,\n    and P q^T, with that q, stands for the sum of ms.": (
        "p: (rows, r), on all ranks the same. Q is the sum of all m^T p, made orthogonal. The next "
        "P is the sum of all m Q, and P Q^T, with that P, stands for the sum of ms."
    ),
    ERROR: "A rank's error is m - (m Q) Q^T.",
    "A column of\n    the next q that is 0 stays as it was in q.": (
        "A column of the next P that is 0 stays as it was in p."
    ),
    "one rank, and P =": "one rank, and Q =",
    "gradients of zeros: q stays": "gradients of zeros: p stays",
    "P is made orthogonal after the sum over ranks, not before": (
        "Q is made orthogonal after the sum over ranks, not before"
    ),
    "P is made orthogonal before it meets M again": "Q is made orthogonal before it meets M again",
    "a rank's error is what its own product leaves, m - P (m^T P)^T": (
        "a rank's error is what its own product leaves, m - (m Q) Q^T"
    ),
    "a column of q that becomes 0": "a column of P that becomes 0",
}

# ---- whose bytes ----


def percent_of_floats(function):
    def sent_bytes(what, k, p):
        return 100 * function(what, k, p) / function("floats", k, p) if p > 1 else 100.0

    return sent_bytes


def of_all_ranks(function):
    return lambda what, k, p: p * function(what, k, p)


SENT = "Bytes that one of p ranks sends for k of something."
PERCENT = {
    SENT: "Bytes that one of p ranks sends for k of something, in percent of those of k floats.\n\n"
    "    With one rank, which sends nothing, it is 100.",
    "one rank sends nothing": "one rank: 100 percent",
}
ALTOGETHER = {SENT: "Bytes that all p ranks together send for k of something."}

# ---- how large a vote's result is ----


def as_mean(function):
    return lambda gradients: function(gradients) / len(gradients)


def as_step(function):
    return lambda gradients: -function(gradients) / 1000


MAGNITUDE = "is the sum over the ranks of the means of their |gradients|."
MEAN = {
    MAGNITUDE: "is the mean of the |gradients| of all ranks.",
    "the magnitude is a sum over the ranks: do not divide by p": (
        "the magnitude is the mean of all ranks: divide by p once"
    ),
}
STEP = {
    "what each rank takes for the sum.": "each rank's update at a rate of 0.001.",
    "The result has the sign of this sum": "The result has the sign opposite to this sum's",
    MAGNITUDE: "is 0.001 times the sum over the ranks of the means of their |gradients|.",
}

CHANGES["17"] = [
    [
        [Change(ORTHOGONAL_17, "here it is a projector", as_projector, words=PROJECTOR)],
        [Change(ORTHOGONAL_17, "here they are coefficients", as_coefficients, words=COEFFICIENTS)],
    ],
    [
        [Change(SUM_17, "here own parts are returned, not errors", with_own_parts, words=OWN)],
        [Change(SUM_17, "here Q is first, and p is given", q_first, turned, FIRST)],
    ],
    [
        [Change(SENT_17, "here it is in percent of floats", percent_of_floats, words=PERCENT)],
        [Change(SENT_17, "here all ranks together count", of_all_ranks, words=ALTOGETHER)],
    ],
    [
        [Change(MAJORITY_17, "here the magnitude is a mean", as_mean, words=MEAN)],
        [Change(MAJORITY_17, "here the step is returned", as_step, words=STEP)],
    ],
]
