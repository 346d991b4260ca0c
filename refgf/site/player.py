"""Our schedules as data that a page plays: messages, what each rank then holds, and when.

All numbers are computed here, by the judge of foreign schedules (refgf/oracle/schedules), which
runs each algorithm symbolically. The page counts messages, and multiplies counts by alpha and beta.

A message arrives when the slowest path of messages up to it has: after messages alpha + elements
beta. Which path is the slowest could depend on alpha and beta. With slices of equal length it never
does: the path of the most messages also has the most elements, which is checked.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from math import lcm

from refgf.oracle.schedules.form import Span
from refgf.oracle.schedules.layout import layout
from refgf.oracle.schedules.order import Graph
from refgf.oracle.schedules.own import own_plan
from refgf.oracle.schedules.times import schedule_times, traffic
from refgf.oracle.schedules.values import Values
from refgf.papers.jia.hierarchical import consecutive_nodes

LARGEST = 16  # ranks
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


class Path:
    """A time as (messages, elements) one after another; compared for one alpha and one beta."""

    def __init__(self, messages: int, elements: int, alpha: int, beta: int) -> None:
        self.pair, self.link = (messages, elements), (alpha, beta)
        self.value = messages * alpha + elements * beta

    def __add__(self, other: object) -> "Path":
        if not isinstance(other, Path):  # 0.0, where nothing comes before
            return self
        pair = (a + b for a, b in zip(self.pair, other.pair))
        return Path(*pair, *self.link)

    __radd__ = __add__

    def __lt__(self, other: object) -> bool:
        return self.value < getattr(other, "value", other)

    def __gt__(self, other: object) -> bool:
        return self.value > getattr(other, "value", other)


class CountedLink:
    """In place of a Link: counts the messages and elements of the slowest path."""

    def __init__(self, alpha: int, beta: int) -> None:
        self.alpha, self.beta = alpha, beta

    def message_s(self, elements: float) -> Path:
        return Path(1, round(elements), self.alpha, self.beta)

    def sum_s(self, elements: float) -> float:
        return 0.0


class Recorded(Values):
    """Runs the steps, and notes what each of them writes."""

    def __init__(self, *arguments: object) -> None:
        self.writes = []
        super().__init__(*arguments)

    def _write(self, span: Span, value: list[int], node: int) -> None:
        super()._write(span, value, node)
        self.writes.append((node, span, list(value)))


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


def arrivals(graph: Graph) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """{(source, dest): for each of their messages, when it arrives, as (messages, elements)}"""
    found = []
    for link in ((FAR, 1), (1, FAR)):
        found.append(defaultdict(list))
        for transfer in schedule_times(graph, 1.0, CountedLink(*link))[1]:
            found[-1][transfer.source, transfer.dest].append(transfer.end_s.pair)
    assert found[0] == found[1], "a slowest path that depends on alpha and beta"
    return found[0]


def schedule(name: str, size: int, per_node: int) -> dict:
    """One algorithm on `size` ranks as plain lists; see the keys below."""
    n = elements(name, size, per_node)
    graph = Graph(own_plan(name, size, "msccl-xml", n, per_node))
    values = Recorded(graph, layout(graph.plan)[0])
    arrive = {pair: iter(ends) for pair, ends in arrivals(graph).items()}
    steps, messages = {}, []
    for node in graph.order:
        rank, step = graph.nodes[node]
        steps[node] = max((steps[other] for other, _ in graph.before[node]), default=0)
        for port in step.sends:
            span = step.reads[0]
            steps[node], elements_before = next(arrive[rank, port.peer])
            what = [rank, port.peer, span.start, span.count]
            messages.append([*what, steps[node], elements_before])
    trees, writes, buffered = Exported(values), [], []
    for node, span, found in values.writes:
        for chunk, tree in enumerate(found, start=span.start):
            if span.buffer != "s":
                writes.append([steps[node], span.rank, chunk, trees.number(tree)])
            elif values.trees.children[tree] is None and graph.nodes[node][1].receives:
                source = values.trees.ranks[tree].bit_length() - 1
                buffered.append([steps[node], span.rank, values.trees.chunk[tree], source])
    return {
        "elements": n,
        "nodes": consecutive_nodes(size, per_node),
        # from, to, first element, count, step, elements of the slowest path; it arrives after
        # step alpha + these elements beta
        "messages": sorted(messages, key=lambda m: (m[4], m[0])),
        "writes": sorted(writes),  # step, rank, element, tree
        "buffered": sorted(buffered),  # step, rank, element, whose
        "trees": trees.nodes,  # a rank, or the numbers of two trees that are added
        "sent": [list(pair) for pair in traffic(graph)],  # of each rank: messages, elements
    }


class Exported:
    """Those trees that are held at some time, with numbers of their own."""

    def __init__(self, values: Values) -> None:
        self.trees, self.known, self.nodes = values.trees, {}, []

    def number(self, tree: int) -> int:
        children, ranks = self.trees.children[tree], self.trees.ranks[tree]
        node = [self.number(child) for child in children] if children else ranks.bit_length() - 1
        key = str(node)
        if key not in self.known:
            self.known[key] = len(self.nodes)
            self.nodes.append(node)
        return self.known[key]


def sizes(per_node: int) -> list[int]:
    """Numbers of ranks that fill their nodes."""
    return list(range(max(2, per_node), LARGEST + 1, per_node))


def data_files() -> Iterator[tuple[str, str]]:
    """(file name, a script that holds the schedules) of each algorithm.

    Scripts and not JSON, because a page that is opened from a disk may not fetch files.
    """
    for number, (title, (name, per_node)) in enumerate(ALGORITHMS.items()):
        found = {size: schedule(name, size, per_node) for size in sizes(per_node)}
        text = json.dumps(found, separators=(",", ":"))
        yield f"{number}.js", f"PLAYER.data[{json.dumps(title)}]={text};\n"


def settings() -> str:
    """What the page offers, as a script."""
    found = {
        "algorithms": {
            title: {"file": f"{i}.js", "sizes": sizes(per_node)}
            for i, (title, (_, per_node)) in enumerate(ALGORITHMS.items())
        },
        "alphas": ALPHAS_S,
        "rates": RATES_GBIT,
        "bytes": VECTOR_BYTES,
        "data": {},
    }
    return f"window.PLAYER={json.dumps(found)};\n"
