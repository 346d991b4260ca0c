"""Networks in the words of SimGrid: a platform file, and the host on which each rank runs.

    one-link      one link out and one in per node; its k ranks share them
    rails:R       R such pairs of links per node; rank j of a node uses pair j mod R
    fat-tree:S    leaf switches of at most 16 nodes, with S times fewer links up than down
    dragonfly     2 nodes a router; a link between two routers of a group, and between two groups

The whole latency of the longest route is alpha. SMPI adds an envelope of 16 bytes to each message
(verified: its source), so the latency given to SimGrid is 16 beta shorter, and an empty message
takes alpha. On a shared link it waits for the other messages' envelopes. Without contention every
rank has its own links. Links inside a node carry any number of messages at full speed (SimGrid's
FATPIPE).
"""

from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from refgf.predict.cost import Link

NAMES = ("one-link", "rails:2", "fat-tree:2", "dragonfly")
ENVELOPE = 16  # bytes
SPEED = 1e9  # "flops" per second of a host: gamma's additions are given to it in seconds
LEAF, ROUTER = 16, 2  # most nodes below a switch of the tree; nodes at a router of the dragonfly
HOPS = {"one-link": 2, "fat-tree": 4, "dragonfly": 5}
MOST_RAIL_RANKS = 256  # a route is written for each pair of ranks
HEAD = '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'


@dataclass(frozen=True)
class Platform:
    """xml: the platform file. hosts: hosts[r] is the host of rank r."""

    xml: str
    hosts: list[str]


def build(
    name: str, nodes: int, ranks_per_node: int, between: Link, inside: Link, contention: bool
) -> Platform:
    """The platform of this name. ValueError for a name or a number of nodes that it cannot have."""
    kind, factor = parse(name)
    if not contention:  # a pair of links for each rank
        kind, factor = "rails" if ranks_per_node > 1 else "one-link", ranks_per_node
    if kind == "rails":
        return rails(factor, nodes, ranks_per_node, between, inside)
    latency = latency_s(between) / HOPS[kind]
    given = {
        "id": "cluster",
        "prefix": "n",
        "suffix": "",
        "radical": f"0-{nodes - 1}",
        "speed": f"{SPEED:.0f}f",
        "core": ranks_per_node,
        "bw": rate(between),
        "lat": seconds(latency),
        "sharing_policy": "SPLITDUPLEX",
        "loopback_bw": rate(inside),
        "loopback_lat": seconds(latency_s(inside)),
    }
    if kind == "fat-tree":
        leaf = leaf_size(nodes, name)
        if leaf % factor:
            refuse(name, f"{nodes} nodes, {leaf} a switch", f"S that divides {leaf}")
        shape = f"2;{leaf},{nodes // leaf};1,{leaf // factor};1,1"
        given |= {"topology": "FAT_TREE", "topo_parameters": shape}
    elif kind == "dragonfly":
        groups, routers = group_shape(nodes, name)
        shape = f"{groups},1;1,1;{routers},1;{ROUTER}"
        given |= {"topology": "DRAGONFLY", "topo_parameters": shape}
    hosts = [f"n{rank // ranks_per_node}" for rank in range(nodes * ranks_per_node)]
    return Platform(document("cluster", given), hosts)


def parse(name: str) -> tuple[str, int]:
    kind, _, factor = name.partition(":")
    if kind not in ("rails", *HOPS) or (factor and not (factor.isdecimal() and int(factor) > 0)):
        refuse(name, repr(name), f"one of {', '.join(NAMES)}")
    return kind, int(factor or 2)


def leaf_size(nodes: int, name: str) -> int:
    """The largest power of two that divides the nodes into at least two switches."""
    found = [leaf for leaf in (16, 8, 4, 2) if leaf <= LEAF and nodes % leaf == 0 and nodes > leaf]
    if not found:
        refuse(name, f"{nodes} nodes", "an even number, 4 or more")
    return found[0]


def group_shape(nodes: int, name: str) -> tuple[int, int]:
    """(groups, routers of a group): as many groups as a group has routers, or fewer.

    Router j of each group holds the link to group j. (verified: SimGrid's DragonflyZone)
    """
    pairs, odd = divmod(nodes, ROUTER)
    found = [g for g in range(2, pairs) if g * g <= pairs and pairs % g == 0]
    if odd or not found:
        refuse(name, f"{nodes} nodes", "2 g r with 2 <= g <= r, as 8, 12, 16, 32, 64")
    return found[-1], pairs // found[-1]


def rails(count: int, nodes: int, ranks_per_node: int, between: Link, inside: Link) -> Platform:
    """A host for each rank; ranks of a node share its `count` pairs of links."""
    size = nodes * ranks_per_node
    if ranks_per_node < count or size > MOST_RAIL_RANKS:
        got = f"{size} ranks, {ranks_per_node} a node"
        refuse(f"rails:{count}", got, f"{count} or more a node, at most {MOST_RAIL_RANKS} in all")
    half = seconds(latency_s(between) / 2)
    hosts, lines = [f"r{rank}" for rank in range(size)], []
    nic = [f"{r // ranks_per_node}.{r % ranks_per_node % count}" for r in range(size)]
    lines += [element("host", {"id": host, "speed": f"{SPEED:.0f}f"}) for host in hosts]
    for place in dict.fromkeys(nic):
        shape = {"bandwidth": rate(between), "latency": half, "sharing_policy": "SHARED"}
        lines += [element("link", {"id": f"{way}{place}"} | shape) for way in ("up", "down")]
    shape = {"bandwidth": rate(inside), "latency": seconds(latency_s(inside))}
    lines.append(element("link", {"id": "inside"} | shape | {"sharing_policy": "FATPIPE"}))
    for a in range(size):
        for b in (rank for rank in range(size) if rank != a):
            same = a // ranks_per_node == b // ranks_per_node
            route = ["inside"] if same else [f"up{nic[a]}", f"down{nic[b]}"]
            crossed = "".join(element("link_ctn", {"id": link}) for link in route)
            lines.append(f'<route src="r{a}" dst="r{b}" symmetrical="NO">{crossed}</route>')
    zone = '<zone id="all" routing="Full">\n' + "\n".join(lines) + "\n</zone>"
    return Platform(f'{HEAD}<platform version="4.1">\n{zone}\n</platform>\n', hosts)


def document(tag: str, given: dict) -> str:
    inner = element(tag, given)
    zone = f'<zone id="all" routing="Full">\n{inner}\n</zone>'
    return f'{HEAD}<platform version="4.1">\n{zone}\n</platform>\n'


def element(tag: str, given: dict) -> str:
    return f"<{tag} {' '.join(f'{key}={quoteattr(str(value))}' for key, value in given.items())}/>"


def latency_s(link: Link) -> float:
    return max(0.0, link.alpha_s - ENVELOPE * link.beta_s_per_byte)


def rate(link: Link) -> str:
    return f"{1 / link.beta_s_per_byte:.9g}Bps"


def seconds(value: float) -> str:
    return f"{value:.9g}s"


def refuse(name: str, got: str, wanted: str) -> None:
    raise ValueError(f"plan --platform {name}: got {got}; wanted {wanted}; next: one-link")
