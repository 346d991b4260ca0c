"""The papers' headlines confronted with this project: one table for docs/results.md and lesson 08.

    confronted(figure, merge) -> [Entry(name, published, kind, found, could_fail)]

A headline is predicted from independent inputs, or measured here (then `found` says what stands for
what), or it cannot be had here (then `found` says why). Published numbers come from headlines.py
and the modules *rows.py; those that have no prediction stand here, once. Ours come from the
predictions and from the figures.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from refgf.arguments import checked
from refgf.papers.scaling import benchmark_rows
from refgf.papers.scaling.benchmark_rows import K80_NETWORKS, gains_on_8_nodes, k80_errors
from refgf.papers.scaling.headlines import ALPHA, EXAMPLE, HEADLINES, JIA_ALPHA, JIA_RUNS, PERCENT
from refgf.papers.scaling.interval import Headline, Input, extremes
from refgf.papers.scaling.rows import (
    AS_PUBLISHED,
    ROWS,
    Factors,
    Merge,
    compare,
    compare_all,
    summary,
)
from refgf.predict.cost import Line

WIDE = 4  # high / low; a wider interval that holds the published number says little (chosen)
PREDICTED, MEASURED, MISSING = "predicted", "measured here", "cannot be had here"
KINDS = PREDICTED, MEASURED, MISSING
HEADER = "headline", "published", "confronted", "could it have failed?", "what was found"
SHARP, SAID = 2, "yes"  # high / low of an interval that many other numbers would have missed
STAND_IN = "no: ranks of one machine stand for theirs"
WORDS = {
    "rate": "the rate of one GPU",
    "alpha_s": "the latency of a message",
    "algorithm": "the algorithm of the allreduce, which is not stated",
    "efficiency": "the share of a P40's peak",
    "bandwidth": "the bandwidth of the links, which is not stated",
    "itemsize": "the type on the wire, which is not stated",
    "percent": "the share of the chunks that are sent, which is not stated",
}
ACCURACY = (
    "It needs ImageNet, {} and the authors' augmentation. Lesson 11 shows on a small network what "
    "a large batch does to accuracy."
)
OTHERS = "Results of other systems, of which none is implemented here."
TOP5 = (
    "It needs ImageNet and 128 GPUs. `refgf/machine/accuracy.py` counts top-5; lessons measure "
    "top-1."
)
NO_BASELINE = (
    "The steps of the systems that it was compared with are not at hand as inputs. Lesson 12 "
    "measures the exchange alone."
)
NO_SERVER = "No system here stands for a parameter server, or for calls in an order of priority."


@checked
@dataclass(frozen=True)
class Entry:
    """A row of the table; kind is one of KINDS.

    could_fail    would many other numbers have missed? "-" where nothing was found
    """

    name: str
    published: str
    kind: str
    found: str
    could_fail: str = "-"


def confronted(figure: Callable[[str], dict], merge: Merge) -> list[Entry]:
    """All rows. figure: name of a figure -> its JSON; merge: MG-WFBP's rule, as in rows.py."""
    flow, minutes, open_source, alexnet, resnet, flow_resnet, record, jia_90, jia_95 = map(
        predicted, HEADLINES
    )
    return [
        share_decides(flow, HEADLINES[0]),
        flow_resnet,
        share_decides(minutes, HEADLINES[1]),
        share_decides(record, HEADLINES[6]),
        open_source,
        alexnet,
        latency_decides(resnet, HEADLINES[4]),
        jia_90,
        top_1("ResNet-50", "75.8 %"),
        jia_95,
        top_1("AlexNet", "58.7 %"),
        missing("1024 P100, ResNet-50 (quoted by Jia et al.)", "15 minutes, 74.9 %", OTHERS),
        missing("2048 KNL, ResNet-50 (quoted by Jia et al.)", "20 minutes, 75.4 %", OTHERS),
        sixteen_rows(merge),
        k80_nodes(merge),
        benchmark_10(merge),
        benchmark_rdma(merge),
        benchmark_tcp(merge),
        missing(SCHEDULERS, "36 of 63 rows", NO_SERVER),
        measured(MERGED, merged_published(), merged_found(figure("09_merged_gradients"))),
        missing(HITOPK, "25 to 40 % faster", NO_BASELINE),
        missing("Shi et al. 2021, ResNet-50 on 128 V100: top-5", "93 %", TOP5),
        measured(DASO, "34 % less", daso_found(figure("13_daso"))),
    ]


