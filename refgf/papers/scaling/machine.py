"""A machine as a JSON file that others can send: links, fitted allreduces, layer times.

    {"refgf_machine": 1, "name": "...", "source": "who measured it, when, how", "label": "measured",
     "units": {"time": "s", "size": "bytes"},
     "links": {"between": {"alpha_s": 5e-05, "beta_s_per_byte": 8e-09, "gamma_s_per_byte": 0.0,
                           "alpha_error_s": 1e-06, "beta_error_s_per_byte": 1e-11}},
     "allreduce": {"8": {"a_s": 0.000523, "b_s_per_byte": 8.571e-10}},
     "workload": "AlexNet", "batch": 32,
     "layers": [{"name": "conv1", "forward_s": 0.011, "backward_s": 0.02}, ...]}

links: "between" nodes and "inside" one. allreduce: a + b bytes for each number of ranks. layers:
one step in forward order; a layer that the workload does not know (ReLU, dropout) is added to the
layer before it. label, of all numbers: stated, verified, computed, inferred, unverified, measured
or chosen. `load` refuses a wrong file, because its predictions would look right.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from refgf.arguments import checked
from refgf.machine.regular_files import open_regular
from refgf.papers.scaling.interval import LABELS
from refgf.papers.scaling.workloads import WORKLOADS
from refgf.predict.cost import Line, Link, ring_line

UNITS = {"time": "s", "size": "bytes"}
# (least, most): a value outside is wrong or in other units
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
NAMES = ("name", "source", "label")
FILE_KEYS = {"refgf_machine", *NAMES, "units"}


@checked
@dataclass(frozen=True)
class Machine:
    """A measured or published machine.

    links   name -> Link
    lines   ranks -> Line
    errors  name -> (alpha_error_s, beta_error_s_per_byte)
    layers  ((name, forward_s, backward_s), ...) of one step of `workload`, `batch` samples per rank
    """

    name: str
    source: str
    label: str
    links: dict = field(default_factory=dict)
    lines: dict = field(default_factory=dict)
    errors: dict = field(default_factory=dict)
    workload: str | None = None
    batch: int | None = None
    layers: tuple = ()

    def __post_init__(self) -> None:
        check(to_json(self), f"machine {self.name!r}")

    def allreduce_s(self, size: int) -> Line:
        """T(bytes) on `size` ranks: the fitted line, or else the ring on the link between nodes."""
        if size in self.lines:
            return self.lines[size]
        if "between" in self.links:
            return ring_line(size, self.links["between"])
        raise ValueError(
            f"machine {self.name!r}: got {size} ranks; wanted one of {sorted(self.lines)}; next: "
            "add a link between nodes, from which a ring on other sizes is computed"
        )

    def gradients(self, itemsize: int = 4) -> list[tuple[float, int]]:
        """[(ready_s, bytes)] of one step, from the measured layer times."""
        if not self.layers:
            raise ValueError(
                f"machine {self.name!r}: got no layer times; wanted those of a step; next: trace a "
                "step and save it again"
            )
        workload = WORKLOADS[self.workload]()
        names = [layer.name for layer in workload.layers]
        backward_s = dict.fromkeys(names, 0.0)
        known = names[0]
        for name, _, seconds in self.layers:
            known = name if name in backward_s else known
            backward_s[known] += seconds
        forward_s = sum(seconds for _, seconds, _ in self.layers)
        by_layer = list(backward_s.values())
        return workload.gradients(sum(by_layer), forward_s, itemsize, by_layer)


def to_json(machine: Machine) -> dict:
    """The machine as the dictionary that the file holds."""
    links = {}
    for name, link in machine.links.items():
        links[name] = dict(vars(link))
        if name in machine.errors:
            links[name] |= dict(zip(ERRORS, machine.errors[name]))
    data = {"refgf_machine": 1} | {key: getattr(machine, key) for key in NAMES} | {"units": UNITS}
    lines = {str(size): dict(vars(line)) for size, line in machine.lines.items()}
    data |= {"links": links, "allreduce": lines}
    if machine.layers:
        data |= {"workload": machine.workload, "batch": machine.batch}
        data["layers"] = [dict(zip(LAYER, layer)) for layer in machine.layers]
    return data


def save(machine: Machine, path: Path) -> None:
    with open(path, "w") as file:
        json.dump(to_json(machine), file, indent=1)


def load(path: Path) -> Machine:
    """Read a machine file. ValueError says what is wrong in it."""
    try:
        with open_regular(path) as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        wanted = f"a file that machine.save wrote; next: {MEASURE}"
        raise ValueError(f"{path}: got no JSON ({error}); wanted {wanted}") from None
    check(data, str(path))
    return of(data)


def of(data: dict) -> Machine:
    """What the file holds, or a table of tables/machines.toml."""
    links, errors = {}, {}
    for name, entry in data.get("links", {}).items():
        links[name] = Link(**{key: value for key, value in entry.items() if key not in ERRORS})
        if ERRORS[0] in entry:
            errors[name] = tuple(entry[key] for key in ERRORS)
    lines = {int(size): Line(**entry) for size, entry in data.get("allreduce", {}).items()}
    layers = tuple(tuple(entry[key] for key in LAYER) for entry in data.get("layers", []))
    step = {"workload": data.get("workload"), "batch": data.get("batch"), "layers": layers}
    return Machine(*(data[key] for key in NAMES), links, lines, errors, **step)


Refuse = Callable[[str, str], None]
MEASURE = "measure one: mpiexec -n 2 python -m refgf.predict measure --out mine.json, on two nodes"


def check(data: object, where: str) -> None:
    """ValueError unless `data` describes a machine that can exist."""

    def refuse(got: str, wanted: str) -> None:
        raise ValueError(f"{where}: got {got}; wanted {wanted}; next: correct it, or {MEASURE}")

    if not isinstance(data, dict) or data.get("refgf_machine") != 1:
        refuse("no machine file of version 1", 'an object with "refgf_machine": 1')
    if missing := FILE_KEYS - data.keys():
        refuse(f"no {sorted(missing)}", "name, source, label and units in every machine file")
    allowed = FILE_KEYS | KEYS.keys() | {"workload", "batch"}
    if unknown := data.keys() - allowed:
        refuse(f"unknown keys {sorted(unknown)}", f"only {sorted(allowed)}")
    if data["units"] != UNITS:
        refuse(f"units {data['units']}", f"{UNITS}, with the numbers converted")
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


def check_entry(entry: object, section: str, name: str, refuse: Refuse) -> None:
    required, optional = KEYS[section]
    if not isinstance(entry, dict) or not required <= entry.keys() <= required | optional:
        got = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        refuse(f"{name} with {got}", f"{sorted(required)} and at most {sorted(optional)}")
    if len(entry.keys() & {*ERRORS}) == 1:
        refuse(f"{name} with the error of one number", f"both of {ERRORS}, or none")
    for key, value in entry.items():
        if key == "name":
            continue
        low, high = RANGES[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
            refuse(f"{name} {key} = {value!r}", "a finite number")
        if not low <= value <= high:
            unit = "seconds per byte" if key.endswith("byte") else "seconds"
            refuse(f"{name} {key} = {value}", f"{low} to {high} {unit}")


def check_layers(data: dict, refuse: Refuse) -> None:
    """Layer times cover every layer with parameters of a known workload and are not all zero."""
    layers = data.get("layers", [])
    if not isinstance(layers, list):
        refuse(f"layers of type {type(layers).__name__}", "a list in forward order")
    for number, entry in enumerate(layers):
        check_entry(entry, "layers", f"layers[{number}]", refuse)
    if not layers:
        return
    workload, batch = data.get("workload"), data.get("batch")
    if workload not in WORKLOADS:
        refuse(f"layer times of workload {workload!r}", f"one of {sorted(WORKLOADS)}")
    if not isinstance(batch, int) or batch < 1:
        refuse(f"batch {batch!r}", "the samples per rank that the layer times belong to")
    needed = [layer.name for layer in WORKLOADS[workload]().layers if layer.tensors]
    if missing := [name for name in needed if name not in {entry["name"] for entry in layers}]:
        wanted = f"all {len(needed)} of {workload} with parameters"
        refuse(f"no times of the layers {missing[:6]}", wanted)
    if not sum(entry["backward_s"] for entry in layers) > 0:
        refuse("backward times that sum to 0", "times of a real step")
