"""What public executors of MSCCL XML refuse or cannot run, although the plan is right by its text.

One table of numbers, each read in the executor's source at the commit that it names (not copied,
and not run on a GPU). Another build may have other numbers. How many channels a communicator has
depends on the machine, and is not known here.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from refgf.oracle.schedules.form import Finding, Plan

NEWER = ("outofplace", "minBytes", "maxBytes")  # MSCCL's executor for NCCL, and RCCL
OLDER = ("name",)  # MSCCL's own NCCL


@dataclass(frozen=True)
class Executor:
    """The most that its parser takes. per_channel: thread blocks that send, and that receive."""

    name: str
    commit: str
    steps: int  # of a thread block
    blocks: int  # of a gpu
    channels: int
    count: int = 71  # chunks of a step
    per_channel: int = 32
    elements: int = 4095  # of the XML that one gpu reads: algo, every gpu, its own tb and step


EXECUTORS = (
    Executor("RCCL", "ROCm/rccl 0cbce2a, October 2024", 64, 64, 128),
    Executor(
        *("MSCCL's executor for NCCL", "Azure/msccl-executor-nccl c6f6b36, December 2024"),
        *(64, 1024, 32),  # steps: the default of its build
    ),
    Executor("MSCCL's own NCCL", "microsoft/msccl b23e9cd, September 2023", 256, 216, 32),
)
# field of Executor: what a file has too many of
LIMITS = {
    "steps": "steps in a thread block",
    "blocks": "thread blocks on a gpu",
    "channels": "channels",
    "count": "chunks in a step (cnt)",
    "per_channel": "thread blocks that send, or that receive, on one channel of a gpu",
    "elements": "elements of XML that one gpu reads",
}
Counts = dict[str, tuple[int, str]]  # field of Executor -> (the most, where)


def refusals(algo: dict, gpus: dict, plan: Plan) -> tuple[str, ...]:
    """Notes on what some executors refuse, and how the file is judged all the same."""
    notes, way = [], "in place" if plan.inplace else "out of place"
    newer, older = ([key for key in keys if key not in algo] for keys in (NEWER, OLDER))
    if newer:
        text = f"no {', '.join(newer)}: MSCCL's executor for NCCL and RCCL refuse this file; "
        notes.append(f"{text}MSCCL's own NCCL takes it, and it is judged {way}")
    if older:
        notes.append(f"no {', '.join(older)}: MSCCL's own NCCL refuses this file")
    if not newer and not plan.inplace and not plan.outofplace:
        notes.append(f"inplace and outofplace are 0, so that no call uses this file; judged {way}")
    counts, missing = largest(gpus), [*gaps(gpus)]
    refuse = [
        missing or too_large(executor, counts) or (older if executor is EXECUTORS[-1] else newer)
        for executor in EXECUTORS
    ]
    notes += [*missing, *too_many(counts)]
    if all(refuse):
        notes.append("every executor known here refuses this file: the verdict is on its text")
    return tuple(notes)


def gaps(gpus: dict) -> Iterator[str]:
    """Numbers of thread blocks that are left out."""
    for gpu, (_, blocks) in sorted(gpus.items()):
        missing = next((b for b in range(len(blocks)) if b not in blocks), None)
        if missing is not None:
            yield (
                f"gpu {gpu} has thread blocks {', '.join(map(str, sorted(blocks)[:8]))}: RCCL and "
                f"MSCCL refuse this file, because tb {missing} is missing"
            )
            return


def largest(gpus: dict) -> Counts:
    """Of each limit the most that the file has."""
    found = {}

    def note(field: str, number: int, where: str) -> None:
        if number > found.get(field, (0, ""))[0]:
            found[field] = number, where

    for gpu, (_, blocks) in sorted(gpus.items()):
        users = defaultdict(int)
        for block, (attributes, steps) in blocks.items():
            place = f"gpu {gpu}, tb {block}"
            note("blocks", block + 1, place)
            note("channels", int(attributes["chan"]) + 1, place)
            note("steps", len(steps), place)
            for step in steps:
                count = 0 if step["type"] == "nop" else int(step["cnt"])
                note("count", count, f"{place}, step {step['s']}")
            for end in ("send", "recv"):
                if int(attributes[end]) >= 0:
                    users[end, attributes["chan"]] += 1
        for (end, channel), number in users.items():
            note("per_channel", number, f"gpu {gpu}, channel {channel}, {end}")
        elements = 1 + len(gpus) + len(blocks) + sum(len(steps) for _, steps in blocks.values())
        note("elements", elements, f"gpu {gpu}")
    return found


def too_large(executor: Executor, counts: Counts) -> list[str]:
    """The fields of which a file has more than an executor takes."""
    return [field for field, (number, _) in counts.items() if number > getattr(executor, field)]


def too_many(counts: Counts) -> Iterator[str]:
    """A note for each number that an executor refuses: those who do, with their limits."""
    for field, (number, where) in counts.items():
        who = [e for e in EXECUTORS if field in too_large(e, counts)]
        if who:
            refuse = (f"{e.name} refuses more than {getattr(e, field)} ({e.commit})" for e in who)
            yield f"{number} {LIMITS[field]} ({where}): {'; '.join(refuse)}"


def shared_ends(gpus: dict) -> tuple[Finding, ...]:
    """Thread blocks of one rank at the same end of a channel, whether their steps use it or not.

    RCCL's and MSCCL's thread blocks each read the connection's position when they start and store
    it when they end. So two of them begin at the same slot, in whatever order they run.
    """
    found = []
    for gpu, (_, blocks) in sorted(gpus.items()):
        users = defaultdict(list)
        for block, (attributes, _) in blocks.items():
            for end in ("send", "recv"):
                peer, channel = int(attributes[end]), int(attributes["chan"])
                if peer >= 0:
                    users[end, peer, channel].append(block)
        for (end, peer, channel), who in users.items():
            if len(who) > 1:
                number = "two" if len(who) == 2 else str(len(who))
                use = f"send to rank {peer}" if end == "send" else f"receive from rank {peer}"
                text = (
                    f"{number} thread blocks of rank {gpu} {use} on channel {channel}; wanted one: "
                    "in RCCL and MSCCL, by their source, each begins where the connection stood "
                    "when it started, so that messages are lost; next: a channel for each"
                )
                place = f"tb {', '.join(map(str, who[:8]))}"
                found.append(Finding("shared channel", gpu, place, text))
    return tuple(found)