STEPS_16 = "MG-WFBP's steps, 16 GPUs"
HITOPK = "Shi et al. 2021: 16 x 8 V100 against other systems"
SCHEDULERS = "MG-WFBP's authors, 2020: parameter servers, ByteScheduler"
MERGED = "MG-WFBP's authors, 2020: over WFBP, ResNet-50, 8 GPUs, 10 Gbit/s"
DASO = "DASO: training time against other data-parallel methods, at most"


def missing(name: str, published: str, why: str) -> Entry:
    return Entry(name, published, MISSING, why)


def measured(name: str, published: str, found: str) -> Entry:
    return Entry(name, published, MEASURED, found, STAND_IN)


def top_1(network: str, published: str) -> Entry:
    gpus, epochs = JIA_RUNS[network]
    why = ACCURACY.format(f"{epochs} epochs, {gpus} GPUs")
    return missing(f"Jia et al., {network}: top-1", published, why)


# ---- predicted ----


def predicted(headline: Headline) -> Entry:
    (low, high), widths = headline.interval(), headline.widths()
    widest = next(iter(widths))
    found = (
        f"{low:.3g} to {high:.3g} {headline.unit}: {verdict(headline.published, low, high)}. "
        f"Widest input: {WORDS.get(widest, widest)} (alone up to x {widths[widest]:.2f})."
    )
    published = f"{headline.published:g} {headline.unit}"
    return Entry(headline.name, published, PREDICTED, found, could_fail(high / low))


def could_fail(width: float) -> str:
    """In words, for an interval whose highest value is `width` times its lowest."""
    return SAID if width < SHARP else "hardly" if width <= WIDE else "no"


def verdict(published: float, low: float, high: float) -> str:
    """Where a published number lies. An interval more than WIDE times wide agrees with too much."""
    if not low <= published <= high:
        return f"OUTSIDE by {percent(max(low / published, published / high) - 1)}"
    if high / low > WIDE:
        return f"inside, but {high / low:.2g} times wide (more than {WIDE:g}), so it says little"
    return f"inside, {high / low:.2g} times wide"


def latency_decides(entry: Entry, headline: Headline) -> Entry:
    """Adds the interval with the shorter latencies."""
    return narrowed(entry, headline, ALPHA, JIA_ALPHA, f"at most {1e6 * max(ALPHA.values):.1f} us")


def share_decides(entry: Entry, headline: Headline) -> Entry:
    """Adds the interval for the share of the chunks that is an example in the sources."""
    words = f"the sources' example, {EXAMPLE.values[0]:g} % of the chunks"
    return narrowed(entry, headline, EXAMPLE, PERCENT, words)


def narrowed(entry: Entry, headline: Headline, narrow: Input, wide: Input, words: str) -> Entry:
    """Adds the interval with the input `narrow` in the place of `wide`."""
    inputs = tuple(narrow if each is wide else each for each in headline.inputs)
    low, high = extremes(headline.predict, inputs)
    return replace(entry, found=f"{entry.found} With {words}: {low:.3g} to {high:.3g}.")


def sixteen_rows(merge: Merge) -> Entry:
    gains = [row.measured_s[0] / row.measured_s[2] for row in ROWS]
    rows = compare_all(merge)
    ours, counts = [row.predicted_s[0] / row.predicted_s[2] for row in rows], summary(rows)
    found = (
        f"{span(ours)} x. Right order of the three systems in "
        f"{counts['orderings']} of {len(ROWS)} rows; times off by "
        f"{percent(counts['mean_time_error'])} on average and "
        f"{percent(counts['largest_time_error'])} at most, {too_fast(times_too_fast(merge))} too "
        "short. What misses: time per call that no input explains."
    )
    name = "MG-WFBP: WFBP's step over its own, 16 rows on 16 GPUs"
    return Entry(name, f"{span(gains)} x", PREDICTED, found, SAID)


