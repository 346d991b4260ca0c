"""Lesson 14's claims: what each level of the cache gains, and when."""

from kit.claims import GAIN, LIMIT, Claim


def epoch_s(result: dict, name: str, epoch: int) -> float:
    """Seconds of an epoch with this cache and the emulated store."""
    store = result["rows"][0]["store"]
    rows = [row for row in result["rows"] if (row["store"], row["name"]) == (store, name)]
    return rows[0]["epochs"][epoch]["seconds"]


def largest_error(result: dict) -> float:
    """Of the predicted epochs after the first that take at least 50 ms."""
    epochs = [epoch for row in result["rows"] for epoch in row["epochs"][1:]]
    return max(
        abs(epoch["predicted_s"] / epoch["seconds"] - 1)
        for epoch in epochs
        if epoch["seconds"] >= 0.05
    )


BUSY = "other load: a cache saves waiting, and takes processor time"
CLAIMS = (
    Claim(
        "The first epoch takes within a tenth as long as without a cache: every sample is a miss.",
        lambda r: (epoch_s(r, "memory", 0), "<", epoch_s(r, "no cache", 0), 1.1),
        BUSY,
        kind=LIMIT,
    ),
    Claim(
        "With the whole shard in memory, later epochs take less than a tenth of the time.",
        lambda r: (epoch_s(r, "memory", 1), "<", epoch_s(r, "no cache", 1), 0.1),
        BUSY,
        kind=GAIN,
    ),
    Claim(
        "With half of it in memory, later epochs take over 0.45 of the time: misses dominate.",
        lambda r: (epoch_s(r, "half memory", 1), ">", epoch_s(r, "no cache", 1), 0.45),
        BUSY,
    ),
    Claim(
        "A disk below that half makes later epochs less than a third as long as without the disk.",
        lambda r: (epoch_s(r, "half memory + disk", 1), "<", epoch_s(r, "half memory", 1), 1 / 3),
        "how slow the store is next to the disk",
    ),
    Claim(
        "Epochs after the first that take 50 ms or more are predicted within a quarter.",
        lambda r: (largest_error(r), "<", 0.25),
        BUSY,
    ),
    Claim(
        "The ranks of a node share one copy: together they hold less than 1.1 times the cache.",
        lambda r: (max(m["Pss"] / m["limit"] for m in r["memory"] if m), "<", 1.1),
        "whether the system says how much memory is shared",
    ),
)
