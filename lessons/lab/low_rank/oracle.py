"""Lesson 17's oracle: PowerSGD against W1 to W4, the vote against W5, on as many ranks as are."""

import numpy as np

import kit
from kit.oracle import agreed, require_sent
from kit.rejected import reject
from refgf.oracle.definitions import majority, powersgd_run, powersgd_traffic
from refgf.papers.powersgd.powersgd import PowerSGD

SHAPES, STEPS = [(5,), (9, 8), (3, 3, 2, 7), (2, 2)], 3
N = sum(int(np.prod(shape)) for shape in SHAPES)


def check(run: kit.Run, vote) -> None:
    """Sums and errors in float64, within 2^-32 of all gradients; messages and bytes; the vote."""
    run.section("The oracle")
    for rank in (1, 2):
        one(run, rank, PowerSGD)
    ballot(run, vote)
    agreed(
        run,
        "PowerSGD of rank 1 and 2 has the sums and errors of its definition, to 2^-32, and sends\n"
        "its messages and bytes. The vote has the majority's signs, and its magnitude to 1e-5.",
    )


def one(run: kit.Run, r: int, made) -> None:
    rng = np.random.default_rng(r)
    gs = rng.standard_normal((STEPS, run.size, N))
    exchange = made(run.comm, shapes=SHAPES, rank=r)
    exchange.start(np.zeros(N))
    wanted = powersgd_run(SHAPES, exchange.state["q"], [list(step) for step in gs], r)
    bound = 2.0**-32 * np.abs(gs).sum()
    for step, state in zip(gs, wanted):
        x, place = step[run.rank].copy(), f"PowerSGD of rank {r} on rank {run.rank}"
        run.comm.reset()
        exchange.sum(x, slice(0, N))
        exchange.end(True)
        sent = run.comm.messages, run.comm.bytes
        require_sent(place, sent, powersgd_traffic(SHAPES, r, run.size, run.rank, 8))
        for name, got in (("x", x), ("kept", exchange.state["error"])):
            off = float(np.abs(got - state[name][run.rank]).max())
            if not off <= bound:
                reject(f"{place}, {name}: off by {off:.3g}; wanted at most {bound:.3g}")


def ballot(run: kit.Run, made) -> None:
    """Whole numbers from -2 to 2, so that there are ties and zeros."""
    gs = np.random.default_rng(3).integers(-2, 3, (run.size, N)).astype(np.float32)
    exchange, x, wanted = made(run.comm), gs[run.rank].copy(), majority(list(gs))
    exchange.start(x)
    exchange.sum(x, slice(0, N))
    off, bound = np.abs(x - wanted).max(), 1e-5 * np.abs(wanted).max()
    if not (off <= bound and np.array_equal(np.sign(x), np.sign(wanted))):
        reject(f"the vote on rank {run.rank}: off by {off:.3g}; wanted at most {bound:.3g}")