def k80_nodes(merge: Merge) -> Entry:
    published, ours = zip(*gains_on_8_nodes(merge))
    off = [abs(error) for error in k80_errors(merge).values()]
    each = ", ".join(f"{name} {ratio:.2f} x" for name, ratio in zip(K80_NETWORKS, ours))
    found = (
        f"{each}. {len(off)} rates on 2 and 8 nodes are off by {off_by(off)}. What misses: WFBP's "
        "short calls of GoogLeNet, which the model hides."
    )
    name = f"MG-WFBP: WFBP's step over its own, {' and '.join(K80_NETWORKS)}, 8 K80 nodes"
    said = f"{' and '.join(f'{x:.2f}' for x in published)} x"
    return Entry(name, said, PREDICTED, found, SAID)


def span(numbers: Collection[float]) -> str:
    return f"{min(numbers):.2f} to {max(numbers):.2f}"


def benchmark_10(merge: Merge) -> Entry:
    fitted, wire = (
        misses(benchmark_rows.ETHERNET_10, lines, merge)
        for lines in (benchmark_rows.FITTED_10, benchmark_rows.WIRE)
    )
    one_call = [wire[key] for key in wire if key[1] == "BSP-A2A" and key[2] > 4]
    found = (
        f"Off by {off_by(fitted.values())} with the authors' fitted lines, whose slopes are half "
        "of the least that a ring has on 10 Gbit/s links. Off by "
        f"{off_by(wire.values())} with that slope, and by {off_by(one_call)} where it is one call "
        "over several nodes. What misses: the latency of 32 GPUs, scaled by hand by its authors, "
        "and the line inside a node."
    )
    return throughputs("10 Gbit/s", benchmark_rows.ETHERNET_10, found)


def benchmark_rdma(merge: Merge) -> Entry:
    connection = benchmark_rows.INFINIBAND_100
    off = misses(connection, benchmark_rows.LINES[connection], merge)
    resnet = [error for key, error in off.items() if key[0] == "ResNet-50"]
    found = (
        f"Off by {off_by(off.values())} with the lines that the authors' code takes there, fitted "
        "on 56 Gbit/s InfiniBand, on 16 and 32 GPUs scaled by hand by its authors; "
        f"ResNet-50 by {off_by(resnet)}. What misses most: the line "
        "inside a node, for BERT's long messages."
    )
    return throughputs("100 Gbit/s, RDMA", connection, found)


def benchmark_tcp(merge: Merge) -> Entry:
    connection = benchmark_rows.ETHERNET_100
    off = misses(connection, benchmark_rows.LINES[connection], merge)
    found = (
        f"Off by {off_by(off.values())} with the same lines, which the authors' code takes there, "
        "too. What misses: TCP, which is slower than these lines. None is public for it."
    )
    return throughputs("100 Gbit/s, TCP", connection, found)


def throughputs(network: str, connection: str, found: str) -> Entry:
    rows = [four for net in benchmark_rows.NETWORKS.values() for four in net.measured[connection]]
    measured = [rate for four in rows for rate in four]
    return Entry(
        f"MG-WFBP's authors, 2020: ResNet-50 and BERT, {network}",
        f"{min(measured):.0f} to {max(measured):.0f} samples/s",
        PREDICTED,
        f"{len(measured)} rates. {found}",
        SAID,
    )


