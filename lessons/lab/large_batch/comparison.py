"""Lesson 11's measurement: accuracy against batch, each method at the best rate found for it."""

import functools

import kit
from kit import trials
from lab.large_batch import rate_search, training
from refgf.training.data import steps_per_epoch

METHODS = (("SGD", False), ("SGD", True), ("LARS", False), ("LARS", True))  # with warm-up?
SGD, SGD_WARM, LARS, LARS_WARM = METHODS
PAIRS = {  # differences in accuracy, the first method's minus the second's
    "LARS, without warm-up": (LARS, SGD),
    "LARS, with warm-up": (LARS_WARM, SGD_WARM),
    "warm-up, for SGD": (SGD_WARM, SGD),
    "warm-up, for LARS": (LARS_WARM, LARS),
}


def name_of(method: tuple) -> str:
    return f"{method[0]}{', warm-up' if method[1] else ''}"


def places(run: kit.Run) -> list[tuple[int, int]]:
    """(fold, seed) of each training that judges a method; the fold of the search is not used.

    A folder of images has one split: there the seeds are others.
    """
    count = run.quick(1, 10, 12)
    if run.options.data:
        return [(0, 2 + i) for i in range(count)]
    return [(1 + i % 4, 1 + i // 4) for i in range(count)]


def compare(run: kit.Run, data, learning_rate, large_step) -> dict:
    """Each method at each batch: search its peak rate on one fold, then judge it on others.

    learning_rate, large_step: the lesson's.
    """
    rules = training.Rules(learning_rate, large_step)
    epochs, whole = run.options.epochs or run.quick(1, 5, 10), data.size
    sizes = run.quick([run.options.batch * 4], [128, 512], [run.options.batch, 128, 512, whole])
    judged = places(run)
    cells = [(*method, min(batch, whole)) for batch in sizes for method in METHODS]
    run.section(f"Accuracy against batch size after {epochs} epoch{'s' * (epochs > 1)}")
    run.say(f"Trainings that judge each method, after the search for its rate: {len(judged)}.")
    train = functools.partial(training.learn, run, rules, epochs)
    tried = rate_search.search(run, cells, train, rounds=run.quick(0, 1, 2))
    jobs = [(cell, rate_search.best(tried[cell]), *place) for cell in cells for place in judged]
    results = iter(trials.deal(run, jobs, train))
    rows = []
    for cell in cells:
        optimizer, warm, batch = cell
        at = rate_search.best(tried[cell])

        def peak_rate(exponent: int, batch=batch) -> float:  # without warm-up, at step 0
            return learning_rate(run.options.rate * 2.0**exponent, batch, 0, 1, False)

        place = {"optimizer": optimizer, "warm": warm, "batch": batch}
        rows.append(
            place
            | {
                "steps": epochs * steps_per_epoch(whole, batch),
                "rate": peak_rate(at),
                "edge": at in (min(tried[cell]), max(tried[cell])),
                "tried": [[peak_rate(e), r["accuracy"]] for e, r in sorted(tried[cell].items())],
            }
            | rate_search.interval([next(results)["accuracy"] for _ in judged])
        )
    report(run, rows)
    gains = [
        gain
        for batch in dict.fromkeys(row["batch"] for row in rows)
        for gain in gains_at(run, rows, batch)
    ]
    say_verdict(run, gains)
    found = {"rows": rows, "gains": gains, "epochs": epochs}
    return found | {"tuned_on": rate_search.TUNED_ON, "judged_on": judged}


def report(run: kit.Run, rows: list[dict]) -> None:
    """Print a line for each batch, a column for each method."""
    table = {}
    for row in rows:
        mark = "?" if row["edge"] else ""
        cell = f"{rate_search.in_words(row)} at {row['rate']:.3g}{mark}"
        table.setdefault(row["batch"], [row["batch"], row["steps"]]).append(cell)
    run.table(["batch", "steps", *map(name_of, METHODS)], list(table.values()))
    run.say("held-out accuracy in percent, 95 % interval, at the peak rate found")
    run.say("(?: at the edge of the search)")


def gains_at(run: kit.Run, rows: list[dict], batch: int) -> list[dict]:
    """Gains of LARS and of warm-up at one batch size: paired over folds and seeds."""
    right = {
        (row["optimizer"], row["warm"]): row["values"] for row in rows if row["batch"] == batch
    }
    found = []
    for name, (some, others) in PAIRS.items():
        differences = [a - b for a, b in zip(right[some], right[others])]
        gain = {"name": name, "batch": batch} | rate_search.interval(differences)
        gain["said"] = said(gain)
        half = f" +- {gain['half']:.1f}" if gain["half"] else ""
        run.say(f"batch {batch:5}: {name:>21}: {gain['mean']:+.1f}{half} points: {gain['said']}")
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


def say_verdict(run: kit.Run, gains: list[dict]) -> None:
    lars = [gain for gain in gains if gain["name"].startswith("LARS")]
    shown = [f"at batch {g['batch']} {g['name'][6:]}" for g in lars if g["said"] == "gains"]
    if any(gain["half"] is None for gain in lars):
        run.say("one run of each method shows nothing about LARS; leave out --quick")
    elif shown:
        run.say(f"so LARS gains accuracy on this task {', '.join(shown)}")
    else:
        run.say("so these runs show no gain of LARS on this task")
