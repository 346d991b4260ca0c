"""What steps of an MSCCL++ plan wait for besides signals: barriers, semaphores, packets."""

from collections import defaultdict
from dataclasses import replace

from refgf.oracle.foreign.untrusted import BadFile
from refgf.oracle.schedules.form import Finding, PlanStep, Ref, Span

PACKET_SUMS = ("repkt", "recpkt", "respkt", "recspkt")
PACKET_READERS = ("rppkt", "upkt", "gstorepkt", *PACKET_SUMS)
PACKET_WRITERS = ("ppkt", "cpkt", "rppkt", "gstorepkt", *PACKET_SUMS)


class Waits:
    """Between thread blocks of one rank.

    barriers            {(barrier, how often before): [(index of a step, its num_threadblocks)]}
    releases, acquires  {semaphore: indices of its steps, in the order of the file}
    """

    def __init__(self, rank: int, steps: list[PlanStep], found: list[Finding]) -> None:
        self.rank, self.steps, self.found = rank, steps, found
        self.barriers = defaultdict(list)
        self.releases, self.acquires = defaultdict(list), defaultdict(list)

    def join(self, free: list[int]) -> None:
        """Add what the steps wait for. free[s]: acquires of semaphore s that wait for nothing."""
        following = defaultdict(list)
        for index, step in enumerate(self.steps):
            for _, other in step.after:
                following[other].append(index)
        for (barrier, _), arrivals in self.barriers.items():
            self._require_all(barrier, arrivals)
            meeting = tuple((self.rank, index) for index, _ in arrivals)
            for index in (each for step, _ in arrivals for each in following[step]):
                self._wait(index, meeting)
        for semaphore, steps in self.acquires.items():
            released, waiting = self.releases[semaphore], steps[free[semaphore] :]
            for index, release in zip(waiting, released):
                self._wait(index, ((self.rank, release),))
            for index in waiting[len(released) :][:1]:
                text = (
                    f"waits for semaphore {semaphore}, which is acquired {len(steps)} times and "
                    f"released {free[semaphore] + len(released)} times, its init_value included"
                )
                self._unmatched(index, text)

    def arrive(self, barrier: int, before: int, index: int, blocks: int) -> bool:
        """Note a step at a barrier of so many thread blocks. False: it waits for no other one."""
        if blocks != 1:
            self.barriers[barrier, before].append((index, blocks))
        return blocks != 1

    def _require_all(self, barrier: int, arrivals: list[tuple[int, int]]) -> None:
        """A barrier opens when exactly num_threadblocks thread blocks have come."""
        for index, wanted in arrivals:
            if wanted != len(arrivals):
                text = (
                    f"waits for {wanted} thread blocks at barrier {barrier} (num_threadblocks); "
                    f"got {len(arrivals)} there"
                )
                self._unmatched(index, text)

    def _unmatched(self, index: int, text: str) -> None:
        step = self.steps[index]
        place = f"tb {step.lane}, step {step.number} ({step.op})"
        self.found.append(Finding("unmatched", self.rank, place, text))

    def _wait(self, index: int, others: tuple[Ref, ...]) -> None:
        step = self.steps[index]
        after = tuple(dict.fromkeys((*step.after, *others)))
        self.steps[index] = replace(step, after=after)


def packets_in_order(path: str, ranks: list[list[PlanStep]]) -> list[list[PlanStep]]:
    """Readers of packets wait for the step that writes these packets, on whatever rank it is."""
    writers = {}
    for rank, steps in enumerate(ranks):
        for index, step in enumerate(steps):
            for cell in packet_cells(step.writes if step.op in PACKET_WRITERS else ()):
                if cell in writers:
                    raise BadFile(
                        f"{path}: got packets that are written twice, in scratch chunk {cell[1]} "
                        f"of rank {cell[0]}; wanted each packet written by one step"
                    )
                writers[cell] = rank, index
    result = []
    for steps in ranks:
        result.append([])
        for step in steps:
            read = step.reads if step.op in PACKET_READERS else ()
            senders = [writers[cell] for cell in packet_cells(read) if cell in writers]
            after = tuple(dict.fromkeys((*step.after, *senders)))
            result[-1].append(replace(step, after=after) if senders else step)
    return result


def packet_cells(spans: tuple[Span, ...]) -> list[tuple[int, int]]:
    """Chunks of scratch memory; a claimed count beyond what is judged is left to `beyond`."""
    return [
        (span.rank, chunk)
        for span in spans
        if span.buffer == "s"
        for chunk in range(span.start, span.start + min(span.count, 1 << 12))
    ]