def on_real_clusters(merge: Merge, factors: Factors = AS_PUBLISHED) -> dict[str, list[float]]:
    """{published table: error of each predicted speed}; above 0 it is too fast."""
    found = {
        STEPS_16: times_too_fast(merge, factors),
        "MG-WFBP's rates, 2 and 8 K80 nodes": [*k80_errors(merge, factors).values()],
    }
    infiniband, tcp = benchmark_rows.INFINIBAND_100, benchmark_rows.ETHERNET_100
    for name, connection, lines in (
        ("10 Gbit/s, the authors' lines", benchmark_rows.ETHERNET_10, benchmark_rows.FITTED_10),
        ("10 Gbit/s, a ring's slope", benchmark_rows.ETHERNET_10, benchmark_rows.WIRE),
        ("100 Gbit/s, RDMA", infiniband, benchmark_rows.LINES[infiniband]),
        ("100 Gbit/s, TCP", tcp, benchmark_rows.LINES[tcp]),
    ):
        errors = benchmark_rows.errors(connection, lines, merge, factors=factors)
        found[f"ResNet-50 and BERT's rates, {name}"] = [*errors.values()]
    return found


def times_too_fast(merge: Merge, factors: Factors = AS_PUBLISHED) -> list[float]:
    """1 - predicted / measured of every step of MG-WFBP's rows."""
    rows = (compare(row, merge, factors=factors) for row in ROWS)
    return [-error for row in rows for error in row.time_errors]


def between(fastest: list[float], slowest: list[float]) -> int:
    """How many were measured between two predictions, whose errors these are."""
    return sum(high >= 0 >= low for high, low in zip(fastest, slowest, strict=True))


def too_fast(errors: list[float]) -> str:
    return f"{sum(error > 0 for error in errors)} of {len(errors)}"


def misses(
    connection: str, lines: dict[int, Line], merge: Merge
) -> dict[tuple[str, str, int], float]:
    """{(network, method, GPUs): how far the prediction is off}"""
    every = benchmark_rows.errors(connection, lines, merge)
    return {key: abs(error) for key, error in every.items()}


def off_by(errors: Collection[float]) -> str:
    return f"{percent(sum(errors) / len(errors))} on average and {percent(max(errors))} at most"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


# ---- measured here ----


def merged_published() -> str:
    rates = benchmark_rows.NETWORKS["ResNet-50"].measured[benchmark_rows.ETHERNET_10]
    _, wfbp, merged = rates
    at = benchmark_rows.GPUS.index(8)
    return f"{merged[at] / wfbp[at]:.2f} x"


def merged_found(result: dict) -> str:
    rows = result["networks"]["resnet50"]["rows"]
    steps_s = {row["name"]: row["timing"]["median_s"] for row in rows}
    rate = result["regime"]["cluster"]["steps"]["resnet50"]["images_per_s"]["value"]
    faster = rate / benchmark_rows.NETWORKS["ResNet-50"].single
    return (
        f"{steps_s['eager (WFBP)'] / steps_s['MG-WFBP, greedy']:.2f} x. {place(result)} stand for "
        f"theirs: messages are real, computing is slept, {faster:.1f} times as fast as theirs "
        "(lesson 09)."
    )


def daso_found(result: dict) -> str:
    times_s = {row["name"]: row["batch"]["median_s"] for row in result["times"]["rows"]}
    epochs, ends = (result["accuracy"][key] for key in ("epochs", "ends"))
    warm, main = times_s["blocking, bfloat16"], times_s["B = 4, W = 1"]
    ours = (2 * ends * warm + (epochs - 2 * ends) * main) / epochs
    others = ("synchronous", "+ overlap", "+ float16")
    sync, overlap, half = (less(1 - ours / times_s[name]) for name in others)
    return (
        f"Composed of measured batches, a training of {epochs} epochs, {2 * ends} of them with "
        f"blocking sums: {sync} time than in synchronous training, {overlap} than with overlap, "
        f"{half} than with overlap and float16. {place(result)} stand for their nodes (lesson 13)."
    )


def less(share: float) -> str:
    return f"{percent(share)} less" if share >= 0 else f"{percent(-share)} more"


def place(result: dict) -> str:
    return f"{result['ranks']} ranks like {result['regime']['like']}"
