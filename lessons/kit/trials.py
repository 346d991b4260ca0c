"""Several runs of the same training, each of them the epochs of flow.learn: in words, and one kind against another."""

import statistics


def told(runs: list[list[dict]]) -> str:
    """Mean loss and accuracy at the end, and the range of the accuracies."""
    last = [rows[-1] for rows in runs]
    right = [100 * (row["accuracy"] or 0) for row in last]
    spread = f" ({min(right):.1f} to {max(right):.1f})" if len(right) > 1 else ""
    return f"loss {statistics.mean(row['loss'] for row in last):.4f}, {statistics.mean(right):.1f} % right{spread}"


def interval(some, others) -> str:
    """Mean of the paired differences in accuracy and its 95 % interval (Student's t), in points."""
    differences = [100 * (a[-1]["accuracy"] - b[-1]["accuracy"]) for a, b in zip(some, others)]
    half = t_95(len(differences) - 1) * statistics.stdev(differences) / len(differences) ** 0.5
    mean = statistics.mean(differences)
    return f"{mean:+.2f} points, 95 % interval {mean - half:+.2f} to {mean + half:+.2f}"


def t_95(freedom: int) -> float:
    """97.5 % quantile of Student's t (tables; beyond 30 nearly normal)."""
    table = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 9: 2.26, 14: 2.145, 29: 2.045}
    return next((table[f] for f in sorted(table, reverse=True) if f <= freedom), 1.96)
