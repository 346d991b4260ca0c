"""What the formulas leave out, from the half of the published rows that may calibrate.

    python -m refgf.plan.calibration     writes calibration.toml from these rows

For each fabric: measured step / step by the formulas, its median, the value that 9 of 10 rows stay
below, and the largest. A step never takes less than the formulas say, so the interval begins at 1.
TCP carries less than the wire, and how much depends on its streams, which no source states: for
each row on Ethernet the rate with which the formulas give the measured step; the 1st, 5th and 9th
of ten.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path

from refgf.plan import scored
from refgf.plan.published import ETHERNET, FABRICS, ONE_BOX, RDMA, ScalingRow, rows
from refgf.plan.question import Question, Unmodelled

FILE = Path(__file__).with_name("calibration.toml")
TCP_LATENCY_S = 20e-6  # a link between nodes with a longer latency is taken for TCP (chosen)
TCP_STEP = 1.05  # from one rate that is tried to the next
ALIKE = 1.01  # rates nearer than this are the same (chosen)
GBIT = 1e9 / 8


def calibrated(asked: Question, fabric: str | None = None) -> Question:
    """The same question with what its fabric leaves out.

    A link between nodes that was measured itself has no range for TCP.
    """
    name = fabric or fabric_of(asked)
    data = tables()[name]
    notes = note(name, data), *beyond(name, data, asked)
    given = Unmodelled(data["middle"], data["most"], notes=notes)
    if fabric is None and name != ONE_BOX and not asked.fabric.lines:
        kind = "TCP" if name == ETHERNET else "RDMA"
        said = f"The link between nodes is taken for {kind}: TCP's latency is "
        said += f"{1e6 * TCP_LATENCY_S:g} us or more, RDMA's less."
        given = replace(given, notes=(*notes, said))
    if name != ETHERNET or asked.fabric.lines:
        return replace(asked, unmodelled=given)
    rate = 1 / asked.fabric.between.beta_s_per_byte
    least, middle, most = (
        min(rate, GBIT * data["tcp"][key]) for key in ("least", "middle", "most")
    )
    slower = replace(asked.fabric, between=asked.fabric.scaled(tcp=rate / middle).between)
    said = f"TCP is planned with {middle / GBIT:.3g} Gbit/s of a node's {rate / GBIT:.3g}, in "
    said += f"{least / GBIT:.3g} to {most / GBIT:.3g}: what it carried in {data['rows']} published "
    said += "rows. Its flows decide, and the rate of one: measure it with all_reduce_perf."
    given = replace(given, tcp=(middle / most, middle / least), notes=(*given.notes, said))
    return replace(asked, fabric=slower, unmodelled=given)


def beyond(name: str, data: dict, asked: Question) -> tuple[str, ...]:
    """A sentence for each input that lies outside all rows that calibrate this fabric."""
    link = asked.fabric.between if asked.nodes > 1 else asked.fabric.inside or asked.fabric.between
    gbit, (least, most), told = 1 / link.beta_s_per_byte / GBIT, data["gbit"], []
    if asked.size > data["ranks"]:
        told.append(f"{asked.size} ranks are more than any row (at most {data['ranks']})")
    if asked.step.elements > data["elements"]:
        told.append(
            f"{asked.step.elements:,} gradients are more than any row's (at most "
            f"{data['elements']:,})"
        )
    if not least <= ALIKE * gbit <= ALIKE**2 * most:
        told.append(f"a link of {gbit:.4g} Gbit/s is outside the rows ({least:g} to {most:g})")
    more = (
        f"that calibrate {name}. What is not modelled may be larger than its range: the farthest "
    )
    more += f"of these rows took {data['largest']:.3g} times what the formulas say."
    return tuple(f"WARNING: {each} {more}" for each in told)


def fabric_of(asked: Question) -> str:
    if asked.nodes == 1:
        return ONE_BOX
    tcp = asked.fabric.between.alpha_s >= TCP_LATENCY_S and not asked.fabric.lines
    return ETHERNET if tcp else RDMA


def note(name: str, data: dict) -> str:
    """On Ethernet what is not modelled is that of RDMA, besides the rate of TCP."""
    of = RDMA if name == ETHERNET else name
    also = f"{of}, because what TCP carries is another input" if name == ETHERNET else of
    return (
        f"Not modelled (missed): {data['middle']:.2f}, 1 to {data['most']:.2f}, multiplies the "
        f"whole step, its computing too, because {tables()[of]['rows']} published steps ({also}) "
        "took as many times what the formulas say. It is no time of a call."
    )


@cache
def tables() -> dict[str, dict]:
    return tomllib.loads(FILE.read_text())


# ---- from the rows ----


def from_rows(given: Iterable[ScalingRow]) -> dict[str, dict]:
    """calibration.toml's content. Only rows that are not held out count."""
    used = [row for row in given if not row.held_out]
    found: dict[str, dict] = {}
    for fabric in (ONE_BOX, RDMA):
        missed = [row.step_s / scored.formula_s(row) for row in used if row.fabric == fabric]
        found[fabric] = {"middle": quantile(missed, 0.5), "most": quantile(missed, 0.9)}
    found[ETHERNET] = dict(found[RDMA])
    over = [row for row in used if row.fabric == ETHERNET]
    rates = [tcp_rate(row, found[RDMA]["middle"]) for row in over]
    shares = {"least": 0.1, "middle": 0.5, "most": 0.9}
    found[ETHERNET]["tcp"] = {key: quantile(rates, share) for key, share in shares.items()}
    for fabric in FABRICS:
        mine = [row for row in used if row.fabric == fabric]
        gbit = [rate_of(row) for row in mine]
        most = max(row.ranks for row in mine)
        elements = max(row.workload().parameters for row in mine)
        found[fabric]["largest"] = max(row.step_s / scored.formula_s(row) for row in mine)
        found[fabric] |= {"rows": len(mine), "ranks": most, "elements": elements}
        found[fabric] |= {"gbit": [min(gbit), max(gbit)]}
    return found


def rate_of(row: ScalingRow) -> float:
    """Gbit/s between nodes, in one box inside it."""
    given = scored.fabric_of(row)
    link = given.between if row.between else given.inside
    return 1 / link.beta_s_per_byte / GBIT


def tcp_rate(row: ScalingRow, missed: float) -> float:
    """Gbit/s between nodes with which the formulas give the measured step; inf: the wire's."""
    wire, rate = rate_of(row), 1.0
    while rate < wire:
        if missed * scored.formula_s(row, wire / rate) <= row.step_s:
            return rate
        rate *= TCP_STEP
    return inf


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[round(share * (len(ordered) - 1))]


def written(found: dict[str, dict]) -> str:
    lines = [
        "# Written by python -m refgf.plan.calibration from the published rows that calibrate."
    ]
    for fabric, data in found.items():
        lines += ["", f'["{fabric}"]']
        plain = {key: value for key, value in data.items() if key != "tcp"}
        low, high = plain.pop("gbit")
        lines += [
            f"{key} = {value if isinstance(value, int) else f'{value:.4g}'}"
            for key, value in plain.items()
        ]
        lines += [f"gbit = [{low:.4g}, {high:.4g}]"]
        if "tcp" in data:
            lines += ["[Ethernet.tcp]  # Gbit/s"]
            lines += [f"{key} = {value:.4g}" for key, value in data["tcp"].items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    FILE.write_text(written(from_rows(rows())))
