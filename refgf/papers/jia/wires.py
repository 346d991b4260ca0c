"""Links that ranks share: one per node and direction, some of them slower than the others.

    node 0             node 1              inside a node: every pair has its own link
    0  1  2  3         4  5  6  7          between nodes: one link out and one link in per node
     \\_|__|_/           \\_|__|_/
         |====  link  ====|

A message waits for alpha, then its bytes cross the link out of its node and the link into the
other. Messages divide a link's bandwidth as TCP does (max-min fair): the link whose messages get
least gives them equal shares, then the other links divide what is left of theirs. So k messages
that leave a node together have all arrived after alpha + k * beta * bytes. SimGrid agrees to 1 %
(tests/plan/test_plan_wires.py).
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence

from refgf.arguments import checked
from refgf.predict.cost import Link


@checked
class Wires:
    """The links of one simulation, as `refgf.papers.scaling.simulate.from_schedules` takes them.

    It remembers the messages in flight, so each simulation needs a new one.

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
        self.end_s: dict[Hashable, float] = {}  # of each message in flight, at today's pace
        self.pace: dict[Hashable, float] = {}  # seconds per byte
        self.crossed: dict[Hashable, tuple] = {}  # the two links of a message between nodes
        self.changed_s: float | None = None  # when `crossed` has changed since the last division

    def of(self, node: int) -> Link:
        return self.slow.get(node, self.between)

    def link(self, source: int, dest: int) -> Link:
        """The slowest link between two ranks."""
        ends = [self.node_of_rank[source], self.node_of_rank[dest]]
        if ends[0] == ends[1]:
            return self.inside
        return max(map(self.of, ends), key=lambda link: link.beta_s_per_byte)

    def begin(self, message: Hashable, source: int, dest: int, nbytes: int, now_s: float) -> None:
        """The first byte leaves: alpha is over."""
        pace = self.link(source, dest).beta_s_per_byte
        self.pace[message], self.end_s[message] = pace, now_s + pace * nbytes
        out, into = self.node_of_rank[source], self.node_of_rank[dest]
        if out != into and pace:
            self.crossed[message], self.changed_s = (("out", out), ("in", into)), now_s

    def next_end_s(self) -> float:
        """When the next message has arrived, if no other begins before."""
        if self.changed_s is not None:
            self.divide(self.changed_s)
            self.changed_s = None
        return min(self.end_s.values(), default=float("inf"))

    def end(self, now_s: float) -> list[Hashable]:
        """The messages that have arrived now."""
        found = [message for message, end_s in self.end_s.items() if end_s == now_s]
        for message in found:
            del self.end_s[message], self.pace[message]
            if self.crossed.pop(message, None):
                self.changed_s = now_s
        return found

    def divide(self, now_s: float) -> None:
        """Max-min fair paces; the bytes that are left take as much longer or shorter."""
        waiting = defaultdict(dict)  # {link: {message: the other link that it crosses}}
        for message, (out, into) in self.crossed.items():
            waiting[out][message], waiting[into][message] = into, out
        free = {end: 1 / self.of(end[1]).beta_s_per_byte for end in waiting}  # bytes per second
        while waiting:
            narrow = min(waiting, key=lambda end: free[end] / len(waiting[end]))
            share = free[narrow] / len(waiting[narrow])
            for message, other in waiting.pop(narrow).items():
                left_s = (self.end_s[message] - now_s) / self.pace[message] / share
                self.pace[message], self.end_s[message] = 1 / share, now_s + left_s
                free[other] -= share
                del waiting[other][message]
                if not waiting[other]:
                    del waiting[other]

    def sum_s(self, nbytes: int) -> float:
        """Additions happen in memory."""
        return self.inside.sum_s(nbytes)
