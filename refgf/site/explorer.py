"""The theta and overlap explorer: what its page offers, and the answers that are exported.

The page runs answers.py in Pyodide. It starts with exported answers, and has only these where
Pyodide is missing.
"""

import json
from collections.abc import Iterator
from math import inf
from pathlib import Path

from refgf.cluster import like
from refgf.oracle.foreign.closure import closure
from refgf.papers.scaling import benchmark_rows
from refgf.site import pyodide
from refgf.site.answers import DENSE, ITEMSIZES, answer
from refgf.site.frame import page
from refgf.site.repository import Repository

ADDRESS = "explorer/index.html"
NETWORKS = {"AlexNet": "alexnet", "ResNet-50": "resnet50", "BERT-Large": "bert"}
RATES_GBIT = (1, 2, 5, 10, 20, 25, 40, 56, 100, 200, 400)
LATENCIES_US = (1, 2, 5, 7.9, 10, 20, 30, 50, 100, 200)
RANKS = tuple(2**power for power in range(1, 12))
THETAS = (0, *(2**power for power in range(12, 31)), None)  # bytes; None: infinity
PERCENTS = (1, 2, 5, 10, 20, DENSE)
EXPORTED_RANKS, EXPORTED_THETA = (8, 64, 512), 2**22
BERT_SOURCE = "ddl-benchmarks, one GPU (verified); the same pace on every machine here."
FIGURE, GROUPS_FIGURE = "figures/03_lazy_allreduce.json", "figures/09_merged_gradients.json"
GROUPINGS = {"eager (WFBP)": "eager", "MG-WFBP, greedy": "MG-WFBP", "one call": "one call"}


def bert_pace() -> tuple[int, float, str]:
    """(batch, samples per second, where from): no described cluster holds BERT's pace."""
    row = benchmark_rows.NETWORKS["BERT-Large"]
    return row.batch, row.single, BERT_SOURCE


def machines() -> dict[str, dict]:
    """The described clusters: link, and the pace of each network."""
    found = {}
    for name in like.names():
        if name == like.HERE:
            continue
        described = like.load(name)
        data, pace = described.data, {}
        for title, short in NETWORKS.items():
            if short in described.steps:
                known = data["steps"][short]["images_per_s"]
                source = f"{known['source']} ({known['known']})"
                pace[title] = (*described.steps[short], source)
            else:
                pace[title] = bert_pace()
        found[name] = {
            "gbit": round(8e-9 * described.rate, 6),
            "latency_us": round(1e6 * described.latency_s, 6),
            "pace": pace,
        }
    return found


def setting(machine: dict, network: str, ranks: int, theta: float | None) -> dict:
    """A setting as the page makes it, with the machine's own link."""
    batch, samples_per_s, _ = machine["pace"][network]
    return {
        "network": network,
        "batch": batch,
        "samples_per_s": samples_per_s,
        "gbit": machine["gbit"],
        "latency_us": machine["latency_us"],
        "ranks": ranks,
        "theta": theta,
        "percent": DENSE,
        "wire": "float32",
    }


def exported() -> list[dict]:
    """Answers for the machines as they are."""
    chosen = [
        setting(machine, network, ranks, EXPORTED_THETA)
        for machine in machines().values()
        for network in NETWORKS
        for ranks in EXPORTED_RANKS
    ]
    return [{"setting": each, "answer": json.loads(answer(json.dumps(each)))} for each in chosen]


def measured(root: Path) -> dict | None:
    """Lesson 03's measured steps with overlap, divided by the time dilation; None without them."""
    file = root / FIGURE
    found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    regime = found.get("regime") or {}
    if "rows" not in found or regime.get("like") not in machines():
        return None
    times = [(row["theta"], row["overlapped"]["median_s"]) for row in found["rows"]]
    return {
        "machine": regime["like"],
        "network": found["network"],
        "ranks": found["ranks"],
        "dilation": regime["dilation"],
        "points": [
            [None if theta in (inf, "inf") else theta, seconds / regime["dilation"]]
            for theta, seconds in times
        ],
        "groupings": measured_groupings(root, regime["like"], found["network"], found["ranks"]),
    }


def measured_groupings(root: Path, machine: str, network: str, ranks: int) -> dict[str, float]:
    """{grouping: seconds} of lesson 09's steps, divided by the time dilation, if it ran this."""
    file = root / GROUPS_FIGURE
    found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    regime = found.get("regime") or {}
    if (regime.get("like"), found.get("ranks")) != (machine, ranks):
        return {}
    return {
        GROUPINGS[row["name"]]: row["timing"]["median_s"] / regime["dilation"]
        for each in found["networks"].values()
        if each["title"] == network
        for row in each["rows"]
        if row["name"] in GROUPINGS
    }


def data_files(root: Path) -> Iterator[tuple[str, str]]:
    """(address, script): what the page offers, and the modules that it runs."""
    offered = {
        "python": pyodide.available(root),
        "machines": machines(),
        "networks": list(NETWORKS),
        "rates": RATES_GBIT,
        "latencies": LATENCIES_US,
        "ranks": RANKS,
        "thetas": THETAS,
        "percents": PERCENTS,
        "wires": list(ITEMSIZES),
        "start": {"theta": EXPORTED_THETA, "ranks": EXPORTED_RANKS[0]},
        "exportedRanks": EXPORTED_RANKS,
        "measured": measured(root),
        "exported": exported(),
    }
    yield "explorer/settings.js", f"window.EXPLORER={json.dumps(offered)};\n"
    found = json.dumps(closure(["refgf.site.answers"])[0])
    yield "explorer/modules.js", f"window.MODULES={found};\n"


def explorer_page(files: Repository) -> str:
    body = files.text("refgf/site/static/explorer.html")
    about = "Move theta, the link and the ranks; see when each call of an allreduce is sent."
    names = ["settings.js", "modules.js"]
    names += [f"../static/{name}.js" for name in ("python", "address", "explorer")]
    scripts = "".join(f'<script src="{name}" defer></script>\n' for name in names)
    return page(ADDRESS, "Theta and overlap explorer", body, about, scripts)
