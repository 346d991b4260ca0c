"""How right a predictor is on public scaling results: the command `refgf predict score`.

Each row of refgf/plan/published is predicted from its inputs. Printed first is the half of the rows
that calibrates nothing. A row is inside if the measured step lies in the predicted interval. One
factor for every step, which knows no network and no link, stands below it: what a model must beat.
Steps of FSDP (published/sharded) are predicted from the step on fewer GPUs, and have a table of
their own: what stands below it knows that step only, and says that nothing is lost.
`--rows FILE` predicts rows of your own (python -m pydoc refgf.plan.published has the form). What
lies outside the rows that calibrate (more devices, another link, a larger network) is said with
each row.

Another predictor is a command: it reads one JSON object from standard input and writes one to
standard output. Times are in seconds; the interval may be left out, and then no row is inside.

    {"refgf_score": 1, "rows": [{"name": "...", "network": "ResNet-50", "parameters": 25557032,
      "tensors": 161, "batch": 64, "single": 367.0, "devices": 16, "per_node": 8,
      "between": "25gbit" or null in one box, "between_latency_s": 3e-05 or null,
      "inside_gbit": 960.0, "inside_latency_s": 3.4e-06, "fabric": "one box"|"Ethernet"|"RDMA",
      "wire": 4 or 2 bytes a gradient, "accumulate": 1, "assumed": {"between": "why"}}, ...]}

    {"predictions": [{"name": "...", "step_s": 0.19, "low_s": 0.17, "high_s": 0.25}, ...]}
"""

import json
import shlex
import subprocess
from dataclasses import dataclass
from functools import cache
from math import isfinite
from statistics import median
from textwrap import wrap
from typing import Any

from refgf.plan import scored, scored_fsdp
from refgf.plan.calibration import calibrated, quantile
from refgf.plan.published import FABRICS, ScalingRow, rows

LIMIT_S = 600  # of another predictor
NARROW = 2  # high / low; a wider interval says little
KINDS = ("CNN", "transformer")
NEXT = "next: refgf predict score --help describes the form"


@dataclass(frozen=True)
class Scored:
    """A row and its prediction, in seconds a step."""

    row: ScalingRow | scored_fsdp.ShardedRow
    step_s: float
    low_s: float
    high_s: float
    warnings: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """Predicted / measured - 1: below 0 predicted too fast."""
        return self.step_s / self.row.step_s - 1

    @property
    def inside(self) -> bool:
        return self.low_s <= self.row.step_s <= self.high_s


def by_plan(given: tuple[ScalingRow, ...]) -> list[Scored]:
    found = []
    for row in given:
        asked = calibrated(scored.question_of(row), row.fabric)
        step = scored.predicted(row, asked)
        warnings = tuple(note for note in asked.unmodelled.notes if note.startswith("WARNING"))
        found.append(Scored(row, step.step_s, step.low_s, step.high_s, warnings))
    return found


@cache
def of_fsdp() -> dict[str, dict[str, Any]]:
    """Summaries of the steps of FSDP: all, by GPU, and of a predictor that says nothing is lost."""
    found = [Scored(row, *scored_fsdp.predicted(row)) for row in scored_fsdp.rows()]
    same = [Scored(each.row, *[each.row.base_s] * 3) for each in found]
    by = {gpu: [each for each in found if each.row.gpu == gpu] for gpu in ("A100", "H100")}
    named = {"all": found, **by, "(nothing is lost)": same}
    return {name: summary(each) for name, each in named.items()}


def by_one_factor(given: tuple[ScalingRow, ...], known: tuple[ScalingRow, ...]) -> list[Scored]:
    """Step of one device times the median of the rows that calibrate; their 1st and 9th of ten."""
    factors = [row.step_s / row.compute_s for row in known if not row.held_out]
    low, middle, high = (quantile(factors, share) for share in (0.1, 0.5, 0.9))
    return [Scored(row, *(f * row.compute_s for f in (middle, low, high))) for row in given]


def by_command(command: str, given: tuple[ScalingRow, ...]) -> list[Scored]:
    """ValueError says what the command did wrong."""
    where = f"predict score --predictor {command!r}"
    asked = json.dumps({"refgf_score": 1, "rows": [inputs(row) for row in given]})
    try:
        ended = subprocess.run(
            shlex.split(command), input=asked, capture_output=True, text=True, timeout=LIMIT_S
        )
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        wanted = f"wanted a command that ends within {LIMIT_S} s"
        raise ValueError(f"{where}: got {error}; {wanted}; {NEXT}") from None
    if ended.returncode:
        said = ended.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ValueError(
            f"{where}: got exit code {ended.returncode} ({said[0][:200]}); wanted 0; {NEXT}"
        )
    return matched(ended.stdout, given, where)


