"""A machine as a JSON file: its links, its fitted allreduces, its layer times. Others can send theirs in.

    {"refgf_machine": 1, "name": "...", "source": "who measured it, when, how", "label": "measured",
     "units": {"time": "s", "size": "bytes"},
     "links": {"between": {"alpha_s": 5e-05, "beta_s_per_byte": 8e-09, "gamma_s_per_byte": 0.0,
                           "alpha_error_s": 1e-06, "beta_error_s_per_byte": 1e-11}},
     "allreduce": {"8": {"a_s": 0.000523, "b_s_per_byte": 8.571e-10}},
     "workload": "AlexNet", "batch": 32,
     "layers": [{"name": "conv1", "forward_s": 0.011, "backward_s": 0.02}, ...]}

links: between nodes, and "inside" one. allreduce: a + b bytes by number of ranks. layers: of one step in forward order;
names that the workload does not know (ReLU, dropout) are added to the layer before them. A file with nonsense is
refused with the reason: a wrong machine gives wrong predictions that look right.
"""

import json
from dataclasses import dataclass, field
from math import isfinite

from refgf.papers.scaling.workloads import WORKLOADS
from refgf.predict.cost import Line, Link, ring_line

LABELS = ("measured", "stated", "verified", "computed", "inferred", "unverified")
UNITS = {"time": "s", "size": "bytes"}
# (least, most) that any network or memory we know of comes near; outside, somebody used other units
RANGES = {
    "alpha_s": (0.0, 1.0),
    "a_s": (0.0, 10.0),
    "beta_s_per_byte": (1e-14, 1e-4),
    "b_s_per_byte": (1e-14, 1e-4),
    "gamma_s_per_byte": (0.0, 1e-6),
    "alpha_error_s": (0.0, 1.0),
    "beta_error_s_per_byte": (0.0, 1e-4),
    "forward_s": (0.0, 1e4),
    "backward_s": (0.0, 1e4),
}
ERRORS = ("alpha_error_s", "beta_error_s_per_byte")
LAYER = ("name", "forward_s", "backward_s")
KEYS = {  # section: (required, optional)
    "links": ({"alpha_s", "beta_s_per_byte"}, {"gamma_s_per_byte", *ERRORS}),
    "allreduce": ({"a_s", "b_s_per_byte"}, set()),
    "layers": ({*LAYER}, set()),
}
FILE_KEYS = {"refgf_machine", "name", "source", "label", "units"}


@dataclass(frozen=True)
class Machine:
    """links: name -> Link; lines: ranks -> Line; errors: name -> (alpha_error_s, beta_error_s_per_byte);
    layers: ((name, forward_s, backward_s), ...) of one step of `workload` at `batch` samples a rank."""

    name: str
    source: str
    label: str
    links: dict = field(default_factory=dict)
    lines: dict = field(default_factory=dict)
    errors: dict = field(default_factory=dict)
    workload: str | None = None
    batch: int | None = None
    layers: tuple = ()

    def __post_init__(self):
        check(to_json(self), f"machine {self.name!r}")

    def allreduce_s(self, size):
        """T(bytes) on `size` ranks: the fitted line, or else the ring on the link between nodes."""
        if size in self.lines:
            return self.lines[size]
        if "between" in self.links:
            return ring_line(size, self.links["between"])
        raise ValueError(
            f"machine {self.name!r}: got {size} ranks, wanted one of {sorted(self.lines)}: it has no link between "
            "nodes from which a ring on other sizes could be computed"
        )

    def gradients(self, itemsize=4):
        """[(ready_s, bytes)] of one step, from the measured layer times."""
        if not self.layers:
            raise ValueError(f"machine {self.name!r}: got no layer times, wanted some: trace a step and save it again")
        workload = WORKLOADS[self.workload]()
        names = [layer.name for layer in workload.layers]
        backward_s = dict.fromkeys(names, 0.0)
        place = names[0]
        for name, _, seconds in self.layers:
            place = name if name in backward_s else place
            backward_s[place] += seconds
        forward_s = sum(seconds for _, seconds, _ in self.layers)
        return workload.gradients(sum(backward_s.values()), forward_s, itemsize, [backward_s[name] for name in names])


def to_json(machine):
    """The machine as a dictionary in the form of the file."""
    links = {}
    for name, link in machine.links.items():
        links[name] = dict(vars(link))
        if name in machine.errors:
            links[name] |= dict(zip(ERRORS, machine.errors[name]))
    data = {"refgf_machine": 1, "name": machine.name, "source": machine.source, "label": machine.label, "units": UNITS}
    data |= {"links": links, "allreduce": {str(size): dict(vars(line)) for size, line in machine.lines.items()}}
    if machine.layers:
        data |= {"workload": machine.workload, "batch": machine.batch}
        data["layers"] = [dict(zip(LAYER, layer)) for layer in machine.layers]
    return data


