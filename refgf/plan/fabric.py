"""What the network of a cluster costs: the links between and inside nodes, and their ranges.

--machine mgwfbp-10gbe     a name of refgf/cluster/machines, or a file of that form
--machine dgx-a100         a node of GPUs: nodes.toml
--between 5us 200gbit      a link between nodes, without a file
--machine mine.json        a machine file (refgf/papers/scaling/machine.py; `measure` writes one)
--machine nccl.txt         what all_reduce_perf of nccl-tests printed, or osu_latency, or
                           osu_allreduce with --measured-ranks and --measured-hosts
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from refgf.cluster import like
from refgf.machine.units import parse_rate, parse_time
from refgf.papers.scaling.machine import Machine
from refgf.papers.scaling.machine import load as load_machine
from refgf.plan import benchmarks, measure, measurements, nccl, nodes, texts
from refgf.plan.benchmarks import NOTHING, Stated
from refgf.plan.measurements import BOTH_WAYS, MOST, Times
from refgf.plan.nccl import Nccl
from refgf.predict.cost import Line, Link

DEVIATIONS = 3  # of a text's errors; 2 miss one text in ten
LEAST = 0.05  # relative; a fit's scatter says nothing about another day
ONE_HOST = (
    "WARNING: its link between nodes is that inside a node, as measured on one host: shared "
    "memory, no network. Run measure on two nodes."
)
CHOSEN = {"alpha": (0.67, 1.5), "beta": (0.95, 1.15)}  # of a number without an error (chosen)


@dataclass(frozen=True)
class Fabric:
    """A network.

    between, inside   links; inside is None if it is unknown, and then `between` stands for it
    ring_hop          the mean hop of a measured ring over nodes of lines_per_node ranks; None: the
                      latency of `between` was measured alone, and a flat ring pays it in each step
    lines             {ranks: Line or Times} of measured allreduces of float32 gradients
    nccl_times        the arguments of nccl.fitted, of an allreduce that NCCL chose itself
    nccl_off          (least, most) times as much as the model's that it may cost on other ranks
    memory            GiB of a GPU, of each kind that a node may have; (): unknown
    doubts            {"between" | "inside": a warning of this link of a named node}
    sizes, bend       of BeyondSizes: rising bytes of a text's allreduces, None: unknown
    stretch           of NCCL's latencies and times per byte, if the network is scaled
    line_ranges       {"alpha" | "beta": (lowest, highest factor)} of these lines; none: as ranges
    lines_per_node    ranks a node of these allreduces; 0: unknown
    notes             what the numbers do not say, a sentence each
    elsewhere         those of the notes that warn of other ranks than the measured ones
    ranges            {"alpha" | "beta" | "hops": (lowest, highest factor)}; hops: of the latency
                      between nodes alone
    ring_share        of the latency of its slowest hop that a step of a flat ring pays
    steps             {workload: (batch, samples per second of one rank)}
    circles           {workload: the published results from which its rate is computed}
    machine           the machine file, which may hold layer times
    alpha_known       False: no theta and no bucket is advised
    rate_known        False: the rate of `between` is the least that it can have
    doubles           may steps of the measured allreduce grow with log2 of the nodes?
    """

    name: str
    source: str
    between: Link
    inside: Link | None = None
    lines: dict[int, Line | Times] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=lambda: dict(CHOSEN))
    steps: dict[str, tuple[int, float]] = field(default_factory=dict)
    machine: Machine | None = None
    inside_source: str = ""
    lines_per_node: int = 0
    notes: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    ring_hop: Link | None = None
    alpha_known: bool = True
    ring_share: float = 1.0
    rate_known: bool = True
    doubles: bool = False
    line_ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    circles: dict[str, str] = field(default_factory=dict)
    memory: tuple[int, ...] = ()
    nccl_times: tuple | None = None
    nccl_off: tuple[float, float] = (1.0, 1.0)
    sizes: tuple[float, ...] | None = None
    bend: float = 1.0
    stretch: tuple[float, float] = (1.0, 1.0)
    doubts: dict[str, str] = field(default_factory=dict)

    def room(self, nbytes: float) -> str:
        """What is to be said of a rank that holds so many bytes: "" if any GPU of a node can."""
        enough = [gib for gib in self.memory if nbytes <= gib << 30]
        if len(enough) == len(self.memory):
            return ""
        kinds = " or ".join(map(str, self.memory))
        if enough:
            return f"fits only a GPU of {enough[0]} GiB, of {kinds}"
        return f"does not fit: {1e-9 * nbytes:,.0f} GB of a GPU's {kinds} GiB"

    @property
    def nccl(self) -> Nccl | None:
        """NCCL's model of the measured allreduce, or None. Other ranks have its links."""
        if self.nccl_times is None:
            return None
        alpha, beta = self.stretch
        most = CHOSEN["alpha"][1] * self.nccl_error[1]  # a ring's alpha may have more
        return nccl.fitted(*self.nccl_times)[0].scaled(min(most, alpha), beta)

    @property
    def nccl_error(self) -> tuple[float, float]:
        """(least, most) cost on other ranks / that by NCCL's model: its error on the measured."""
        least, most = nccl.fitted(*self.nccl_times)[1]
        return self.nccl_off[0] * least, self.nccl_off[1] * most

    def scaled(
        self,
        alpha: float = 1.0,
        beta: float = 1.0,
        hops: float = 1.0,
        ring: float = 1.0,
        tcp: float = 1.0,
        sizes: float = 1.0,
        inside: float = 1.0,
    ) -> "Fabric":
        """The same network with its latencies and its times per byte multiplied.

        inside: of the link that stands for the one inside a node, which is not known.
        """
        own, mean = (link and scaled(link, alpha, beta) for link in (self.inside, self.ring_hop))
        between = scaled(self.between, alpha * hops, beta * tcp)
        own = own or scaled(mean or between, inside, inside)
        given = {"alpha": alpha, "beta": beta}
        for name, (low, high) in self.line_ranges.items():  # measured, whatever the link is
            given[name] = min(high, max(low, given[name]))
        lines = {size: stretched(line, **given) for size, line in self.lines.items()}
        found = replace(self, between=between, inside=own, ring_hop=mean, lines=lines)
        stretch = alpha * self.stretch[0], beta * self.stretch[1]
        bend = sizes * self.bend
        return replace(found, ring_share=ring * self.ring_share, stretch=stretch, bend=bend)


