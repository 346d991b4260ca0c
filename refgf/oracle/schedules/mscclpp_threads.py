"""What the steps of a thread block of an MSCCL++ plan wait for.

All threads of a block run its ops in order, each in its own time. All of them move data, but only
the first ones, one for each channel or semaphore, signal, wait, flush, or put into a port channel.
So nothing orders data that the others move with a signal before or after it, but these join the
threads: nop, barrier, and rppkt on a port channel.

A port channel's put and signal are done later, in the channel's order, by a thread of the host. A
flush waits for them. So does the receiver of such a signal.
"""

from dataclasses import replace

from refgf.oracle.schedules.form import PlanStep, Port, Ref

JOINING = ("nop", "barrier")
SOME = ("signal", "wait", "rlxsignal", "rlxwait", "flush", "sem_release", "sem_acquire")
QUEUED = ("put", "pws", "pwsf", "ppkt", "signal", "rlxsignal", "flush")


class Threads:
    """Follows one thread block. data, some: the last steps that moved data, and that did not."""

    def __init__(self, rank: int) -> None:
        self.rank, self.data, self.some, self.queued = rank, (), (), {}

    def add(self, index: int, step: PlanStep, ports: tuple[Port, ...] = ()) -> PlanStep:
        """The step with what it waits for. ports: the port channels that it uses."""
        here = ((self.rank, index),)
        if step.op in JOINING or (ports and step.op == "rppkt"):
            step = ordered(step, (*self.data, *self.some), ())
            self.data = self.some = here
        elif ports and step.op in QUEUED:
            keys = [(port.peer, port.channel) for port in ports]
            queued = tuple(self.queued[key] for key in keys if key in self.queued)
            step = ordered(step, (*self.some, *queued), self.data)
            if step.op == "flush":
                self.some = here
            else:
                self.queued |= dict.fromkeys(keys, here[0])
        elif step.op in SOME:
            step, self.some = ordered(step, self.some, self.data), here
        else:
            step, self.data = ordered(step, self.data, self.some), here
        return step


def ordered(step: PlanStep, after: tuple[Ref, ...], follows: tuple[Ref, ...]) -> PlanStep:
    after = tuple(dict.fromkeys(after))
    return replace(step, after=after, follows=tuple(f for f in follows if f not in after))
