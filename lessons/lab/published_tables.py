"""Tables of lesson 08: what others published, beside what is predicted from their inputs."""

import kit
from refgf.papers.mgwfbp.merge import greedy_merge
from refgf.papers.scaling.headlines import HEADLINES, IMPLIED_RATE
from refgf.papers.scaling.rows import SYSTEMS, calibrated_overheads, compare_all, summary


def span(ends) -> str:
    low, high = (f"{end:.1f}" if end < 100 else f"{end:.0f}" for end in ends)
    return low if low == high else f"{low}..{high}"


def show_inputs(run: kit.Run, inputs, told: list) -> None:
    """Each input with its source; those that were `told` before are only named."""
    for given in (each for each in inputs if each not in told):
        values = " to ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in given.values)
        run.say(f"    {given.name} = {values} {given.unit} ({given.label}: {given.source})")
    if again := [given.name for given in inputs if given in told]:
        run.say(f"    as above: {', '.join(again)}")
    told += inputs


def headlines(run: kit.Run, told: list) -> list[dict]:
    """The seeds' numbers beside their predictions; one that went in as calibration is not shown as a result."""
    run.section("The seeds' headlines, PREDICTED from independent inputs")
    found, cells = [], []
    for headline in HEADLINES:
        if not headline.is_result:
            run.say(f"{headline.name}: went in as calibration, so there is no result")
            continue
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
                headline.name,
                f"{headline.published:g} {headline.unit}",
                f"{low:.3g} to {high:.3g}",
                "inside" if headline.inside else "OUTSIDE",
                f"{widest}: x {widths[widest]:.2f}",
            ]
        )
    run.table(["headline", "published (stated)", "predicted", "", "widest input"], cells)
    for headline in HEADLINES:
        run.say(f"inputs of: {headline.name}")
        show_inputs(run, headline.inputs, told)
    run.say(
        f"calibration, kept out: rate = {IMPLIED_RATE.values[0]:g} images/s, {IMPLIED_RATE.source}; it holds both 410.2 "
        "and 1.5 minutes,\nso neither could be predicted from it"
    )
    return found


def rows(run: kit.Run) -> list[dict]:
    run.section("MG-WFBP's sixteen published rows: 16 V100, seconds a step, measured (predicted)")
    overheads = calibrated_overheads(greedy_merge)
    plain, calibrated = compare_all(greedy_merge), compare_all(greedy_merge, overheads)
    cells, found = [], []
    for first, second in zip(plain, calibrated):
        row = first.row
        times = [f"{m:.3f} ({p:.3f})" for m, p in zip(row.measured_s, first.predicted_s)]
        errors = [
            f"{error:+.0%}" for comparison in (first, second) for error in comparison.ratio_errors
        ]
        name = f"{row.network}, {row.batch}", f"{row.link} fp{8 * row.itemsize}"
        cells.append([*name, *times, "yes" if first.ordering else "no", *errors])
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
    ratios = ["WFBP/MG", "SE/MG"]
    offs = [f"{kind}{ratio} off" for kind in ("", "CALIBRATED ") for ratio in ratios]
    run.table(["network, batch", "link", *SYSTEMS, "order", *offs], cells)
    run.say(
        "compute times and a, b of 16 GPUs from the papers (verified); layer times are shared out by flops, ours"
    )
    for told, comparisons in (
        ("from the inputs alone", plain),
        ("CALIBRATED, one overhead a cluster", calibrated),
    ):
        counts = summary(comparisons)
        run.say(
            f"{told}: {counts['orderings']} of 16 orders, {counts['close']} rows with both ratios within 15 %, times off "
            f"by {counts['mean_time_error']:.0%} on average, {counts['largest_time_error']:.0%} at worst"
        )
    run.say(
        "overheads that calibrate: "
        + ", ".join(f"{link} {kit.seconds(s)} a step" for link, s in overheads.items())
    )
    return found
