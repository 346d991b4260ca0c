"""Links that ranks share: one per node and direction, some of them slower than the others.

    node 0             node 1              inside a node: every pair has its own link
    0  1  2  3         4  5  6  7          between nodes: one link out and one link in per node
     \\_|__|_/           \\_|__|_/
         |====  link  ====|

A link carries one message at a time, first come, first served; latencies overlap. k messages that
leave a node together have all arrived after alpha + k * beta * bytes, as if each had 1/k of the
bandwidth. Links of TCP divide their bandwidth instead. SimGrid says the same where no messages meet
on a link; where they do, this is 14 % faster to 25 % slower (tests/plan/test_plan_wires.py).
"""

from collections.abc import Sequence

from refgf.predict.cost import Link


class Wires:
    """The links of one simulation, as `refgf.papers.scaling.simulate.from_schedules` takes them.

    It remembers until when links are busy, so each simulation needs a new one.

    node_of_rank    node_of_rank[r] is rank r's node
    inside, between Links within a node and between nodes
    slow            {node: Link} of every message into or out of that node (a straggler)
    """

    def __init__(
        self,
        node_of_rank: Sequence[int],
        inside: Link,
        between: Link,
        slow: dict[int, Link] | None = None,
    ) -> None:
        self.node_of_rank, self.inside, self.between = list(node_of_rank), inside, between
        self.slow = slow or {}
        self.free_s = {}  # ("out" | "in", node): when the link is free again

    def link(self, source: int, dest: int) -> Link:
        """The slowest link between two ranks."""
        ends = [self.node_of_rank[source], self.node_of_rank[dest]]
        if ends[0] == ends[1]:
            return self.inside
        links = (self.slow.get(node, self.between) for node in ends)
        return max(links, key=lambda link: link.beta_s_per_byte)

    def transfer(self, source: int, dest: int, nbytes: int, ready_s: float) -> float:
        """The end of a message for which both ranks are ready at ready_s."""
        link, nodes = self.link(source, dest), [self.node_of_rank[r] for r in (source, dest)]
        if nodes[0] == nodes[1]:
            return ready_s + link.message_s(nbytes)
        ends = [("out", nodes[0]), ("in", nodes[1])]
        start_s = max(ready_s, *(self.free_s.get(end, 0.0) for end in ends))
        sent_s = start_s + link.beta_s_per_byte * nbytes
        self.free_s.update(dict.fromkeys(ends, sent_s))
        return sent_s + link.alpha_s

    def sum_s(self, nbytes: int) -> float:
        """Additions happen in memory."""
        return self.inside.sum_s(nbytes)
