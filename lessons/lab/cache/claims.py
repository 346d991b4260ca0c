"""What lesson 14 says of its numbers: what each level of the cache gains, and when."""

from statistics import median

from kit.claims import GAIN, LIMIT, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at, ratio, summary
from lab.cache.yours import YOURS


def stores(result: dict) -> list[str]:
    """The slow store, which is emulated, if every rank has it; then the folder of another node."""
    return list(dict.fromkeys(row["store"] for row in result["rows"]))


def row(result: dict, name: str, store: int = 0) -> dict:
    """The row of this cache and this one of the stores."""
    return at(result, "rows", {"store": stores(result)[store], "name": name})


def epochs(result: dict, name: str, store: int = 0) -> list[dict]:
    return row(result, name, store)["epochs"]


def first(result: dict, name: str) -> dict:
    """The timing of first epochs with this cache."""
    return summary(row(result, name)["first_s"])


def first_epochs(worst, relation: str, factor: float):
    """Compares the longest (max) or shortest (min) first epoch of all caches, by its median."""

    def compare(result: dict) -> tuple | None:
        store = stores(result)[0]
        if "EMULATED" not in store:
            return None
        names = [row["name"] for row in result["rows"] if row["store"] == store]
        cached = [first(result, name) for name in names if name != "no cache"]
        found = worst(cached, key=lambda timing: timing["median_s"])
        return found, relation, first(result, "no cache"), factor

    return compare


def later(result: dict, name: str, store: int = 0) -> dict:
    """The timing of later epochs with this cache, as in both figures."""
    return summary([epoch["seconds"] for epoch in epochs(result, name, store)[1:]])


def later_s(result: dict, name: str, store: int = 0) -> float:
    """Their median."""
    return later(result, name, store)["median_s"]


def of_files(result: dict) -> tuple | None:
    """Compares what files on disk gain with the second store and with the first."""
    if len(stores(result)) < 2:
        return None
    slow, folder = (
        ratio(later(result, "no cache", i), to=later(result, "disk", i)) for i in (0, 1)
    )
    return folder, "<", slow


def all_later(result: dict) -> list[tuple]:
    """(measured, predicted) seconds of every epoch after the first, of both figures."""
    found = [
        (epoch["seconds"], epoch["predicted_s"])
        for row in result["rows"]
        for epoch in row["epochs"][1:]
    ]
    swept = [row[name] for row in result["sweep"] for name in ("store", "disk")]
    return found + [(seconds, row["predicted_s"]) for row in swept for seconds in row["seconds"]]


def largest_factor(result: dict) -> float:
    """Between later epochs that take at least LONG_S and their predictions, either way."""
    long = [(seconds, predicted) for seconds, predicted in all_later(result) if seconds >= LONG_S]
    return max(max(pair) / min(pair) for pair in long)


def most_over(result: dict) -> float:
    """How many times its prediction a later epoch takes, at most."""
    return max(seconds / predicted for seconds, predicted in all_later(result))


def waited(name: str, epoch: int) -> tuple:
    """Where a result has how long this training waits for the images of an epoch."""
    return "training", name, epoch, "waited_s"


LONG_S = 0.1
BUSY = "other load: a cache saves waiting, and takes processor time"
CLAIMS = (
    Claim(
        "In the first epoch all are misses, so a cache gains nothing: from the slow store it takes "
        "0.95 to 1.15 times as long as without one.",
        first_epochs(max, "<", 1.15),
        BUSY,
        kind=LIMIT,
        control=first_epochs(min, ">", 0.95),
    ),
    Claim(
        "With the shard in memory, later epochs take at most 0.02 times as long as without a "
        "cache.",
        lambda r: (later(r, "memory"), "<", later(r, "no cache"), 0.02),
        BUSY,
        kind=GAIN,
    ),
    Claim(
        "With half in memory, later epochs take 0.45 to 0.7 times as long: half are misses, which "
        "dominate.",
        lambda r: (later(r, "half memory"), ">", later(r, "no cache"), 0.45),
        BUSY,
        control=lambda r: (later(r, "half memory"), "<", later(r, "no cache"), 0.7),
    ),
    Claim(
        "Later epochs with half on disk take at most 0.4 times as long as with it in the slow "
        "store.",
        lambda r: (later(r, "half memory + disk"), "<", later(r, "half memory"), 0.4),
        "how slow the store is next to the disk",
    ),
    Claim(
        "Files on disk gain less over the folder of another node than over the slow store.",
        of_files,
        "how fast the folder of another node is",
    ),
    Claim(
        "From 100 ms on, a later epoch's prediction misses by at most a factor of 1.6. Shorter "
        "ones take at most 3 times as long as predicted.",
        (largest_factor, "<", 1.0, 1.6),
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
        "In training from the slow store, the second epoch waits for images at most 0.1 times as "
        "long with the shard in memory.",
        (waited("memory", 1), "<", waited("no cache", 1), 0.1),
        BUSY,
    ),
    Claim(
        "A batch loaded ahead shortens the wait of the first epoch, too: to at most 0.5 times.",
        (waited("memory, prefetch", 0), "<", waited("memory", 0), 0.5),
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
