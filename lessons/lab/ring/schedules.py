"""Three looks at lists of steps: who sends what, a deadlock, and the order of summation."""

import textwrap

import numpy as np

import kit
from kit.reveal import COLUMNS
from refgf.comm import direct, ring
from refgf.comm.replay import check, replay
from refgf.comm.compose import receive, send
from refgf.comm.schedule import Step

SHOWN_RANKS, SHOWN_CHARACTERS = 8, 600


def show_ring(run: kit.Run) -> None:
    """Print the steps of every rank as a table: rows are steps, columns are ranks."""
    run.section("Who sends what")
    p = min(run.size, SHOWN_RANKS)
    schedules = [ring.allreduce(rank, p, p) for rank in range(p)]
    messages = [[step for step in schedule if step.send_to is not None] for schedule in schedules]
    run.say(f"The slice that each of {p} ranks sends to its right neighbour in each step.")
    run.say("+ is added there, = is copied:")

    def cell(step: Step) -> str:
        return f"{step.send.start}{'+' if step.op == 'add' else '='}"

    rows = [[i, *map(cell, steps)] for i, steps in enumerate(zip(*messages))]
    run.table(["step"] + [f"rank {rank}" for rank in range(p)], rows)


def show_blocked_sends(run: kit.Run) -> None:
    """Sending before receiving deadlocks as soon as MPI does not buffer messages."""
    run.section("What if every rank sends first?")
    p, everything = max(2, run.size), slice(0, 4)
    wrong = [
        [send(everything, (r + 1) % p), receive(everything, (r - 1) % p, "copy")] for r in range(p)
    ]
    try:
        check(wrong)
    except ValueError as error:
        text = str(error)
        if len(text) >= SHOWN_CHARACTERS:
            text = f"{text[:260]} ... {text[text.index('; wanted') :]}"
        run.say(textwrap.fill(text, COLUMNS))
    run.say("The ring's Sendrecv posts both at the same time, so the ring passes the same check.")


def show_order_of_summation(run: kit.Run) -> None:
    """Sum the same numbers in the order that p and the algorithm imply."""
    run.section("Why the bits depend on p and the algorithm")
    run.say("All ranks replayed in this process:")
    numbers = np.random.default_rng(1).standard_normal((12, 64)).astype(np.float32)
    rows = []
    for p in (1, 2, 3, 4, 6):
        xs = [numbers[r::p].sum(axis=0, dtype=np.float32) for r in range(p)]  # each rank's own sum
        sums = [
            replay([algorithm(r, p, 64) for r in range(p)], xs)[0]
            for algorithm in (ring.allreduce, direct.allreduce)
        ]
        error = np.abs(sums[0] - numbers.astype(np.float64).sum(axis=0)).max()
        bits = [f"{s[63].view(np.uint32):08x}" for s in sums]
        rows.append([p, *bits, int((sums[0] != sums[1]).sum()), f"{error:.1e}"])
    run.table(["p", "ring", "direct", "elements that differ", "largest error of ring"], rows)
    run.say("Each element is the sum of the same 12 numbers. The table shows the last one's bits")
    run.say("in hexadecimal. Every float addition rounds, so the sum depends on the order of")
    run.say(
        "addition, which p and the algorithm determine. All ranks of one run hold the same bits."
    )
