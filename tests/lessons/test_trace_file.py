"""The timeline that lesson 04 left in figures/: Chrome Trace JSON for ui.perfetto.dev.

Events have a phase: "X" for complete ones (start and duration in microseconds), "M" for names.
Process and thread are integers. Two events of one thread are nested or disjoint.
"""

import copy
import json
from pathlib import Path

import pytest

FIGURES = Path(__file__).resolve().parents[2] / "figures"
TRACE = json.loads((FIGURES / "04_overlap.trace.json").read_text())
# Horovod's names, where the concepts agree
HOROVODS = {
    "MPI_ALLREDUCE",
    "WAIT_FOR_DATA",
    "MEMCPY_IN_FUSION_BUFFER",
}
OURS = {"FORWARD", "BACKWARD", "UPDATE"}


def faults(trace) -> list[str]:
    """The errors that would break a viewer."""
    found, lanes = [], {}
    for event in trace["traceEvents"]:
        if not (
            isinstance(event["pid"], int)
            and isinstance(event["tid"], int)
            and isinstance(event["name"], str)
        ):
            found.append(f"{event}: process, thread or name")
        if event["ph"] == "X":
            if not (event["ts"] >= 0 and event["dur"] >= 0):
                found.append(f"{event}: times")
            lanes.setdefault((event["pid"], event["tid"]), []).append(
                (event["ts"], event["ts"] + event["dur"])
            )
        elif event["ph"] != "M" or not set(event["args"]) <= {"name", "sort_index"}:
            found.append(f"{event}: phase")
    return found + [
        f"lane {lane}: {fault}" for lane, spans in lanes.items() for fault in overlaps(spans)
    ]


def overlaps(spans, rounding_us=1e-3) -> list[str]:
    found, open_ends = [], []
    for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_ends and open_ends[-1] <= start + rounding_us:
            open_ends.pop()
        if open_ends and stop > open_ends[-1] + rounding_us:
            found.append(f"{start} to {stop} begins inside another event and ends after it")
        open_ends.append(stop)
    return found


def test_the_trace_of_lesson_04_opens():
    assert faults(TRACE) == []
    ranks = json.loads((FIGURES / "04_overlap.json").read_text())["ranks"]
    names = {
        event["args"]["name"] for event in TRACE["traceEvents"] if event["name"] == "process_name"
    }
    assert names == {f"rank {rank}" for rank in range(ranks)}
    lanes = {
        event["args"]["name"] for event in TRACE["traceEvents"] if event["name"] == "thread_name"
    }
    assert {"compute", "communication"} <= lanes
    assert {
        event["name"] for event in TRACE["traceEvents"] if event["ph"] == "X"
    } <= HOROVODS | OURS


def shifted(trace):
    """Makes an event end in the middle of the next event of its lane."""
    first, second = [
        event for event in trace["traceEvents"] if event["name"] in ("FORWARD", "BACKWARD")
    ][:2]
    first["dur"] = second["ts"] + second["dur"] / 2 - first["ts"]


def in_words(trace):
    trace["traceEvents"][0]["pid"] = "rank 0"


def begun_only(trace):
    next(event for event in trace["traceEvents"] if event["ph"] == "X")["ph"] = "B"


@pytest.mark.parametrize("harm", [shifted, in_words, begun_only])
def test_faults_are_detected(harm):
    wrong = copy.deepcopy(TRACE)
    harm(wrong)
    assert faults(wrong)
