"""W5: signs that an allreduce sums, as votes; exercise majority of lesson 17."""

import numpy as np

from refgf.oracle.spec.case import Case, Given
from refgf.oracle.spec.draw import Draw, random_source
from refgf.oracle.spec.exercise import Arguments, Exercise, tenths
from refgf.oracle.spec.ring import Arrays
from refgf.oracle.spec.statement import Cases, JudgedFunction, Statement


def majority(gradients: Arrays) -> np.ndarray:
    """W5: a rank's vote for an element is the sign of its gradient, and 0 for 0. The votes are
    summed, by numbers that hold p. An element of the result has the sign of its sum of votes, and 0
    where they tie; its magnitude, the same for all, is the sum over the ranks of the means of their
    magnitudes. Nothing is fed back.

    Source: Bernstein et al. 2019 (signSGD with majority vote, arXiv 1810.05291): the workers send
    signs, and receive the majority's. Votes of 0 and ties; the magnitude, in place of a rate of its
    own; and a sum, in place of a server: chosen.

    p arrays (n,) -> (n,), on all ranks
    """
    votes = np.sum([np.sign(g) for g in gradients], axis=0)
    return np.sign(votes) * magnitude(gradients)


def magnitude(gradients: Arrays) -> np.floating:
    """The sum over the ranks of the means of their magnitudes, in their type."""
    total = sum(np.abs(g).mean(dtype=np.float64) if len(g) else 0.0 for g in gradients)
    return gradients[0].dtype.type(total)


W5 = Statement("W5", majority)
VOTE = JudgedFunction(majority, "W5", {"x": ("element",)}, "g")


@VOTE.bounds
def rounding(case: Case) -> Given:
    """float32's rounding of the magnitude, whose order of summation is open."""
    x = case["out.x"]
    return {"x": np.full(x.shape, 2.0**-16 * np.abs(x).max(initial=0))}


@VOTE.fresh
def any_votes(d: Draw) -> Given:
    """Some gradients are 0."""
    g = d.normal(min(d.p, 12), d.n)
    return {"g": np.where(d.rng.random(g.shape) < 0.2, np.float32(0), g)}


@VOTE.golden
def vote_cases() -> Cases:
    for n, p in ((5, 1), (0, 3), (3, 5), (29, 7)):
        g = random_source(f"majority-n{n}-p{p}").standard_normal((p, n)).astype(np.float32)
        yield VOTE.within(VOTE.case(f"majority-n{n}-p{p}", f"{p} ranks vote on {n}", g=g))
    few = [[1, -1, 0, 0, -8], [-9, -2, 0, 3, 1], [3, 0, 0, 0, 1], [-1, 0, 0, 0, 1]]
    g = np.array(few, np.float32)
    case = VOTE.within(VOTE.case("majority-ties", "ties, zeros, and one large gradient", g=g))
    yield case.shows(np.sign(case["out.x"]).tolist() == [0, -1, 0, 1, 1], "by hand")
    g = np.where(np.arange(200)[:, None] < [200, 130, 60], 1, -1).astype(np.float32)
    case = VOTE.within(VOTE.case("majority-p200", "200 votes are more than 8 bits count", g=g))
    yield case.shows(np.sign(case["out.x"]).tolist() == [1, 1, -1], "200, 60 and -80 votes")


@W5.mistake("a gradient of 0 votes for plus")
def zero_votes(gradients):
    votes = np.sum([np.where(g >= 0, 1, -1) for g in gradients], axis=0)
    return np.sign(votes).astype(gradients[0].dtype) * magnitude(gradients)


@W5.mistake("a tie is decided for plus")
def tie_is_plus(gradients):
    votes = np.sum([np.sign(g) for g in gradients], axis=0)
    return np.where(votes >= 0, magnitude(gradients), -magnitude(gradients))


@W5.mistake("the sign of the sum of gradients: the largest one decides")
def sign_of_sum(gradients):
    return np.sign(np.sum(gradients, axis=0)) * magnitude(gradients)


@W5.mistake("the mean magnitude over the ranks, not the sum")
def divided_by_p(gradients):
    return majority(gradients) / gradients[0].dtype.type(len(gradients))


@W5.mistake("the votes alone, without a magnitude")
def votes_alone(gradients):
    return np.sign(majority(gradients))


@W5.mistake("the sum of the votes is taken for the majority's sign")
def sum_of_votes(gradients):
    return np.sum([np.sign(g) for g in gradients], axis=0) * magnitude(gradients)


@W5.mistake("votes are summed in 8 bits: 200 of them are negative")
def eight_bit_votes(gradients):
    votes = np.sum([np.sign(g) for g in gradients], axis=0).astype(np.int64).astype(np.int8)
    return np.sign(votes).astype(gradients[0].dtype) * magnitude(gradients)


# ---- exercise majority ----


def outvoted(random: np.random.Generator) -> list[Arguments]:
    """Rank 0 has large gradients, and all others have the other sign. Then any; one rank."""
    found = [tenths(random, *shape, dtype=np.float64) for shape in ((3, 3), (5, 2), (5, 2), (1, 3))]
    for g in found[:2]:
        g[...] = np.abs(g) * np.sign(g[0])
        g[0] *= -10
    return [(g,) for g in found]


def ties(random: np.random.Generator) -> list[Arguments]:
    """Each has a tie of 1 and -1, a gradient of 0 that decides nothing, and one of zeros alone."""
    found = []
    for column in range(3):
        a, b = np.abs(tenths(random, 2, dtype=np.float64))
        found.append((np.roll([[a, b, 0], [-b, 0, 0]], column, axis=1),))
    return found


MAJORITY_17 = Exercise("17.5", majority, relative=1e-9)
MAJORITY_17.part("an odd number of ranks", 1, outvoted)
MAJORITY_17.part("ties and zeros", 2, ties)
MAJORITY_17.mistake("a gradient of 0 votes 0, not plus")(zero_votes)
MAJORITY_17.mistake("where the votes tie the result is 0")(tie_is_plus)
MAJORITY_17.mistake("each rank has one vote: sum the signs, not the gradients")(sign_of_sum)
MAJORITY_17.mistake("the magnitude is a sum over the ranks: do not divide by p")(divided_by_p)
MAJORITY_17.mistake("the result has a magnitude, not only a sign")(votes_alone)
MAJORITY_17.mistake("take the sign of the summed votes: the majority's size does not count")(
    sum_of_votes
)
