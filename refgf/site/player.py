"""Our schedules as data that a page plays: messages, what each rank then holds, and when.

All numbers are computed here, by the judge of foreign schedules (refgf/oracle/schedules), which
runs each algorithm symbolically. The page counts messages, and multiplies counts by alpha and beta.
It runs dropped.py for a reader's own file.

A message arrives when the slowest path of messages up to it has: after messages alpha + elements
beta. Which path is the slowest could depend on alpha and beta. With slices of equal length it never
does: the path of the most messages also has the most elements, which is checked.
"""

import json
from collections.abc import Iterator
from math import lcm
from pathlib import Path

from refgf.oracle.foreign.closure import closure
from refgf.oracle.schedules.form import LARGEST_FILE
from refgf.oracle.schedules.order import Graph
from refgf.oracle.schedules.own import own_plan
from refgf.oracle.schedules.times import schedule_times
from refgf.site import pyodide
from refgf.site.dropped import LARGEST
from refgf.site.frame import page
from refgf.site.played import Played
from refgf.site.repository import Repository

ADDRESS = "player/index.html"
# name on the page: (name in OWN, ranks on a node)
ALGORITHMS = {
    "ring": ("ring", 1),
    "direct": ("direct", 1),
    "tree": ("tree", 1),
    "recursive-doubling": ("recursive-doubling", 1),
    "halving-doubling": ("halving-doubling", 1),
    "three-phase, 2 ranks a node": ("three-phase", 2),
    "three-phase, 4 ranks a node": ("three-phase", 4),
    "two-level, 2 ranks a node": ("two-level", 2),
    "two-level, 4 ranks a node": ("two-level", 4),
    "log-phases, 2 ranks a node": ("log-phases", 2),
    "log-phases, 4 ranks a node": ("log-phases", 4),
}
ALPHAS_S = [round(base * 10.0**power, 9) for power in range(-7, -2) for base in (1, 2, 5)]
RATES_GBIT = [base * 10.0**power for power in range(-1, 3) for base in (1, 2, 5)]
VECTOR_BYTES = [2**power for power in range(10, 31, 2)]
FAR = 10**6  # so many times alpha over beta, or beta over alpha: one of the two decides


class PathTime:
    """A time as (messages, elements) one after another; compared for one alpha and one beta."""

    def __init__(self, messages: int, elements: int, alpha: int, beta: int) -> None:
        self.pair, self.link = (messages, elements), (alpha, beta)
        self.value = messages * alpha + elements * beta

    def __add__(self, other: object) -> "PathTime":
        if not isinstance(other, PathTime):  # 0.0, where nothing comes before
            return self
        pair = (a + b for a, b in zip(self.pair, other.pair))
        return PathTime(*pair, *self.link)

    __radd__ = __add__

    def __mul__(self, times: float) -> "PathTime":
        return PathTime(*(round(times * count) for count in self.pair), *self.link)

    def __lt__(self, other: object) -> bool:
        return self.value < getattr(other, "value", other)

    def __gt__(self, other: object) -> bool:
        return self.value > getattr(other, "value", other)


class CountedLink:
    """In place of a Link: counts the messages and elements of the slowest path."""

    def __init__(self, alpha: int, beta: int) -> None:
        self.alpha, self.beta = alpha, beta
        self.beta_s_per_byte = PathTime(0, 1, alpha, beta)

    def message_s(self, elements: float) -> PathTime:
        return PathTime(1, round(elements), self.alpha, self.beta)

    def sum_s(self, elements: float) -> float:
        return 0.0


def elements(name: str, size: int, per_node: int) -> int:
    """Of the vector: the least number from p on for which all slices have the same length."""
    nodes = size // per_node
    power = 1 << (nodes.bit_length() - 1)  # the largest power of two up to the masters
    slices = {
        "halving-doubling": power,
        "log-phases": power,
        "three-phase": lcm(per_node, nodes),
    }.get(name, size)
    return -(-size // slices) * slices


def slowest(graph: Graph) -> dict[int, int]:
    """{node that sends a message: elements of the slowest path up to its arrival}"""
    found = []
    for link in ((FAR, 1), (1, FAR)):
        transfers = schedule_times(graph, 1.0, CountedLink(*link))[1]
        found.append({transfer.node: transfer.end_s.pair for transfer in transfers})
    assert found[0] == found[1], "a slowest path that depends on alpha and beta"
    return {node: count for node, (_, count) in found[0].items()}


def schedule(name: str, size: int, per_node: int) -> dict:
    """One algorithm on `size` ranks: Played.data, and for each message the "slowest" path.

    A message of step k arrives after k alpha + beta times the elements of its slowest path.
    """
    plan = own_plan(name, size, "msccl-xml", elements(name, size, per_node), per_node)
    played = Played(Graph(plan))
    found = slowest(played.graph)
    return played.data() | {"slowest": [found[node] for node, _ in played.messages]}


def sizes(per_node: int) -> list[int]:
    """Numbers of ranks that fill their nodes."""
    return list(range(max(2, per_node), LARGEST["ranks"] + 1, per_node))


def data_files(root: Path) -> Iterator[tuple[str, str]]:
    """(address, script): settings, the schedules of each algorithm, the modules that a file needs.

    Scripts and not JSON, because a page that is opened from a disk may not fetch files.
    """
    yield "player/settings.js", f"window.PLAYER={json.dumps(settings(root))};\n"
    for number, (title, (name, per_node)) in enumerate(ALGORITHMS.items()):
        found = {size: schedule(name, size, per_node) for size in sizes(per_node)}
        text = json.dumps(found, separators=(",", ":"))
        yield f"player/{number}.js", f"PLAYER.data[{json.dumps(title)}]={text};\n"
    modules = json.dumps(closure(["refgf.site.dropped"])[0])
    yield "player/modules.js", f"window.MODULES={modules};\n"


def settings(root: Path) -> dict:
    """What the page offers."""
    return {
        "python": pyodide.available(root),
        "largestFile": LARGEST_FILE,
        "algorithms": {
            title: {"file": f"{i}.js", "sizes": sizes(per_node)}
            for i, (title, (_, per_node)) in enumerate(ALGORITHMS.items())
        },
        "alphas": ALPHAS_S,
        "rates": RATES_GBIT,
        "bytes": VECTOR_BYTES,
        "data": {},
    }


def player_page(files: Repository) -> str:
    body = files.text("refgf/site/static/player.html")
    about = "Step through ring, tree, direct and hierarchical allreduce; who adds what, and when."
    scripts = "".join(
        f'<script src="{name}" defer></script>\n'
        for name in ("settings.js", "../static/python.js", "../static/player.js")
    )
    return page(ADDRESS, "Schedule player", body, about, scripts)
