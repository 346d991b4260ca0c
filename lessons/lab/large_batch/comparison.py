"""Lesson 11's measurement: accuracy against batch, each method at the best rate found for it.

Twice: after the same number of epochs, where a larger batch takes fewer steps, and after the same
number of steps, where it sees more epochs. What only the first lacks is missing steps; what the
second lacks, too, is the price of the batch. A training of more epochs takes the rate that was best
for its method and batch in the lesson's epochs.
"""

import functools

import kit
from kit import trials
from lab.large_batch import rate_search, training
from refgf.training.data import steps_per_epoch

METHODS = SGD, LARS, SGD_WARM = ("SGD", False), ("LARS", False), ("SGD", True)  # with warm-up?
PAIRS = {  # differences in accuracy, the first method's minus the second's
    "LARS": (LARS, SGD),
    "warm-up, for SGD": (SGD_WARM, SGD),
}


def name_of(method: tuple) -> str:
    return f"{method[0]}{', warm-up' if method[1] else ''}"


def places(run: kit.Run) -> list[tuple[int, int]]:
    """(fold, seed) of each training that judges a method; those of the search are not used."""
    count = run.quick(1, 8, 12)
    return [(0 if run.options.data else 1 + i % 4, 2 + i) for i in range(count)]


def judged_on(run: kit.Run, cells: list[tuple]) -> dict[tuple, list[tuple[int, int]]]:
    """The places of each cell. Half of them will do where no claim rests on an interval.

    Intervals are claimed at the smallest and the largest batch, in the lesson's epochs.
    """
    every, epochs = places(run), cells[0][3]
    ends = cells[0][2], max(cell[2] for cell in cells)
    half = every[: -(-len(every) // 2)]
    return {cell: every if cell[3] == epochs and cell[2] in ends else half for cell in cells}


def cells_of(run: kit.Run, whole: int) -> list[tuple]:
    """(optimizer, warm-up?, batch, epochs) of all trainings; warm-up for SGD at the largest batch.

    First the same epochs at every batch. Then, at the largest, as many steps as the second batch
    takes in these.
    """
    epochs = run.options.epochs or run.quick(1, 5, 10)
    sizes = run.quick([run.options.batch * 4], [64, 128, 256, 512], [64, 128, 256, 512, whole])
    sizes = sorted({min(batch, whole) for batch in sizes})
    steps = epochs * steps_per_epoch(whole, sizes[min(1, len(sizes) - 1)])
    found = [(*method, batch, epochs) for batch in sizes for method in (SGD, LARS)]
    found.append((*SGD_WARM, sizes[-1], epochs))
    for batch in sizes[2:][-1:]:
        more = round(steps / steps_per_epoch(whole, batch))
        found += [(*method, batch, more) for method in (SGD, LARS)]
    return found


def compare(run: kit.Run, data, learning_rate, large_step) -> dict:
    """Each method at each batch: search its peak rate on one fold, then judge it on others.

    learning_rate, large_step: the lesson's.
    """
    rules, cells = training.Rules(learning_rate, large_step), cells_of(run, data.size)
    judged = judged_on(run, cells)
    run.section("Accuracy against batch size")
    least, most = min(map(len, judged.values())), max(map(len, judged.values()))
    run.say(f"Trainings that judge: {most} at the smallest and largest batch, {least} elsewhere.")
    train = functools.partial(training.learn, run, rules)
    searched = [cell for cell in cells if cell[3] == cells[0][3]]  # in the lesson's epochs
    tried = rate_search.search(run, searched, train, rounds=run.quick(0, 3, 4))
    found = {cell[:3]: tried[cell] for cell in searched}
    jobs = [
        (cell, rate_search.best(found[cell[:3]]), *place)
        for cell in cells
        for place in judged[cell]
    ]
    results = iter(trials.deal(run, jobs, train))
    rows = []
    for cell in cells:
        optimizer, warm, batch, epochs = cell
        at = rate_search.best(found[cell[:3]])
        place = {"optimizer": optimizer, "warm": warm, "batch": batch, "epochs": epochs}
        rows.append(
            place
            | {
                "steps": epochs * steps_per_epoch(data.size, batch),
                "rate": learning_rate(run.options.rate * 2.0**at, batch, 0, 1, False),  # the peak
                "edge": at in (min(found[cell[:3]]), max(found[cell[:3]])),
            }
            | rate_search.interval([next(results)["accuracy"] for _ in judged[cell]])
        )
    report(run, rows)
    places_of = dict.fromkeys((row["batch"], row["epochs"]) for row in rows)
    gains = [gain for place in places_of for gain in gains_at(run, rows, *place)]
    return {"rows": rows, "gains": gains, "epochs": cells[0][3]}


def report(run: kit.Run, rows: list[dict]) -> None:
    """Print a line for each batch and length, a column for each method."""
    table = {}
    for row in rows:
        mark = "?" if row["edge"] else ""
        line = table.setdefault((row["batch"], row["epochs"]), {"steps": row["steps"]})
        cell = f"{rate_search.in_words(row)} at {row['rate']:.3g}{mark}"
        line[row["optimizer"], row["warm"]] = cell
    lines = [
        [*place, line["steps"], *(line.get(method, "") for method in METHODS)]
        for place, line in table.items()
    ]
    run.table(["batch", "epochs", "steps", *map(name_of, METHODS)], lines)
    run.say("held-out accuracy in percent, 95 % interval, at the peak rate found")
    run.say("(?: at the edge of the search)")


def gains_at(run: kit.Run, rows: list[dict], batch: int, epochs: int) -> list[dict]:
    """Gains of LARS and of warm-up at one batch and length: paired over folds and seeds."""
    right = {
        (row["optimizer"], row["warm"]): row["values"]
        for row in rows
        if (row["batch"], row["epochs"]) == (batch, epochs)
    }
    found = []
    for name, (some, others) in PAIRS.items():
        if some not in right:
            continue
        differences = [a - b for a, b in zip(right[some], right[others])]
        gain = {"name": name, "batch": batch, "epochs": epochs}
        gain |= rate_search.interval(differences)
        half = f" +- {gain['half']:.1f}" if gain["half"] else ""
        where = f"batch {batch}, {epochs} epochs: {name}"
        run.say(f"{where:>40}: {gain['mean']:+.1f}{half} points: {said(gain)}")
        found.append(gain)
    return found


def said(gain: dict) -> str:
    """A gain in words."""
    mean, half = gain["mean"], gain["half"]
    if half is None:
        return "one run: no interval"
    if abs(mean) <= half:
        return "no difference shown by these runs"
    return "gains" if mean > 0 else "loses"
