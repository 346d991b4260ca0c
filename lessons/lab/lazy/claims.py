"""What lesson 03 says of its numbers."""

import math

from kit.claims import GAIN, LIMIT, NOISE, Claim
from kit.reveal import Reveal, Row
from kit.words import threshold
from lab.lazy.predicted_places import compared, either, predicted
from lab.lazy.steps import KINDS, sent_bytes, timing

FAST = "resnet50", "v100-56gbit"
TIES = 3  # named in the answer


def alexnet(r: dict) -> list:
    """Eager calls and the best theta for AlexNet: measured if this run did, else predicted."""
    measured = [timing(r, "overlapped", theta, "AlexNet") for theta in (0, "best")]
    return either(r, measured, ("alexnet", "v100-10gbe"), ("eager", "best theta"))


CLAIMS = (
    Claim(
        "With overlap, eager calls take at least 1.3 times as long as the best theta (ResNet-50).",
        lambda r: compared(timing(r, "overlapped", 0), ">", timing(r, "overlapped"), 1.3),
        unless="latencies that are short next to the bytes, or that backward hides",
        kind=GAIN,
    ),
    Claim(
        "With overlap, one call at the end takes longer than the best theta: it hides nothing.",
        lambda r: compared(timing(r, "overlapped", "inf"), ">", timing(r, "overlapped")),
        unless="a backward pass that is short next to the exchange",
    ),
    Claim(
        "Without overlap, eager calls take longer than one call.",
        lambda r: compared(timing(r, "plain", 0), ">", timing(r, "plain", "inf")),
        unless="latencies that are short next to the bytes",
    ),
    Claim(
        "Without overlap, one call gains less than a twentieth over theta = 16 MiB (6 calls).",
        lambda r: compared(timing(r, "plain", 2**24), "<", timing(r, "plain", "inf"), 1.05),
        unless="a latency of a call that is long next to all bytes",
        expected=NOISE,
    ),
    Claim(
        "The theta that is predicted to be best is at most a tenth slower than the best one.",
        lambda r: compared(timing(r, "overlapped", "predicted"), "<", timing(r, "overlapped"), 1.1),
        unless="processor time that the prediction leaves out",
        expected=NOISE,
    ),
    Claim(
        "Lazy allreduce saves no bytes: a rank sends as many in one call as in eager calls.",
        lambda r: compared(sent_bytes(r, "inf"), ">", sent_bytes(r, 0), 0.999),
        unless="tensors with fewer elements than ranks",
    ),
    Claim(
        "AlexNet's 26 gradients on few ranks, PREDICTED for 10 Gbit/s (--network alexnet measures "
        "it): eager calls take less than 1.2 times as long as the best theta.",
        lambda r: compared(alexnet(r)[0], "<", alexnet(r)[1], 1.2),
        unless="latencies that are long next to the bytes",
        kind=LIMIT,
    ),
    Claim(
        "On 56 Gbit/s backward hides eager calls too: the best theta gains less than a hundredth "
        "(ResNet-50 on 4 ranks, predicted).",
        lambda r: compared(
            predicted(r, *FAST, "eager"), "<", predicted(r, *FAST, "best theta"), 1.01
        ),
        unless="latencies that backward does not hide",
    ),
)


def rows(r: dict) -> list[Row]:
    """Eager, best and one call, in the cluster's time; on this machine those of the sweep."""
    k = r["regime"]["dilation"]
    best = float(fastest(r)["theta"])
    wanted = [(0, "plain"), (math.inf, "plain"), (0, "overlapped"), (best, "overlapped")]
    by_theta, found = {float(row["theta"]): row for row in swept(r)}, []
    for theta, kind in dict.fromkeys([*wanted, (math.inf, "overlapped")]):
        row = by_theta.get(theta)
        if row and row[kind]:
            times_s = row[kind]["median_s"] / k, row["predicted"][kind] / k
            found.append(Row(f"{name_of(theta)}, {KINDS[kind]}", *times_s))
    return found


def swept(r: dict) -> list[dict]:
    """The rows of all thetas; on this machine those of the network that is computed."""
    return r["rows"] if "rows" in r else r["sweep"]["rows"]


def fastest(r: dict) -> dict:
    timed = [row for row in swept(r) if row["overlapped"]]
    return min(timed, key=lambda row: row["overlapped"]["median_s"])


def name_of(theta: float) -> str:
    names = {0.0: "eager", math.inf: "one call"}
    return names.get(theta, f"theta = {threshold(theta)}")


def answer(r: dict) -> str:
    """The best theta, its calls, and the network that ran."""
    if r["ranks"] == 1:
        return "nothing, because there is one rank"
    best = fastest(r)
    name, calls = name_of(float(best["theta"])), best["calls"]
    how_many = "" if name == "one call" else f", {calls} call{'s' * (calls > 1)} a step"
    if len(swept(r)) == 1:
        return f"{name}{how_many}: no other theta ran"
    ties = [row for row in level(swept(r), "overlapped") if row is not best]
    ties = [name_of(float(row["theta"])).removeprefix("theta = ") for row in ties]
    more = f" and {len(ties) - TIES} more" if len(ties) > TIES else ""
    level_with = f"; within noise: {', '.join(ties[:TIES])}{more}" if ties else ""
    return f"{name}{how_many}, for {r.get('network') or r['trained']}{level_with}"


def level(rows: list[dict], kind: str) -> list[dict]:
    """The rows whose spread overlaps that of the fastest one, which is among them."""
    timed = [row for row in rows if row[kind]]
    best = min(timed, key=lambda row: row[kind]["median_s"])
    return [row for row in timed if row[kind]["low_s"] <= best[kind]["high_s"]]


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="Which theta gives the shortest step with overlap?",
    answer=answer,
    picture="The time of a training step against theta, with and without overlap, measured "
    "and predicted; eager calls over the best theta on three clusters.",
)
