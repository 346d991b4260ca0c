"""Tables of lesson 08: published numbers, each with a prediction from its inputs."""

import json
import textwrap

import kit
from kit.record import ROOT
from refgf.papers.mgwfbp.merge import greedy_merge
from refgf.papers.scaling.confronted import confronted
from refgf.papers.scaling.headlines import HEADLINES, IMPLIED_RATE
from refgf.papers.scaling.rows import SYSTEMS, calibrated_overheads, compare_all, summary

WORD = """The papers call the throughput of p GPUs over one GPU's "speedup": p x scaling efficiency.
It is not T(1)/T(p) of one problem."""


def span(ends) -> str:
    low, high = (f"{end:.1f}" if end < 100 else f"{end:.0f}" for end in ends)
    return low if low == high else f"{low}..{high}"


def show_inputs(run: kit.Run, inputs, shown: list) -> None:
    """Each input with its source. Of those in `shown`, only the name. Adds them to `shown`."""
    for given in (each for each in inputs if each not in shown):
        values = " to ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in given.values)
        text = f"{given.name} = {values} {given.unit} ({given.label}: {given.source})"
        indents = {"initial_indent": " " * 4, "subsequent_indent": " " * 8}
        run.say(textwrap.fill(text, 100, break_on_hyphens=False, **indents))
    if again := [given.name for given in inputs if given in shown]:
        run.say(f"    as above: {', '.join(again)}")
    shown += inputs


def headlines(run: kit.Run, shown: list) -> list[dict]:
    """The papers' headlines and their predictions. A number used for calibration is no result."""
    run.section("The papers' headlines, PREDICTED from independent inputs")
    run.say(WORD)
    found, cells = [], []
    for number, headline in enumerate(HEADLINES, 1):
        if not headline.is_result:
            run.say(f"{number}. {headline.name}: used for calibration, so there is no result")
            continue
        run.say(f"{number}. {headline.name}")
        (low, high), widths = headline.interval(), headline.widths()
        widest = next(iter(widths))
        found.append(
            {
                "name": headline.name,
                "published": headline.published,
                "unit": headline.unit,
                "low": low,
                "high": high,
                "inside": headline.inside,
                "widest": widest,
            }
        )
        cells.append(
            [
                f"{number}.",
                f"{headline.published:g} {headline.unit}",
                f"{low:.3g} to {high:.3g}",
                "inside" if headline.inside else "OUTSIDE",
                f"{widest}: x {widths[widest]:.2f}",
            ]
        )
    run.table(["", "published (stated)", "predicted", "", "widest input"], cells)
    for number, headline in enumerate(HEADLINES, 1):
        run.say(f"inputs of {number}:")
        show_inputs(run, headline.inputs, shown)
    run.say(
        f"not used: the rate {IMPLIED_RATE.values[0]:g} images/s, {IMPLIED_RATE.source}.\n"
        "    It follows from headlines 1 and 2, so it can predict neither of them."
    )
    if run.verbose:
        every_headline(run)
    return found


def every_headline(run: kit.Run) -> None:
    """The table of docs/results.md: those of other lessons, and those out of reach, too."""
    run.section("Every headline of the papers, confronted (as in docs/results.md)")
    try:
        entries = confronted(figure, greedy_merge)
    except OSError as error:
        run.say(f"got no figure: {error}; next: make figures")
        return
    for entry in entries:
        run.say(f"{entry.name}: {entry.published} ({entry.kind})")
        indents = {"initial_indent": " " * 4, "subsequent_indent": " " * 4}
        run.say(textwrap.fill(entry.found, 100, break_on_hyphens=False, **indents))


def figure(name: str) -> dict:
    """The JSON of a committed figure."""
    return json.loads((ROOT / "figures" / f"{name}.json").read_text())


def rows(run: kit.Run) -> list[dict]:
    run.section("MG-WFBP's sixteen published rows")
    run.say("16 GPUs, seconds per step, measured by the authors (predicted)")
    overheads = calibrated_overheads(greedy_merge)
    plain, calibrated = compare_all(greedy_merge), compare_all(greedy_merge, overheads)
    times_table, errors_table, found = [], [], []
    for first, second in zip(plain, calibrated):
        row = first.row
        times = [f"{m:.3f} ({p:.3f})" for m, p in zip(row.measured_s, first.predicted_s)]
        errors = [
            f"{error:+.0%}" for comparison in (first, second) for error in comparison.ratio_errors
        ]
        name = f"{row.network}, {row.batch}", f"{row.link} fp{8 * row.itemsize}"
        times_table.append([*name, *times, "yes" if first.ordering else "no"])
        errors_table.append([*name, *errors])
        found.append(
            {
                "network": row.network,
                "link": row.link,
                "itemsize": row.itemsize,
                "measured_s": row.measured_s,
                "predicted_s": first.predicted_s,
                "calibrated_s": second.predicted_s,
            }
        )
    run.table(["network, batch", "link", *SYSTEMS, "order"], times_table)
    run.say("\nError of the predicted ratios, and CALIBRATED with one overhead per cluster:")
    ratios = ["WFBP/MG", "SE/MG", "CALIBRATED WFBP/MG", "CALIBRATED SE/MG"]
    run.table(["network, batch", "link", *ratios], errors_table)
    run.say("verified, from the authors' script and code: compute times, and a and b of 16 GPUs")
    run.say("our assumption: the compute time is divided among the layers in proportion to flops")
    for inputs, comparisons in (
        ("from the inputs only", plain),
        ("CALIBRATED, one overhead per cluster", calibrated),
    ):
        counts = summary(comparisons)
        run.say(
            f"{inputs}: {counts['orderings']} of 16 orders, "
            f"{counts['close']} rows with both ratios within 15 %;\n"
            f"    error of the times {counts['mean_time_error']:.0%} on average, "
            f"{counts['largest_time_error']:.0%} at most"
        )
    run.say(
        "calibrated overheads: "
        + ", ".join(f"{link} {kit.seconds(s)} per step" for link, s in overheads.items())
    )
    return found
