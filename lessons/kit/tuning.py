"""Many trainings that have nothing to do with each other, dealt out to the ranks; and one search for the rate for all.

    tried = tuning.search(run, cells, train, rounds=2)     train(cell, exponent, fold, seed) -> {"accuracy", "loss"}
    tuning.best(tried[cell])                               the exponent: rate = centre 2^exponent
    results = tuning.deal(run, jobs, function)             [function(*job) for job in jobs], each on one of the ranks
"""

import statistics

from kit.trials import t_95

TUNED_ON = (0, 1)  # fold and seed; the comparison is on other folds


def deal(run, jobs: list[tuple], function) -> list:
    """Job i is done by rank i mod p; every rank gets all results. Collective."""
    mine = {i: function(*job) for i, job in list(enumerate(jobs))[run.rank :: run.size]}
    found = {i: result for results in run.plain.allgather(mine) for i, result in results.items()}
    return [found[i] for i in range(len(jobs))]


def search(run, cells: list, train, rounds: int) -> dict:
    """{cell: {exponent: result}}: four rates a factor 4 apart, then `rounds` times what `proposals` says."""
    tried = {cell: {} for cell in cells}
    for _ in range(rounds + 1):
        jobs = [(cell, e, *TUNED_ON) for cell in cells for e in proposals(tried[cell])]
        for (cell, e, *_), result in zip(jobs, deal(run, jobs, train)):
            tried[cell][e] = result
    return tried


def proposals(tried: dict) -> list[int]:
    """Which exponents to try next: beyond the best one if it lies at the edge, else both its neighbours."""
    if not tried:
        return [-4, -2, 0, 2]
    at = best(tried)
    if at in (min(tried), max(tried)):
        return [at - 2 if at == min(tried) else at + 2]
    return [e for e in (at - 1, at + 1) if e not in tried]


def best(tried: dict) -> int:
    """The exponent with the most right answers; of equals the one with the lower training loss."""
    return max(tried, key=lambda e: (tried[e]["accuracy"], -tried[e]["loss"]))


def interval(values: list[float]) -> dict:
    """Mean, and half of its 95 % interval (Student's t); None where there is one value only."""
    half = t_95(len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
    return {"mean": statistics.mean(values), "half": half, "values": values}


def told(found: dict) -> str:
    return f"{found['mean']:.1f}" + (f" +- {found['half']:.1f}" if found["half"] is not None else "")
