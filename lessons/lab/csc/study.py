"""Lesson 06: which trainings are compared, and their paired differences with 95 % intervals.

    study = compare(run, split)
    study["forms"]      each form against dense training
    study["choice"]     chunks chosen by importance against others: what stays after sending, at
                        random, in turn
    study["why"]        `none` against `dgc`: at another learning rate, momentum, length

All compared trainings have the same seeds and folds. Differences are in points of held-out
accuracy, and in the training loss of the last epoch.
"""

import kit
from kit import claims, trials
from lab.csc.learning import Job, learn_all, pairs

EPOCHS = (1, 4, 12)  # quick, default, full
PAIRS = (1, 4, 12)  # without --pairs. A training takes a second of a core, and there are 12 kinds
NONE, DGC = {"form": "none"}, {"form": "dgc"}
SHOWN = {
    "dense": {"form": "dense"},
    "none": NONE,
    "dgc": DGC,
    "dgc_masked": {"form": "dgc_masked"},
    "history": {"form": "history"},
}
SHOWN_FULL = SHOWN | {"dgc, no warm-up": DGC | {"warmup": False}}
CHOSEN = {
    "by importance": NONE,
    "after sending": NONE | {"after": True},
    "at random": NONE | {"choice": "random"},
    "in turn": NONE | {"choice": "turn"},
}
SMALL_RATE, LARGE_RATE = "learning rate / 4", "learning rate x 3"
WHY = {
    SMALL_RATE: {"rate": 0.25},
    "as above": {},
    LARGE_RATE: {"rate": 3.0},
}
WHY_FULL = WHY | {
    "no momentum": {"momentum": 0.0},
    "half the epochs": {"length": 0.5},
    "twice the epochs": {"length": 2},
}


def compare(run: kit.Run, split) -> dict:
    """Train everything that is compared, each training once; then show the tables."""
    epochs = run.options.epochs or run.quick(*EPOCHS)
    where = pairs(run.options.pairs or run.quick(*PAIRS))
    why = {
        name: {"dgc": DGC | what, "none": NONE | what}
        for name, what in run.quick({}, WHY, WHY_FULL).items()
    }
    shown = run.quick({name: SHOWN[name] for name in ("dense", "none", "dgc")}, SHOWN, SHOWN_FULL)
    groups = [shown, CHOSEN, *why.values()]
    jobs = [jobs_of(what, where, epochs) for kinds in groups for what in kinds.values()]
    found = learn_all(run, split, [job for group in jobs for job in group])

    def results(kinds: dict) -> dict:
        return {
            name: [found[job] for job in jobs_of(what, where, epochs)]
            for name, what in kinds.items()
        }

    forms, choice = results(shown), results(CHOSEN)
    whys = {name: results(kinds) for name, kinds in why.items()}
    study = {
        "epochs": epochs,
        "pairs": where,
        "forms": against(forms, "dense"),
        "choice": against(choice, "by importance"),
        "why": {
            name: against(both, "dgc")["none"] | {"base": both["dgc"]}
            for name, both in whys.items()
        },
    }
    show(run, study)
    return study


def jobs_of(what: dict, where: list, epochs: int) -> list[Job]:
    """One job for each (seed, fold) in `where`."""
    what = dict(what)
    epochs = max(1, round(epochs * what.pop("length", 1)))
    return [Job(seed=seed, fold=fold, epochs=epochs, **what) for seed, fold in where]


def against(results: dict, base: str) -> dict:
    """{name: {"runs", "accuracy", "loss"}}: the last two as differences from `base`, paired."""
    return {
        name: {
            "runs": runs,
            **{key: paired(runs, results[base], key) for key in ("accuracy", "loss")},
        }
        for name, runs in results.items()
    }


def paired(some: list[dict], others: list[dict], key: str) -> dict | None:
    """Mean of the paired differences and its 95 % interval, as a claim takes it; None for one."""
    mean, half = trials.mean_and_half([a[key] - b[key] for a, b in zip(some, others, strict=True)])
    return None if half is None else claims.interval(mean, half)


# ---- tables ----


def show(run: kit.Run, study: dict) -> None:
    count, percent = len(study["pairs"]), run.options.density
    run.section(f"Learning: {study['epochs']} epochs, density {percent:g} %, {count} runs of each")
    run.say("one rank computes each training, with the batch of eight")
    table(run, study["forms"], "dense")
    run.section(f"Do the chosen chunks matter? The form none, {count} runs of each")
    table(run, study["choice"], "by importance")
    if not study["why"]:
        return
    run.section("Form none minus dgc: other rates, momentum, length")
    head = ["", "loss of none", "of dgc", "difference", "accuracy, points"]
    run.table(
        head,
        [
            [
                name,
                f"{mean(row['runs'], 'loss'):.3f}",
                f"{mean(row['base'], 'loss'):.3f}",
                in_words(row["loss"], ".3f"),
                in_words(row["accuracy"], ".2f"),
            ]
            for name, row in study["why"].items()
        ],
    )


def table(run: kit.Run, kinds: dict, base: str) -> None:
    """Loss and accuracy of each kind, and the paired differences from `base`."""
    head = ["", "loss", f"minus {base}", "accuracy", f"minus {base}, points"]
    rows = []
    for name, row in kinds.items():
        same = name == base
        rows.append(
            [
                name,
                f"{mean(row['runs'], 'loss'):.3f}",
                "" if same else in_words(row["loss"], ".3f"),
                f"{mean(row['runs'], 'accuracy'):.1f} %",
                "" if same else in_words(row["accuracy"], ".2f"),
            ]
        )
    run.table(head, rows)


def mean(runs: list[dict], key: str) -> float:
    return sum(run[key] for run in runs) / len(runs)


def in_words(difference: dict | None, form: str) -> str:
    """'+0.12 [-0.03..+0.27]'; one run has no interval."""
    if difference is None:
        return "one run"
    middle, low, high = (format(difference[k], "+" + form) for k in ("median_s", "low_s", "high_s"))
    return f"{middle} [{low}..{high}]"