def stretched(line: Line | Times, alpha: float, beta: float) -> Line | Times:
    if isinstance(line, Times):
        return line.scaled(alpha, beta)
    return Line(alpha * line.a_s, beta * line.b_s_per_byte)


def scaled(link: Link, alpha: float, beta: float) -> Link:
    return Link(alpha * link.alpha_s, beta * link.beta_s_per_byte, link.gamma_s_per_byte)


def load(name: str, stated: Stated = NOTHING) -> Fabric:
    """The network of this name or file. ValueError says what is wrong in it."""
    name = like.current(name)
    if name in like.names() and name != like.HERE:
        refuse_stated(name, stated)
        return of_cluster(like.load(name))
    if name in nodes.described():
        refuse_stated(name, stated)
        return of_node(name)
    path = Path(name)
    try:
        text = texts.content(name) if path.is_file() else None
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(
            f"plan --machine {name}: got no text ({error}); next: {advice()}"
        ) from None
    if text is None:
        known = ", ".join([*(n for n in like.names() if n != like.HERE), *nodes.described()])
        wanted = f"{known}, or a file that exists"
        raise ValueError(f"plan --machine: got {name[:80]!r}; wanted {wanted}; next: {advice()}")
    try:
        keys = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        keys = None if texts.tables(text) else {}
    if keys is None or "config" in keys and "results" in keys:  # nccl-tests' own JSON
        return of_text(benchmarks.read(text, name, stated))
    refuse_stated(name, stated)
    return (
        of_cluster(like.load(name)) if "refgf_cluster" in keys else of_machine(load_machine(path))
    )


def refuse_stated(name: str, stated: Stated) -> None:
    for option, value in vars(stated).items():
        if value is not None:
            raise ValueError(
                f"plan --machine {name}: got --measured-{option} {value}; wanted it with the text "
                "of a benchmark only; next: leave it out"
            )


def advice() -> str:
    return "mpiexec -n 2 python -m refgf.predict measure --out mine.json, on two nodes"


def of_node(name: str) -> Fabric:
    """A node of GPUs, by its name in nodes.toml. Between nodes a step may take longer (hops)."""
    (between, source), (inside, known) = (nodes.link(name, which) for which in nodes.LINKS)
    found = Fabric(name, source, between, inside, inside_source=known, memory=nodes.memory(name))
    ranges = CHOSEN | ({"hops": (1.0, most)} if (most := nodes.hops(name)) > 1 else {})
    return replace(found, ranges=ranges, doubts=nodes.doubts(name))


