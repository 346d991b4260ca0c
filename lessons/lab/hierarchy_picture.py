"""The picture of lesson 10: time and gain against size, time against ranks per node."""

import kit
from kit import axes


def draw(result: dict):
    sizes = "/".join(map(str, sorted({len(node) for node in result["nodes"]})))
    title = (
        f"Lesson 10: {len(result['nodes'])} nodes of {sizes} ranks. "
        "Few slow steps help short vectors; for long ones the bytes decide"
    )
    figure, (size_axis, ratio_axis, k_axis) = axes.frame(title, 1, 3, (19, 5.6))
    draw_sizes(size_axis, ratio_axis, result["points"])
    draw_ranks_per_node(k_axis, result["by_k"])
    return axes.finish(figure, size_axis, ratio_axis, k_axis)


def draw_sizes(size_axis, ratio_axis, points: list[dict]) -> None:
    nbytes = [point["bytes"] for point in points]
    for i, (name, marker) in enumerate(zip(points[0]["measured"], "osP^Dv<*X")):
        axes.measured(
            size_axis,
            nbytes,
            [point["measured"][name] for point in points],
            marker,
            color=f"C{i}",
            label=name,
        )
        size_axis.plot(
            nbytes, [1e3 * point["predicted_s"][name] for point in points], "--", color=f"C{i}"
        )
        if name != "flat ring":
            gain = [
                p["measured"]["flat ring"]["median_s"] / p["measured"][name]["median_s"]
                for p in points
            ]
            ratio_axis.plot(nbytes, gain, marker=marker, ls="none", color=f"C{i}")
            forecast = [
                p["predicted_s"]["flat ring"] / max(1e-12, p["predicted_s"][name]) for p in points
            ]
            ratio_axis.plot(nbytes, forecast, "--", color=f"C{i}")
    size_axis.set(title="Time; dashed: predicted", ylabel="ms", yscale="log")
    top = 1.1 * max(
        p["measured"]["flat ring"]["median_s"] / t["median_s"]
        for p in points
        for t in p["measured"].values()
    )
    if all(point["least_s"] > 0 for point in points):
        allowed = [
            point["measured"]["flat ring"]["median_s"] / point["least_s"] for point in points
        ]
        ratio_axis.plot(
            nbytes,
            allowed,
            color="grey",
            lw=3,
            alpha=0.5,
            label="limit by the bytes between nodes",
        )
    ratio_axis.axhline(1, color="grey", lw=1, label="flat ring")
    ratio_axis.set(title="Times as fast as the flat ring; dashed: predicted", ylim=(0, top))
    for axis in (size_axis, ratio_axis):
        axis.set_xscale("log", base=2)
        axis.set_xticks(nbytes, [kit.number_of_bytes(n) for n in nbytes], fontsize=8)
        axis.set_xlabel("bytes per rank")


def draw_ranks_per_node(axis, by_k: list[dict]) -> None:
    """In the colours of the other plots. The points of the longer vector are filled."""
    for name, marker, colour in (
        ("three phases", "s", "C1"),
        ("log phases", "P", "C2"),
        ("two-level ring", "^", "C3"),
    ):
        rows = [row for row in by_k if row["algorithm"] == name]
        k = [row["k"] for row in rows]
        for i, fill in enumerate(("none", "full")):
            label = f"{name}, {kit.number_of_bytes(rows[0]['bytes'][i])}"
            times = [1e3 * row["measured"][i]["median_s"] for row in rows]
            axis.plot(k, times, marker, color=colour, fillstyle=fill, label=label)
            axis.plot(k, [1e3 * row["predicted_s"][i] for row in rows], "--", color=colour)
    axis.set(
        title="Ranks taken to share a node; dashed: predicted",
        xlabel="k",
        ylabel="ms",
        xscale="log",
        yscale="log",
    )
    axis.set_xticks(k, k)
    axis.set_xticks([], minor=True)
