"""What the exercises of this lesson share."""

FEW = "one gradient, no gradient"


def faster(random, *cases):
    """The cases, and all of them with times that are multiplied: no decision changes.

    A case is (ready_s, nbytes, a_s, b_s_per_byte).
    """
    return [
        ([k * t for t in ready_s], nbytes, k * a_s, k * b_s_per_byte)
        for k in (1.0, float(random.integers(2, 999)))
        for ready_s, nbytes, a_s, b_s_per_byte in cases
    ]


def times(gaps):
    """Gaps between ready times -> ready times, the first one 3."""
    return [3.0 + sum(gaps[:i]) for i in range(len(gaps) + 1)]


def few(random):
    """[(ready_s, nbytes)] of one gradient, none, and one that is drawn."""
    return [([5.0], [3]), ([], []), (random.uniform(2.0, 9.0, 1).tolist(), sizes(random, 1))]


def sizes(random, count):
    return random.integers(1, 20, count).tolist()
