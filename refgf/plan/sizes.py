"""A list of gradients as a file: when each is ready, and how large it is.

CSV: one line a gradient, in any order of time. The names of the columns hold the units:

    name,elements,ready_ms
    fc.bias,1000,31.2
    fc.weight,2048000,31.9

    size    elements, or bytes (4 per element, but where dtype says more or less)
    dtype   float32 if it is left out; float16, bfloat16, float64
    time    ready_s, ready_ms or ready_us, counted from the start of the step (forward included)

A step of more than 10 s in ready_s, or 60 s in ready_ms, is refused: it is likely in another unit.
A real step of that length is taken in the next smaller unit. A step below 1 ms or above 10 s, a
name that stands twice and a gradient of 0 elements give a warning.

JSON: a list of such objects, or {"gradients": [...], "after_ms": 2.0, "batch": 64}. after: what
follows backward in a step, as the optimiser.
"""

import csv
import io
import json
from collections import Counter
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from refgf.plan import texts
from refgf.plan.step_times import StepTimes

SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
TIMES = tuple(f"ready_{unit}" for unit in SECONDS)
SIZES = ("elements", "bytes")
FLOAT32 = 4
DTYPES = {2: "float16 half fp16 bfloat16 bf16", 4: "float32 float fp32", 8: "float64 double fp64"}
ITEMSIZE = {name: itemsize for itemsize, names in DTYPES.items() for name in names.split()}
LONGEST_S = {"s": 10.0, "ms": 60.0, "us": 3600.0}  # of a step in this unit (chosen)
SHORT_S = 1e-3  # a shorter step is taken with a warning (chosen)
MOST_BYTES = 1e12  # of gradients per second of a step: no memory writes many more (chosen)
WHERE = "correct the file, or pass a trace of torch.profiler (record_shapes=True) itself"


def content(path: str) -> str:
    """The file as text; .gz is unpacked."""
    try:
        return texts.content(path)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        wanted = "a workload's name, a trace or a list of sizes"
        refuse(path, f"no readable file ({error})", wanted, "--model resnet50")


