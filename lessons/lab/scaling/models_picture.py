"""The figure of three models: the same allreduce, by a formula and by a simulator."""

from kit import axes
from lab.scaling.models import FORM, IN_ORDER, ROUND_ROBIN

MS = 1e3
BELOW = (
    "By SimGrid. Contention: messages share a link fairly. Calibrated TCP: SMPI's factors. Fat "
    "tree: 16 nodes share 8 links up; in order one message leaves a switch, round robin all 16."
)


def draw(found: dict) -> dict:
    """{"models": figure}; nothing of a run without these numbers."""
    if not found:
        return {}
    title = (
        f"Lesson 08, appendix: PREDICTED ring of {found['elements'] / 1e6:.1f} million gradients"
    )
    figure, (left, right) = axes.frame(f"{title}, v100-56gbit", 1, 2, (10, 5))
    draw_lines(left, {FORM: found["closed_s"]} | found["links"])
    left.set_ylim(0, None)
    left.set_title("A link for each node:\nTCP as SimGrid calibrates it takes longer")
    placed = {name: found["tree"][name] for name in (IN_ORDER, ROUND_ROBIN) if found["tree"]}
    sizes = next(iter(placed.values()), found["closed_s"])
    form = {p: found["closed_s"][p] for p in sizes}
    draw_lines(right, {FORM: form} | placed)
    right.set_ylim(0, None)
    right.set_title("A fat tree with half the links up:\nthe order of the ranks decides")
    if found["missing"]:
        right.set_title(f"No SimGrid in this run\n{found['missing'][:60]}", fontsize=9)
    return {"models": axes.finish(figure, left, right, computed=True, below=BELOW)}


def draw_lines(axis, rows: dict) -> None:
    for number, (name, row) in enumerate(rows.items()):
        sizes = [int(p) for p in row]
        size = 11 - 2.5 * number  # where two series coincide, both are seen
        values = [MS * s for s in row.values()]
        axis.plot(sizes, values, label=name, ms=size, **axes.style(number))
    first = [int(p) for p in next(iter(rows.values()))]
    axis.set_xscale("log", base=2)
    axis.set_xticks(first[:: 2 if len(first) > 5 else 1], first[:: 2 if len(first) > 5 else 1])
    axis.minorticks_off()
    axis.set(xlabel="ranks", ylabel="one allreduce, ms")
