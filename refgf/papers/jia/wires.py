"""Which wire a message takes: several ranks behind one link of their node, and links slower than the rest.

    node 0             node 1              inside a node: every pair has its own wire
    0  1  2  3         4  5  6  7          between nodes: one link out and one link in per node
     \\_|__|_/           \\_|__|_/
         |====  link  ====|

A link carries one message at a time, first come, first served; start-ups overlap. k messages that leave a node
together are all through after alpha + k * beta * bytes, as if each had had 1/k of the bandwidth.
"""

from refgf.predict.cost import Link


class Wires:
    """What `from_schedules` asks how long messages take. Made for one simulation: it remembers when links are busy.

    node_of_rank[r] is rank r's node; `inside` and `between` are Links; `slow` maps a node to the Link that every
    message into or out of it takes instead of `between` (a straggler).
    """

    def __init__(self, node_of_rank, inside, between, slow=None):
        self.node_of_rank, self.inside, self.between, self.slow = list(node_of_rank), inside, between, slow or {}
        self.free_s = {}  # ("out" | "in", node): when the link is free again

    def link(self, source, dest):
        """The slowest of what lies between two ranks."""
        ends = [self.node_of_rank[source], self.node_of_rank[dest]]
        if ends[0] == ends[1]:
            return self.inside
        return max((self.slow.get(node, self.between) for node in ends), key=lambda link: link.beta_s_per_byte)

    def transfer(self, source, dest, nbytes, ready_s):
        """End of a message that both sides are ready for at ready_s."""
        link, nodes = self.link(source, dest), [self.node_of_rank[source], self.node_of_rank[dest]]
        if nodes[0] == nodes[1]:
            return ready_s + link.message_s(nbytes)
        ends = [("out", nodes[0]), ("in", nodes[1])]
        through_s = max(ready_s, *(self.free_s.get(end, 0.0) for end in ends)) + link.beta_s_per_byte * nbytes
        self.free_s.update(dict.fromkeys(ends, through_s))
        return through_s + link.alpha_s

    def sum_s(self, nbytes):
        """Additions happen in memory."""
        return self.inside.sum_s(nbytes)


def slowest(links):
    """The link that sets the pace of a ring: in every step each link carries a slice, and all wait for the last."""
    links = list(links)
    return Link(
        max(link.alpha_s for link in links),
        max(link.beta_s_per_byte for link in links),
        max(link.gamma_s_per_byte for link in links),
    )


def shared(link, ranks):
    """The link as each of `ranks` ranks sees it that send through it at once."""
    return Link(link.alpha_s, ranks * link.beta_s_per_byte, link.gamma_s_per_byte)
