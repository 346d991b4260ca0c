"""The algorithm of a measured allreduce, by NCCL's log, and what it means on other ranks.

NCCL_DEBUG=INFO names NCCL_ALGO where it was set, and with NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING the
algorithm of each call, by name or number (verified: NCCL's src/enqueue.cc and nccl_tuner.h):

    NCCL INFO AllReduce: 8388608 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..15}
    NCCL INFO 8388608 Bytes -> Algo 1 proto 2 time 34.693867
"""

import re
from dataclasses import replace
from math import ceil, log2

from refgf.plan.measurements import AVOIDED, Measured, held
from refgf.plan.texts import Table

LOGGED = r"NCCL INFO (?:AllReduce: )?([0-9]+) Bytes -> Algo (\w+)"
ALGORITHMS = {"0": "tree", "1": "ring", "2": "collnet", "3": "collnet", "4": "nvls", "5": "nvls"}
VALUE = r"(?: set by \w+ to |=)['\"]?([^\s'\"]+)"
SETTINGS = {  # of nccl-tests, in the text before a table: what is wrong with its times
    "Blocking Enabled": "blocking (-z): each call waits for the one before, and alpha holds its "
    "launch, which overlaps with computing in training.",
    r"agg iters: *([2-9]\d*|1\d+)": "{} calls were sent as one (-m), and alpha is that of a share.",
    r"\bgraph: *([1-9]\d*)": "the calls were replayed {} times from a CUDA graph (-G). Training "
    "launches each, unless it is a graph, too: a short call may take longer. Measure without -G.",
    r"warmup iters: *0\b": "no warm-up (-w 0): the first call of a size is among those timed, and "
    "its connections may be set up in it. Measure with -w 5 -n 20.",
    r"(?<!warmup )(?<!agg )iters: *1\b": "one call of each size (iters: 1), so no time is a mean. "
    "Measure with -n 20.",
}
LIMITS = r"NCCL_(?:PROTO|M(?:AX|IN)_(?:NCHANNELS|CTAS)|[A-Z0-9]+_DISABLE)"
FORCED = (
    "Where NCCL_ALGO=Ring was set and the text does not name it, a call takes 2 (p-1) hops on p "
    "ranks, and no interval of NCCL's choice holds it: plan with --allreduce ring."
)


def algorithms_of(table: Table) -> tuple[str, str]:
    """NCCL's algorithm for the shortest and for the longest messages; "": unknown.

    It stands in a column (rccl-tests -M), or in the log.
    """
    logged = [(row["size"][0], row["algo"][0]) for row in table.rows if "algo" in row]
    logged = logged or re.findall(LOGGED, table.before + table.after)
    sizes = {row["size"][0] for row in table.rows}
    named_by = [
        (int(nbytes), ALGORITHMS.get(algorithm, algorithm).lower())
        for nbytes, algorithm in logged
        if nbytes in sizes and int(nbytes) >= AVOIDED
    ]
    if named_by:
        return min(named_by)[1], max(named_by)[1]
    return (named(table.before),) * 2


def named(text: str) -> str:
    """The one algorithm that NCCL_ALGO leaves to an allreduce; "": NCCL chooses one of several.

    ring or ring,tree or ^tree (all others) or ring;allreduce:tree,nvls;broadcast:ring (verified:
    parseList of NCCL's src/graph/tuning.cc). Of all others the ring and the tree count here: the
    rest needs other switches.
    """
    found, allowed = re.findall(f"NCCL_ALGO{VALUE}", text), ""
    for part in found[-1].lower().split(";") if found else ():
        function, _, names = part.rpartition(":")
        if function in ("", "allreduce"):
            allowed = names
    names = allowed.lstrip("^").split(",")
    if allowed.startswith("^"):
        names = [name for name in ("ring", "tree") if name not in names]
    several = len(names) > 1 and {"ring", "tree"} & set(names)
    return "" if several or not names else names[0]


def settings(text: str) -> tuple[str, ...]:
    """A warning of each of SETTINGS."""
    seen = ((said, re.search(sign, text)) for sign, said in SETTINGS.items())
    return tuple(f"WARNING: {said.format(*it.groups())}" for said, it in seen if it)


def limits(text: str) -> tuple[str, ...]:
    """A warning of what was switched off or limited, which a training run may not be."""
    found = {name: value.rstrip(".") for name, value in re.findall(f"({LIMITS}){VALUE}", text)}
    said = ", ".join(f"{name}={value}" for name, value in found.items() if value != "0")
    more = "training takes these times with the same settings only"
    return (f"WARNING: measured with {said}: {more}.",) if said else ()


def of_nccl(found: Measured, short: str, long: str, own_choice: bool = True) -> Measured:
    """An allreduce of NCCL, with these algorithms, and with what that means on other ranks.

    NCCL's model takes two hosts for a tree. If they were a ring, its links are faster than those
    of the model by what a ring sends through them more.
    """
    hosts = found.size // found.per_host
    said, slower = not_a_ring(short, long, hosts, found.per_host)
    notes = (said, *found.notes) if said else found.notes
    known = hosts > 2 or long == "tree"
    faster = 1.0 if known else found.size / (2 * (found.size - 1))
    found = replace(found, notes=notes, slower=slower, own_choice=own_choice, faster=faster)
    return replace(found, elsewhere=(*found.elsewhere, said) if said else found.elsewhere)


def not_a_ring(short: str, long: str, hosts: int, per_host: int) -> tuple[str, dict[str, float]]:
    """(a warning, `Measured.slower`) where NCCL may have sent through something else than a ring.

    short, long: `algorithms_of`. A tree over the hosts with chains in them has k - 1 + ceil(log2 h)
    hops up and as many down, a ring 2 (p - 1). Over two hosts it sends n bytes on a node's link
    where a ring sends 2 (p - 1) / p n. A switch that adds halves the bytes of a link.
    """
    size = hosts * per_host
    if size == 2 or hosts == 1 or short == long == "ring":
        return "", {}
    tree, slower = per_host - 1 + ceil(log2(hosts)), {}
    if short != "ring":
        slower["alpha"] = (size - 1) / tree
    if not short and hosts == 2:
        said = "measured on 2 hosts, where NCCL sends through trees. A ring over more hosts may "
        said += "take twice as long, or no longer than these two if they were a ring, too: the "
        said += f"intervals hold both. {FORCED} Measure on 4 or more, or with "
        said += "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING, whose algorithms narrow them."
        return f"WARNING: {said}", {"alpha": max(2.0, slower["alpha"]), "beta": 2.0}
    if long == "tree" and hosts == 2:
        slower["beta"] = 2 * (size - 1) / size
    elif long not in ("", "ring", "tree"):
        slower["beta"] = 2.0
    how = "the text names no NCCL_ALGO, and NCCL's own choice for short messages is a tree"
    if short:
        how = f"NCCL summed through {short}" + (f", long messages through {long}" * (short != long))
    said = f"WARNING: {how}. A tree has {2 * tree} hops where a ring has {2 * (size - 1)}. "
    said += (
        "NCCL's choice is planned on other ranks unless the text names NCCL_ALGO or --allreduce "
    )
    most = " and ".join(f"{factor:.3g} times {name}" for name, factor in slower.items())
    said += f"ring is given: a ring may have up to {most}, and a tree less than its line: "
    said += held(slower.get("alpha", 1.0)) + ". " + f"{FORCED} " * (not short)
    return said + "Measure on as many ranks as you plan for.", slower
