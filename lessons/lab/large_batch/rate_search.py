"""The search for a learning rate, with independent trainings distributed over the ranks.

    tried = rate_search.search(run, cells, train, rounds=2)
    rate_search.best(tried[cell])      the exponent: rate = centre 2^exponent

`train(cell, exponent, fold, seed)` returns {"accuracy", "loss"}, the loss of the last epoch.
"""

from kit.trials import deal, mean_and_half

TUNED_ON = (0, 1)  # fold and seed; the comparison uses other folds


def search(run, cells: list, train, rounds: int) -> dict:
    """{cell: {exponent: result}}: two rates a factor of 4 apart, then `rounds` of `proposals`."""
    tried = {cell: {} for cell in cells}
    for _ in range(rounds + 1):
        jobs = [(cell, e, *TUNED_ON) for cell in cells for e in proposals(tried[cell])]
        for (cell, e, *_), result in zip(jobs, deal(run, jobs, train)):
            tried[cell][e] = result
    return tried


def proposals(tried: dict) -> list[int]:
    """Exponents to try next: the best one's neighbours, a factor of 2 away, as far as not tried."""
    if not tried:
        return [-2, 0]
    at = best(tried)
    return [e for e in (at - 1, at + 1) if e not in tried]


def best(tried: dict) -> int:
    """The exponent with the lowest loss: its noise is less than that of a few hundred images."""
    return min(tried, key=lambda e: tried[e]["loss"])


def interval(values: list[float]) -> dict:
    """Mean and half of its 95 % interval (Student's t); the half is None for a single value."""
    mean, half = mean_and_half(values)
    return {"mean": mean, "half": half, "values": values}


def in_words(found: dict) -> str:
    """A result of `interval`: mean +- half."""
    spread = f" +- {found['half']:.1f}" if found["half"] is not None else ""
    return f"{found['mean']:.1f}{spread}"