def matched(text: str, given: tuple[ScalingRow, ...], where: str) -> list[Scored]:
    """The predictions of a command's output, in the order of the rows."""
    try:
        answers = json.loads(text)["predictions"]
        named = {answer["name"]: answer for answer in answers}
    except (ValueError, TypeError, KeyError) as error:
        got = f"{text[:60]!r} ({type(error).__name__}: {error})"
        wanted = 'wanted {"predictions": [{"name": ..., "step_s": ...}, ...]}'
        raise ValueError(f"{where}: got {got}; {wanted}; {NEXT}") from None
    missing = [row.name for row in given if row.name not in named]
    if missing or len(named) != len(answers) or len(named) > len(given):
        got = f"{len(answers)} predictions of {len(named)} names"
        first = f", without {missing[0]!r}" if missing else ""
        wanted = f"wanted one for each of the {len(given)} rows"
        raise ValueError(f"{where}: got {got}{first}; {wanted}; {NEXT}")
    return [one(named[row.name], row, where) for row in given]


def one(answer: dict[str, Any], row: ScalingRow, where: str) -> Scored:
    step_s = answer.get("step_s")
    times = [step_s, answer.get("low_s", step_s), answer.get("high_s", step_s)]
    numbers = all(isinstance(t, int | float) and not isinstance(t, bool) for t in times)
    if not numbers or not all(isfinite(t) and t > 0 for t in times):
        wanted = "wanted finite seconds above 0 for step_s, low_s and high_s"
        raise ValueError(f"{where}, {row.name!r}: got {times}; {wanted}; {NEXT}")
    if not times[1] <= times[0] <= times[2]:
        wanted = "wanted low_s <= step_s <= high_s"
        raise ValueError(f"{where}, {row.name!r}: got {times}; {wanted}; {NEXT}")
    return Scored(row, *times)


def inputs(row: ScalingRow) -> dict[str, Any]:
    """What a predictor may know of a row: all but the measured time."""
    fabric, workload = scored.fabric_of(row), row.workload()
    latency_s = fabric.between.alpha_s if row.between else None
    names = ("network", "batch", "single", "per_node", "between", "fabric", "wire", "accumulate")
    return {
        "name": row.name,
        **{name: getattr(row, name) for name in names},
        "devices": row.ranks,
        "parameters": workload.parameters,
        "tensors": len(workload.tensors),
        "between_latency_s": latency_s,
        "inside_gbit": 8e-9 / fabric.inside.beta_s_per_byte,
        "inside_latency_s": fabric.inside.alpha_s,
        "assumed": row.assumed,
    }


# ---- what is said of them ----


def summary(found: list[Scored]) -> dict[str, Any]:
    """Of these rows: how many, inside, the errors, and how wide the intervals are."""
    errors = [abs(each.error) for each in found]
    slow = sum(each.error > 0 for each in found)
    widths = [each.high_s / each.low_s for each in found]
    return {
        "rows": len(found),
        "inside": sum(each.inside for each in found),
        "error": median(errors),
        "largest_error": max(errors),
        "too_slow": slow,
        "too_fast": len(found) - slow,
        "width": median(widths),
        "narrow": sum(width < NARROW for width in widths),
    }


def groups(found: list[Scored]) -> dict[str, list[Scored]]:
    """All, by fabric, by kind of network, and both; without empty ones."""
    made = {"all": found}
    for fabric in FABRICS:
        made[fabric] = [each for each in found if each.row.fabric == fabric]
    for kind in KINDS:
        made[kind] = [each for each in found if each.row.kind == kind]
    for fabric in FABRICS:
        for kind in KINDS:
            both = [each for each in made[fabric] if each.row.kind == kind]
            made[f"{fabric}, {kind}"] = both
    return {name: each for name, each in made.items() if each}


def answer(command: str | None = None, own: tuple[ScalingRow, ...] = ()) -> dict[str, Any]:
    """What `--json` prints: both halves, or own rows, each with its groups, and all rows."""
    given = own or rows()
    found = by_plan(given) if command is None else by_command(command, given)
    halves = {
        "held_out": [each for each in found if each.row.held_out],
        "calibrates": [each for each in found if not each.row.held_out],
    }
    halves = {"own": found} if own else halves
    judged = next(iter(halves.values()))
    return {
        "refgf_score": 1,
        "predictor": "plan" if command is None else command,
        "sources": len({row.source for row in given}),
        "one_factor": summary(by_one_factor(tuple(each.row for each in judged), rows())),
        "fsdp": of_fsdp() if command is None and not own else {},
        "halves": {
            half: {name: summary(each) for name, each in groups(of_half).items()}
            for half, of_half in halves.items()
        },
        "rows": [
            {
                "half": half,
                "name": each.row.name,
                "held_out": each.row.held_out,
                "fabric": each.row.fabric,
            }
            | {"kind": each.row.kind, "measured_s": each.row.step_s, "step_s": each.step_s}
            | {"low_s": each.low_s, "high_s": each.high_s, "source": each.row.address}
            | {"warnings": list(each.warnings)}
            for half, of_half in halves.items()
            for each in of_half
        ],
    }


