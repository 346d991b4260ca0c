"""The search for a learning rate, with independent trainings distributed over the ranks.

    tried = rate_search.search(run, cells, train, rounds=2)
    rate_search.best(tried[cell])      the exponent: rate = centre 2^exponent

`train(cell, exponent, fold, seed)` returns {"accuracy", "loss"}.
"""

from kit.trials import deal, mean_and_half

TUNED_ON = (0, 1)  # fold and seed; the comparison uses other folds


def search(run, cells: list, train, rounds: int) -> dict:
    """{cell: {exponent: result}}: four rates a factor of 4 apart, then `rounds` of `proposals`."""
    tried = {cell: {} for cell in cells}
    for _ in range(rounds + 1):
        jobs = [(cell, e, *TUNED_ON) for cell in cells for e in proposals(tried[cell])]
        for (cell, e, *_), result in zip(jobs, deal(run, jobs, train)):
            tried[cell][e] = result
    return tried


def proposals(tried: dict) -> list[int]:
    """Exponents to try next: beyond the best one if it is at the edge, else its neighbours."""
    if not tried:
        return [-4, -2, 0, 2]
    at = best(tried)
    if at in (min(tried), max(tried)):
        return [at - 2 if at == min(tried) else at + 2]
    return [e for e in (at - 1, at + 1) if e not in tried]


def best(tried: dict) -> int:
    """The exponent with the highest accuracy; among equals the one with the lowest loss."""
    return max(tried, key=lambda e: (tried[e]["accuracy"], -tried[e]["loss"]))


def interval(values: list[float]) -> dict:
    """Mean and half of its 95 % interval (Student's t); the half is None for a single value."""
    mean, half = mean_and_half(values)
    return {"mean": mean, "half": half, "values": values}


def in_words(found: dict) -> str:
    """A result of `interval`: mean +- half."""
    spread = f" +- {found['half']:.1f}" if found["half"] is not None else ""
    return f"{found['mean']:.1f}{spread}"
