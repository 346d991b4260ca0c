"""Draws scaling efficiency over ranks, one line a system. Needs matplotlib.

A line has a gap where its system does not apply. A system that applies nowhere has no line.
"""

from math import nan
from textwrap import fill
from typing import Any

WIDTH = 80  # characters of the title that fit on a line


def draw(found: dict[str, Any], path: str) -> None:
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise ValueError(
            f"plan --figure {path}: got no matplotlib; wanted it for a figure; next: pip install "
            "matplotlib, or read the table"
        ) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

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
