"""What lesson 16 says of its numbers."""

from kit.claims import GAIN, LIMIT, Claim
from kit.guess import Guess
from kit.reveal import Reveal, Row
from kit.rows import SPREAD, at, where
from kit.words import number_of_bytes, percent
from lab.sharding.predicted import LARGER, LAYERS, peak_share
from lab.sharding.steps import AHEAD, OVERLAPPED
from lab.sharding.training import ALL, ZERO, ZERO3, of_own_size
from lab.sharding.yours import YOURS


def held(name: str, part: str = ""):
    """Bytes of this part, or of all parts, that the rank with the longest slice holds. Counted."""

    def nbytes(r: dict) -> float:
        counted = at(r, "training", "rows", {"name": name}, "held")
        return counted[part] if part else sum(counted.values())

    return nbytes


def by_formula(name: str):
    return lambda r: sum(r["training"]["stages"][name].values())


def at_peak(r: dict) -> float:
    """Bytes of a rank of ZeRO-3 with its buffers of whole units. Counted."""
    return held(ZERO3)(r) + r["training"]["whole_layers"]


def at_own_size(r: dict) -> float:
    """Bytes of a rank of ZeRO-3 at its peak if each unit had buffers of its own size."""
    return held(ZERO3)(r) + of_own_size(r["training"])


def kept_off(r: dict) -> float:
    """By what share all that ZeRO-3 keeps differs from 1/p of all."""
    return abs(r["ranks"] * held(ZERO3)(r) / held(ALL)(r) - 1)


def sent_off(r: dict) -> float:
    """By what share ZeRO-3's bytes differ from 1.5 times the ring's."""
    return abs(sent(r, ZERO3) / (1.5 * sent(r, ALL)) - 1)


def step(name: str) -> tuple:
    """Where a result has the timing of a step."""
    return "steps", "rows", {"name": name}, "timing"


def without_update(name: str):
    """The timing of a step less the update, which this processor does too slowly."""

    def timing(r: dict) -> dict:
        update_s = r["steps"]["update"][ZERO if name == ZERO else ALL]["median_s"]
        return {key: at(r, *step(name))[key] - update_s for key in SPREAD}

    return timing


def sent(r: dict, name: str) -> float:
    return at(r, "training", "rows", {"name": name}, "bytes")


def more_sent(r: dict) -> float:
    """By what share the bytes of both differ."""
    return abs(sent(r, ZERO) / sent(r, ALL) - 1)


def off_share(r: dict) -> float:
    """By what share ZeRO-1's state differs from 1/p of all."""
    return abs(r["ranks"] * held(ZERO, "state")(r) / held(ALL, "state")(r) - 1)


def shared(comparison: tuple):
    """The comparison, where there are ranks to share with."""
    return lambda r: comparison if r["ranks"] > 1 else None


def over_ddp(network: str, wrapped: str, rate: str, strategy: str = "FSDP"):
    """Predicted seconds of a step over those of DDP's."""

    def factor(r: dict) -> float:
        asked = {"network": network, "wrapped": wrapped, "rate": rate}
        step_s = at(r, "predicted", asked, "step_s")
        return step_s[strategy] / step_s["DDP"]

    return factor