def with_between(given: Fabric | None, latency: str, rate: str, source: str) -> Fabric:
    """The same machine with this link between its nodes, as 5us and 200gbit; None: the link alone.

    A rate is that of a node, of all its adapters together. A measured ring is refused.
    """
    between = nodes.link_of(latency, rate, source)
    doubts = {"between": f"WARNING: {source} is stated, no measured call. {nodes.FAR}"}
    if given is None:
        notes = measurements.odd(between)
        return Fabric(source, "given, for a node", between, notes=notes, doubts=doubts)
    if given.lines or given.ring_hop:
        raise ValueError(
            f"plan: got {source} and {given.name}, which measured an allreduce between nodes; "
            "wanted one of them; next: leave one out"
        )
    notes = (*given.notes, *measurements.odd(between))
    found = replace(given, between=between, source=f"{source}, for a node", notes=notes)
    ranges = {name: both for name, both in given.ranges.items() if name != "hops"}
    return replace(found, ranges=ranges, doubts=given.doubts | doubts)


def of_cluster(described: like.Like) -> Fabric:
    """A description of refgf/cluster/machines: its links, the one inside a node if it has it."""
    data = described.data
    link = Link(described.latency_s, 1 / described.rate)
    rates = {name: step["images_per_s"] for name, step in data["steps"].items()}
    circles = {name: rate["circle"] for name, rate in rates.items() if "circle" in rate}
    steps = described.steps
    found = Fabric(described.name, known_of(data), link, steps=steps, circles=circles)
    if "inside" not in data:
        return found
    where = f"{described.name}, inside"
    rate, latency = (like.quantity(data["inside"], key, str, where) for key in ("rate", "latency"))
    return with_inside(found, latency, rate, known_of(data["inside"]))


def known_of(data: dict[str, Any]) -> str:
    return f"rate {data['rate']['known']}, latency {data['latency']['known']}"


def with_inside(given: Fabric, latency: str, rate: str, source: str) -> Fabric:
    """The same network with this link inside a node, as `5us` and `800gbit`."""
    try:
        link = Link(parse_time(latency), 1 / parse_rate(rate), given.between.gamma_s_per_byte)
    except ValueError as error:
        raise ValueError(f"plan, link inside a node, {error}; as --inside 5us 800gbit") from None
    notes = (*given.notes, *measurements.odd(link))
    found = replace(given, inside=link, inside_source=source, notes=notes)
    doubts = {which: said for which, said in given.doubts.items() if which != "inside"}
    found = replace(found, doubts=doubts)
    if found.nccl_times:
        found = replace(found, nccl_times=(*found.nccl_times[:-1], link))
    return found if given.ring_hop is None else apart(found)


def apart(given: Fabric) -> Fabric:
    """The hop between nodes, from a ring's mean: k ring_hop = (k-1) inside + between.

    Where it is the shorter one, small errors of the mean are large ones of this difference: the
    range of hops holds them. The ring's rate is that between nodes if the links inside are faster.
    """
    k, mean_s, inside_s = given.lines_per_node, given.ring_hop.alpha_s, given.inside.alpha_s
    alpha_s = k * mean_s - (k - 1) * inside_s
    ranges = {name: both for name, both in given.ranges.items() if name != "hops"}
    said = f"{k} ranks a host: {1e6 * mean_s:.3g} us are the mean hop of the measured ring"
    if alpha_s <= 0:
        alpha_s = inside_s
        said = f"WARNING: {said}, too short for {k - 1} hops inside of {1e6 * inside_s:.3g} us "
        said += "(--inside). One is wrong: measure both with NCCL_ALGO=Ring. That of --inside is "
        said += "used between nodes, too."
    else:
        said += f". Less {k - 1} hops inside, one between nodes takes {1e6 * alpha_s:.3g} us. A "
        said += "flat ring pays the mean, as NCCL's does, whose ranks do not wait for each other. "
        said += "One of blocking steps (refgf's) waits for the slowest hop: for it plan with a "
        said += "machine file of these links."
        if alpha_s < inside_s:
            share = (ranges["alpha"][1] - 1) * k * mean_s / alpha_s
            ranges["hops"] = (1 - min(0.9, share), min(MOST, 1 + share))
    slow = slow_inside(given)
    notes = (said, *slow, *given.notes[1:])
    between = replace(given.between, alpha_s=alpha_s)
    return replace(given, between=between, ranges=ranges, notes=notes, rate_known=not slow)


def slow_inside(given: Fabric) -> tuple[str, ...]:
    """All bytes of a ring cross the links inside. If they decide its rate, it is not the other's.

    A ring is not faster than its slowest link.
    """
    rates = [8e-9 / link.beta_s_per_byte for link in (given.inside, given.ring_hop)]
    if rates[0] > (1 + LEAST) * rates[1]:
        return ()
    said = f"WARNING: --inside has {rates[0]:.3g} Gbit/s, and the measured ring sent "
    said += f"{rates[1]:.3g} Gbit/s through that link. "
    if rates[0] < (1 - LEAST) * rates[1]:
        return (said + "One is wrong: measure both with NCCL_ALGO=Ring.",)
    said += "So the link between nodes has at least this rate: it is planned with, and no interval "
    said += "holds one much faster. Run all_reduce_perf with one GPU a host, and pass that text."
    return (said,)


