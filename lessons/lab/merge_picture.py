"""The picture of lesson 09: times of all groupings, and how often the greedy rule misses."""

from kit import axes


def draw(result: dict):
    networks = result["networks"]
    title = (
        "Lesson 09: merged gradients. Groups computed from measured times, next to a theta sweep"
    )
    count = len(networks) + 1
    figure, panels = axes.frame(title, 1, count, (6.4 * count, 5.8))
    for axis, network in zip(panels, networks.values()):
        draw_network(axis, network, result["share"])
    draw_misses(panels[-1], result["misses"])
    return axes.finish(figure, *panels)


def draw_network(axis, network: dict, share: int) -> None:
    rows = network["rows"]
    labels = [f"{row['name']}\n({row['calls']})" for row in rows]
    timings, predicted = ([row[key] for row in rows] for key in ("measured", "predicted_s"))
    axes.measured(axis, labels, timings, "o", color="tab:blue", label="measured")
    style = {"ms": 16, "mew": 2, "color": "tab:red", "label": "predicted"}
    axis.plot(labels, [1e3 * t for t in predicted], "_", **style)
    axis.axhline(1e3 * network["backward_s"], color="grey", lw=1, label="backward")
    axis.tick_params(axis="x", rotation=60, labelsize=7)
    title = f"{network['title']}, 1/{share} of its bytes (calls in brackets)"
    axis.set(title=title, ylabel="ms", yscale="log")


def draw_misses(axis, misses: list[dict]) -> None:
    """Of each kind of network, the share on which greedy is longer by at least x percent."""
    for row in misses:
        excesses = [100 * excess for excess in row["excesses"]]
        shares = [100 * row["missed"] * (1 - i / len(excesses)) for i in range(len(excesses))]
        if excesses:
            axis.plot(excesses, shares, marker=".", label=f"{row['kind']}: {row['networks']}")
    axis.set(
        title="Greedy rule against best merge, computed",
        xlabel="step longer by at least, %",
        ylabel="share of networks, %",
        xscale="log",
        xlim=(1e-2, None),
    )