TITLES = {"held_out": "Held out", "calibrates": "The half that calibrates plan"}
HEAD = (
    f"{'':<22} rows   inside   error, median  largest   too slow  too fast   width   < {NARROW} x"
)


def text(found: dict[str, Any], every: bool = False) -> str:
    """The half that was not used comes first."""
    halves = found["halves"]
    total = sum(half["all"]["rows"] for half in halves.values())
    lines = [f"{found['predictor']}: {total} steps of {found['sources']} sources."]
    if "own" not in halves:
        lines = [
            f"{found['predictor']}: {total} published steps of {found['sources']} sources "
            "(refgf/plan/published).",
            "Half of the families (a source's network on one kind of node), chosen by a hash of "
            "their",
            "names, calibrate nothing: held out.",
        ]
    for half in halves:
        lines += ["", TITLES.get(half, "Rows of --rows"), HEAD]
        lines += [line(name, row) for name, row in halves[half].items()]
        if half != "calibrates":
            lines += [line("(one factor for all)", found["one_factor"])]
    if found["fsdp"]:
        lines += ["", "Steps of FSDP, from the step on fewer GPUs: they calibrate nothing", HEAD]
        lines += [line(name, row) for name, row in found["fsdp"].items()]
    lines += ["", "error: of the step, predicted / measured - 1. width: high / low, median."]
    if every:
        lines += ["", *map(row_line, sorted(found["rows"], key=lambda row: row["name"]))]
    return "\n".join(lines)


def short(found: dict[str, Any]) -> str:
    row = found["halves"]["held_out"]["all"]
    share = f"{100 * row['inside'] / row['rows']:.0f} % of {row['rows']} published steps inside"
    return f"scored on a half that it never saw: {share}, error {100 * row['error']:.1f} % (median)"


def sentence(found: dict[str, Any]) -> str:
    """What the pages say of the half that calibrates nothing."""
    held, plain = found["halves"]["held_out"], found["one_factor"]
    row, ethernet = held["all"], held["Ethernet"]
    worst = min(held, key=lambda name: held[name]["inside"] / held[name]["rows"])
    return (
        f"On {row['rows']} published steps that calibrate nothing, "
        f"{100 * row['inside'] / row['rows']:.0f} % lie inside the interval, the error of the step "
        f"is {100 * row['error']:.1f} % (median), {row['too_slow']} are predicted too slow and "
        f"{row['too_fast']} too fast; {row['narrow']} intervals are narrower than a factor of "
        f"{NARROW}. One factor for every step has "
        f"{100 * plain['inside'] / plain['rows']:.0f} % inside and an error of "
        f"{100 * plain['error']:.1f} %. The worst kind is {worst}: {held[worst]['inside']} of "
        f"{held[worst]['rows']} inside. On Ethernet ({ethernet['rows']} of them) the error is "
        f"{100 * ethernet['error']:.0f} % and the interval {ethernet['width']:.1f} times wide: how "
        "much of the wire TCP carries is stated nowhere."
    )


def sentence_of_fsdp(found: dict[str, Any]) -> str:
    row, h100, same = (found["fsdp"][name] for name in ("all", "H100", "(nothing is lost)"))
    return (
        f"On {row['rows']} published steps of FSDP ({h100['rows']} on H100; 16 to 512 GPUs), "
        f"predicted from the step on fewer GPUs, {row['inside']} lie inside the interval, "
        f"{row['width']:.1f} times wide; the error is {100 * row['error']:.1f} % (median). That of "
        f"a predictor that says that nothing is lost is {100 * same['error']:.1f} %: what more "
        "GPUs lose is not in the formulas, but in the interval."
    )


def line(name: str, row: dict[str, Any]) -> str:
    share = 100 * row["inside"] / row["rows"]
    return (
        f"{name:<22} {row['rows']:4d}   {share:4.0f} %   {100 * row['error']:10.1f} %  "
        f"{100 * row['largest_error']:6.0f} %   {row['too_slow']:8d}  {row['too_fast']:8d}   "
        f"{row['width']:5.2f}   {row['narrow']:4d}"
    )


def row_line(row: dict[str, Any]) -> str:
    """The name, the times, and what lies outside the rows that calibrate."""
    inside = row["low_s"] <= row["measured_s"] <= row["high_s"]
    ms = {key: f"{1e3 * row[key]:.4g}" for key in ("measured_s", "step_s", "low_s", "high_s")}
    lines = [
        f"{row['half'].replace('_', ' '):<10}  {row['name']}",
        f"            measured {ms['measured_s']} ms, predicted {ms['step_s']}, {ms['low_s']} to "
        f"{ms['high_s']}: {'inside' if inside else 'OUTSIDE'}",
    ]
    for said in row["warnings"]:
        lines += wrap(said, 88, initial_indent=" " * 12, subsequent_indent=" " * 12)
    return "\n".join(lines)
