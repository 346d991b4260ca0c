"""The symbolic run: every chunk holds a tree with leaves (rank, chunk) and + as its nodes.

Equal trees are one number, and a + b is b + a, because floating-point addition is commutative. So
two ranks end with the same bits on any data exactly if their numbers are equal. Each tree also
knows which ranks it sums and whether it is a sum of one chunk with every rank at most once.
"""

from collections import defaultdict

from refgf.oracle.schedules.form import Finding, PlanStep, Span
from refgf.oracle.schedules.layout import Layout
from refgf.oracle.schedules.order import SHOWN, Graph

LONGEST_TREE = 160  # characters of a tree in a message


class Trees:
    """All trees of a run. Parallel lists: children, chunk, ranks (bits), guilty node or None."""

    def __init__(self) -> None:
        self.children, self.chunk, self.ranks, self.wrong = [], [], [], []
        self.known = {}

    def leaf(self, rank: int, chunk: int) -> int:
        return self._tree((rank, chunk, "leaf"), None, chunk, 1 << rank, None)

    def nothing(self, node: int) -> int:
        """What a step reads where nothing has been written."""
        return self._tree((node, "nothing"), None, -1, 0, (node, "reads what no step has written"))

    def add(self, a: int, b: int, node: int) -> int:
        """The sum that a step forms."""
        a, b = min(a, b), max(a, b)
        wrong = self.wrong[a] or self.wrong[b]
        if not wrong and self.chunk[a] != self.chunk[b]:
            wrong = node, f"adds chunk {self.chunk[b]} to chunk {self.chunk[a]}"
        if not wrong and self.ranks[a] & self.ranks[b]:
            twice = numbers(self.ranks[a] & self.ranks[b])
            wrong = node, f"adds the contribution of {twice} twice"
        return self._tree((a, b), (a, b), self.chunk[a], self.ranks[a] | self.ranks[b], wrong)

    def _tree(
        self, key: tuple, children: tuple | None, chunk: int, ranks: int, wrong: tuple | None
    ) -> int:
        number = self.known.get(key)
        if number is None:
            number = self.known[key] = len(self.children)
            self.children.append(children)
            self.chunk.append(chunk)
            self.ranks.append(ranks)
            self.wrong.append(wrong)
        return number

    def text(self, tree: int) -> str:
        """((x0 + x1) + x2), with ... where it is long."""
        pieces, waiting, length = [], [tree], 0
        while waiting and length < LONGEST_TREE:
            top = waiting.pop()
            if not isinstance(top, str) and self.children[top]:
                a, b = self.children[top]
                waiting += [")", b, " + ", a, "("]
                continue
            known = isinstance(top, str) or self.ranks[top]
            leaf = f"x{self.ranks[top].bit_length() - 1}" if not isinstance(top, str) else top
            pieces.append(leaf if known else "?")
            length += len(pieces[-1])
        return "".join(pieces) + ("..." if waiting else "")


def numbers(bits: int) -> str:
    """Ranks of a set of bits: "rank 3", "ranks 0, 2"."""
    ranks = [str(r) for r in range(bits.bit_length()) if bits >> r & 1]
    more = ", ..." if len(ranks) > SHOWN else ""
    return f"rank{'s' * (len(ranks) > 1)} " + ", ".join(ranks[:SHOWN]) + more