def of_machine(given: Machine) -> Fabric:
    """A machine file: its link between nodes, or else that of its largest measured allreduce."""
    link = given.links.get("between")
    if link is None and not given.lines:
        raise ValueError(
            f"plan --machine {given.name}: got no links['between'] and no allreduce; wanted "
            "alpha_s in seconds and beta_s_per_byte in seconds per byte of a message between two "
            f"nodes; next: {advice()}"
        )
    if link is None:
        size = max(given.lines)
        line, steps = given.lines[size], 2 * (size - 1)
        link = Link(line.a_s / steps, line.b_s_per_byte * size / steps)
    source = f"{given.label}: {given.source}"
    ranges = ranges_of(link, given.errors.get("between"))
    inside = given.links.get("inside")
    found = Fabric(given.name, source, link, inside, dict(given.lines), ranges, {}, given)
    error_s = given.errors.get("between", (0.0, 0.0))[0]
    known = measurements.is_known(link.alpha_s, error_s)
    one_host = [ONE_HOST] if inside is not None and inside == link else []
    notes = (*one_host, *measure.doubts(given))
    return replace(found, inside_source=source if inside else "", alpha_known=known, notes=notes)


def of_text(measured: measurements.Measured) -> Fabric:
    lines = {measured.size: Times(measured.curve)} if measured.size else {}
    ranges = ranges_of(measured.link, measured.errors(), DEVIATIONS)
    ranges["beta"] = ranges["beta"][0], min(MOST, max(ranges["beta"][1], measured.over))
    if measured.fit.largest_error > measurements.NOISY:
        least, most = measured.spread
        ranges = {
            name: (min(low, max(0.1, least)), max(high, min(MOST, most)))
            for name, (low, high) in ranges.items()
        }
    if not measured.size:
        most = {name: min(MOST, BOTH_WAYS * high) for name, (_, high) in ranges.items()}
        ranges = {name: (low, most[name]) for name, (low, _) in ranges.items()}
    found = Fabric(measured.title, f"fit: {measured.fit}", measured.between, None, lines, ranges)
    found = replace(found, lines_per_node=measured.per_host, notes=measured.notes)
    found = replace(found, elsewhere=measured.elsewhere)
    far = measured.fit.largest_error > measurements.NOISY  # then no line's error is theirs
    own = {name: DEVIATIONS * error for name, error in measured.scatter.items()}
    own = {name: (1 - min(0.9, share), 1 + share) for name, share in own.items()}
    found = replace(found, line_ranges=wider(dict(CHOSEN) if far else ranges, own))
    if measured.own_choice:
        asked = measured.times, measured.size // measured.per_host, measured.per_host, None
        off = measured.faster, measured.slower.get("beta", 1.0)
        found = replace(found, nccl_times=asked, nccl_off=off)
    found = replace(found, alpha_known=measured.alpha_known, doubles="alpha" in measured.slower)
    if lines:
        found = replace(found, sizes=tuple(n for n, _ in (*measured.short, *measured.times)))
    ranges = {
        name: (low, min(MOST, high * measured.slower.get(name, 1.0)))
        for name, (low, high) in ranges.items()
    }
    if measured.per_host < 2:
        return replace(found, ranges=ranges)
    # From hops that are all alike, to hops inside that take no time
    ranges = ranges | {"hops": (1 / measured.middle, measured.middle)}
    said = measurements.mixed(measured)  # with_inside replaces it, the first note
    notes, elsewhere = (said, *measured.notes), (said, *measured.elsewhere)
    found = replace(found, ring_hop=measured.link, ranges=ranges, rate_known=False)
    return replace(found, notes=notes, elsewhere=elsewhere)


def wider(
    one: dict[str, tuple[float, float]], other: dict[str, tuple[float, float]]
) -> dict[str, tuple[float, float]]:
    """The ranges of one, so that they hold those of other, which has no other names."""
    both = {name: (one[name], given) for name, given in other.items()}
    return one | {name: (min(a[0], b[0]), max(a[1], b[1])) for name, (a, b) in both.items()}


def ranges_of(
    link: Link, errors: tuple[float, float] | None, deviations: int = 2
) -> dict[str, tuple[float, float]]:
    """So many standard errors, at least LEAST; the chosen ranges without errors."""
    if errors is None:
        return dict(CHOSEN)
    found = {}
    values = {"alpha": link.alpha_s, "beta": link.beta_s_per_byte}
    for (name, value), error in zip(values.items(), errors):
        share = max(LEAST, deviations * error / value) if value else LEAST
        found[name] = (1 - min(0.9, share), min(MOST, 1 + share))
    return found
