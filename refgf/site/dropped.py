"""A reader's MSCCL XML file: read, judged, and as the player shows it.

The page runs this module in Pyodide. It imports the standard library, and modules of this project
that do the same.
"""

import json
from base64 import b64decode

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules import msccl
from refgf.oracle.schedules.form import LARGEST_FILE, Plan, require_size
from refgf.oracle.schedules.order import Graph
from refgf.oracle.schedules.verdict import as_lines, judge
from refgf.predict.cost import Link
from refgf.site.played import Played

PLAYED = ("right", "other bits")  # verdicts
LARGEST = {"ranks": 16, "messages": 1 << 12, "writes": 1 << 16, "chunks of memory": 1 << 13}
LONGEST_NAME = 100  # characters
kept: dict[str, Played] = {}  # {name of the file: schedule that the page plays}


def answer(asked: str) -> str:
    """JSON of the page -> JSON for the page.

    asked: "name" of the file, "alpha" (seconds), "rate" (Gbit/s) and "bytes" of the vector. A new
    file also has its "size" and its "content" (base64; may be empty if the size is over the limit).
    answer: "name"; for a new file "said" (sentences), and if it is played "plan" (Played.data);
    "times" ([start, end] of each message, in seconds) of a file that is played.
    """
    given = json.loads(asked)
    name, link = given["name"][-LONGEST_NAME:], Link(given["alpha"], 8 / (given["rate"] * 1e9))
    found = {"name": name}
    if "content" in given:
        try:
            found |= opened(name, given["size"], given["content"], link, given["bytes"])
        except BadFile as error:
            found["said"] = [str(error)]
    if "content" not in given or "plan" in found:
        found["times"] = kept[name].times(link, given["bytes"])
    return json.dumps(found)


def opened(name: str, size: int, content: str, link: Link, nbytes: int) -> dict:
    """A new file: what is said about it, and its plan if the page plays it. Raises BadFile."""
    if not name.endswith(".xml"):
        raise BadFile(
            f"{name}: got a name of another kind; wanted .xml (MSCCL); next: "
            "python -m refgf.oracle schedule FILE judges MSCCL++ plans and Chakra traces too"
        )
    if size > LARGEST_FILE:
        raise BadFile(f"{name}: got {size} bytes; wanted at most {LARGEST_FILE}")
    plan = require_size(name, msccl.parse(name, b64decode(content)))
    judged = judge(plan, link, nbytes)
    said = as_lines(name, plan, judged)
    if judged.kind not in PLAYED:
        return {"said": said}
    large = too_large(plan)
    if large:
        return {"said": [*said, large]}
    kept[name] = Played(Graph(plan))
    return {"said": said, "plan": kept[name].data()}


def too_large(plan: Plan) -> str:
    """Why the page does not play a plan that is right; empty if it does."""
    steps = [step for _, _, step in plan.steps()]
    sizes = {
        "ranks": len(plan.ranks),
        "messages": sum(len(step.sends) for step in steps),
        "writes": sum(span.count for step in steps for span in step.writes),
        "chunks of memory": sum(map(sum, plan.sizes)),
    }
    for what, got in sizes.items():
        if got > LARGEST[what]:
            return f"This page does not play it: got {got} {what}; wanted at most {LARGEST[what]}."
    return ""
