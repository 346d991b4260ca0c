"""Draws scaling efficiency over ranks, and a score: predicted over measured steps.

Of efficiency a system has one line, with a gap where it does not apply. A system that applies
nowhere has no line. Both need matplotlib.
"""

from math import nan
from textwrap import fill
from typing import Any

WIDTH = 80  # characters of the title that fit on a line


TITLES = {"held_out": "held out", "calibrates": "calibrates plan", "own": "rows of --rows"}
COLOURS = {"one box": "tab:blue", "Ethernet": "tab:red", "RDMA": "tab:green"}


def plotting(path: str) -> Any:
    """matplotlib.pyplot, without a screen."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise ValueError(
            f"plan --figure {path}: got no matplotlib; wanted it for a figure; next: pip install "
            "matplotlib, or read the table"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw(found: dict[str, Any], path: str) -> None:
    pyplot = plotting(path)
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for marker, (name, curve) in zip("osD^v<>Pp", found["efficiency_percent"].items()):
        if not drawn(curve):
            continue
        percent = [nan if value is None else value for value in curve.values()]
        axes.plot(list(curve), percent, marker=marker, markersize=4, linewidth=1.2, label=name)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_ylim(0, 105)
    axes.set_xlabel("ranks")
    axes.set_ylabel("scaling efficiency, percent (predicted)")
    per_node = (
        f"{found['ranks_per_node']} {'ranks' if found['ranks_per_node'] > 1 else 'rank'} a node"
    )
    title = f"{found['model']['name']} on {found['network']['name']}, {per_node}"
    axes.set_title(fill(title, WIDTH), fontsize=10)
    asked = f"--ranks {found['ranks']}"
    axes.axvline(found["ranks"], color="0.5", linewidth=1, linestyle="--", label=asked)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    save(pyplot, figure, path)


def draw_score(found: dict[str, Any], path: str) -> None:
    """Each row's predicted interval over its measured step, both as factors of the measured one."""
    pyplot = plotting(path)
    titles = {name: TITLES[name] for name in found["halves"]}
    shape = {"nrows": len(titles), "figsize": (8, 3.5 * len(titles)), "squeeze": False}
    figure, grid = pyplot.subplots(**shape, layout="constrained", sharey=True)
    both = grid[:, 0]
    for axes, (half, title) in zip(both, titles.items()):
        rows = [row for row in found["rows"] if row["half"] == half]
        rows.sort(
            key=lambda row: (list(COLOURS).index(row["fabric"]), row["step_s"] / row["measured_s"])
        )
        for at, row in enumerate(rows):
            low, middle, high = (row[k] / row["measured_s"] for k in ("low_s", "step_s", "high_s"))
            colour, marker = COLOURS[row["fabric"]], "s" if row["kind"] == "transformer" else "o"
            axes.plot([at, at], [low, high], color=colour, linewidth=1.2, alpha=0.6)
            axes.plot(at, middle, marker, color=colour, markersize=3)
        axes.axhline(1, color="0.3", linewidth=1)
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylabel("predicted / measured step")
        axes.set_xticks([])
        axes.set_title(f"{found['predictor']}, {title}: {len(rows)} published steps", fontsize=10)
        axes.grid(alpha=0.3)
    for fabric, colour in COLOURS.items():
        both[0].plot([], [], color=colour, label=fabric)
    for marker, kind in (("o", "CNN"), ("s", "transformer")):
        both[0].plot([], [], marker, color="0.4", markersize=4, label=kind)
    both[0].legend(fontsize=8)
    save(pyplot, figure, path)


def save(pyplot: Any, figure: Any, path: str) -> None:
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"plan --figure: got {path} ({error}); wanted a file to write; next: --figure "
            "plan.png or plan.svg in a folder that exists"
        ) from None
    finally:
        pyplot.close(figure)


def drawn(curve: dict[int, float | None]) -> bool:
    """Does the system apply to more than one rank? One rank exchanges nothing."""
    return any(value is not None for size, value in curve.items() if size > 1)
