"""The figures of lesson 09: steps of all groupings, and how often the greedy rule misses."""

from kit import axes


def draw(result: dict) -> dict:
    """The first network with the predicted places, other networks, misses."""
    networks, like = result["networks"], result["regime"]["like"]
    figures = {}
    for number, (key, network) in enumerate(networks.items()):
        title = f"Lesson 09: merged gradients. {network['title']} like {like}"
        if like == "this-machine":
            title = f"Lesson 09 on this machine's links: {network['title']}"
        figure, (steps,) = axes.frame(title, 1, 1)
        draw_steps(steps, network, result["regime"]["dilation"])
        figures[key if number else ""] = axes.finish(figure, steps)
    figure, (misses,) = axes.frame("Greedy rule against the best merge (computed)", 1, 1)
    draw_misses(misses, result["misses"])
    return figures | {"misses": axes.finish(figure, misses)}


def draw_steps(axis, network: dict, k: float) -> None:
    """Bars in the cluster's time; the fastest is highlighted, the prediction is a diamond."""
    rows = [
        {
            "name": row["name"],
            "timing": row["timing"],
            "predicted_s": row["predicted_s"],
            "note": f"{row['calls']} call{'s' * (row['calls'] > 1)}",
        }
        for row in network["rows"]
    ]
    fastest = min(range(len(rows)), key=lambda i: rows[i]["timing"]["median_s"])
    axes.bars(axis, rows, 1e3 / k, fastest)
    axis.axvline(1e3 * network["compute_s"] / k, color="grey", lw=1, label="no exchange")
    clock = "" if k == 1 else " in the cluster's time"
    axis.set(xlabel=f"step{clock}, ms; fastest in dark blue")


def draw_misses(axis, misses: list[dict]) -> None:
    """Of each kind of network, the share on which greedy is longer by at least x percent."""
    missed = [row for row in misses if row["excesses"]]
    for number, row in enumerate(missed):
        excesses = [100 * excess for excess in row["excesses"]]
        shares = [100 * row["missed"] * (1 - i / len(excesses)) for i in range(len(excesses))]
        label = f"{row['kind']}: {row['networks']}"
        axis.plot(excesses, shares, ms=4, label=label, **axes.style(number))
    never = [row["kind"] for row in misses if not row["excesses"]]
    text = "\n".join(["never missed:", *never])
    axis.annotate(text, (0.98, 0.6), xycoords="axes fraction", ha="right", va="top")
    axis.set(
        xlabel="step longer by at least, %",
        ylabel="share of networks, %",
        xscale="log",
        xlim=(1e-2, None),
    )