class Values:
    """Runs the steps in one order that they allow."""

    def __init__(self, graph: Graph, where: Layout) -> None:
        self.graph, self.where, self.trees = graph, where, Trees()
        self.memory, self.inputs = {}, where.inputs()
        self.writer, self.used, self.lost = {}, set(), {}
        self.messages = {}
        for node in graph.order:
            self._step(node, graph.nodes[node][1])

    def _step(self, node: int, step: PlanStep) -> None:
        value = None
        if step.receives and step.chunks and node in self.graph.sender:
            value = self.messages.pop(self.graph.sender[node], None)
        for span in step.reads:
            found = [self._read(cell, node) for cell in self.where.cells(span)]
            if value is None:
                value = found
            else:
                value = [self.trees.add(a, b, node) for a, b in zip(value, found)]
        for span in step.writes:
            self._write(span, value or [], node)
        if step.sends and step.chunks:
            self.messages[node] = value

    def _read(self, cell: tuple, node: int) -> int:
        if cell not in self.memory:
            if cell not in self.inputs:
                return self.trees.nothing(node)
            self.used.add(cell)
            self.memory[cell] = self.trees.leaf(*self.inputs[cell])
        return self.memory[cell]

    def _write(self, span: Span, value: list[int], node: int) -> None:
        for cell, tree in zip(self.where.cells(span), value):
            if cell in self.inputs and cell not in self.memory:
                self.lost[self.inputs[cell]] = node
            self.memory[cell], self.writer[cell] = tree, node

    def held(self, cell: tuple) -> int | None:
        """The tree that a cell holds at the end."""
        if cell in self.memory:
            return self.memory[cell]
        return self.trees.leaf(*self.inputs[cell]) if cell in self.inputs else None

    def wrong(self) -> list[Finding]:
        """Outputs that are not the wanted value, each with the step that spoils it."""
        found, seen = [], set()
        for rank in range(self.where.ranks):
            for cell, chunk, ranks in self.where.wanted(rank):
                problem = self._problem(rank, cell, chunk, ranks)
                if problem and (problem.rank, problem.place) not in seen:
                    seen.add((problem.rank, problem.place))
                    found.append(problem)
        return found

    def _problem(self, rank: int, cell: tuple, chunk: int, ranks: int) -> Finding | None:
        tree, trees = self.held(cell), self.trees
        end = f"rank {rank} ends with"
        writer = self.writer.get(cell)
        if tree is None:
            text = f"{end} nothing in output chunk {cell[2]}"
            return Finding("wrong value", rank, "the end", text)
        if trees.wrong[tree]:
            node, text = trees.wrong[tree]
            text = f"{text}; {end} {trees.text(tree)} in output chunk {cell[2]}"
            return self.graph.finding("wrong value", node, text)
        if trees.chunk[tree] == chunk and trees.ranks[tree] == ranks:
            return None
        got = f"{end} {trees.text(tree)} of chunk {trees.chunk[tree]} in output chunk {cell[2]}"
        text = f"{got}; wanted chunk {chunk} of {numbers(ranks)}"
        missing = ranks & ~trees.ranks[tree]
        for other in range(missing.bit_length()):
            if missing >> other & 1 and (other, chunk) in self.lost:
                node = self.lost[other, chunk]
                text = f"overwrites the contribution of rank {other} before any step reads it; "
                return self.graph.finding("wrong value", node, text + got)
        if writer is None:
            return Finding("wrong value", rank, "the end", text + "; no step writes it")
        return self.graph.finding("wrong value", writer, text)

    def other_bits(self) -> list[Finding]:
        """Sums that two ranks hold in trees that are not equal up to commutativity."""
        first, found = {}, []
        for rank in range(self.where.ranks):
            for cell, chunk, ranks in self.where.wanted(rank):
                tree = self.held(cell)
                other, same = first.setdefault((chunk, ranks), (rank, tree))
                if tree != same:
                    text = (
                        f"leaves {self.trees.text(tree)} in output chunk {cell[2]}; rank {other} "
                        f"ends with {self.trees.text(same)}"
                    )
                    writer = self.writer.get(cell)
                    found.append(
                        Finding("other bits", rank, "the end", text)
                        if writer is None
                        else self.graph.finding("other bits", writer, text)
                    )
        return found

    def orders(self) -> dict[str, int]:
        """{tree: output chunks of rank 0 that it sums}, in the order of the chunks."""
        count = defaultdict(int)
        for cell, _, _ in self.where.wanted(0):
            count[self.trees.text(self.held(cell))] += 1
        return dict(count)