BUG = "nothing: otherwise it is a bug"
CLAIMS = (
    Claim(
        "ZeRO-1 ends with the bits of ring allreduce and the same momentum SGD.",
        (("training", "from_the_ring"), "<", 1e-300),
        unless="an optimiser that needs norms of several slices, as LARS",
        timed=False,
    ),
    Claim(
        "After ZeRO-1's gather all ranks hold the same bits.",
        (("training", "between_ranks"), "<", 1e-300),
        unless=BUG,
        timed=False,
    ),
    Claim(
        "A rank sends as many bytes with ZeRO-1 as with the ring.",
        shared((more_sent, "<", 1e-9)),
        unless=BUG,
        timed=False,
    ),
    Claim(
        "A rank holds 1/p of the optimiser's state, to 5 %.",
        shared((off_share, "<", 0.05)),
        unless="so few elements that a slice's length is rounded up by much",
        timed=False,
    ),
    Claim(
        "With momentum SGD ZeRO-1 reduces what a rank holds by less than a third.",
        shared((held(ZERO), ">", held(ALL), 2 / 3)),
        unless="an optimiser with more states: Adam has two",
        kind=LIMIT,
        timed=False,
    ),
    Claim(
        "A rank of ZeRO-3 keeps 1/p of weights, gradients and state, to 5 %.",
        shared((kept_off, "<", 0.05)),
        unless="layers so small that a slice's length is rounded up by much",
        timed=False,
    ),
    Claim(
        "At its peak a rank of ZeRO-3 holds more than one that holds all: this code has 4 buffers "
        "of the largest layer. With buffers of each layer's own size it would hold less.",
        shared((at_peak, ">", held(ALL))),
        unless="many layers of like size",
        kind=LIMIT,
        timed=False,
        control=shared((at_own_size, "<", held(ALL))),
    ),
    Claim(
        "A rank sends half as many bytes again with ZeRO-3, to 5 %.",
        shared((sent_off, "<", 0.05)),
        unless="layers so small that a slice's length is rounded up by much",
        timed=False,
    ),
    Claim(
        "The update of a rank's own slice takes less than half of the time of all elements.",
        shared((("steps", "update", ZERO), "<", ("steps", "update", ALL), 0.5)),
        unless="two ranks, or a memory that other ranks leave no time for",
        kind=GAIN,
    ),
    Claim(
        "A step of ZeRO-1 takes at most 1.1 times as long as one with ring and update of all.",
        shared((step(ZERO), "<", step(ALL), 1.1)),
        unless="a link so slow or so shared that two calls wait where one does not",
    ),
    Claim(
        "The naive ZeRO-1 sends after backward: a ring that runs during backward takes less time. "
        "(Steps without their updates.)",
        shared((without_update(OVERLAPPED), "<", without_update(ZERO))),
        unless="a processor that computes and sends with the same cores, or a fast link",
        kind=LIMIT,
    ),
    Claim(
        "ZeRO-3's step is shorter if the next layer is gathered while this one computes.",
        shared((step(AHEAD), "<", step(ZERO3))),
        unless="a processor that computes and sends with the same cores, or a fast link",
        kind=GAIN,
    ),
    Claim(
        "Even then ZeRO-3's step takes longer than the overlapped ring's, which sends less.",
        shared((step(AHEAD), ">", step(OVERLAPPED))),
        unless="a link so fast that all is hidden",
        kind=LIMIT,
    ),
    Claim(
        "Predicted: at 1 Gbit/s FSDP's step of AlexNet takes more than 1.3 times DDP's.",
        shared((over_ddp("alexnet", LAYERS, "1gbit"), ">", 1.3)),
        unless="a network that computes longer than it sends",
        timed=False,
    ),
    Claim(
        "Predicted: at 1 Gbit/s ZeRO-1's step of AlexNet is DDP's, to 1 %: both wait for the "
        "same bytes.",
        shared((over_ddp("alexnet", LAYERS, "1gbit", ZERO), "<", 1.01)),
        unless="a link so fast that DDP's ring hides behind backward",
        timed=False,
    ),
    Claim(
        "Predicted: at 200 Gbit/s ZeRO-1's step of AlexNet takes more than 1.1 times DDP's: "
        "DDP's ring hides behind backward, an allgather after the update hides behind nothing.",
        shared((over_ddp("alexnet", LAYERS, "200gbit", ZERO), ">", 1.1)),
        unless="weights that are gathered during the next forward",
        timed=False,
    ),
    Claim(
        "Predicted: at 56 Gbit/s FSDP's step of AlexNet is shorter in 2 units than in 8: while all "
        "convolutions compute, the rest is gathered; while one layer computes, little is.",
        shared(
            (
                over_ddp("alexnet", LARGER, "56gbit"),
                "<",
                over_ddp("alexnet", LAYERS, "56gbit"),
            )
        ),
        unless="layers that compute as long as they are gathered",
        timed=False,
    ),
    Claim(
        "By formula, a layer a unit: at its peak a rank of FSDP holds less than half of all "
        "weights, gradients and momentum with ResNet-50, more than three quarters with AlexNet.",
        shared((lambda r: peak_share("resnet50", LAYERS, r["ranks"]), "<", 0.5)),
        unless="fewer than 3 ranks",
        timed=False,
        control=(lambda r: peak_share("alexnet", LAYERS, r["ranks"]), ">", 0.75),
    ),
    Claim(
        "Predicted: at 200 Gbit/s FSDP's step of ResNet-50 is shorter than DDP's: when nothing "
        "computes any more, DDP sends a whole ring of its last bucket, FSDP half a ring of a unit.",
        shared((over_ddp("resnet50", LAYERS, "200gbit"), "<", 1.0)),
        unless="a last bucket as small as a unit",
        timed=False,
    ),
    Claim(
        "Predicted: at 10 Gbit/s FSDP's step of ResNet-50 takes longer if each layer is a unit "
        "than if each block is one.",
        shared(
            (over_ddp("resnet50", LAYERS, "10gbit"), ">", over_ddp("resnet50", LARGER, "10gbit"))
        ),
        unless="messages without latency",
        timed=False,
    ),
)


def rows(r: dict) -> list[Row]:
    """What a rank holds and sends next to the formulas; ZeRO-3's step in the cluster's time."""
    k, whole = r["regime"]["dilation"], 4 * 4 * max(r["training"]["layers"])
    peak = at_peak(r), by_formula(ZERO3)(r) + whole
    found = [
        Row(f"a rank of {ZERO} holds", held(ZERO)(r), by_formula(ZERO)(r), number_of_bytes),
        Row(f"a rank of {ZERO3}, at its peak", *peak, number_of_bytes),
    ]
    formula = r["training"]["sent_formula"][ZERO3]
    found.append(Row(f"a rank of {ZERO3} sends", sent(r, ZERO3), formula, number_of_bytes))
    for row in where(r["steps"]["rows"], name=AHEAD):
        predicted_s = row["predicted_s"] and row["predicted_s"] / k
        found.append(Row(f"step, {AHEAD}", row["timing"]["median_s"] / k, predicted_s))
    return found


def answer(r: dict) -> str:
    """The reduction, and the step, unless the machine was busy."""
    less = 1 - held(ZERO)(r) / held(ALL)(r)
    zero, ring = (at(r, *step(name))["median_s"] for name in (ZERO, ALL))
    step_said = f"a step of ZeRO-1 takes {zero / ring:.2f} times a ring's"
    if at(r, "load", "busy"):
        step_said = "steps are not compared, a busy machine"
    return f"{percent(less)} less; {step_said}"


REVEAL = Reveal(
    CLAIMS,
    rows,
    ask="By how many percent does ZeRO-1 reduce what a rank holds, with momentum?",
    guess=Guess("50 %", timed=False),
    answer=answer,
    picture="Bars: what a rank holds of weights, gradients and state when all hold all and with "
    "ZeRO-1 to ZeRO-3; time of a step, measured and predicted.",
    yours=YOURS,
)
