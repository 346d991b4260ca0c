"""Where a lesson is measured: this machine as it is, or like a named cluster, slowed down.

    regime = regime_of(options)
    regime.like         the cluster that is emulated (refgf.cluster.like.Like); None: this machine
    regime.dilation     how many times slower than that cluster
    regime.comm(plain)  the communicator on which the exchange is measured

The emulated cluster (python -m refgf.cluster run --like NAME) says through the environment what it
is. Without one, --like NAME waits for messages as the dilated links would: see machine/link.py.
"""

import json
import os
from dataclasses import dataclass

from refgf.cluster import like as clusters
from refgf.cluster.probe import link_share
from refgf.comm.topology import nodes
from refgf.machine.link import LinkComm, parse_link
from refgf.machine.units import format_rate, format_time, parse_rate
from refgf.predict.cost import Link

WAITED_RATE, QUICK_RATE = "1gbit", "4gbit"  # of the links that are waited for

CLUSTER_KEYS = {"nodes", "node", "mtu", "like", "dilation", "rate_bytes_per_s", "latency_waited_s"}


@dataclass(frozen=True)
class Regime:
    """waited: the link that this process waits for; None: there is a real one."""

    like: clusters.Like | None = None
    dilation: float = 1.0
    waited: Link | None = None

    @property
    def links_are_waited_for(self) -> bool:
        """Is there no network between the ranks, only this process's waiting?"""
        return self.waited is not None and self.waited.beta_s_per_byte > 0

    @property
    def waited_in_words(self) -> str:
        """The link that is waited for, as --link takes it."""
        rate = format_rate(1 / self.waited.beta_s_per_byte)
        return f"{rate},{format_time(self.waited.alpha_s)}"

    def comm(self, plain):
        """`plain`, or a communicator whose messages between nodes take the waited time too."""
        if self.waited is None:
            return plain
        if not self.links_are_waited_for:  # the cluster's links are real, their latency is not
            rank = plain.Get_rank()
            near = next(group for group in nodes(plain) if rank in group)
            return LinkComm(plain, self.waited, near)
        return LinkComm(plain, self.waited)

    def link(self) -> Link | None:
        """The link between nodes in this machine's time, as it should be; None if unknown."""
        if self.links_are_waited_for:
            return self.waited
        cluster = environment()
        if not cluster:
            return None
        latency_s = cluster["latency_s"] + cluster["latency_waited_s"]
        return Link(latency_s, 1 / cluster["rate_bytes_per_s"])

    def goodput(self) -> Link | None:
        """`link` as it carries payload: TCP's headers take their share of a real one."""
        link = self.link()
        if link is None or self.links_are_waited_for:
            return link
        return Link(link.alpha_s, link.beta_s_per_byte / link_share(environment()["mtu"]))

    def record(self) -> dict:
        """What the lesson's JSON says of it."""
        if self.like is None:
            return {"like": clusters.HERE, "dilation": 1.0}
        return {"like": self.like.name, "dilation": self.dilation, "cluster": self.like.data}

    def in_words(self) -> str:
        """One sentence for the head of the lesson's output."""
        if self.like is None:
            return "this machine as it is: ranks compute for real"
        how = "computing is slept"
        if self.links_are_waited_for:
            how += f", and a link of {self.waited_in_words} is waited for"
        elif self.waited is not None:
            how += f", and a latency of {format_time(self.waited.alpha_s)} is waited for"
        slower = f"{self.dilation:.4g} times slower; times below are that cluster's"
        return f"like {self.like}, {slower}; {how}"


def goodput_of(like: clusters.Like, mtu: int = 1500) -> Link:
    """The named cluster's own link, in its own time, as TCP carries payload on it."""
    return Link(like.latency_s, 1 / like.rate / link_share(mtu))


def environment() -> dict:
    """What the emulated cluster tells its ranks; {} outside one."""
    text = os.environ.get("REFGF_CLUSTER") or "{}"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not (found.keys() >= CLUSTER_KEYS or not found):
        raise ValueError(
            f"REFGF_CLUSTER: got {text[:40]!r}; wanted what python -m refgf.cluster run sets; "
            "next: unset REFGF_CLUSTER"
        )
    return found


def regime_of(options) -> Regime:
    """The regime that --like, --link and the emulated cluster ask for. ValueError if they clash."""
    asked, cluster = getattr(options, "like", None), environment()
    if options.link:
        if asked:
            raise ValueError(
                f"--link {options.link}: got --like {asked} too; wanted one of the two; "
                "next: leave --like out"
            )
        return Regime(waited=parse_link(options.link))
    if cluster:
        return on_cluster(cluster, asked)
    like = clusters.load(asked) if asked else None
    if like is None:
        return Regime()
    rate = QUICK_RATE if options.quick else WAITED_RATE
    factor = like.rate / min(like.rate, parse_rate(rate))
    link = Link(factor * like.latency_s, factor / like.rate)
    return Regime(like, factor, link)


def on_cluster(cluster: dict, asked: str | None) -> Regime:
    data = cluster.get("like")
    if asked and clusters.current(asked) != (data["name"] if data else clusters.HERE):
        raise ValueError(
            f"--like {asked}: got an emulated cluster like {data['name'] if data else 'no other'}; "
            f"wanted the same; next: python -m refgf.cluster run --like {asked} -- ..."
        )
    if not data:
        return Regime()
    waited_s = cluster["latency_waited_s"]
    like = clusters.parse(data, data["name"])
    return Regime(like, cluster["dilation"], Link(waited_s, 0.0) if waited_s else None)
