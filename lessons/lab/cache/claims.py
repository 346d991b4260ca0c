"""What lesson 14 says of its numbers: what each level of the cache gains, and when."""

from statistics import median

from kit.claims import GAIN, LIMIT, Claim
from kit.reveal import Reveal, Row


def epochs(result: dict, name: str) -> list[dict]:
    """The epochs with this cache and the first store, the emulated one if every rank has it."""
    store = result["rows"][0]["store"]
    rows = [row for row in result["rows"] if (row["store"], row["name"]) == (store, name)]
    return rows[0]["epochs"]


def epoch_s(result: dict, name: str, epoch: int) -> float:
    """Seconds of an epoch with this cache."""
    return epochs(result, name)[epoch]["seconds"]


def largest_error(result: dict) -> float:
    """Of the predicted epochs after the first that take at least 50 ms."""
    later = [epoch for row in result["rows"] for epoch in row["epochs"][1:]]
    return max(
        abs(epoch["predicted_s"] / epoch["seconds"] - 1)
        for epoch in later
        if epoch["seconds"] >= 0.05
    )


BUSY = "other load: a cache saves waiting, and takes processor time"
CLAIMS = (
    Claim(
        "The first epoch takes at most 1.1 times as long as without a cache: all are misses.",
        lambda r: (epoch_s(r, "memory", 0), "<", epoch_s(r, "no cache", 0), 1.1),
        BUSY,
        kind=LIMIT,
    ),
    Claim(
        "With the shard in memory, later epochs take at most 0.1 times as long as without a cache.",
        lambda r: (epoch_s(r, "memory", 1), "<", epoch_s(r, "no cache", 1), 0.1),
        BUSY,
        kind=GAIN,
    ),
    Claim(
        "With half in memory, later epochs take at least 0.45 times as long: misses dominate.",
        lambda r: (epoch_s(r, "half memory", 1), ">", epoch_s(r, "no cache", 1), 0.45),
        BUSY,
    ),
    Claim(
        "Later epochs with half on disk take at most 1/3 times as long as with it in the slow "
        "store.",
        lambda r: (epoch_s(r, "half memory + disk", 1), "<", epoch_s(r, "half memory", 1), 1 / 3),
        "how slow the store is next to the disk",
    ),
    Claim(
        "The error of a later epoch's prediction is at most 0.25 times its time, from 50 ms on.",
        lambda r: (largest_error(r), "<", 1.0, 0.25),
        BUSY,
    ),
    Claim(
        "The ranks of a node share one copy: together they use at most 1.1 times its limit.",
        lambda r: (max(m["Pss"] / m["limit"] for m in r["memory"] if m), "<", 1.0, 1.1),
        "whether the system says how much memory is shared",
    ),
)


SHOWN = {  # rows: the cache, and which epoch
    "first epoch: all from the store": ("memory", 0),
    "second, without a cache": ("no cache", 1),
    "second, half in memory": ("half memory", 1),
    "second, half in memory, rest on disk": ("half memory + disk", 1),
    "second, all in memory": ("memory", 1),
}


def rows(r: dict) -> list[Row]:
    """Seconds of epochs."""
    found = [(what, epochs(r, name)[number]) for what, (name, number) in SHOWN.items()]
    return [Row(what, epoch["seconds"], epoch["predicted_s"]) for what, epoch in found]


def answer(r: dict) -> str:
    half = epoch_s(r, "no cache", 1) / epoch_s(r, "half memory", 1)
    text = f"{half:.1f} times as fast"
    swept = {row["share"]: median(row["store"]["seconds"]) for row in r["sweep"]}
    if 0.9 in swept:
        text += f"; with nine tenths {swept[0.0] / swept[0.9]:.1f} times"
    return text


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="Memory holds half of the shard: how many times as fast is the second epoch?",
    answer=answer,
    picture="Seconds of the first and of later epochs with each cache; how many times as fast as "
    "without a cache later epochs are, against the share of the shard in memory.",
)
