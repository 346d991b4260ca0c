"""Everything by which one step is judged, out of what ranks recorded and the reference answered."""

from typing import Any

import numpy as np

from refgf.oracle.spec.sums import UNIT_ROUNDOFF
from refgf.oracle.step.buffers import differs
from refgf.oracle.step.factors import Cause
from refgf.oracle.step.findings import listed
from refgf.oracle.step.late import NOISES
from refgf.oracle.step.ranks import Ranks
from refgf.oracle.step.stages import JudgedStep, Whole
from refgf.oracle.step.wire import add_wire

GRADIENTS = "backward", "clip", "used"
ROUNDINGS = 4  # as in reference.py, which imports PyTorch
INSIDE = 8.0  # times the change by buffers that change between forwards


def forced_in(stages: dict[str, dict[str, Whole]], first: dict, number: int) -> dict[str, Any]:
    """What the replay and the reference take over from p ranks."""
    forced: dict[str, Any] = {
        kind: {
            t: w.value.astype(np.float32 if first["types"][t] != "float64" else float)
            for t, w in stages[kind].items()
        }
        for kind in ("before", "clip", "used")
    }
    return forced | {key: first["steps"][number][key] for key in ("state", "last")}


def free_steps(
    running: Ranks, request: dict, forced: list[dict], answer: dict
) -> list[list[dict[str, np.ndarray]]]:
    """Parameters after each step on one rank, whose gradients are its own, for each noise."""
    start = [{key: own[key] for key in ("before", "state")} for own in forced]
    bounds = [exact["rounding"] for exact in answer["exact"]]
    noises = [noise | {"bounds": bounds} for noise in NOISES]
    found = running.reference(request | {"forced": start, "noises": noises})["free"]
    return [
        [{t: np.asarray(a, np.float64) for t, (_, a) in after.items()} for after in steps]
        for steps in found
    ]


def assembled(
    number: int,
    found: list[dict],
    stages: dict,
    answer: dict[str, Any],
    previous: JudgedStep | None,
) -> JudgedStep:
    """Everything by which step `number` is judged."""
    exact, replay = answer["exact"][number], answer["replay"][number]
    first = found[0]["steps"][number]
    unit = UNIT_ROUNDOFF[found[0]["coarsest"]]
    calls, p = max(1, len(first["local"])), len(found)
    local, labels = [], []
    for rank, record in enumerate(found):
        for call, own in enumerate(record["steps"][number]["local"]):
            local.append({t: np.asarray(a, np.float64) for t, a in own.items()})
            labels.append(f"rank {rank}" + f", backward {call}" * (calls > 1))
    scale = first["scale"] or 1.0
    bounds, factors, more = {}, {}, (calls + p + ROUNDINGS) * unit
    for t, g in exact["gradients"].items():
        added = sum((np.abs(own[t]) for own in local if t in own), np.zeros(1)) / scale
        largest = max(np.abs(g).max(initial=0.0), added.max(initial=0.0))
        ratio = max(1.0, largest / (np.abs(g).max(initial=0.0) or 1.0))
        inside = INSIDE * exact["inside"].get(t, 0.0)  # buffers that change between its forwards
        bounds[t] = exact["rounding"][t] + more * float(largest) + ratio * inside
        inside /= float(np.abs(g).max(initial=0.0)) or 1.0
        factors[t] = exact["factors"][t] + ratio * (more + inside)
    gradients = {t: np.asarray(g) for t, g in exact["gradients"].items()}
    trained = {
        kind: {t: w for t, w in stages[kind].items() if t in gradients} for kind in GRADIENTS
    }
    stages = stages | trained
    wire = set()
    if found[0]["coarsest"] == "float32":
        parts = [{t: a / scale for t, a in own.items()} for own in local]
        wire = add_wire(stages, gradients, parts, p, (bounds, factors))
    records = [record["steps"][number] for record in found]
    settings = {"scale": first["scale"], "optimizer": of_owners(records), "slack": {}}
    settings |= {key: exact[key] for key in ("counts", "distinct", "apart", "moved")}
    settings["differ"] = differs(
        [own["state"] for own in records], replay["state"], found[0]["saved"]
    )
    settings |= {"hidden": set(), "first": number == 0}
    settings["late"] = set(previous.settings["late"]) if previous else set()
    has = {t: [r for r, own in enumerate(records) if t in own["used"]] for t in gradients}
    settings["owners"] = {t: ranks[0] for t, ranks in has.items() if len(ranks) == 1}
    names = {t for own in answer["replay"] for t in own["settings"]}
    settings["rates"] = {
        t: [own["settings"].get(t, {}).get("lr") for own in answer["replay"]] for t in names
    }
    limits = [record["steps"][number]["max_norm"] for record in found]
    settings["max_norm"] = next((limit for limit in limits if limit is not None), None)
    settings["communicated"] = any(rank["steps"][number]["communicated"] for rank in found)
    settings |= {"wire": wire, "unseen": set(), "changed": ([], None)}
    settings |= {"calls_of_one": max(1, len(replay["local"]))}
    used = [bool(record["steps"][number]["used"]) for record in found]
    everywhere = [*(record["steps"][number] for record in found), replay]
    settings["optimized"] = {t for own in everywhere for t in own["optimized"]}
    settings["idle"] = [rank for rank, own in enumerate(used) if not own and any(used)]
    settings["one"] = {key: replay[key] for key in ("max_norm", "updates")}
    settings["one"]["optimizer"] = replay["settings"]
    settings["updates"] = [record["steps"][number]["updates"] for record in found]
    settings["modes"] = other_modes([own["steps"][number] for own in found], replay)
    settings["calls"] = calls
    arrays = {
        kind: {t: np.asarray(a[1], np.float64) for t, a in (replay[kind] or {}).items()}
        for kind in ("backward", "clip", "used", "after")
    }
    for kind in GRADIENTS:  # not what is left in .grad of a frozen tensor
        arrays[kind] = {t: a for t, a in arrays[kind].items() if t in gradients}
    arrays["backward"] = {t: a / (replay["scale"] or 1.0) for t, a in arrays["backward"].items()}
    return JudgedStep(
        replay["batch"],
        p,
        stages,
        gradients,
        bounds,
        factors,
        arrays,
        local,
        labels,
        unit,
        settings,
        previous,
    )


def of_owners(records: list[dict]) -> dict[str, dict]:
    """{tensor: settings of the optimizer that has it}; of an inner one where one calls another's"""
    found: dict[str, dict] = {}
    for own in records:
        for t, settings in own["settings"].items():
            if t not in found or settings["depth"] > found[t]["depth"]:
                found[t] = settings
    return found


def other_modes(records: list[dict], replay: dict) -> Cause | None:
    """Modules in another mode than on one rank: the reason, where gradients are wrong."""
    alone, ranks, modules = set(replay["eval"]), [], set()
    for rank, record in enumerate(records):
        differ = set(record["eval"]) ^ alone
        ranks += [str(rank)] * bool(differ)
        modules |= differ
    if not ranks:
        return None
    prefixes = {name.rpartition(".")[0] for name in modules}
    names = sorted(modules - prefixes) or ["the model"]
    text = (
        f"{listed(names)} in another mode, train() or eval(), on rank {', '.join(ranks)} than on "
    )
    return text + "one rank; next: set it alike on all", ["mode"], None
