"""What lesson 09 says of its numbers."""

from kit.claims import GAIN, LIMIT, NOISE, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at, best, where
from lab.lazy.predicted_places import either, predicted
from lab.merge import far
from lab.merge.curves import BEST, IB, RULE, SYNC, TEN, WFBP, efficiency
from lab.merge.greedy_misses import BEST_FOR, missed_share
from lab.merge.picture import name_of
from lab.merge.steps import EAGER, EXACT, GREEDY
from lab.merge.yours import YOURS

SLOW, FAST = ("resnet50", "mgwfbp-10gbe"), ("resnet50", "v100-56gbit")


def step(name: str, network: str = "ResNet-50"):
    """The timing of a step with this exchange; "best theta": the fastest of the sweep."""

    def timing(r: dict) -> dict | None:
        emulated = r["regime"]["like"] != "this-machine"
        found = where(r["networks"].values(), title=network) if emulated else []
        rows = found[0]["rows"] if found else []
        if name == "best theta":
            return at(best((row for row in rows if row["theta"] is not None), "timing"), "timing")
        return at(rows, {"name": name}, "timing")

    return timing


def alexnet(r: dict) -> list:
    """Eager calls and the best merge for AlexNet: measured if this run did, else predicted."""
    measured = [step(name, "AlexNet")(r) for name in (EAGER, EXACT)]
    return either(r, measured, ("alexnet", "mgwfbp-10gbe"), ("eager", "exact"))


def trained(name: str) -> tuple:
    """Where a result has the timing of a step of the real training with this grouping."""
    return "training", "rows", name, "timing"


def scaling(cluster: str, size: int, name: str, end: int):
    """The efficiency that is predicted there for a system: the low (0) or the high (1) end."""
    return lambda r: efficiency(r, cluster, name, size, end)


