"""A schedule as the page plays it: its messages by step, and what each place in memory holds.

A step of the page is one message deep: a message is in step k if the longest path of messages up to
it, and with it, has k messages. player.py exports our own schedules; the page itself runs this
module for a reader's file (dropped.py), so it imports the standard library only.
"""

from refgf.oracle.schedules.form import BUFFERS, Span
from refgf.oracle.schedules.layout import layout
from refgf.oracle.schedules.order import Graph
from refgf.oracle.schedules.times import schedule_times, traffic
from refgf.oracle.schedules.values import Trees, Values
from refgf.predict.cost import Link


class Recorded(Values):
    """Runs the steps, and notes what each of them writes: (node, cell, tree)."""

    def __init__(self, *arguments: object) -> None:
        self.writes = []
        super().__init__(*arguments)

    def _write(self, span: Span, value: list[int], node: int) -> None:
        super()._write(span, value, node)
        self.writes += [(node, cell, tree) for cell, tree in zip(self.where.cells(span), value)]


class Played:
    """The graph of an MSCCL plan that runs to its end without a race.

    messages: [(node, span that is sent)] in the order of the page.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, self.where = graph, layout(graph.plan)[0]
        self.values = Recorded(graph, self.where)
        self.begins, ends, sent = {}, {}, []
        for node in graph.order:
            rank, step = graph.nodes[node]
            begin = max((ends[other] for other, _ in graph.before[node]), default=0)
            self.begins[node], ends[node] = begin, begin + bool(step.sends)
            if step.sends:
                sent.append((begin, rank, node, (step.writes or step.reads)[0]))
        self.messages = [(node, span) for _, _, node, span in sorted(sent, key=lambda m: m[:2])]
        self.wanted = {
            cell: (chunk, ranks)
            for rank in range(self.where.ranks)
            for cell, chunk, ranks in self.where.wanted(rank)
        }
        self.columns = self._columns()

    def _columns(self) -> dict[tuple[str, int], int]:
        """{(buffer, chunk): column of the page} of all memory that has a value or is sent."""
        cells = {*self.where.inputs(), *(cell for _, cell, _ in self.values.writes), *self.wanted}
        cells |= {cell for _, span in self.messages for cell in self.where.cells(span)}
        places = sorted({cell[1:] for cell in cells}, key=lambda p: (BUFFERS.index(p[0]), p[1]))
        return {place: column for column, place in enumerate(places)}

    def names(self) -> list[str]:
        """Of the columns: 0, 1, ... of a vector in place, else i0, ... and o0, ...; scratch: s0."""
        in_place = len({buffer for buffer, _ in self.columns} - {"s"}) == 1
        return [
            str(chunk) if in_place and buffer != "s" else f"{buffer}{chunk}"
            for buffer, chunk in self.columns
        ]

    def data(self) -> dict:
        """Plain lists; see the keys."""
        graph, trees = self.graph, Exported(self.values.trees)
        messages = []
        for node, span in self.messages:
            rank, step = graph.nodes[node]
            first = self.columns[self.where.cells(span)[0][1:]]
            messages.append([rank, step.sends[0].peer, first, span.count, self.begins[node] + 1])
        return {
            "elements": self.where.total,
            "columns": self.names(),
            "messages": messages,  # from, to, first column, count, step
            "writes": self._writes(trees),  # step, rank, column, tree, element, is it the result?
            "trees": trees.nodes,  # a rank, or the numbers of two trees that are added
            "sent": [list(pair) for pair in traffic(graph)],  # of each rank: messages, elements
        }

    def _writes(self, trees: "Exported") -> list[list[int]]:
        """What each rank starts with, as of step 0; then what is written, step by step."""
        known = self.values.trees
        found = [(0, cell, known.leaf(*own)) for cell, own in self.where.inputs().items()]
        found += [(self.begins[node], cell, tree) for node, cell, tree in self.values.writes]
        writes = []
        for step, cell, tree in sorted(found, key=lambda write: write[0]):
            chunk, number = known.chunk[tree], trees.number(tree)
            result = number >= 0 and self.wanted.get(cell) == (chunk, known.ranks[tree])
            writes.append([step, cell[0], self.columns[cell[1:]], number, chunk, int(result)])
        return writes

    def times(self, link: Link, nbytes: float) -> list[tuple[float, float]]:
        """[(start, end)] of each message, in seconds. nbytes: of the whole vector."""
        _, transfers = schedule_times(self.graph, nbytes / self.where.total, link)
        ends = {transfer.node: (transfer.start_s, transfer.end_s) for transfer in transfers}
        return [ends[node] for node, _ in self.messages]


class Exported:
    """Those trees that are held at some time, with numbers of their own."""

    def __init__(self, trees: Trees) -> None:
        self.trees, self.known, self.nodes = trees, {}, []

    def number(self, tree: int) -> int:
        """-1: not a sum of one element with every rank at most once. It may be very large."""
        if self.trees.wrong[tree]:
            return -1
        children, ranks = self.trees.children[tree], self.trees.ranks[tree]
        node = [self.number(child) for child in children] if children else ranks.bit_length() - 1
        key = str(node)
        if key not in self.known:
            self.known[key] = len(self.nodes)
            self.nodes.append(node)
        return self.known[key]
