"""A map of links: where one call for many gradients is much faster than one call for each."""

import numpy as np

from refgf.papers.scaling.published import INFINIBAND, TEN_GIGABIT
from refgf.papers.scaling.region import latency_of_gain
from refgf.papers.scaling.workloads import resnet50


def draw(axis, result: dict) -> None:
    """Predicted: links on which one call for ResNet-50 is 1.5 and 3 times as fast as eager."""
    rates = np.logspace(8, 11.5, 50) / 8  # bytes/s
    tensors, size = resnet50().tensors, max(2, result["ranks"])
    nbytes = 4 * sum(tensor.elements for tensor in tensors)
    for wanted, shade in ((1.5, 0.15), (3, 0.3)):
        alpha = 1e6 * np.array(
            [latency_of_gain(wanted, len(tensors), nbytes, size, 1 / rate) for rate in rates]
        )
        axis.loglog(8e-9 * rates, alpha, color="tab:green", label=f"gain {wanted}, predicted")
        axis.fill_between(8e-9 * rates, alpha, 1e5, color="tab:green", alpha=shade)
    lines = {"this run": (result["ranks"], result["fit"]["a_s"], result["fit"]["b_s_per_byte"])}
    for machine in (TEN_GIGABIT, INFINIBAND):
        lines[machine.name] = (16, machine.lines[16].a_s, machine.lines[16].b_s_per_byte)
    highest = 3000
    for (name, (p, a_s, b_s_per_byte)), marker in zip(lines.items(), "*os"):
        rate, alpha = fitted_link(p, a_s, b_s_per_byte)
        axis.plot(8e-9 * rate, 1e6 * alpha, marker, ms=10, label=f"{name} ({p} ranks, fitted)")
        highest = max(highest, 2e6 * alpha)
    axis.axvline(56, color="grey", ls=":", label="56 Gbit/s: the network of the papers")
    axis.set(
        title=f"Where lazy allreduce pays: ResNet-50, {size} ranks, no overlap",
        xlabel="rate of a link, Gbit/s",
        ylabel="alpha of a message, microseconds",
        ylim=(0.3, highest),
    )
    axis.legend(fontsize=7, loc="lower left")
    axis.grid(alpha=0.3)


def fitted_link(p: int, a_s: float, b_s_per_byte: float) -> tuple[float, float]:
    """(bytes/s, alpha of a message) from a + b m of a ring allreduce; nan for one rank or b = 0."""
    if p == 1 or not b_s_per_byte:
        return float("nan"), float("nan")
    return 2 * (p - 1) / p / b_s_per_byte, a_s / (2 * (p - 1))