def save(machine, path):
    with open(path, "w") as file:
        json.dump(to_json(machine), file, indent=1)


def load(path):
    """Read a machine file. ValueError names the file, what is wrong in it, and what was wanted."""
    try:
        with open(path) as file:
            data = json.load(file)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: got no JSON ({error}), wanted a file that machine.save wrote") from None
    check(data, str(path))
    links, errors = {}, {}
    for name, entry in data.get("links", {}).items():
        links[name] = Link(entry["alpha_s"], entry["beta_s_per_byte"], entry.get("gamma_s_per_byte", 0.0))
        if ERRORS[0] in entry:
            errors[name] = tuple(entry[key] for key in ERRORS)
    lines = {int(size): Line(**entry) for size, entry in data.get("allreduce", {}).items()}
    layers = tuple(tuple(entry[key] for key in LAYER) for entry in data.get("layers", []))
    what = [data[key] for key in ("name", "source", "label")]
    return Machine(*what, links, lines, errors, data.get("workload"), data.get("batch"), layers)


def check(data, where):
    """Raise ValueError with the reason unless `data` describes a machine that can exist."""

    def refuse(got, wanted):
        raise ValueError(f"{where}: got {got}; wanted {wanted}")

    if not isinstance(data, dict) or data.get("refgf_machine") != 1:
        refuse("no machine file of version 1", 'an object with "refgf_machine": 1')
    if missing := FILE_KEYS - data.keys():
        refuse(f"no {sorted(missing)}", "name, source, label and units in every machine file")
    if unknown := data.keys() - FILE_KEYS - KEYS.keys() - {"workload", "batch"}:
        refuse(f"unknown keys {sorted(unknown)}", f"only {sorted(FILE_KEYS | KEYS.keys() | {'workload', 'batch'})}")
    if data["units"] != UNITS:
        refuse(f"units {data['units']}", f"{UNITS}: convert the numbers, not the names")
    if data["label"] not in LABELS:
        refuse(f"label {data['label']!r}", f"one of {LABELS}")
    for section in ("links", "allreduce"):
        if not isinstance(data.get(section, {}), dict):
            refuse(f"{section} of type {type(data[section]).__name__}", "an object")
        for name, entry in data.get(section, {}).items():
            check_entry(entry, section, f"{section}[{name!r}]", refuse)
    for size in data.get("allreduce", {}):
        if not (size.isdecimal() and int(size) >= 2):
            refuse(f"allreduce[{size!r}]", "a number of ranks, 2 or more")
    check_layers(data, refuse)


def check_entry(entry, section, name, refuse):
    required, optional = KEYS[section]
    if not isinstance(entry, dict) or not required <= entry.keys() <= required | optional:
        got = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        refuse(f"{name} with {got}", f"{sorted(required)} and at most {sorted(optional)}, in these units")
    if len(entry.keys() & {*ERRORS}) == 1:
        refuse(f"{name} with the error of one number", f"both of {ERRORS}, or none")
    for key, value in entry.items():
        if key == "name":
            continue
        low, high = RANGES[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            refuse(f"{name} {key} = {value!r}", "a finite number")
        if not low <= value <= high:
            refuse(f"{name} {key} = {value}", f"{low} to {high}: negative, zero or in other units?")


def check_layers(data, refuse):
    """Layer times must cover every layer with parameters of a workload that we know, and take some time."""
    layers = data.get("layers", [])
    if not isinstance(layers, list):
        refuse(f"layers of type {type(layers).__name__}", "a list in forward order")
    for number, entry in enumerate(layers):
        check_entry(entry, "layers", f"layers[{number}]", refuse)
    if not layers:
        return
    if data.get("workload") not in WORKLOADS:
        refuse(f"layer times of workload {data.get('workload')!r}", f"one of {sorted(WORKLOADS)}")
    if not isinstance(data.get("batch"), int) or data["batch"] < 1:
        refuse(f"batch {data.get('batch')!r}", "the number of samples a rank that the layer times belong to")
    needed = [layer.name for layer in WORKLOADS[data["workload"]]().layers if layer.tensors]
    if missing := [name for name in needed if name not in {entry["name"] for entry in layers}]:
        refuse(f"no times of the layers {missing[:6]}", f"all {len(needed)} of {data['workload']} with parameters")
    if not sum(entry["backward_s"] for entry in layers) > 0:
        refuse("backward times that sum to 0", "times of a real step")