def parse(text: str, path: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip()[:1] in ("{", "["):
            again = "the file may have been cut: copy or export it again"
            refuse(path, f"broken JSON ({error})", "a whole file", again)
        named = "name a list with commas NAME.csv"
        refuse(path, f"no JSON ({error})", "a trace or a list of gradients", named)


def from_csv(text: str, path: str) -> StepTimes:
    try:
        reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
        reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
        rows = list(reader)
    except csv.Error as error:
        refuse(path, f"no CSV ({error})", "lines of name,elements,ready_ms")
    if any(";" in name for name in reader.fieldnames):
        refuse(path, "columns divided by semicolons", "commas, and points in numbers")
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():
            wanted = "as many columns as the first line names"
            refuse(
                path, f"{'more' if None in row else 'fewer'} columns in line {number + 1}", wanted
            )
    return from_rows(rows, path)


def from_json(data: Any, path: str) -> StepTimes:
    about = data if isinstance(data, dict) else {}
    rows = about.get("gradients") if isinstance(data, dict) else data
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        refuse(path, "neither traceEvents nor gradients", "a trace, or a list of gradients")
    after_s = time_of(about, "after", path) if any(k.startswith("after_") for k in about) else 0.0
    batch = about.get("batch", 0)
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 0:
        refuse(path, f"batch = {batch!r}", "a whole number of samples a rank")
    return from_rows(rows, path, after_s, batch)


def from_rows(
    rows: list[dict[str, Any]], path: str, after_s: float = 0.0, batch: int = 0
) -> StepTimes:
    """One unit of time and one of size in the whole file; a gap or a second unit is refused."""
    if not rows:
        refuse(path, "no gradients", f"one line for each, with {' or '.join(SIZES)} and a time")
    units = {
        tuple(key for key in (*SIZES, *TIMES) if row.get(key) not in (None, "")) for row in rows
    }
    names = sorted({name for unit in units for name in unit})
    for kind, allowed in {"sizes": SIZES, "ready times": TIMES}.items():
        used = [name for name in names if name in allowed]
        if not used:
            columns = ", ".join(str(name)[:40] for name in rows[0])
            empty = " or ".join(name for name in allowed if name in rows[0])
            wanted = f"numbers in {empty}" if empty else f"a column {' or '.join(allowed)}"
            refuse(path, f"no {kind} in {columns}", wanted)
        if len(used) > 1:
            refuse(path, f"mixed units of {kind}: {' and '.join(used)}", "one unit in the file")
    ready, kinds = [], []
    for number, row in enumerate(rows, 1):
        where = f"{path}, gradient {number} ({row.get('name') or 'without a name'})"
        size = quantity(row, next(name for name in names if name in SIZES), where)
        kinds.append(dtype_of(row, where))
        elements = size if "elements" in names else size / ITEMSIZE[kinds[-1]]
        if elements != int(elements):
            refuse(where, f"{size:g} {names[0]}", "a whole number of elements")
        ready.append((time_of(row, "ready", where), int(elements)))
    ready.sort(key=lambda pair: pair[0])
    unit = next(name for name in names if name in TIMES).removeprefix("ready_")
    if not ready[-1][0] > 0 or not any(elements for _, elements in ready):
        refuse(path, "ready times or sizes that are all 0", "those of a real step")
    require_seconds(ready, unit, path)
    others = sorted({kind for kind in kinds if ITEMSIZE[kind] != FLOAT32})
    notes = doubts(ready[-1][0] + after_s, unit, rows, ready) + wire_notes("list", others)
    return StepTimes(Path(path).name, "list", tuple(ready), after_s, batch, notes=notes)


def doubts(
    step_s: float, unit: str, rows: list[dict[str, Any]], ready: list[tuple[float, int]]
) -> tuple[str, ...]:
    """What is taken, and may be a mistake: a sentence each."""
    found = [*long_or_short(step_s, f"ready_{unit}")]
    counts = Counter(row.get("name") for row in rows)
    twice = [str(name)[:40] for name, count in counts.items() if name and count > 1]
    if twice:
        count = len(twice)
        found.append(f"WARNING: names that stand more than once: {count}, such as {twice[0]}.")
    if empty := sum(elements == 0 for _, elements in ready):
        found.append(f"WARNING: {empty} of {len(ready)} gradients have 0 elements: not sent.")
    return tuple(found)


def dtype_of(row: dict[str, Any], where: str) -> str:
    """A name of ITEMSIZE."""
    given = row.get("dtype") or "float32"
    name = str(given).lower().removeprefix("torch.")
    if name not in ITEMSIZE:
        refuse(where, f"dtype {given!r}", f"one of {', '.join(ITEMSIZE)}")
    return name


def wire_notes(what: str, kinds: list[str]) -> tuple[str, ...]:
    """Gradients of 2 or 8 bytes: the formulas send 4 but in the rows that halve them."""
    wide = [kind for kind in kinds if ITEMSIZE.get(kind) == 2 * FLOAT32]
    kinds = [kind for kind in kinds if kind not in wide]
    found = []
    if wide:
        said = f"WARNING: the {what} has gradients of {' and '.join(wide)}, 8 bytes each, and "
        said += "every row counts 4 or fewer: their exchange takes up to twice as long. "
        found.append(said + "Send float32, or pass a list that has twice the elements.")
    if kinds:
        found.append(
            f"The {what} has gradients of {' and '.join(kinds)}. All rows but half, CSC and "
            "hierarchy16 are for float32 on the wire: if gradients of 2 bytes are sent as they "
            "are, see half."
        )
    return tuple(found)


def long_or_short(step_s: float, unit: str) -> tuple[str, ...]:
    """A sentence about a step whose length suggests another unit."""
    if SHORT_S <= step_s <= LONGEST_S["s"]:
        return ()
    short = step_s < SHORT_S
    step = f"{1e3 * step_s:.3g} ms is very short" if short else f"{step_s:.3g} s is long"
    return (f"WARNING: a step of {step}. Is the unit, {unit}, right?",)


def require_seconds(ready: list[tuple[float, int]], unit: str, path: str) -> None:
    """ValueError for a step that is too long or too short for the unit that the file names."""
    units = list(SECONDS)
    at, step_s = units.index(unit), ready[-1][0]
    nbytes = FLOAT32 * sum(elements for _, elements in ready)
    if step_s > LONGEST_S[unit]:
        got, most = f"a step of {step_s:.3g} s in ready_{unit}", f"{LONGEST_S[unit]:g} s"
        right = units[min(at + 1, 2)]
    elif nbytes / step_s > MOST_BYTES:
        got = f"{1e-6 * nbytes:.3g} MB of gradients within {1e6 * step_s:.3g} us"
        most, right = f"{1e-12 * MOST_BYTES:g} TB/s", units[max(at - 1, 0)]
    else:
        return
    try_next = f"name the column ready_{right} if it holds {right}, else convert it to {right}"
    refuse(path, got, f"at most {most}; is the unit right?", try_next)


def time_of(row: dict[str, Any], what: str, where: str) -> float:
    """The value of what_s, what_ms or what_us, in seconds."""
    name = next((f"{what}_{u}" for u in SECONDS if row.get(f"{what}_{u}") not in (None, "")), None)
    if name is None:
        wanted = " or ".join(f"{what}_{unit}" for unit in SECONDS)
        refuse(where, f"no {what} time", wanted)
    return quantity(row, name, where) * SECONDS[name.rpartition("_")[2]]


def quantity(row: dict[str, Any], name: str, where: str) -> float:
    text = row.get(name)
    if text in (None, ""):
        refuse(where, f"no {name}", f"{name} of every gradient")
    try:
        value = float(text) if not isinstance(text, bool) else -1.0
    except (TypeError, ValueError):
        value = -1.0
    if not isfinite(value) or value < 0:
        refuse(where, f"{name} = {text!r}", "a number, 0 or more")
    return value


def refuse(where: str, got: str, wanted: str, try_next: str = WHERE) -> NoReturn:
    raise ValueError(f"plan --model {where}: got {got}; wanted {wanted}; next: {try_next}")
