"""What lesson 14 says of its numbers: what each level of the cache gains, and when."""

from statistics import median

from kit.claims import GAIN, LIMIT, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at, summary
from lab.cache.yours import YOURS


def stores(result: dict) -> list[str]:
    """The slow store, the emulated one if every rank has it, then those that nodes have."""
    return list(dict.fromkeys(row["store"] for row in result["rows"]))


def row(result: dict, name: str, store: int = 0) -> dict:
    """The row of this cache and this one of the stores."""
    return at(result, "rows", {"store": stores(result)[store], "name": name})


def epochs(result: dict, name: str, store: int = 0) -> list[dict]:
    return row(result, name, store)["epochs"]


def first(result: dict, name: str) -> dict:
    """The timing of first epochs with this cache."""
    return summary(row(result, name)["first_s"])


def first_epochs(relation: str, factor: float):
    """Compares first epochs, if the first store is the emulated one."""

    def compare(result: dict) -> tuple | None:
        if "EMULATED" not in result["rows"][0]["store"]:
            return None
        return first(result, "memory"), relation, first(result, "no cache"), factor

    return compare


def later_s(result: dict, name: str, store: int = 0) -> float:
    """Seconds of the later epochs with this cache, the median as in both figures."""
    return median(epoch["seconds"] for epoch in epochs(result, name, store)[1:])


def of_files(result: dict) -> tuple | None:
    """Compares what files on disk gain from the second store and from the first."""
    if len(stores(result)) < 2:
        return None
    slow, fast = (later_s(result, "no cache", i) / later_s(result, "disk", i) for i in (0, 1))
    return fast, "<", slow, 0.5


def later(result: dict) -> list[tuple]:
    """(measured, predicted) seconds of every epoch after the first, of both figures."""
    found = [
        (epoch["seconds"], epoch["predicted_s"])
        for row in result["rows"]
        for epoch in row["epochs"][1:]
    ]
    swept = [row[name] for row in result["sweep"] for name in ("store", "disk")]
    return found + [(seconds, row["predicted_s"]) for row in swept for seconds in row["seconds"]]


def largest_error(result: dict) -> float:
    """Of the later epochs that take at least 50 ms."""
    return max(
        abs(predicted / seconds - 1) for seconds, predicted in later(result) if seconds >= 0.05
    )


def most_over(result: dict) -> float:
    """How many times its prediction a later epoch takes, at most."""
    return max(seconds / predicted for seconds, predicted in later(result))


def waited(name: str, epoch: int) -> tuple:
    """Where a result has how long this training waits for the images of an epoch."""
    return "training", name, epoch, "waited_s"


BUSY = "other load: a cache saves waiting, and takes processor time"
CLAIMS = (
    Claim(
        "From the emulated slow store the first epoch takes 0.9 to 1.1 times as long as without a "
        "cache: all are misses.",
        first_epochs("<", 1.1),
        BUSY,
        kind=LIMIT,
        control=first_epochs(">", 0.9),
    ),
    Claim(
        "With the shard in memory, later epochs take at most 0.1 times as long as without a cache.",
        lambda r: (later_s(r, "memory"), "<", later_s(r, "no cache"), 0.1),
        BUSY,
        kind=GAIN,
    ),
    Claim(
        "With half in memory, later epochs take 0.45 to 0.7 times as long: half are misses, which "
        "dominate.",
        lambda r: (later_s(r, "half memory"), ">", later_s(r, "no cache"), 0.45),
        BUSY,
        control=lambda r: (later_s(r, "half memory"), "<", later_s(r, "no cache"), 0.7),
    ),
    Claim(
        "Later epochs with half on disk take at most half as long as with it in the slow store.",
        lambda r: (later_s(r, "half memory + disk"), "<", later_s(r, "half memory"), 0.5),
        "how slow the store is next to the disk",
    ),
    Claim(
        "From a faster store, the folder of another node, files on disk gain at most half as much "
        "as from the slow one.",
        of_files,
        "how fast the other store is",
    ),
    Claim(
        "The error of a later epoch's prediction is at most half of its time, from 50 ms on. "
        "Shorter ones take at most 3 times as long as predicted.",
        (largest_error, "<", 1.0, 0.5),
        BUSY,
        control=(most_over, "<", 1.0, 3.0),
    ),
    Claim(
        "The ranks of a node share one copy: together they use at most 1.1 times its limit.",
        lambda r: (max(m["Pss"] / m["limit"] for m in r["memory"] if m), "<", 1.0, 1.1),
        "whether the system says how much memory is shared",
        timed=False,
    ),
    Claim(
        "In training from the slow store, the second epoch waits for images at most 0.2 times as "
        "long with the shard in memory.",
        (waited("memory", 1), "<", waited("no cache", 1), 0.2),
        BUSY,
    ),
    Claim(
        "A batch loaded ahead shortens the wait of the first epoch, too: to at most 0.75 times.",
        (waited("memory, prefetch", 0), "<", waited("memory", 0), 0.75),
        "steps that are shorter than loading",
    ),
)


SHOWN = {  # rows: the cache
    "later epochs without a cache": "no cache",
    "later, half in memory": "half memory",
    "later, half in memory, rest on disk": "half memory + disk",
    "later, all in memory": "memory",
}


def rows(r: dict) -> list[Row]:
    """Seconds of epochs."""
    predicted_s = epochs(r, "memory")[0]["predicted_s"]
    found = [Row("first epoch: all from the store", first(r, "memory"), predicted_s)]
    for what, name in SHOWN.items():
        found.append(Row(what, later_s(r, name), epochs(r, name)[1]["predicted_s"]))
    return found


def answer(r: dict) -> str:
    half = later_s(r, "no cache") / later_s(r, "half memory")
    text = f"{half:.1f} times as fast"
    swept = {row["share"]: median(row["store"]["seconds"]) for row in r["sweep"]}
    if 0.9 in swept:
        text += f"; with nine tenths {swept[0.0] / swept[0.9]:.1f} times"
    return text


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="Memory holds half of the shard: how many times as fast is the second epoch?",
    guess=Guess("3 times"),
    answer=answer,
    picture="Seconds of the first and of later epochs with each cache; how many times as fast as "
    "without a cache later epochs are, against the share of the shard in memory.",
    yours=YOURS,
)
