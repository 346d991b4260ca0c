"""Lesson 05 with --mine: your rounded sums and blocks; loss scale and update in a training."""

import itertools

import numpy as np

import kit
from kit import images, rounding
from kit.mine import Yours, on
from refgf.device import to_host

FIRST_SCALE, INTERVAL = 2.0**16, 5
RANKS = (1, 2, 4, 8, 16, 32)
KINDS = {True: "each hop rounds", False: "inputs and result are rounded"}


def measure(run: kit.Run, found: dict) -> list[dict]:
    mine, series = run.mine, []
    if "half" in mine:
        x = np.float32(2.0) ** np.arange(-27, 18, 4) * np.float32(1.1)
        both = [(100 * np.abs(make(x) / x - 1)).tolist() for make in mine.pair("half")]
        at = "number", [f"{value:.2g}" for value in x]
        title = "Relative error of a number on the wire"
        series.append(mine.series("half", title, at, *both, unit="%"))
    if "half_sum" in mine:
        for every_hop, title in KINDS.items():
            ours, yours = (
                [error(make, p, every_hop) for p in RANKS] for make in mine.pair("half_sum")
            )
            title, place = f"Relative error: {title}", on(0, RANKS[1:], yours[1:], "rounding")
            series.append(mine.series("half_sum", title, ("ranks", RANKS), ours, yours, on=place))
    if "in_blocks" in mine:
        for every_hop, title in KINDS.items():
            both = ([error(added(f), p, every_hop) for p in RANKS] for f in mine.pair("in_blocks"))
            title, at = f"Relative error, 8-bit blocks: {title}", ("ranks", RANKS)
            series.append(mine.series("in_blocks", title, at, *both))
    names = [name for name in ("half_sum", "next_scale", "update") if name in mine]
    if names:
        train, _ = images.load(run)
        made = [learn(run, train, pick) for pick in (mine.ours, mine.either)]
        at = "step", range(1, 1 + len(made[0][0]))
        for title, both in zip(("Loss in float16, no momentum", "Loss scale"), zip(*made)):
            series.append(mine.series(" ".join(names), title, at, *both))
    return series


def error(half_sum, p: int, every_hop: bool) -> float:
    """Of a sum of p random vectors, relative to the exact sum."""
    random = np.random.default_rng(p)
    xs = [random.standard_normal(1000).astype(np.float32) for _ in range(p)]
    exact = np.sum(xs, axis=0, dtype=np.float64)
    return rounding.rms(half_sum(xs, every_hop) - exact) / rounding.rms(exact)


def added(in_blocks):
    """half_sum with blocks of 32 8-bit numbers on the wire."""

    def sent(x: np.ndarray) -> np.ndarray:
        return in_blocks(x, 32)

    def block_sum(xs: list[np.ndarray], every_hop: bool) -> np.ndarray:
        total = xs[0] if every_hop else sent(xs[0])
        for x in xs[1:]:
            total = sent(total) + x if every_hop else total + sent(x)
        return sent(total)

    return block_sum


def learn(run: kit.Run, train, pick) -> tuple[list[float], list[float]]:
    """Losses and loss scales of a training with float16 weights and sums. pick: name -> function"""
    half_sum, next_scale, update = (pick(name) for name in ("half_sum", "next_scale", "update"))
    model, losses, scales = images.model(run, train), [], []
    weights, network = model.parameters.flat, model.network
    master, scale, good = to_host(weights).copy(), FIRST_SCALE, 0
    weights[:] = run.array(master.astype(np.float16).astype(np.float32))
    for x, labels, samples in itertools.islice(images.steps(run, train, 100), run.quick(12, 40)):
        losses.append(float(network.loss(x, labels, samples)))
        network.logits_gradient *= scale
        network.backward(lambda i: None)
        gradients = run.gather(model.gradients.flat.copy())
        with np.errstate(over="ignore", invalid="ignore"):
            total = half_sum(gradients, True).astype(np.float16)
            master, working = update(master, total, scale, run.options.rate)
        scales.append(scale)
        scale, good = next_scale(scale, good, bool(np.isfinite(total).all()), INTERVAL)
        weights[:] = run.array(np.asarray(working, np.float32))
    return np.sum(run.plain.allgather(losses), axis=0).tolist(), scales


YOURS = Yours(
    {
        "half": "what the wire rounds",
        "half_sum": "sums of the training, and their errors",
        "next_scale": "its loss scale",
        "update": "its weights",
        "in_blocks": "sums of 8-bit numbers",
    },
    measure,
)
