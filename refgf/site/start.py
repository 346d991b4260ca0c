"""The first page: one picture that moves, one question, three doors (static/start.html).

The picture plays a ring allreduce on RANKS ranks as refgf/site/player.py computes it, in CSS alone:
a message is a bar that moves, and the stripes of an element are the ranks that its sum holds.
"""

from refgf.site.frame import page
from refgf.site.player import schedule
from refgf.site.repository import Repository

ADDRESS = "index.html"
RANKS, STEP_S = 4, 1.2
CELL, HEIGHT = 20, 24  # of an element
CENTRES = ((160, 30), (264, 104), (160, 178), (56, 104))
ABOUT = (
    "How many machines sum their gradients: read it, measure it on a laptop, judge your own code."
)


def place(rank: int, column: int) -> tuple[float, float]:
    """The upper left corner of an element."""
    x, y = CENTRES[rank]
    return x + (column - RANKS / 2) * CELL, y - HEIGHT / 2


def stripes(x: float, y: float, ranks: list[int], style: str = "") -> str:
    """An element, which holds the sum of these ranks."""
    wide = CELL / RANKS
    bars = "".join(
        f'<rect class="of{rank}" x="{x + rank * wide:g}" y="{y:g}" width="{wide:g}" '
        f'height="{HEIGHT}"/>'
        for rank in ranks
    )
    return f"<g{style}>{bars}</g>"


def picture() -> tuple[str, str]:
    """(SVG, its keyframes)"""
    played = schedule("ring", RANKS, 1)
    trees = played["trees"]
    steps = max(step for *_, step in played["messages"])
    cycle = steps + 2  # a rest at the end

    def leaves(tree: int) -> list[int]:
        node = trees[tree]
        return [node] if isinstance(node, int) else [rank for part in node for rank in leaves(part)]

    held, drawn, sent = {}, [], []
    for step, rank, column, tree, *_ in played["writes"]:
        style = f' style="animation-name: has{step}"' if step else ""
        held[step, rank, column] = leaves(tree)
        drawn.append(stripes(*place(rank, column), leaves(tree), style))
    for source, target, column, _, step in played["messages"]:
        (x, y), (to_x, to_y) = place(source, column), place(target, column)
        before = max(each for each in range(step) if (each, source, column) in held)
        style = (
            f' class="message" style="--x: {to_x - x:g}px; --y: {to_y - y:g}px; '
            f'animation-delay: {(step - 1) * STEP_S:g}s"'
        )
        sent.append(stripes(x, y, held[before, source, column], style))
    names = "".join(
        f'<text x="{x}" y="{y + (26 if rank else -18)}" text-anchor="middle">machine {rank}</text>'
        for rank, (x, y) in enumerate(CENTRES)
    )
    frames = "".join(
        f'<rect class="frame" x="{x:g}" y="{y:g}" width="{CELL}" height="{HEIGHT}"/>'
        for rank in range(RANKS)
        for x, y in (place(rank, column) for column in range(RANKS))
    )
    keys = "".join(
        f"@keyframes has{step} {{ 0%, {100 * step / cycle:.2f}% {{ opacity: 0; }} "
        f"{100 * step / cycle + 0.01:.2f}%, 99.9% {{ opacity: 1; }} }}\n"
        for step in range(1, steps + 1)
    )
    moved = "transform: translate(var(--x), var(--y));"
    keys += (
        f"@keyframes send {{ 0% {{ opacity: 1; }} {90 / cycle:.2f}% {{ opacity: 1; {moved} }} "
        f"{100 / cycle:.2f}%, 100% {{ opacity: 0; {moved} }} }}\n"
        f".moves g[style] {{ animation-duration: {cycle * STEP_S:g}s; }}\n"
    )
    return "".join((*drawn, frames, names, *sent)), keys


def start_page(files: Repository) -> str:
    svg, keys = picture()
    body = files.text("refgf/site/static/start.html").replace("<!-- picture -->", svg)
    return page(ADDRESS, "refgf", body, ABOUT, f"<style>\n{keys}</style>\n")