BEST_OF_THREE = "counterexample", {"name": EXACT}, "timing"
CLAIMS = (
    Claim(
        "Without a sweep, the best merge is within a tenth of the sweep's best theta (ResNet-50).",
        (step(EXACT), "<", step("best theta"), 1.1),
        expected=NOISE,
        unless="ready times or call times that were measured at another moment",
    ),
    Claim(
        "Eager calls take at least 1.3 times as long as the best merge.",
        (step(EAGER), ">", step(EXACT), 1.3),
        unless="latencies that are short next to the bytes, or that backward hides",
        kind=GAIN,
    ),
    Claim(
        "Three gradients, ready after 1, 2 and 4 (a = 2, b = 1), refute the greedy rule: it takes "
        "at least 1.05 times as long as the best merge (predicted: 9 to 8).",
        (("counterexample", {"name": GREEDY}, "timing"), ">", BEST_OF_THREE, 1.05),
        expected=NOISE,
        unless="waits of ranks that share cores",
    ),
    Claim(
        "The greedy rule's groups do not beat the best merge by more than a tenth.",
        (step(EXACT), "<", step(GREEDY), 1.1),
        unless="ready times or call times that were measured at another moment",
        expected=NOISE,
    ),
    Claim(
        "Merging gains little over a theta that is known to be best: less than a tenth.",
        (step("best theta"), "<", step(EXACT), 1.1),
        unless="a sweep without a theta near the best one",
        kind=LIMIT,
    ),
    Claim(
        f"With the latency of a ring on {far.RANKS} ranks, which is slept, the greedy rule takes "
        "at least 1.05 times as long as the best merge.",
        (lambda r: far.timing(r, GREEDY), ">", lambda r: far.timing(r, EXACT), 1.05),
        unless="a latency that is short next to the bytes",
    ),
    Claim(
        "There the theta that is predicted best here, of those tried, takes at least 1.05 times as "
        "long as the best merge.",
        (lambda r: far.timing(r, "theta"), ">", lambda r: far.timing(r, EXACT), 1.05),
        unless="a latency that is short next to the bytes",
    ),
    Claim(
        "The greedy rule misses the best merge of ResNet-50 on 10 Gbit/s (computed for 8 ranks).",
        (predicted(*SLOW, "greedy"), ">", predicted(*SLOW, "exact")),
        unless="another pace or latency",
        timed=False,
    ),
    Claim(
        "The greedy rule is optimal for two gradients, for a = 0, for b = 0, if all gradients are "
        "ready within one latency, and if each is sent before the next is ready (computed).",
        lambda r: (missed_share(r, BEST_FOR), "<", 1e-4),
        unless="a bug: the solutions prove the case of two gradients",
        timed=False,
    ),
    Claim(
        "On 56 Gbit/s merging gains less than a hundredth over eager calls: backward hides both "
        "(ResNet-50 on 4 ranks, predicted).",
        (predicted(*FAST, "eager"), "<", predicted(*FAST, "exact"), 1.01),
        unless="latencies that backward does not hide",
        timed=False,
    ),
    Claim(
        "AlexNet's 26 gradients are limited by the bandwidth: eager calls take less than 1.2 times "
        "as long as the best merge (predicted for 10 Gbit/s; measured with --network alexnet).",
        lambda r: (alexnet(r)[0], "<", alexnet(r)[1], 1.2),
        unless="latencies that are long next to the bytes",
    ),
    Claim(
        "A real training with MG-WFBP's groups, which ends with the bits of eager calls, takes at "
        "most 0.8 times as long a step.",
        (trained(GREEDY), "<", trained(EAGER), 0.8),
        unless="latencies that are short next to computing",
    ),
    Claim(
        "On 64 GPUs with 10 Gbit/s MG-WFBP's greedy rule gains nothing over one call (SyncEASGD): "
        "it merges everything (ResNet-50, predicted).",
        (scaling(TEN, 64, RULE, 1), "<", scaling(TEN, 64, SYNC, 0), 1.001),
        unless="a shorter latency, or longer waits between gradients",
        timed=False,
    ),
    Claim(
        "The best merge is at least 1.2 times as efficient there (predicted).",
        (scaling(TEN, 64, BEST, 0), ">", scaling(TEN, 64, RULE, 1), 1.2),
        unless="a shorter latency, or longer waits between gradients",
        timed=False,
    ),
    Claim(
        "On 2048 GPUs with 56 Gbit/s eager calls (WFBP) are at most 0.1 times as efficient as "
        "MG-WFBP (predicted).",
        (scaling(IB, 2048, WFBP, 1), "<", scaling(IB, 2048, RULE, 0), 0.1),
        unless="shorter latencies",
        timed=False,
    ),
)


def rows(r: dict) -> list[Row]:
    """Eager calls, the best theta, one call and both merges of the first network."""
    k, (network, *_) = r["regime"]["dilation"], r["networks"].values()
    by_name = {row["name"]: row for row in network["rows"]}
    swept = [row for row in network["rows"] if row["theta"] is not None]
    theta = best(swept, "timing")["name"]
    found = []
    for name in dict.fromkeys([EAGER, theta, "one call", GREEDY, EXACT]):
        row = by_name[name]
        calls = "" if name == "one call" else f", {row['calls']} call{'s' * (row['calls'] > 1)}"
        found.append(
            Row(name_of(name) + calls, row["timing"]["median_s"] / k, row["predicted_s"] / k)
        )
    return found


def answer(r: dict) -> str:
    """Calls of the best merge, and whether a theta makes the same groups."""
    network = next(iter(r["networks"].values()))
    theta, gradients = network["theta"], len(network["gradients"])
    calls, low, high = len(theta["counts"]), float(theta["low"]), float(theta["high"])
    same = f"{'a' if low < high else 'no'} theta makes the same groups"
    return f"{calls} call{'s' * (calls > 1)} for {gradients} gradients; {same}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="How many calls a step does the best merge make?",
    guess=Guess("20 calls"),
    answer=answer,
    picture="The time of a training step with eager calls, with several thetas, with one call "
    "and with merged gradients, measured and predicted.",
    yours=YOURS,
)
