"""The figure of lesson 12: time to choose, bytes against ranks, losses, accuracy against bytes."""

from kit import axes

PERCENTS = (0.1, 1.0, 10.0)
COLOURS = {
    "dense": "black",
    "CSC": "tab:blue",
    "top-k": "tab:red",
    "MSTopK": "tab:orange",
    "HiTopKComm": "tab:green",
    "top-k, same density": "tab:purple",
}


def draw(result: dict):
    title = (
        "Lesson 12: fine against coarse. Top-k chooses better, but its bytes grow with p "
        "and choosing takes time"
    )
    figure, (choice, traffic, losses, accuracy) = axes.frame(title, 2, 2, (15, 10.5))
    draw_choice(choice, result["selection"])
    ranks = result["traffic"]["ranks"]
    for name, shares in result["traffic"]["shares"].items():
        traffic.loglog(ranks, shares, "o-", color=COLOURS[name], label=f"{name} at 1 %")
    traffic.axhline(1, color="black", lw=1, label="dense ring")
    traffic.set(
        title="Bytes sent by rank 0, as a share of the dense ring's",
        xlabel="ranks",
        ylabel="share",
    )
    traffic.set_xticks(ranks, ranks)
    methods = result["accuracy"]["methods"]
    axes.losses(losses, {name: method["runs"] for name, method in methods.items()}, COLOURS)
    for name, method in methods.items():
        right = [100 * (rows[-1]["accuracy"] or 0) for rows in method["runs"]]
        accuracy.plot([method["bytes"]] * len(right), right, "o", color=COLOURS[name], label=name)
    accuracy.set(
        title="Held-out accuracy at the end",
        xlabel="bytes sent by rank 0 in a step",
        ylabel="accuracy, %",
        xscale="log",
    )
    return axes.finish(figure, choice, traffic, losses, accuracy)


def draw_choice(axis, selection: list[dict]) -> None:
    for percent, style in zip(PERCENTS, ("o-", "s--", "^:")):
        rows = [row for row in selection if row["percent"] == percent]
        for name, colour in zip(
            rows[0]["times"], ("tab:grey", "tab:red", "tab:orange", "tab:blue")
        ):
            if percent == PERCENTS[0] or name != "CSC's norms":
                axis.loglog(
                    [row["n"] for row in rows],
                    axes.median_ms(row["times"][name] for row in rows),
                    style,
                    color=colour,
                    label=f"{name}, {percent:g} %" if name != "CSC's norms" else name,
                )
    axis.set(title="Time to choose, all ranks at once", xlabel="gradients", ylabel="ms")
