"""The theta and overlap explorer: what its page offers, and the answers that are exported.

The page begins with exported answers, and has only these where Pyodide is missing. It loads
Pyodide, which runs answers.py, when a reader asks for a setting that was not exported.
"""

import json
from collections.abc import Callable, Iterator
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
TECHNIQUES = {
    "+ overlap": 0,
    "+ lazy allreduce": 2**22,
    "+ CSC": 2**22,
    "+ CSC 10 %": 2**22,
}  # theta
GROUPINGS = {
    "eager (WFBP)": "eager",
    "MG-WFBP, greedy": "MG-WFBP",
    "MG-WFBP, exact": "best merge",
    "one call": "one call",
}
SHARDING = {"all hold all": None, "all hold all, overlapped": 2**24}  # theta of lesson 16


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


def exported(points: list[dict]) -> list[dict]:
    """Answers for the machines as they are, and for the settings of measured points."""
    described = machines()
    chosen = [
        setting(machine, network, ranks, EXPORTED_THETA)
        for machine in described.values()
        for network in NETWORKS
        for ranks in EXPORTED_RANKS
    ]
    for point in points:
        machine = described[point["machine"]]
        own = setting(machine, point["network"], point["ranks"], EXPORTED_THETA)
        own |= {key: point[key] for key in ("percent", "wire")}
        chosen += [own] * (own not in chosen)
    return [{"setting": each, "answer": json.loads(answer(json.dumps(each)))} for each in chosen]


def measured(root: Path) -> list[dict]:
    """Steps that lessons measured, with overlap or one call, divided by their time dilation.

    Each has its lesson, its setting (machine, network, ranks, percent, wire), step_s, and either
    theta (bytes; None: infinity) or the grouping.
    """
    found = []
    for stem, points_of in POINTS.items():
        file = root / "figures" / f"{stem}.json"
        result = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        regime = result.get("regime") or {}
        if regime.get("like") in machines():
            for point in points_of(result):
                point["step_s"] /= point.pop("dilation", regime["dilation"])
                found.append({"lesson": stem[:2], "machine": regime["like"]} | WHOLE | point)
    return found


TITLES = {short: title for title, short in NETWORKS.items()}
WHOLE = {"percent": DENSE, "wire": "float32"}


def theta_points(rows: list[dict], setting: dict) -> list[dict]:
    """Rows of a table against theta."""
    return [
        setting
        | {
            "theta": None if row["theta"] in (inf, "inf") else row["theta"],
            "step_s": row["overlapped"]["median_s"],
        }
        for row in rows
    ]


def technique_points(rows: list[dict], timing: str, network: str, ranks: int) -> list[dict]:
    """Rows of a table of techniques, each with those before; without overlap: left out."""
    return [
        {
            "network": network,
            "ranks": ranks,
            "wire": "float16",
            "percent": 10 if "CSC" in row["name"] else DENSE,
            "theta": TECHNIQUES[row["name"]],
            "step_s": row[timing]["median_s"],
        }
        for row in rows
        if row["name"] in TECHNIQUES and ranks > 1
    ]


def grouping_points(result: dict) -> list[dict]:
    """Rows of lesson 09: of a grouping, and lazy ones, which have a theta."""
    return [
        {
            "network": network["title"],
            "ranks": result["ranks"],
            "step_s": row["timing"]["median_s"],
        }
        | (
            {"grouping": GROUPINGS[row["name"]]}
            if row["name"] in GROUPINGS
            else {"theta": row["theta"]}
        )
        for network in result["networks"].values()
        for row in network["rows"]
        if row["name"] in GROUPINGS or row["theta"] is not None
    ]


def alexnet(ranks: int, theta: float | None, timing: dict, **more) -> dict:
    """theta None: one call after backward, which hides nothing with overlap either."""
    more = {"theta": theta, "step_s": timing["median_s"]} | more
    return {"network": "AlexNet", "ranks": ranks} | more


POINTS: dict[str, Callable[[dict], list[dict]]] = {
    "03_lazy_allreduce": lambda found: theta_points(
        found["rows"], {"network": found["network"], "ranks": found["ranks"]}
    ),
    "04_overlap": lambda found: theta_points(
        found["steps"]["rows"], {"network": "AlexNet", "ranks": found["ranks"], "wire": "float16"}
    ),
    "05_mixed_precision": lambda found: [
        alexnet(found["ranks"], None, row["step"], wire=wire)
        for wire, row in found["times"]["steps"].items()
    ],
    "06_csc": lambda found: [
        alexnet(found["ranks"], None, row["step"], wire="float16", percent=row["density"])
        for row in found["times"]["rows"]
        if row["calls"] == 1
    ],
    "07_gradientflow": lambda found: [
        point | {"machine": place["like"], "dilation": place["dilation"]}
        for place in found["places"].values()
        if place["like"] in machines()
        for point in technique_points(
            place["rows"], "step", TITLES[place["network"]], place["ranks"]
        )
    ],
    "08_scaling": lambda found: [
        point
        for each in found["points"]
        for point in technique_points(each["rows"], "timing", "AlexNet", each["ranks"])
    ],
    "09_merged_gradients": grouping_points,
    "16_sharding": lambda found: [
        alexnet(found["ranks"], SHARDING[row["name"]], row["timing"])
        for row in found["steps"]["rows"]
        if row["name"] in SHARDING
    ],
}


def data_files(root: Path) -> Iterator[tuple[str, str]]:
    """(address, script): what the page offers, and the modules that it runs."""
    points = measured(root)
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
        "measured": points,
        "exported": exported(points),
    }
    yield "explorer/settings.js", f"window.EXPLORER={json.dumps(offered)};\n"
    found = json.dumps(closure(["refgf.site.answers"])[0])
    yield "explorer/modules.js", f"window.MODULES={found};\n"


def explorer_page(files: Repository) -> str:
    body = files.text("refgf/site/static/explorer.html")
    about = "Move theta, the link and the ranks; see when each call of an allreduce is sent."
    names = ["settings.js"]
    names += [f"../static/{name}.js" for name in ("python", "address", "explorer")]
    scripts = "".join(f'<script src="{name}" defer></script>\n' for name in names)
    return page(ADDRESS, "Theta and overlap explorer", body, about, scripts)
