"""A map of links: where one call for ResNet-50's gradients is much faster than eager calls."""

import numpy as np

from kit import axes
from refgf.papers.scaling.published import INFINIBAND, TEN_GIGABIT
from refgf.papers.scaling.region import latency_of_gain
from refgf.papers.scaling.workloads import resnet50

ONE_NODE = 4  # ranks: a published line for as few is that of a bus, not of the network
GAINS = ((1.5, 0.15), (3, 0.3))  # and the shade of the region in which one call gains more
NOTE = """Predicted: the sums of ResNet-50's {} gradients on {} ranks, without overlap.
A point: the alpha and beta of its allreduce, T(m) = 2(p-1) alpha + 2(p-1)/p beta m.
MG-WFBP's T(m) are published fits from 32 kB to 2 MB: their rates need not be the links'."""


def draw(lines: dict, size: int):
    """A figure: borders of the gains for `size` ranks, and the links of fitted allreduces.

    lines: {name: (ranks, a_s, b_s_per_byte)}, besides two published clusters
    """
    title = "Lesson 03: on which links is one call faster than eager calls?"
    figure, (axis,) = axes.frame(title, 1, 1, size=(axes.WIDTH_INCHES, 6))
    rates = np.logspace(8, 11.5, 50) / 8  # bytes/s
    tensors = resnet50().tensors
    nbytes = 4 * sum(tensor.elements for tensor in tensors)
    for number, (wanted, shade) in enumerate(GAINS):
        alpha = 1e6 * np.array(
            [latency_of_gain(wanted, len(tensors), nbytes, size, 1 / rate) for rate in rates]
        )
        colour = axes.COLOURS[number]
        axis.loglog(
            8e-9 * rates, alpha, color=colour, label=f"above: eager calls / one call > {wanted}"
        )
        axis.fill_between(8e-9 * rates, alpha, 1e5, color=colour, alpha=shade)
    for machine in (TEN_GIGABIT, INFINIBAND):
        fitted = size if size in machine.lines and size > ONE_NODE else 16
        line = machine.lines[fitted]
        lines = lines | {machine.name: (fitted, line.a_s, line.b_s_per_byte)}
    highest = 3000
    for number, (name, (p, a_s, b_s_per_byte)) in enumerate(lines.items(), len(GAINS)):
        rate, alpha = fitted_link(p, a_s, b_s_per_byte)
        link = f"{8e-9 * rate:.3g} Gbit/s, {1e6 * alpha:.3g} us"
        label, style = f"{name}, fitted on {p} ranks: {link}", axes.style(number)
        axis.plot(8e-9 * rate, 1e6 * alpha, ls="none", ms=10, label=label, **style)
        highest = max(highest, 2e6 * alpha)
    axis.set(
        title=NOTE.format(len(tensors), size),
        xlabel="rate of a link, 1 / beta, Gbit/s",
        ylabel="latency of a message, alpha, us",
        ylim=(0.3, highest),
    )
    axis.title.set_fontsize(axes.TEXT_POINTS)
    return axes.finish(figure, axis, computed=True)


def fitted_link(p: int, a_s: float, b_s_per_byte: float) -> tuple[float, float]:
    """(bytes/s, alpha of a message) from a + b m of a ring allreduce; nan for one rank or b = 0."""
    if p == 1 or not b_s_per_byte:
        return float("nan"), float("nan")
    return 2 * (p - 1) / p / b_s_per_byte, a_s / (2 * (p - 1))
