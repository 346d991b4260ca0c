"""Do all ranks make the same collective calls, in the same order? Else they wait for ever.

gloo says nothing, or ends the process. calls.py writes down what each rank calls; the first call
that differs, in a group of ranks, says where to look.
"""

from dataclasses import dataclass
from pathlib import Path

from refgf.oracle.foreign.untrusted import BadFile, parse_json, read_bytes

BACKWARD = "backward"  # no call: it is written between them
LARGEST = 1 << 23  # bytes of one rank's calls
WANTED = (
    "wanted the same collective calls in the same order on every rank; next: look for a call that "
    "depends on the rank or on its data"
)


@dataclass(frozen=True)
class CollectiveCall:
    operation: str
    of: str  # how many numbers of which type, where all ranks must have as many
    group: str
    ranks: list[int]
    step: int
    line: int

    def is_whole(self) -> bool:
        """Of the right types, as a file may be damaged."""
        texts, numbers = (self.operation, self.of, self.group), (self.step, self.line)
        lists = isinstance(self.ranks, list) and all(type(rank) is int for rank in self.ranks)
        return (
            lists
            and all(isinstance(text, str) for text in texts)
            and all(type(number) is int for number in numbers)
        )

    def __str__(self) -> str:
        of = f" of {self.of}" if self.of else ""
        return f"{self.operation}{of} in step {self.step}" + f", line {self.line}" * bool(self.line)


def calls_file(store: str, rank: int) -> str:
    return f"{store}.calls{rank}"


def read_calls(path: str) -> list[CollectiveCall]:
    """What a rank has called so far; nothing where foreign code has damaged the file."""
    if not Path(path).exists():
        return []
    try:
        lines = read_bytes(path, LARGEST).split(b"\n")[:-1]  # the last may not be whole
        calls = [CollectiveCall(**parse_json(path, line)) for line in lines]
    except (BadFile, TypeError):
        return []
    return calls if all(map(CollectiveCall.is_whole, calls)) else []


def difference(calls: list[list[CollectiveCall]], ended: set[int]) -> str:
    """Where the calls of two ranks differ, so that they wait for ever. "": not known to differ.

    ended: ranks that make no call any more.
    """
    backward = [{call.step for call in own if call.operation == BACKWARD} for own in calls]
    calls = [[call for call in own if call.operation != BACKWARD] for own in calls]
    for group in dict.fromkeys(call.group for own in calls for call in own):
        of_group = [[call for call in own if call.group == group] for own in calls]
        ranks = next(call.ranks for own in of_group for call in own)
        members = {rank: of_group[rank] for rank in ranks if 0 <= rank < len(calls)}
        found = _first_difference(members, ended) if members else None
        if found is not None:
            return _described(members, found) + _without_backward(backward)
    return ""


def _without_backward(steps: list[set[int]]) -> str:
    """A rank that has left a step without a backward call that others make in it."""
    for rank, own in enumerate(steps):
        made = set().union(*steps) - own
        left = sorted(step for step in made if own and step < max(own))
        if left:
            return f"; rank {rank} made no backward in step {left[0]}"
    return ""


def _first_difference(members: dict[int, list[CollectiveCall]], ended: set[int]) -> int | None:
    """The number of a call. One in another step than on other ranks is where it began."""
    other_step = None
    for number in range(max(map(len, members.values()))):
        there = {rank: own[number] for rank, own in members.items() if number < len(own)}
        if len({(call.operation, call.of) for call in there.values()}) > 1 or (
            ended & (members.keys() - there.keys())
        ):
            return number if other_step is None else other_step
        if other_step is None and len({call.step for call in there.values()}) > 1:
            other_step = number
    return None


def _described(members: dict[int, list[CollectiveCall]], number: int) -> str:
    """The rank with fewest ranks of its kind, and another one: of those that call, if they differ.

    A rank without this call may still make it.
    """
    kinds: dict[tuple, list[int]] = {}
    for rank, own in members.items():
        call = own[number] if number < len(own) else None
        kinds.setdefault((call.operation, call.of, call.step) if call else (), []).append(rank)
    if len(kinds) > 2:
        kinds.pop((), None)
    first, *_, last = sorted(kinds.values(), key=lambda ranks: (-len(ranks), ranks))
    texts = []
    for rank in (last[0], first[0]):
        own = members[rank]
        made = str(own[number]) if number < len(own) else f"none, it made {len(own)}"
        texts.append(f"rank {rank}: {made}")
    return f"collective call {number + 1} differs between ranks ({'; '.join(texts)})"
