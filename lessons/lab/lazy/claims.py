"""What lesson 03 says of its numbers."""

import math

from kit.claims import GAIN, LIMIT, NOISE, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import at, best, level, where
from kit.words import count, threshold
from lab.lazy.predicted_places import either, predicted
from lab.lazy.steps import KINDS
from lab.lazy.yours import YOURS

FAST = "resnet50", "v100-56gbit"
INF = math.inf
TIES = 3  # named in the answer


def step(kind: str, theta="best", network: str = "ResNet-50"):
    """The timing of a step with this theta: one of those tried, the best or the "predicted" one."""

    def timing(r: dict) -> dict | None:
        rows = r.get("rows", []) if r.get("network") == network else []
        if theta == "best":
            return at(best(rows, kind), kind)
        tried = at(r, "best", kind, "predicted") if theta == "predicted" else theta
        return at(rows, {"theta": tried}, kind)

    return timing


def alexnet(r: dict) -> list:
    """Eager calls and the best theta for AlexNet: measured if this run did, else predicted."""
    measured = [step("overlapped", theta, "AlexNet")(r) for theta in (0, "best")]
    return either(r, measured, ("alexnet", "mgwfbp-10gbe"), ("eager", "best theta"))


CLAIMS = (
    Claim(
        "With overlap, eager calls take at least 1.3 times as long as the best theta (ResNet-50).",
        (step("overlapped", 0), ">", step("overlapped"), 1.3),
        unless="latencies that are short next to the bytes, or that backward hides",
        kind=GAIN,
    ),
    Claim(
        "With overlap, one call at the end takes longer than the best theta: it hides nothing, so "
        "it takes at least 0.9 times as long as without overlap.",
        (step("overlapped", INF), ">", step("overlapped")),
        unless="a backward pass that is short next to the exchange",
        control=(step("overlapped", INF), ">", step("plain", INF), 0.9),
    ),
    Claim(
        "Without overlap, eager calls take longer than one call.",
        (step("plain", 0), ">", step("plain", INF)),
        unless="latencies that are short next to the bytes",
    ),
    Claim(
        "Without overlap, one call gains less than a twentieth over theta = 16 MiB (6 calls).",
        (step("plain", 2**24), "<", step("plain", INF), 1.05),
        unless="a latency of a call that is long next to all bytes",
        expected=NOISE,
    ),
    Claim(
        "The theta that is predicted to be best is at most a tenth slower than the best one.",
        (step("overlapped", "predicted"), "<", step("overlapped"), 1.1),
        unless="processor time that the prediction leaves out",
        expected=NOISE,
    ),
    Claim(
        "Lazy allreduce saves no bytes: a rank sends as many in one call as in eager calls.",
        (("rows", {"theta": INF}, "bytes"), ">", ("rows", {"theta": 0}, "bytes"), 0.999),
        unless="tensors with fewer elements than ranks",
        timed=False,
    ),
    Claim(
        "AlexNet's 26 gradients on few ranks, PREDICTED for 10 Gbit/s (--network alexnet measures "
        "it): eager calls take less than 1.2 times as long as the best theta.",
        lambda r: (alexnet(r)[0], "<", alexnet(r)[1], 1.2),
        unless="latencies that are long next to the bytes",
        kind=LIMIT,
    ),
    Claim(
        "On 56 Gbit/s backward hides eager calls too: the best theta gains less than a hundredth "
        "(ResNet-50 on 4 ranks, predicted).",
        (predicted(*FAST, "eager"), "<", predicted(*FAST, "best theta"), 1.01),
        unless="latencies that backward does not hide",
        timed=False,
    ),
)


def rows(r: dict) -> list[Row]:
    """Eager, best and one call, in the cluster's time; on this machine those of the sweep."""
    k, theta = r["regime"]["dilation"], float(best(swept(r), "overlapped")["theta"])
    wanted = [(0, "plain"), (INF, "plain"), (0, "overlapped"), (theta, "overlapped")]
    found = []
    for theta, kind in dict.fromkeys([*wanted, (INF, "overlapped")]):
        for row in where(swept(r), theta=theta):
            if row[kind]:
                times_s = row[kind]["median_s"] / k, row["predicted"][kind] / k
                found.append(Row(f"{name_of(theta)}, {KINDS[kind]}", *times_s))
    return found


def swept(r: dict) -> list[dict]:
    """The rows of all thetas; on this machine those of the network that is computed."""
    return r["rows"] if "rows" in r else r["sweep"]["rows"]


def name_of(theta: float) -> str:
    names = {0.0: "eager", INF: "one call"}
    return names.get(theta, f"theta = {threshold(theta)}")


def answer(r: dict) -> str:
    """The best theta, its calls, and the network that ran."""
    if r["ranks"] == 1:
        return "nothing, because there is one rank"
    fastest = best(swept(r), "overlapped")
    name = name_of(float(fastest["theta"]))
    calls = "" if name == "one call" else f", {count(fastest['calls'], 'call')} a step"
    if len(swept(r)) == 1:
        return f"{name}{calls}: no other theta ran"
    ties = [row for row in level(swept(r), "overlapped") if row is not fastest]
    ties = [name_of(float(row["theta"])).removeprefix("theta = ") for row in ties]
    more = f" and {len(ties) - TIES} more" if len(ties) > TIES else ""
    name += f" (of {len(swept(r))} that ran)" * bool(at(r, "options", "theta"))
    level_with = f"; within noise: {', '.join(ties[:TIES])}{more}" if ties else ""
    return f"{name}{calls}, for {r.get('network') or r['trained']}{level_with}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="Which theta gives the shortest step with overlap?",
    guess=Guess("64 KiB"),
    answer=answer,
    picture="The time of a training step against theta, with and without overlap, measured "
    "and predicted; eager calls over the best theta on other clusters.",
    yours=YOURS,
)
