"""The figure of lesson 11: accuracy against batch size, gains, the search, LARS step times."""

from kit import axes

STYLES = {  # (optimiser, with warm-up?): colour, line
    ("SGD", False): ("tab:blue", "o:"),
    ("SGD", True): ("tab:blue", "s-"),
    ("LARS", False): ("tab:red", "o:"),
    ("LARS", True): ("tab:red", "s-"),
}
METHODS = list(STYLES)


def name_of(method) -> str:
    return f"{method[0]}{', warm-up' if method[1] else ''}"


def draw(result: dict):
    figure, (accuracy, gains, search, steps) = axes.frame(
        "Lesson 11: large batches - accuracy with linear scaling, warm-up and LARS, rates tuned",
        2,
        2,
        size=(15, 10.5),
    )
    trained = result["trained"]
    for method, (colour, style) in STYLES.items():
        rows = [row for row in trained["rows"] if (row["optimizer"], row["warm"]) == method]
        accuracy.errorbar(
            [row["batch"] for row in rows],
            [row["mean"] for row in rows],
            [row["half"] or 0 for row in rows],
            fmt=style,
            color=colour,
            capsize=3,
            label=name_of(method),
        )
        search.semilogx(*zip(*rows[-1]["tried"]), style, color=colour, label=name_of(method))
    batches_ = [row["batch"] for row in rows]
    accuracy.set_xscale("log", base=2)
    accuracy.set_xticks(batches_, [f"{row['batch']}\n{row['steps']} steps" for row in rows])
    accuracy.set(
        title=f"Held-out accuracy after {trained['epochs']} epochs, 95 % intervals",
        xlabel="batch size",
        ylabel="accuracy, %",
    )
    search.set(
        title=f"The rate search at batch size {batches_[-1]}, on fold 0 only",
        xlabel="peak learning rate",
        ylabel="accuracy, %",
    )
    for k, name in enumerate(dict.fromkeys(gain["name"] for gain in trained["gains"])):
        own = [gain for gain in trained["gains"] if gain["name"] == name]
        gains.errorbar(
            [i + 0.15 * k for i in range(len(own))],
            [gain["mean"] for gain in own],
            [gain["half"] or 0 for gain in own],
            fmt="os^v"[k],
            capsize=3,
            label=name,
        )
    gains.axhline(0, color="black", lw=1)
    gains.set_xticks(range(len(batches_)), batches_)
    gains.set(
        title="Gain in accuracy, same folds and seeds, 95 % intervals",
        xlabel="batch size",
        ylabel="percentage points",
    )
    sizes = [row["n"] for row in result["norms"]]
    for name, colour in (
        ("norms", "tab:grey"),
        ("alone", "black"),
        ("slices", "tab:green"),
        ("layers", "tab:orange"),
    ):
        label = {"norms": "serial norms only", "alone": "step, serial norms"}.get(
            name, f"step, norms by {name}"
        )
        axes.measured(
            steps,
            sizes,
            [row["times"][name] for row in result["norms"]],
            "o",
            color=colour,
            label=label,
        )
        if name in result["norms"][0]["predicted_s"]:
            predicted = [1e3 * row["predicted_s"][name] for row in result["norms"]]
            steps.plot(
                sizes,
                predicted,
                "--",
                color=colour,
                label=f"predicted, norms by {name}" if name != "alone" else "predicted",
            )
    steps.set(
        title="Time of a LARS step on the slowest rank",
        xlabel="parameters",
        ylabel="ms",
        xscale="log",
        yscale="log",
    )
    return axes.finish(figure, accuracy, gains, search, steps)
