"""Fields of an MSCCL++ plan's JSON: of the type that is wanted, or a BadFile."""

import math
from typing import Any

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules.form import LARGEST_COUNT

LARGEST_PARTS = 1 << 12


def item(path: str, value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind):
        got = type(value).__name__
        raise BadFile(f"{path}: got {got} as {what}; wanted {kind.__name__}")
    return value


def listed(path: str, holder: dict, key: str) -> list:
    return item(path, holder.get(key, []), list, key)


def count(path: str, holder: dict, key: str, default: int | None = None) -> int:
    """A whole number from 0 on."""
    return whole(path, holder.get(key, default), key)


def whole(path: str, value: Any, what: str) -> int:
    if type(value) is not int or not 0 <= value < LARGEST_COUNT:
        raise BadFile(f"{path}: got {str(value)[:20]} as {what}; wanted a whole number from 0 on")
    return value


def part_of(path: str, op: dict) -> tuple[int, int]:
    """(part, number of parts) of an op that a group of thread blocks shares; else (0, 1)."""
    info = item(path, op.get("tbg_info") or {"tb_id": 0, "tbg_size": 1}, dict, "tbg_info")
    part, parts = (count(path, info, key) for key in ("tb_id", "tbg_size"))
    if part >= parts:
        raise BadFile(f"{path}: got part {part} of {parts} in tbg_info; wanted a smaller tb_id")
    return part, parts


def parts_of_a_chunk(path: str, gpus: list[dict]) -> int:
    """The least number of which every tbg_size of the plan is a divisor."""
    found, waiting = 1, list(gpus)
    while waiting:
        holder = waiting.pop()
        for key in ("threadblocks", "ops"):
            inner = listed(path, holder, key)
            waiting += [item(path, each, dict, key) for each in inner]
        found = math.lcm(found, part_of(path, holder)[1])
        if found > LARGEST_PARTS:
            raise BadFile(
                f"{path}: got groups of thread blocks that divide a chunk into {found} parts or "
                f"more; wanted at most {LARGEST_PARTS}; next: judge a smaller plan"
            )
    return found
